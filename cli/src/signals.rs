//! Standing in for a program: whoever signals `kakehi run` means the program.

use std::{
    fs, io,
    process::{Command, ExitStatus},
    sync::Arc,
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{
    consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH},
    flag,
    iterator::Signals,
};

use crate::failure::{Code, Failure};

/// Runs `command` to its end, passing on the signals this process gets meanwhile. Those that it was
/// started to ignore, as by `nohup`, it goes on to ignore, and so does the program.
///
/// # Errors
///
/// As starting and waiting give them.
pub(crate) fn run_to_end(command: &mut Command) -> io::Result<ExitStatus> {
    // Caught before the program starts, so that none is missed; exec resets the handlers.
    let caught = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH, SIGTSTP];
    let mut signals = Signals::new(heeded(&caught))?;
    let mut child = command.spawn()?;
    let program = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let handle = signals.handle();
    let passing = thread::spawn(move || {
        for signal in signals.forever() {
            pass_on(program, signal);
        }
    });
    let status = child.wait();
    handle.close();
    // The thread ends with its handle; a panic in it has been printed.
    passing.join().ok();
    status
}

/// Has a daemon outlive what schedulers send to all processes of a job, for the programs among
/// them: SIGUSR1 or SIGUSR2 to have them checkpoint, SIGHUP.
///
/// # Errors
///
/// As `sigaction(2)`.
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

fn pass_on(program: Option<Pid>, signal: i32) {
    // The terminal has sent these to the program too, which is in the same group.
    let from_terminal = [SIGINT, SIGQUIT, SIGTSTP, SIGWINCH].contains(&signal) && in_foreground();
    if let (Some(program), Some(signal), false) =
        (program, Signal::from_named_raw(signal), from_terminal)
    {
        // A program that is gone by now needs no signal.
        kill_process(program, signal).ok();
    }
}

fn in_foreground() -> bool {
    let group = rustix::process::getpgrp();
    rustix::termios::tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == group)
}
