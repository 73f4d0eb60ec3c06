//! Signals to another process and to this one, the real-time ones among them: rustix has no safe
//! call for these.

use std::{
    io,
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
