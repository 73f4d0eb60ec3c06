//! Calls that open a file by its name.

use client::Errno;
use libc::{AT_FDCWD, c_char, c_int, c_uint};

use crate::{
    bits::unsigned,
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, blocking},
    paths::resolved,
    start::{client, text},
};

interpose! {
    fn open|open64|__open|__open64|__open_2|__open64_2(
        path: *const c_char, flags: c_int, mode: c_uint,
    ) -> c_int {
        answer(open_at(AT_FDCWD, path, flags, mode))
    }

    fn openat|openat64|__openat|__openat64|__openat_2|__openat64_2(
        dir: c_int, path: *const c_char, flags: c_int, mode: c_uint,
    ) -> c_int {
        answer(open_at(dir, path, flags, mode))
    }

    fn creat|creat64(path: *const c_char, mode: c_uint) -> c_int {
        answer(open_at(AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode))
    }
}

/// Opens a file through the client.
///
/// # Safety
///
/// `path` is null or a C string.
pub(crate) unsafe fn open_at(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> Outcome<c_int> {
    // SAFETY: as the caller promises; every path is a C string.
    let call = |path| unsafe { open_at_named(dir, path, flags, mode) };
    // SAFETY: as the caller promises.
    unsafe { resolved(dir, path, call) }
}

/// As [`open_at`], for a name that is told as it is.
///
/// # Safety
///
/// The same.
unsafe fn open_at_named(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> Outcome<c_int> {
    let creates = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    // Without a third argument the register holds anything.
    let mode = if creates { mode } else { 0 };
    let Some(client) = client() else {
        // SAFETY: the caller vouches for `path`.
        let fd = unsafe { blocking!(SYS_openat, dir, path, flags, mode) }?;
        return number(fd);
    };
    // SAFETY: as the caller promises.
    let path = unsafe { text(path) }.ok_or(Errno::FAULT)?;
    client.open(dir, path, unsigned(flags), mode)
}

/// A descriptor that the kernel returned.
pub(crate) fn number(fd: isize) -> Outcome<c_int> {
    c_int::try_from(fd).map_err(|_| Errno::BADF)
}
