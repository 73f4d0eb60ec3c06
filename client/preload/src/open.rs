//! Calls that open a file by its name.

use client::Errno;
use libc::{AT_FDCWD, c_int, c_uint};

use crate::{
    bits::{number, unsigned},
    descriptor::appeared,
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, ask_blocking, cancellation_point},
    lock::after,
    path_attributes::remote,
    pointers::{Given, Text},
    process_client::client,
    settle::settle_path,
};

interpose! { safe:
    fn open|open64|__open|__open64|__open_2|__open64_2(
        path: Text<'_>, flags: c_int, mode: c_uint,
    ) -> c_int {
        open_or_set_errno(AT_FDCWD, path, flags, mode)
    }

    fn openat|openat64|__openat|__openat64|__openat_2|__openat64_2(
        dir: c_int, path: Text<'_>, flags: c_int, mode: c_uint,
    ) -> c_int {
        open_or_set_errno(dir, path, flags, mode)
    }

    fn creat|creat64(path: Text<'_>, mode: c_uint) -> c_int {
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
        open_or_set_errno(AT_FDCWD, path, flags, mode)
    }
}

/// As [`open_at`], to C: one function for all of its names.
#[inline(never)]
fn open_or_set_errno(dir: c_int, path: Text<'_>, flags: c_int, mode: c_uint) -> c_int {
    answer(open_at(dir, path, flags, mode))
}

/// Opens a file through the client. Inlined for its [depth](crate::kernel).
#[inline(always)]
pub(crate) fn open_at(dir: c_int, path: Text<'_>, flags: c_int, mode: c_uint) -> Outcome<c_int> {
    let creates = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    // Without a third argument the register holds anything.
    let mode = if creates { mode } else { 0 };
    match open_unexamined(dir, path, flags, mode) {
        Some(opened) => opened,
        None => open_otherwise(dir, path, flags, mode),
    }
}

/// The short way, where it can be taken.
#[inline(always)]
fn open_unexamined(
    dir: c_int,
    path: Text<'_>,
    flags: c_int,
    mode: c_uint,
) -> Option<Outcome<c_int>> {
    let (client, name) = (client()?, path.get()?);
    let opened = client.open_unexamined(name, unsigned(flags), || {
        number(ask_blocking!(SYS_openat, dir, path, flags, mode)?)
    });
    if opened.is_some() && flags & libc::O_EXCL != 0 {
        after(); // As below.
    }
    opened
}

#[inline(never)]
fn open_otherwise(dir: c_int, path: Text<'_>, flags: c_int, mode: c_uint) -> Outcome<c_int> {
    let call = || -> Outcome<c_int> {
        let Some(client) = client() else {
            return number(ask_blocking!(SYS_openat, dir, path, flags, mode)?);
        };
        let path = path.get().ok_or(Errno::FAULT)?;
        if client.is_ruled() {
            cancellation_point(); // Else the kernel opens it, and is one.
        }
        client.open(dir, path, unsigned(flags), mode)
    };
    let opened = call()?;
    if flags & libc::O_EXCL != 0 {
        after(); // To other programs the new name may be a lock.
    }
    Ok(opened)
}

/// As `openat2(2)`. Only the kernel can be told how to walk, and on a remote path it would walk the
/// node's own folders: who asks for that there is told that there is no such call, as by older
/// kernels.
pub(crate) fn open_how(
    dir: c_int,
    path: Text<'_>,
    how: Given<'_, libc::open_how>,
    len: usize,
) -> Outcome<c_int> {
    if remote(dir, path).is_some() {
        let whole = (len == size_of::<libc::open_how>()).then(|| how.get()).flatten();
        let how = whole.filter(|how| how.resolve == 0);
        let how = how.ok_or(Errno::NOSYS)?;
        let flags = c_int::try_from(how.flags).map_err(|_| Errno::INVAL)?;
        let mode = c_uint::try_from(how.mode).map_err(|_| Errno::INVAL)?;
        return open_at(dir, path, flags, mode);
    }
    if let Some(client) = client() {
        settle_path(client, dir, path, 0);
    }
    let opened = number(ask_blocking!(SYS_openat2, dir, path, how, len)?)?;
    appeared(opened);
    after(); // As above; only the kernel has looked whether it made one.
    Ok(opened)
}
