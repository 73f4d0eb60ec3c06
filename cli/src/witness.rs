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
    io::{self, BufReader, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitCode, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Pid, WaitId, WaitIdOptions, waitid},
    thread::set_name,
};
use signal_hook::{
    consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH},
    iterator::Signals,
};

/// Signals that are passed on to the program.
pub(crate) const PASSED_ON: [i32; 9] =
    [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH];

/// The word that starts one, and its name.
pub(crate) const COMMAND: &str = "witness";
/// How far apart a signal may come to both.
const APART: Duration = Duration::from_millis(50);
/// How long a program has to run for a witness to be started.
const SHORT: Duration = Duration::from_millis(20);
/// Age from which a signal to the witness counts as a separate one.
const OLD: Duration = Duration::from_secs(1);

/// A process that says which signals it is sent. Killed with this value; ends with this process.
pub(crate) struct Witness {
    told: Arc<Told>,
}

/// Signals that have come to a witness, and its process, shared with the thread that listens.
#[derive(Default)]
struct Told {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    /// When a signal has come to it, and nobody has asked since.
    at: HashMap<i32, Instant>,
    is_over: bool,
    process: Option<Child>,
}

impl Witness {
    /// Starts one if this value lives for long; returns at once.
    pub(crate) fn new() -> Self {
        let told = Arc::new(Told::default());
        let hears = Arc::clone(&told);
        thread::spawn(move || hears.listen());
        Self { told }
    }

    /// Takes a signal that this process has just got from the witness. True if it has come there,
    /// or does right now.
    pub(crate) fn take_signal(&self, signal: i32) -> bool {
        let is_missing =
            |state: &mut State| state.at.get(&signal).is_none_or(|at| at.elapsed() > OLD);
        let mut state = self.told.wait_while(APART, is_missing);
        let found = !is_missing(&mut state);
        state.at.remove(&signal);
        found
    }
}

impl Drop for Witness {
    /// Does not wait for its end: whoever drops a witness is about to end.
    fn drop(&mut self) {
        let mut state = self.told.lock();
        state.is_over = true;
        state.process.as_mut().map(Child::kill);
        self.told.news.notify_all();
    }
}

impl Told {
    /// Starts the process, unless this is over before, and notes what it says, to its end.
    fn listen(&self) {
        let mut state = self.wait_while(SHORT, |state| !state.is_over);
        if state.is_over {
            return;
        }
        // Without one, a signal may come twice.
        let Ok(mut process) = start() else { return };
        // Standard input is closed by the kernel if this process is killed, which ends the witness.
        let (_stdin, says) = (process.stdin.take(), process.stdout.take());
        let pid = Pid::from_child(state.process.insert(process));
        drop(state);
        let said = says.into_iter().flat_map(|says| BufReader::new(says).bytes());
        said.map_while(Result::ok).for_each(|signal| self.note(signal.into()));
        // Its number stays its own: whoever drops the witness signals it.
        let ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let by_signal = ended.ok().flatten().and_then(|status| status.terminating_signal());
        by_signal.into_iter().for_each(|signal| self.note(signal));
    }

    fn note(&self, signal: i32) {
        self.lock().at.insert(signal, Instant::now());
        self.news.notify_all();
    }

    fn wait_while(
        &self,
        time: Duration,
        condition: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'_, State> {
        let waited = self.news.wait_timeout_while(self.lock(), time, condition);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start() -> io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.arg0(COMMAND).env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
}

/// Runs a witness: reports on standard output which signals come, until standard input ends.
pub(crate) fn testify() -> ExitCode {
    let listened = Signals::new(PASSED_ON).and_then(|mut signals| {
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
