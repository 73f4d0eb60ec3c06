//! Signals to another process and to this one, the real-time ones among them: rustix has no safe
//! call for these.

use std::{
    io, mem,
    os::fd::{AsRawFd as _, OwnedFd},
    ptr,
};

use rustix::process::Pid;

/// Sends a signal to a process: by its descriptor, if there is one, for its number may be another's
/// by now.
///
/// # Errors
///
/// As `kill(2)` and `pidfd_send_signal(2)`.
pub fn send_signal(pid: Pid, process: Option<&OwnedFd>, signal: i32) -> io::Result<()> {
    let sent = match process {
        // SAFETY: numbers, and no further information.
        Some(fd) => unsafe {
            let none = ptr::null::<libc::siginfo_t>();
            libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, none, 0)
        },
        // SAFETY: numbers.
        None => unsafe { libc::kill(pid.as_raw_pid(), signal) }.into(),
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has this process, and programs that it starts, ignore a signal.
///
/// # Errors
///
/// As `signal(2)`.
pub fn ignore_signal(signal: i32) -> io::Result<()> {
    // SAFETY: no handler is to be called.
    let before = unsafe { libc::signal(signal, libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the real-time signals wait that come to the calling thread, or come to it.
pub fn hold_real_time(is_held: bool) {
    let how = if is_held { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: a set is words, for which all values are valid.
    let mut set = unsafe { mem::zeroed() };
    // SAFETY: a set of this function's.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
        // SAFETY: a set of this function's, which is made.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    // SAFETY: a set that is made, and no place for the old one. For these two it does not fail.
    unsafe { libc::pthread_sigmask(how, &raw const set, ptr::null_mut()) };
}
