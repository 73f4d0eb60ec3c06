//! The file position.

use client::{Client, Errno};
use libc::{c_int, off_t};

use crate::{
    bits::unsigned,
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, ask},
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
