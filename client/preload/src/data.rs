//! Reads and writes.
//!
//! Regular files go to the client, which counts what it leaves to the kernel. Everything else goes
//! to the kernel at once, where waiting (for a pipe, a terminal) can be cancelled as in libc. A
//! call that the client serves ends a cancelled thread before it begins.

use client::{Client, Timed};
use libc::{c_int, c_void, off_t, size_t, ssize_t};

use crate::{
    bits::returned,
    errno::answer,
    interpose::{interpose, next},
    kernel::{Outcome, ask_blocking, blocking, cancellation_point},
    pointers::{Buffer, Data},
    process_client::client,
};

interpose! {
    fn read|__read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t =>
        read_into(fd, Buffer::new(buffer, len));

    fn __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        check(len, room);
        answer(read_into(fd, Buffer::new(buffer, len)))
    }

    fn write|__write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t {
        write_or_set_errno(fd, Data::new(data, len))
    }

    fn pread|pread64|__pread64(fd: c_int, buffer: *mut c_void, len: size_t, at: off_t) -> ssize_t =>
        read_into_at(fd, Buffer::new(buffer, len), at);

    fn __pread_chk|__pread64_chk(
        fd: c_int, buffer: *mut c_void, len: size_t, at: off_t, room: size_t,
    ) -> ssize_t {
        check(len, room);
        answer(read_into_at(fd, Buffer::new(buffer, len), at))
    }

    fn pwrite|pwrite64|__pwrite64(
        fd: c_int, data: *const c_void, len: size_t, at: off_t,
    ) -> ssize_t =>
        write_from_at(fd, Data::new(data, len), at);
}

/// As `read(2)`. Inlined for its [depth](crate::kernel).
#[inline(always)]
pub(crate) fn read_into(fd: c_int, mut buffer: Buffer<'_>) -> Outcome {
    match unexamined(fd) {
        Some(client) => {
            let timed = client.transfer_begins(fd);
            let read = count_read(client, fd, ask_read(fd, &mut buffer));
            learn(timed, read, Client::learn_read)
        }
        None => read_examined(fd, buffer),
    }
}

#[inline(never)]
fn read_examined(fd: c_int, mut buffer: Buffer<'_>) -> Outcome {
    if let Some(read) = read_warm(fd, &mut buffer, None) {
        return read;
    }
    read_otherwise(fd, buffer)
}

/// Apart, as [`write_otherwise`].
#[inline(never)]
fn read_otherwise(fd: c_int, mut buffer: Buffer<'_>) -> Outcome {
    match target(fd, Client::leave_read) {
        Some(client) => client.read(fd, buffer.slice()?).map(returned),
        None => ask_read(fd, &mut buffer),
    }
}

/// As `write(2)`, to C: what the short way returns goes through no `Result`.
fn write_or_set_errno(fd: c_int, data: Data<'_>) -> ssize_t {
    match write_on(fd, data) {
        Some(written) => written,
        None => answer(write_otherwise(fd, data)),
    }
}

/// As `write(2)`.
pub(crate) fn write_from(fd: c_int, data: Data<'_>) -> Outcome {
    if let Some(written) = write_on(fd, data) {
        return Ok(written);
    }
    write_otherwise(fd, data)
}

/// Apart, so that the short way saves and restores no more registers than it needs.
#[inline(never)]
fn write_otherwise(fd: c_int, data: Data<'_>) -> Outcome {
    match target(fd, Client::leave_write) {
        Some(client) => client.write(fd, data.slice()?).map(returned),
        None => {
            let timed = client().and_then(|client| client.transfer_begins(fd));
            let wrote = count_written(fd, ask_blocking!(SYS_write, fd, data.at(), data.len()));
            learn(timed, wrote, Client::learn_write)
        }
    }
}

/// As `pread(2)`. Inlined for its [depth](crate::kernel).
#[inline(always)]
fn read_into_at(fd: c_int, mut buffer: Buffer<'_>, at: off_t) -> Outcome {
    match unexamined(fd) {
        Some(client) => {
            let timed = client.transfer_begins(fd);
            let read = count_read(client, fd, ask_read_at(fd, &mut buffer, at));
            learn(timed, read, Client::learn_read)
        }
        None => read_examined_at(fd, buffer, at),
    }
}

