//! Reads and writes.
//!
//! Regular files go to the client, which counts what it leaves to the kernel. Everything else goes
//! to the kernel at once, where waiting (for a pipe, a terminal) can be cancelled as in libc. A
//! call that the client serves ends a cancelled thread before it begins.

use core::slice;

use client::{Client, Errno};
use libc::{c_int, c_void, off_t, size_t, ssize_t};

use crate::{
    bits::returned,
    errno::answer,
    interpose::{interpose, next},
    kernel::{Outcome, Word, blocking, cancellation_point},
    served::client,
};

interpose! {
    fn read|__read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
        answer(read_into(fd, buffer, len))
    }

    fn __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        check(len, room);
        answer(read_into(fd, buffer, len))
    }

    fn write|__write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t {
        answer(write_from(fd, data, len))
    }

    fn pread|pread64|__pread64(fd: c_int, buffer: *mut c_void, len: size_t, at: off_t) -> ssize_t {
        answer(read_into_at(fd, buffer, len, at))
    }

    fn __pread_chk|__pread64_chk(
        fd: c_int, buffer: *mut c_void, len: size_t, at: off_t, room: size_t,
    ) -> ssize_t {
        check(len, room);
        answer(read_into_at(fd, buffer, len, at))
    }

    fn pwrite|pwrite64|__pwrite64(
        fd: c_int, data: *const c_void, len: size_t, at: off_t,
    ) -> ssize_t {
        answer(write_from_at(fd, data, len, at))
    }
}

/// As `read(2)`.
///
/// # Safety
///
/// `buffer` has room for `len` bytes.
pub(crate) unsafe fn read_into(fd: c_int, buffer: *mut c_void, len: size_t) -> Outcome {
    // SAFETY: as the caller promises.
    let ask = || unsafe { blocking!(SYS_read, fd, buffer, len) };
    if let Some(client) = unexamined(fd) {
        return was_read(client, fd, ask());
    }
    // SAFETY: as the caller promises.
    if let Some(read) = unsafe { read_warm(fd, buffer, len, None) } {
        return read;
    }
    match target(fd, buffer, len, Client::is_kernels)? {
        // SAFETY: as the caller promises.
        Some(client) => client.read(fd, unsafe { room(buffer, len) }).map(returned),
        None => ask(),
    }
}

/// As `write(2)`.
///
/// # Safety
///
/// `data` holds `len` bytes.
pub(crate) unsafe fn write_from(fd: c_int, data: *const c_void, len: size_t) -> Outcome {
    // SAFETY: as the caller promises.
    if let Some(written) = unsafe { write_on(fd, data, len) } {
        return Ok(written);
    }
    match target(fd, data, len, Client::leaves_write)? {
        // SAFETY: as the caller promises.
        Some(client) => client.write(fd, unsafe { bytes(data, len) }).map(returned),
        None => {
            // SAFETY: as the caller promises.
            was_written(fd, unsafe { blocking!(SYS_write, fd, data, len) })
        }
    }
}

/// As `pread(2)`.
///
/// # Safety
///
/// `buffer` has room for `len` bytes.
#[inline]
unsafe fn read_into_at(fd: c_int, buffer: *mut c_void, len: size_t, at: off_t) -> Outcome {
    // SAFETY: as the caller promises.
    let ask = || unsafe { blocking!(SYS_pread64, fd, buffer, len, at) };
    match unexamined(fd) {
        Some(client) => was_read(client, fd, ask()),
        // SAFETY: as the caller promises.
        None => unsafe { read_examined_at(fd, buffer, len, at) },
    }
}

/// # Safety
///
/// `buffer` has room for `len` bytes.
unsafe fn read_examined_at(fd: c_int, buffer: *mut c_void, len: size_t, at: off_t) -> Outcome {
    // SAFETY: as the caller promises.
    if let Some(read) = unsafe { read_warm(fd, buffer, len, Some(at)) } {
        return read;
    }
    match (target(fd, buffer, len, Client::is_kernels)?, u64::try_from(at)) {
        (Some(client), Ok(at)) => {
            // SAFETY: as the caller promises.
            client.read_at(fd, unsafe { room(buffer, len) }, at).map(returned)
        }
        // SAFETY: as the caller promises.
        _ => unsafe { blocking!(SYS_pread64, fd, buffer, len, at) },
    }
}

