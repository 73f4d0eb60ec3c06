//! Standing in for a program: whoever signals `kakehi run` means the program.

use std::{
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    process::{Command, ExitStatus},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use rustix::{
    io::retry_on_intr,
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, getpgid, getpgrp, kill_process, pidfd_open,
        pidfd_send_signal, waitpid,
    },
    termios::tcgetpgrp,
};
use signal_hook::{
    consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH},
    flag,
    iterator::Signals,
    low_level::emulate_default_handler,
};

use crate::{
    failure::{Code, Failure},
    witness::{PASSED_ON, Witness},
};

/// Signals that end or stop this process while it waits for the daemon, which keeps running.
const ENDING: [i32; 5] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGTSTP];

/// How long the signal that has ended the program may come again to this process, as from a
/// launcher that passes on what a scheduler has sent to all: it is not to end what waits for the
/// daemon.
const REPEATED: Duration = Duration::from_secs(1);

/// Runs `command` to its end, passing on the signals this process gets meanwhile but those that the
/// witness has got, too; without one, and until there is one, a signal may come twice. Signals
/// that this process was started to ignore, as by `nohup`, it goes on to ignore, and so does the
/// program. Once that has ended they do to this process what they do to any.
pub(crate) fn run_to_end(command: &mut Command) -> io::Result<ExitStatus> {
    // Caught before the program starts, so that none is missed; exec resets the handlers.
    let caught: Vec<_> = heeded(&PASSED_ON).copied().collect();
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in caught.iter().filter(|signal| ENDING.contains(signal)) {
        flag::register_conditional_default(*signal, Arc::clone(&is_over))?;
    }
    let status = Signals::new(&caught).and_then(|signals| run(command, signals));
    if status.as_ref().is_ok_and(|status| status.signal().is_some()) {
        thread::spawn(move || {
            let (_never, news) = mpsc::channel::<()>();
            news.recv_timeout(REPEATED).ok();
            is_over.store(true, Ordering::SeqCst);
        });
    } else {
        is_over.store(true, Ordering::SeqCst);
    }
    status
}

fn run(command: &mut Command, mut signals: Signals) -> io::Result<ExitStatus> {
    let program = Program::of(Pid::from_child(&command.spawn()?));
    let witness = Witness::new();
    let handle = signals.handle();
    let stop = Mutex::default();
    thread::scope(|scope| {
        let passing = scope.spawn(|| {
            for signal in signals.forever() {
                pass_on(&program, signal, &witness);
                match signal {
                    SIGTSTP => note(&stop, |stop| stop.is_told = true),
                    SIGCONT => note(&stop, |stop| stop.is_told = false),
                    _ => {}
                }
            }
        });
        let status = wait(program.pid, &stop);
        handle.close();
        // The thread ends with its handle; a panic in it has been printed.
        passing.join().ok();
        status
    })
}

/// The program: its number may be another's once it has been waited for, this is not.
struct Program {
    pid: Pid,
    /// `None` where there are no such descriptors.
    fd: Option<OwnedFd>,
}

impl Program {
    fn of(pid: Pid) -> Self {
        Self { pid, fd: pidfd_open(pid, PidfdFlags::empty()).ok() }
    }

    fn signal(&self, signal: Signal) {
        // A program that is gone by now needs no signal.
        match &self.fd {
            Some(fd) => pidfd_send_signal(fd, signal).ok(),
            None => kill_process(self.pid, signal).ok(),
        };
    }
}

/// Waits for the end of the program.
fn wait(program: Pid, stop: &Mutex<Stop>) -> io::Result<ExitStatus> {
    let changes = WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    loop {
        let Some((_, status)) = retry_on_intr(|| waitpid(Some(program), changes))? else {
            continue;
        };
        if status.exited() || status.signaled() {
            return Ok(ExitStatus::from_raw(status.as_raw()));
        }
        note(stop, |stop| stop.has_program = status.stopped());
    }
}

/// Conditions for this process to stop, on which a shell takes its terminal back. Of a program that
/// was stopped alone, nobody would continue this process.
#[derive(Debug, Default)]
struct Stop {
    /// By SIGTSTP.
    is_told: bool,
    has_program: bool,
}

/// Notes a change, and stops if it has come to that, until somebody sends SIGCONT.
fn note(stop: &Mutex<Stop>, change: impl FnOnce(&mut Stop)) {
    let mut stop = stop.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut stop);
    if stop.is_told && stop.has_program {
        *stop = Stop::default();
        emulate_default_handler(SIGTSTP).ok(); // It knows SIGTSTP.
    }
}

/// Has a daemon outlive what schedulers send to all processes of a job, for the programs among
/// them: SIGUSR1 or SIGUSR2 to have them checkpoint, SIGHUP.
pub(crate) fn outlive(signals: &[i32]) -> Result<(), Failure> {
    let registered =
        signals.iter().try_for_each(|signal| flag::register(*signal, Arc::default()).map(drop));
    registered.map_err(|why| Failure::new(Code::Failure, "signals", why, "see 'kakehi doctor'"))
}

/// Those of `signals` that this process was not started to ignore, as by `nohup`.
pub(crate) fn heeded(signals: &[i32]) -> impl Iterator<Item = &i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    signals.iter().filter(move |signal| ignored >> (**signal - 1) & 1 == 0)
}

fn pass_on(program: &Program, signal: i32, witness: &Witness) {
    // The terminal has sent these to all of the group.
    let from_terminal =
        || [SIGINT, SIGQUIT, SIGTSTP, SIGWINCH].contains(&signal) && in_foreground();
    // What is sent to this process's group comes to the program's, too.
    let is_in_group = getpgid(Some(program.pid)) == Ok(getpgrp());
    let has_got = is_in_group && (from_terminal() || witness.take_signal(signal));
    if let (Some(signal), false) = (Signal::from_named_raw(signal), has_got) {
        program.signal(signal);
    }
}

/// Whatever standard input is.
fn in_foreground() -> bool {
    let foreground = File::open("/dev/tty").ok().and_then(|terminal| tcgetpgrp(terminal).ok());
    foreground == Some(getpgrp())
}
