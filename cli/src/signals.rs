//! Standing in for a program: whoever signals `kakehi run` means the program.
//!
//! One thread does it: it waits for the program's end, for signals, and for who calls at the job's
//! socket, all at once. A process of one thread can be forked.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::ExitStatusExt as _},
    },
    process::{Command, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, retry_on_intr},
    process::{Pid, PidfdFlags, WaitOptions, getpgid, getpgrp, pidfd_open, waitpid},
    termios::tcgetpgrp,
};
use signal_hook::{
    consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH},
    flag,
    iterator::{backend::SignalDelivery, exfiltrator::SignalOnly},
    low_level::emulate_default_handler,
};

use crate::{
    failure::{Code, Failure},
    witness::{PASSED_ON, Witness, passed_on, real_time},
};

/// Signals that end or stop this process while it waits for the daemon, which keeps running.
const ENDING: [i32; 5] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGTSTP];

/// How long the signal that has ended the program may come again to this process, as from a
/// launcher that passes on what a scheduler has sent to all: it is not to end what waits for the
/// daemon.
const REPEATED: Duration = Duration::from_secs(1);
/// How often the program is looked at where nothing may tell of its end, as on a kernel without
/// descriptors of processes, or of its stop: whoever has started this process may have blocked
/// SIGCHLD.
const LOOKED_AT: Duration = Duration::from_millis(100);

/// A program that runs, and what this process does for it.
///
/// Passes on the signals this process gets meanwhile but those that the witness has got, too;
/// without one, and until there is one, a signal may come twice. Signals that this process was
/// started to ignore, as by `nohup`, it goes on to ignore, and so does the program. Once that has
/// ended they do to this process what they do to any.
pub(crate) struct Running {
    pid: Pid,
    /// The program: its number may be another's once it has been waited for, this is not. `None`
    /// where there are no such descriptors.
    fd: Option<OwnedFd>,
    signals: Option<SignalDelivery<UnixStream, SignalOnly>>,
    is_over: Arc<AtomicBool>,
    witness: Witness,
    stop: Stop,
    /// It has ended, and whoever traces it has not let go of it.
    is_held: bool,
    /// It was ended so.
    is_by_signal: bool,
}

/// Event that a [`Running`] waits for.
pub(crate) enum News {
    /// The program has ended.
    End(ExitStatus),
    /// Somebody calls.
    Call,
}

/// Cause of the end of a wait.
enum Waited {
    /// Somebody calls.
    Called,
    /// The program's end.
    Ended,
    Other,
}

/// Conditions for this process to stop, on which a shell takes its terminal back. Of a program that
/// was stopped alone, nobody would continue this process.
#[derive(Debug, Default)]
struct Stop {
    /// By SIGTSTP.
    is_told: bool,
    has_program: bool,
}

