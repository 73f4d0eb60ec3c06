//! Program `calls`: a process that makes the file calls it is told to, one at a time.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use crate::harness::{Daemon, Running, SOON, program};

pub(crate) struct Calls {
    pub(crate) running: Running,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Calls {
    /// Starts the program under a daemon.
    #[track_caller]
    pub(crate) fn wrapped(daemon: &Daemon) -> Self {
        Self::start(&mut daemon.wrap(program("calls")))
    }

    /// Starts it by a command that becomes the program.
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = Running::start(command);
        let stdin = running.child.stdin.take();
        let stdout = BufReader::new(running.child.stdout.take().expect("piped"));
        let (send, answers) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|l| send.send(l)));
        Self { running, stdin, answers }
    }

    /// Makes one call and returns its answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, call: &str) -> String {
        self.begin(call);
        self.answers.recv_timeout(SOON).unwrap_or_else(|why| panic!("{call}: {why}"))
    }

    /// Waits for the answer of a call that was [begun](Self::begin).
    #[track_caller]
    pub(crate) fn answer(&mut self) -> String {
        self.answers.recv_timeout(SOON).unwrap_or_else(|why| panic!("no answer: {why}"))
    }

    /// True if no answer comes for so long.
    pub(crate) fn is_silent_for(&mut self, time: Duration) -> bool {
        self.answers.recv_timeout(time).is_err()
    }

    /// Begins a call whose answer is not waited for.
    #[track_caller]
    pub(crate) fn begin(&mut self, call: &str) {
        let stdin = self.stdin.as_mut().expect("not ended");
        writeln!(stdin, "{call}").unwrap_or_else(|why| panic!("{call}: {why}"));
    }

    /// Makes one call that has to succeed; returns its number.
    #[track_caller]
    pub(crate) fn get(&mut self, call: &str) -> u64 {
        let answer = self.ask(call);
        answer.parse().unwrap_or_else(|_| panic!("{call}: {answer}"))
    }

    /// Has the process end, and waits until it has.
    #[track_caller]
    pub(crate) fn end(&mut self) {
        assert_eq!(self.exit_code(), Some(0));
    }

    /// The same, however it ends.
    #[track_caller]
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        drop(self.stdin.take());
        self.running.wait(SOON).code()
    }
}