#[inline(never)]
fn read_examined_at(fd: c_int, mut buffer: Buffer<'_>, at: off_t) -> Outcome {
    if let Some(read) = read_warm(fd, &mut buffer, Some(at)) {
        return read;
    }
    let client = target(fd, Client::leave_read);
    let Some(client) = client else { return ask_read_at(fd, &mut buffer, at) };
    let slice = buffer.slice()?;
    match u64::try_from(at) {
        Ok(at) => client.read_at(fd, slice, at).map(returned),
        Err(_) => ask_read_at(fd, &mut buffer, at),
    }
}

/// As `pwrite(2)`.
fn write_from_at(fd: c_int, data: Data<'_>, at: off_t) -> Outcome {
    let ask = || count_written(fd, ask_blocking!(SYS_pwrite64, fd, data.at(), data.len(), at));
    let Some(client) = target(fd, Client::leave_write_at) else { return ask() };
    let slice = data.slice()?;
    match u64::try_from(at) {
        Ok(at) => client.write_at(fd, slice, at).map(returned),
        Err(_) => ask(),
    }
}

#[inline]
fn ask_read(fd: c_int, buffer: &mut Buffer<'_>) -> Outcome {
    // SAFETY: the kernel writes at most as many bytes as the buffer has room for.
    unsafe { blocking!(SYS_read, fd, buffer.at(), buffer.len()) }
}

#[inline]
fn ask_read_at(fd: c_int, buffer: &mut Buffer<'_>, at: off_t) -> Outcome {
    // SAFETY: the kernel writes at most as many bytes as the buffer has room for.
    unsafe { blocking!(SYS_pread64, fd, buffer.at(), buffer.len(), at) }
}

/// The short way of a read, where it can be taken.
#[inline]
fn read_warm(fd: c_int, buffer: &mut Buffer<'_>, at: Option<off_t>) -> Option<Outcome> {
    let client = client().filter(|client| client.is_file(fd))?;
    let at = at.map(u64::try_from).transpose().ok()?;
    cancellation_point();
    Some(client.read_warm(fd, buffer.slice().ok()?, at)?.map(returned))
}

/// The short way of a write, where it can be taken. Inlined, though twice: a call would cost 3 % of
/// the instructions of a write of 512 bytes.
#[inline(always)]
fn write_on(fd: c_int, data: Data<'_>) -> Option<isize> {
    let client = client().filter(|client| client.is_file(fd))?;
    // Nothing is as quick by itself, and what is no slice the kernel refuses.
    if !data.has_bytes() {
        return None;
    }
    cancellation_point();
    client.write_on(fd, data.slice().ok()?).map(returned)
}

/// The client, when the call is one for it, and not the kernel's. Of a placeholder the kernel would
/// not say that no slice can be made of a buffer (`EFAULT`).
fn target(fd: c_int, is_kernels: fn(&'static Client, c_int) -> bool) -> Option<&'static Client> {
    let client = client().filter(|client| !is_kernels(client, fd))?;
    cancellation_point();
    Some(client)
}

/// The client, if it does not know the file yet and need not: the kernel reads it.
#[inline]
pub(crate) fn unexamined(fd: c_int) -> Option<&'static Client> {
    client().filter(|client| client.is_unexamined(fd))
}

/// Counts what the kernel has read of a file that the client does not know yet.
#[inline]
pub(crate) fn count_read(client: &'static Client, fd: c_int, outcome: Outcome) -> Outcome {
    if let Ok(Ok(len)) = outcome.map(usize::try_from) {
        client.count_unexamined_read(fd, len);
    }
    outcome
}

/// Counts what the kernel has written to a file that the client does not know yet.
pub(crate) fn count_written(fd: c_int, outcome: Outcome) -> Outcome {
    if let (Ok(Ok(len)), Some(client)) = (outcome.map(usize::try_from), client()) {
        client.count_unexamined_write(fd, len);
    }
    outcome
}

/// Has the job learn from a call, if it was timed.
#[inline]
fn learn(
    timed: Option<Timed>,
    outcome: Outcome,
    learn: fn(&'static Client, Timed, usize),
) -> Outcome {
    if let Some(timed) = timed {
        if let (Ok(Ok(len)), Some(client)) = (outcome.map(usize::try_from), client()) {
            learn(client, timed, len);
        }
    }
    outcome
}

/// Ends the program as libc does when it asks for more than its buffer has room for.
pub(crate) fn check(len: size_t, room: size_t) {
    if len > room {
        // SAFETY: libc's own; it takes nothing and does not return.
        unsafe { next!(__chk_fail() -> !) }
    }
}
