//! The file position.

use client::{Client, Errno};
use libc::{SEEK_CUR, SEEK_SET, c_int, off_t};

use crate::{
    bits::unsigned,
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, ask, ignore},
    process_client::client,
};

interpose! { safe:
    fn lseek|lseek64|__lseek|__lseek64|llseek(fd: c_int, offset: off_t, whence: c_int) -> off_t =>
        seek(fd, offset, whence);
}

/// Moves the file position; returns it in bytes. Inlined for its [depth](crate::kernel).
#[inline(always)]
pub(crate) fn seek(fd: c_int, offset: off_t, whence: c_int) -> Outcome {
    match client().filter(|client| !client.leave_seek(fd, unsigned(whence))) {
        Some(client) => seek_examined(client, fd, offset, whence),
        None => ask!(SYS_lseek, fd, offset, whence),
    }
}

#[inline(never)]
fn seek_examined(client: &'static Client, fd: c_int, offset: off_t, whence: c_int) -> Outcome {
    let at = match client.seek_fresh(fd, offset, unsigned(whence)) {
        Some(fresh) => fresh?,
        None if client.is_delegated(fd) || client.is_remote_file(fd) => {
            client.seek(fd, offset, unsigned(whence))?
        }
        None => return ask!(SYS_lseek, fd, offset, whence),
    };
    isize::try_from(at).map_err(|_| Errno::OVERFLOW)
}

/// Tells the kernel the position, for a call that counts from there.
pub(crate) fn publish(client: &'static Client, fd: c_int) {
    if client.is_unexamined(fd) || !client.is_delegated(fd) {
        return;
    }
    let position = client.seek(fd, 0, unsigned(SEEK_CUR));
    if let Ok(at) = position.map(|at| isize::try_from(at).unwrap_or(isize::MAX)) {
        // What cannot be set was never counted from.
        ignore(ask!(SYS_lseek, fd, at, SEEK_SET));
    }
}