/// As `pwrite(2)`.
///
/// # Safety
///
/// `data` holds `len` bytes.
unsafe fn write_from_at(fd: c_int, data: *const c_void, len: size_t, at: off_t) -> Outcome {
    match (target(fd, data, len, Client::leaves_write)?, u64::try_from(at)) {
        (Some(client), Ok(at)) => {
            // SAFETY: as the caller promises.
            client.write_at(fd, unsafe { bytes(data, len) }, at).map(returned)
        }
        _ => {
            // SAFETY: as the caller promises.
            was_written(fd, unsafe { blocking!(SYS_pwrite64, fd, data, len, at) })
        }
    }
}

/// The short way of a read, where it can be taken.
///
/// # Safety
///
/// `buffer` has room for `len` bytes.
#[inline]
unsafe fn read_warm(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    at: Option<off_t>,
) -> Option<Outcome> {
    let client = client().filter(|client| client.is_file(fd))?;
    let at = at.map(u64::try_from).transpose().ok()?;
    if !is_slice(buffer, len) {
        return None;
    }
    cancellation_point();
    // SAFETY: as the caller promises.
    Some(client.read_warm(fd, unsafe { room(buffer, len) }, at)?.map(returned))
}

/// The short way of a write, where it can be taken.
///
/// # Safety
///
/// `data` holds `len` bytes.
#[inline]
unsafe fn write_on(fd: c_int, data: *const c_void, len: size_t) -> Option<isize> {
    let client = client().filter(|client| client.is_file(fd))?;
    if !is_slice(data, len) {
        return None;
    }
    cancellation_point();
    // SAFETY: as the caller promises.
    client.write_on(fd, unsafe { bytes(data, len) }).map(returned)
}

/// True if a slice can be made of a program's buffer. An empty one may be anywhere.
fn is_slice(buffer: impl Word, len: size_t) -> bool {
    len == 0 || buffer.word() != 0 && isize::try_from(len).is_ok()
}

/// The client, when the call is one for it, and not the kernel's.
///
/// # Errors
///
/// `EFAULT`: no slice can be made of the buffer. The kernel does not say so of a placeholder.
fn target(
    fd: c_int,
    buffer: impl Word,
    len: size_t,
    is_kernels: fn(&'static Client, c_int) -> bool,
) -> Outcome<Option<&'static Client>> {
    let Some(client) = client().filter(|client| !is_kernels(client, fd)) else { return Ok(None) };
    cancellation_point();
    if is_slice(buffer, len) { Ok(Some(client)) } else { Err(Errno::FAULT) }
}

/// The client, if it does not know the file yet: the kernel reads it.
#[inline]
pub(crate) fn unexamined(fd: c_int) -> Option<&'static Client> {
    client().filter(|client| client.is_opened(fd))
}

/// Counts what the kernel has read of a file that the client does not know yet.
#[inline]
pub(crate) fn was_read(client: &'static Client, fd: c_int, outcome: Outcome) -> Outcome {
    if let Ok(Ok(len)) = outcome.map(usize::try_from) {
        client.count_unexamined_read(fd, len);
    }
    outcome
}

/// Counts what the kernel has written to a file that the client does not know yet.
pub(crate) fn was_written(fd: c_int, outcome: Outcome) -> Outcome {
    if let (Ok(Ok(len)), Some(client)) = (outcome.map(usize::try_from), client()) {
        client.count_unexamined_write(fd, len);
    }
    outcome
}

/// # Safety
///
/// `buffer` has room for `len` bytes, is not null unless `len` is 0, and `len` is at most
/// `isize::MAX`. Nobody reads a byte of the slice that was not written before.
pub(crate) unsafe fn room<'a>(buffer: *mut c_void, len: size_t) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: as the caller promises.
    unsafe { slice::from_raw_parts_mut(buffer.cast(), len) }
}

/// # Safety
///
/// `data` holds `len` bytes, is not null unless `len` is 0, and `len` is at most `isize::MAX`.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: size_t) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { slice::from_raw_parts(data.cast(), len) }
}

/// Ends the program as libc does when it asks for more than its buffer has room for.
pub(crate) fn check(len: size_t, room: size_t) {
    if len > room {
        // SAFETY: libc's own; it takes nothing and does not return.
        unsafe { next!(__chk_fail() -> !) }
    }
}
