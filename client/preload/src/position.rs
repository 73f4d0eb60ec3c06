//! The file position.

use client::Client;
use libc::{SEEK_CUR, SEEK_SET, c_int, off_t};

use crate::{
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, kernel},
    start::client,
};

interpose! { safe:
    fn lseek|lseek64|__lseek|__lseek64|llseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
        answer(seek(fd, offset, whence))
    }
}

/// Moves the file position; returns it in bytes.
pub(crate) fn seek(fd: c_int, offset: off_t, whence: c_int) -> Outcome {
    match client() {
        Some(client) if client.is_delegated(fd) => {
            client.seek(fd, offset, whence.cast_unsigned()).map(|at| at.cast_signed() as isize)
        }
        // SAFETY: no pointers.
        _ => unsafe { kernel!(SYS_lseek, fd, offset, whence) },
    }
}

/// Tells the kernel the position, for a call that counts from there.
pub(crate) fn publish(client: &'static Client, fd: c_int) {
    if !client.is_delegated(fd) {
        return;
    }
    if let Ok(at) = client.seek(fd, 0, SEEK_CUR.cast_unsigned()) {
        // SAFETY: no pointers. What cannot be set was never counted from.
        let _: Outcome = unsafe { kernel!(SYS_lseek, fd, at, SEEK_SET) };
    }
}
