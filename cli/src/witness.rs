//! A witness process, which tells if a signal that `kakehi run` gets was sent to its program as
//! well.
//!
//! Schedulers and launchers signal all processes of a job, or of a process group. Passed on, such a
//! signal would come twice, and what is told to stop twice often does without its checkpoint. So a
//! witness is started beside the program, which says what it is sent: what that and `kakehi run`
//! get at about the same time a program in their group has got as well. One that has left the group
//! may get a signal twice. The witness has another name, for a signal may be sent by name, too.
//! It is started when the program has run for 20 ms, for starting it costs as much as starting a
//! short program; what is signalled before may come twice. Nobody waits until it listens: a signal
//! before that ends it, which says as much.

use std::{
    collections::HashMap,
    env,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::process::CommandExt as _,
    },
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use libc::{SIGPWR, SIGRTMAX, SIGRTMIN, SIGSTKFLT};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, WaitId, WaitIdOptions, waitid},
    thread::set_name,
};
use signal_hook::{
    consts::{
        SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGURG,
        SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH, SIGXCPU,
    },
    iterator::Signals,
};

/// Signals with a name that are passed on to the program: all but those by which the kernel tells a
/// process of its own deeds (as SIGSEGV, SIGPIPE, and SIGXFSZ) or children, and those that stop one
/// that uses its terminal in the background.
pub(crate) const PASSED_ON: [i32; 17] = [
    SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH, SIGALRM, SIGIO,
    SIGPROF, SIGPWR, SIGSTKFLT, SIGURG, SIGVTALRM, SIGXCPU,
];

/// The word that starts one, and its name.
pub(crate) const COMMAND: &str = "witness";
/// How far apart a signal may come to both.
const APART: Duration = Duration::from_millis(50);
/// How long a program has to run for a witness to be started.
const SHORT: Duration = Duration::from_millis(20);
/// Age from which a signal to the witness counts as a separate one.
const OLD: Duration = Duration::from_secs(1);

/// All signals that are passed on to the program.
pub(crate) fn passed_on() -> impl Iterator<Item = i32> {
    PASSED_ON.into_iter().chain(real_time())
}

pub(crate) fn real_time() -> impl Iterator<Item = i32> {
    SIGRTMIN()..=SIGRTMAX()
}

/// A process that says which signals it is sent. Killed with this value; ends with this process.
pub(crate) struct Witness {
    /// When it is to be started; `None` once that was tried.
    starts_at: Option<Instant>,
    process: Option<Child>,
    says: Option<ChildStdout>,
    /// When a signal has come to it, and nobody has asked since.
    at: HashMap<i32, Instant>,
}

impl Witness {
    /// One that is started if this value lives for long.
    pub(crate) fn new() -> Self {
        let starts_at = Some(Instant::now() + SHORT);
        Self { starts_at, process: None, says: None, at: HashMap::new() }
    }

    /// How long until it is to be started, if it is.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.starts_at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Where it says something, once it may.
    pub(crate) fn says(&self) -> Option<BorrowedFd<'_>> {
        self.says.as_ref().map(|says| says.as_fd())
    }

    /// Starts it if it is due, and notes what it has said. Waits for nothing.
    pub(crate) fn attend(&mut self) {
        if self.due().is_some_and(|due| due.is_zero()) {
            self.starts_at = None;
            // Without one, a signal may come twice.
            self.process = start().ok();
            self.says = self.process.as_mut().and_then(|process| process.stdout.take());
        }
        self.listen(Duration::ZERO);
    }

    /// Takes a signal that this process has just got from the witness. True if it has come there,
    /// or does right now.
    pub(crate) fn take_signal(&mut self, signal: i32) -> bool {
        let asked = Instant::now();
        loop {
            let came = self.at.remove(&signal);
            if came.is_some_and(|at| at.elapsed() <= OLD) {
                return true;
            }
            let rest = APART.saturating_sub(asked.elapsed());
            if rest.is_zero() || self.says.is_none() {
                return false;
            }
            self.listen(rest);
        }
    }

    /// Notes what it says in this time, until it says something.
    fn listen(&mut self, time: Duration) {
        let Some(says) = &mut self.says else { return };
        let time = Timespec::try_from(time).unwrap_or_default();
        if poll(&mut [PollFd::new(says, PollFlags::IN)], Some(&time)).unwrap_or(0) == 0 {
            return;
        }
        let mut said = [0; 64];
        let len = says.read(&mut said).unwrap_or(0);
        said.iter().take(len).for_each(|signal| self.note(i32::from(*signal)));
        if len > 0 {
            return;
        }
        self.says = None;
        // Its number stays its own: whoever drops the witness signals it.
        let Some(process) = &self.process else { return };
        let pid = WaitId::Pid(Pid::from_child(process));
        let ended = waitid(pid, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let by_signal = ended.ok().flatten().and_then(|status| status.terminating_signal());
        by_signal.into_iter().for_each(|signal| self.note(signal));
    }

    fn note(&mut self, signal: i32) {
        self.at.insert(signal, Instant::now());
    }
}

impl Drop for Witness {
    /// Does not wait for its end: whoever drops a witness is about to end.
    fn drop(&mut self) {
        self.process.as_mut().map(Child::kill);
    }
}

fn start() -> io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.arg0(COMMAND).env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
}

/// Runs a witness: reports on standard output which signals come, until standard input ends.
pub(crate) fn testify() -> ExitCode {
    let listened = Signals::new(passed_on()).and_then(|mut signals| {
        set_name(c"witness")?;
        thread::spawn(move || {
            for signal in signals.forever() {
                u8::try_from(signal).map_or(Ok(()), say).ok(); // Nobody listens any more.
            }
        });
        io::copy(&mut io::stdin(), &mut io::sink())
    });
    listened.map_or(ExitCode::FAILURE, |_| ExitCode::SUCCESS)
}

fn say(byte: u8) -> io::Result<()> {
    let mut to = io::stdout();
    to.write_all(&[byte])?;
    to.flush()
}
