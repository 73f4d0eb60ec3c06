//! A witness process, which tells if a signal that `kakehi run` gets was sent to its program as
//! well.
//!
//! Schedulers and launchers signal all processes of a job, or of a process group. Passed on, such a
//! signal would come twice, and what is told to stop twice often does without its checkpoint. So a
//! witness is started beside the program, which says what it is sent: what that and `kakehi run`
//! get at about the same time a program in their group has got as well. One that has left the group
//! may get a signal twice. The witness has another name, for a signal may be sent by name, too.

use std::{
    collections::HashMap,
    env,
    io::{self, BufReader, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::thread::set_name;
use signal_hook::iterator::Signals;

use crate::{
    failure::{Code, Failure},
    signals::PASSED_ON,
};

/// The word that starts one, and its name.
pub(crate) const COMMAND: &str = "witness";
/// The byte by which it says that it listens.
const READY: u8 = 0;
/// How far apart a signal may come to both.
const APART: Duration = Duration::from_millis(50);
/// Age from which a signal to the witness counts as a separate one.
const OLD: Duration = Duration::from_secs(1);

/// A process that says which signals it is sent. Killed with this value; ends with this process.
pub(crate) struct Witness {
    _process: Process,
    told: Arc<Told>,
}

/// A witness that may not listen yet. Starting one takes about as long as starting a daemon, so
/// both start at once.
pub(crate) struct Starting(Process);

struct Process {
    child: Child,
    /// Closed by the kernel if this process is killed, which ends the witness.
    _stdin: Option<ChildStdin>,
}

/// When a signal has come to it, and nobody has asked since.
#[derive(Default)]
struct Told {
    at: Mutex<HashMap<i32, Instant>>,
    news: Condvar,
}

impl Starting {
    /// Starts one, and returns at once.
    ///
    /// # Errors
    ///
    /// As starting a process.
    pub(crate) fn new() -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg0(COMMAND).arg(COMMAND).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let _stdin = child.stdin.take();
        Ok(Self(Process { child, _stdin }))
    }

    /// Waits until it listens.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub(crate) fn listening(self) -> io::Result<Witness> {
        let (mut process, told) = (self.0, Arc::new(Told::default()));
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut says = BufReader::new(process.child.stdout.take().ok_or_else(missing)?).bytes();
        let witness = Witness { _process: process, told: Arc::clone(&told) };
        says.next().ok_or_else(missing)??;
        thread::spawn(move || {
            for signal in says.map_while(Result::ok) {
                told.lock().insert(signal.into(), Instant::now());
                told.news.notify_all();
            }
        });
        Ok(witness)
    }
}

impl Witness {
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

impl Drop for Process {
    /// Does not wait for its end: whoever drops a witness is about to end.
    fn drop(&mut self) {
        self.child.kill().ok();
    }
}

impl Told {
    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Instant>> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a witness: reports on standard output which signals come, until standard input ends.
///
/// # Errors
///
/// Why it cannot.
pub(crate) fn testify() -> Result<(), Failure> {
    let listened = Signals::new(PASSED_ON).and_then(|mut signals| {
        set_name(c"witness")?;
        say(READY)?;
        thread::spawn(move || {
            for signal in signals.forever() {
                u8::try_from(signal).map_or(Ok(()), say).ok(); // Nobody listens any more.
            }
        });
        io::copy(&mut io::stdin(), &mut io::sink())
    });
    let failed = |why| Failure::new(Code::Failure, "signals", why, "see 'kakehi doctor'");
    listened.map(drop).map_err(failed)
}

fn say(byte: u8) -> io::Result<()> {
    let mut to = io::stdout();
    to.write_all(&[byte])?;
    to.flush()
}