impl Running {
    /// Starts the program.
    ///
    /// # Errors
    ///
    /// It cannot be started, or no signal be caught.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let started = Self::begin(command, &is_over);
        started.inspect_err(|_| is_over.store(true, Ordering::SeqCst))
    }

    fn begin(command: &mut Command, is_over: &Arc<AtomicBool>) -> io::Result<Self> {
        // Caught before the program starts, so that none is missed; exec resets the handlers.
        let caught: Vec<_> = heeded(PASSED_ON.into_iter()).collect();
        for signal in caught.iter().filter(|signal| ENDING.contains(signal)) {
            flag::register_conditional_default(*signal, Arc::clone(is_over))?;
        }
        let (read, write) = UnixStream::pair()?;
        let all = caught.into_iter().chain([SIGCHLD]);
        let signals = SignalDelivery::with_pipe(read, write, SignalOnly, all)?;
        let pid = Pid::from_child(&command.spawn()?);
        let fd = pidfd_open(pid, PidfdFlags::empty()).ok();
        // These are many, and take 0.5 ms to catch: they wait until the witness starts.
        daemon::hold_real_time(true);
        let signals = Some(signals);
        let (witness, stop) = (Witness::new(), Stop::default());
        let is_over = Arc::clone(is_over);
        Ok(Self { pid, fd, signals, is_over, witness, stop, is_held: false, is_by_signal: false })
    }

    /// Waits until the program has ended, or somebody calls at one of the sockets.
    ///
    /// # Errors
    ///
    /// As `poll(2)` and `waitpid(2)`.
    pub(crate) fn wait(&mut self, sockets: &[BorrowedFd<'_>]) -> io::Result<News> {
        loop {
            let waited = self.await_any(sockets)?;
            if self.witness.due().is_some_and(|due| due.is_zero()) {
                self.catch_real_time();
            }
            self.witness.attend();
            let came = self.signals.as_mut().map(|signals| signals.pending());
            for signal in came.into_iter().flatten().filter(|signal| *signal != SIGCHLD) {
                self.pass_on(signal);
            }
            if let Some(status) = self.look()? {
                return Ok(News::End(status));
            }
            if let Waited::Called = waited {
                return Ok(News::Call);
            }
            self.is_held = matches!(waited, Waited::Ended);
        }
    }

    fn catch_real_time(&self) {
        if let Some(signals) = &self.signals {
            let handle = signals.handle();
            // One that cannot be caught is not passed on.
            heeded(real_time()).for_each(|signal| drop(handle.add_signal(signal)));
        }
        daemon::hold_real_time(false);
    }

    /// Has a process that was forked from this one get its signals for itself. Those that nothing
    /// is done about there, as SIGQUIT, it ignores.
    pub(crate) fn forget_signals(&mut self) {
        self.signals = None;
    }

    /// Waits until something may have happened.
    fn await_any(&self, sockets: &[BorrowedFd<'_>]) -> io::Result<Waited> {
        let signals = self.signals.as_ref().map(|signals| signals.get_read().as_fd());
        let process = self.fd.as_ref().map(|fd| fd.as_fd()).filter(|_| !self.is_held);
        let ours = [process, signals, self.witness.says()].into_iter().flatten();
        let all = sockets.iter().copied().chain(ours);
        let mut all: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let unseen = (process.is_none() || self.stop.is_told).then_some(LOOKED_AT);
        let time = unseen.into_iter().chain(self.witness.due()).min();
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut all, time.as_ref()) {
            Err(Errno::INTR) => return Ok(Waited::Other),
            polled => polled?,
        };
        let mut ready = all.iter().map(|fd| !fd.revents().is_empty());
        Ok(if ready.by_ref().take(sockets.len()).any(|is_ready| is_ready) {
            Waited::Called
        } else if process.is_some() && ready.next() == Some(true) {
            Waited::Ended
        } else {
            Waited::Other
        })
    }

    /// The program's end, if it has ended.
    fn look(&mut self) -> io::Result<Option<ExitStatus>> {
        let changes = WaitOptions::UNTRACED | WaitOptions::CONTINUED | WaitOptions::NOHANG;
        while let Some((_, status)) = retry_on_intr(|| waitpid(Some(self.pid), changes))? {
            if status.exited() || status.signaled() {
                self.is_by_signal = status.signaled();
                return Ok(Some(ExitStatus::from_raw(status.as_raw())));
            }
            self.note(|stop| stop.has_program = status.stopped());
        }
        Ok(None)
    }

    fn pass_on(&mut self, signal: i32) {
        // The terminal has sent these to all of the group.
        let from_terminal =
            || [SIGINT, SIGQUIT, SIGTSTP, SIGWINCH].contains(&signal) && in_foreground();
        // What is sent to this process's group comes to the program's, too.
        let is_in_group = getpgid(Some(self.pid)) == Ok(getpgrp());
        let has_got = is_in_group && (from_terminal() || self.witness.take_signal(signal));
        if !has_got {
            // A program that is gone by now needs no signal.
            daemon::send_signal(self.pid, self.fd.as_ref(), signal).ok();
        }
        match signal {
            SIGTSTP => self.note(|stop| stop.is_told = true),
            SIGCONT => self.note(|stop| stop.is_told = false),
            _ => {}
        }
    }

    /// Notes a change, and stops this process if it has come to that, until somebody sends SIGCONT.
    fn note(&mut self, change: impl FnOnce(&mut Stop)) {
        change(&mut self.stop);
        if self.stop.is_told && self.stop.has_program {
            self.stop = Stop::default();
            emulate_default_handler(SIGTSTP).ok(); // It knows SIGTSTP.
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.forget_signals();
        let is_over = Arc::clone(&self.is_over);
        let later = move || {
            let (_never, news) = mpsc::channel::<()>();
            news.recv_timeout(REPEATED).ok();
            is_over.store(true, Ordering::SeqCst);
        };
        if !self.is_by_signal || thread::Builder::new().spawn(later).is_err() {
            self.is_over.store(true, Ordering::SeqCst);
        }
    }
}

/// Has a daemon outlive what schedulers send to all processes of a job, for the programs among
/// them, as SIGUSR1 or SIGXCPU to have them checkpoint; `but` these signals.
pub(crate) fn outlive_job(but: &[i32]) -> Result<(), Failure> {
    let mut signals = passed_on().filter(|signal| !but.contains(signal));
    signals.try_for_each(daemon::ignore_signal).map_err(|why| failed(&why))
}

/// Has a signal not end this process; programs that it starts are not concerned.
pub(crate) fn outlive(signal: i32) -> Result<(), Failure> {
    flag::register(signal, Arc::default()).map(drop).map_err(|why| failed(&why))
}

fn failed(why: &io::Error) -> Failure {
    Failure::new(Code::Failure, "signals", why, "see 'kakehi doctor'")
}

/// Those of `signals` that this process was not started to ignore, as by `nohup`.
pub(crate) fn heeded(signals: impl Iterator<Item = i32>) -> impl Iterator<Item = i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    signals.filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}

/// Whatever standard input is.
fn in_foreground() -> bool {
    let foreground = File::open("/dev/tty").ok().and_then(|terminal| tcgetpgrp(terminal).ok());
    foreground == Some(getpgrp())
}
