//! A witness process, which tells if a signal that `kakehi run` gets was sent to its program as
//! well.
//!
//! Schedulers and launchers signal all processes of a job, or of a process group. Passed on, such a
//! signal would come twice, and what is told to stop twice often does without its checkpoint. So a
//! witness is started beside the program, which says what it is sent: what that and `kakehi run`
//! get at about the same time a program in their group has got as well. One that has left the group
//! may get a signal twice. The witness has another name, for a signal may be sent by name, too.
//! Nobody waits until it listens: a signal before that ends it, which says as much.

use std::{
    collections::HashMap,
    env,
    io::{self, BufReader, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
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
/// Age from which a signal to the witness counts as a separate one.
const OLD: Duration = Duration::from_secs(1);

/// A process that says which signals it is sent. Killed with this value; ends with this process.
pub(crate) struct Witness {
    process: Child,
    /// Closed by the kernel if this process is killed, which ends the witness.
    _stdin: Option<ChildStdin>,
    told: Arc<Told>,
}

/// When a signal has come to it, and nobody has asked since.
#[derive(Default)]
struct Told {
    at: Mutex<HashMap<i32, Instant>>,
    news: Condvar,
}

impl Witness {
    /// Starts one, and returns at once.
    ///
    /// # Errors
    ///
    /// As starting a process.
    pub(crate) fn start() -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg0(COMMAND).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let (_stdin, says) = (process.stdin.take(), process.stdout.take());
        let (pid, told) = (Pid::from_child(&process), Arc::new(Told::default()));
        let hears = Arc::clone(&told);
        thread::spawn(move || {
            let said = says.into_iter().flat_map(|says| BufReader::new(says).bytes());
            said.map_while(Result::ok).for_each(|signal| hears.note(signal.into()));
            // Its number stays its own: whoever drops the witness signals it.
            let ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            let by_signal = ended.ok().flatten().and_then(|status| status.terminating_signal());
            by_signal.into_iter().for_each(|signal| hears.note(signal));
        });
        Ok(Self { process, _stdin, told })
    }

    /// True if a signal that this process has just got has come to the witness, or does right now.
    pub(crate) fn has_got(&self, signal: i32) -> bool {
        let is_missing =
            |at: &mut HashMap<i32, Instant>| at.get(&signal).is_none_or(|at| at.elapsed() > OLD);
        let told = self.told.lock();
        let waited = self.told.news.wait_timeout_while(told, APART, is_missing);
        let (mut told, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let found = !is_missing(&mut told);
        told.remove(&signal);
        found
    }
}

impl Drop for Witness {
    /// Does not wait for its end: whoever drops a witness is about to end.
    fn drop(&mut self) {
        self.process.kill().ok();
    }
}

impl Told {
    fn note(&self, signal: i32) {
        self.lock().insert(signal, Instant::now());
        self.news.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Instant>> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
