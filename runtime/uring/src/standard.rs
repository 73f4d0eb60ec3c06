//! The standard descriptors that the caller of this process had closed.
//!
//! Rust's runtime opens `/dev/null` in their places before `main`, and every program that this one
//! starts would have it: its output would be lost without an error.

use std::{
    os::unix::process::CommandExt as _,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

/// True for each that was closed when this process began.
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Called by libc, before Rust's runtime begins.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    for (number, is_closed) in (0..).zip(&CLOSED) {
        // SAFETY: it asks for flags.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        is_closed.store(flags < 0, Ordering::Relaxed);
    }
}

/// Has a command that inherits the standard descriptors find those closed that this process's
/// caller had closed.
pub fn leave_closed(command: &mut Command) {
    let closed = CLOSED.each_ref().map(|is_closed| is_closed.load(Ordering::Relaxed));
    if closed == [false; 3] {
        return;
    }
    let close = move || {
        for (number, _) in (0..).zip(closed).filter(|(_, is_closed)| *is_closed) {
            // SAFETY: the program that is about to begin owns it.
            unsafe { libc::close(number) };
        }
        Ok(())
    };
    // SAFETY: it makes system calls, and nothing else.
    unsafe { command.pre_exec(close) };
}
