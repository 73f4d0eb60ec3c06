//! Streams that are opened and closed.
//!
//! libc's streams do not call the `write` that a program would. So a stream over a descriptor that
//! may stage writes is one with [callbacks](crate::cookie); everything that works on streams then
//! works on it. What can only be read, and what is not ours, gets a plain stream over the same
//! descriptor.

use core::ffi::CStr;

use client::{Client, Errno, Reason, link_of};
use libc::{AT_FDCWD, c_int};

use crate::{
    cookie,
    descriptor::{close_number, control, duplicate, flags_of, forget, is_writable, refuse},
    errno::{last, set},
    glibc::Stream,
    interpose::interpose,
    kernel::{Outcome, descriptor_flags, ignore},
    open::open_at,
    path_attributes::remote,
    plain_streams::{Mode, plain_fclose, plain_fdopen, plain_fopen, plain_freopen, set_plain},
    pointers::Text,
    process_client::client,
    settle::settle_path,
};

interpose! { safe:
    fn fopen|fopen64|_IO_fopen(path: Text<'_>, mode: Text<'_>) -> Stream<'static> {
        stream_or_null(match client() {
            Some(client) => open(client, path, mode),
            None => Ok(plain_fopen(path, mode)),
        })
    }

    fn fdopen|_IO_fdopen(fd: c_int, mode: Text<'_>) -> Stream<'static> {
        stream_or_null(match (client(), Mode::parse(mode)) {
            (Some(client), Some(parsed)) => over(client, fd, parsed, mode),
            _ => Ok(plain_fdopen(fd, mode)),
        })
    }
}

interpose! {
    fn freopen|freopen64(
        path: Text<'_>, mode: Text<'_>, stream: Stream<'static>,
    ) -> Stream<'static> {
        stream_or_null(match client() {
            Some(client) => reopen(client, path, mode, stream),
            None => Ok(plain_freopen(path, mode, stream)),
        })
    }

    fn fclose|_IO_fclose(stream: Stream<'_>) -> c_int {
        match client() {
            Some(client) => close(client, stream),
            None => plain_fclose(stream),
        }
    }

    fn pclose(stream: Stream<'_>) -> c_int, next {
        let fd = stream.number();
        forget(fd);
        set_plain(fd, false);
        next()
    }
}

/// As `fopen(3)`.
fn open(client: &'static Client, path: Text<'_>, mode: Text<'_>) -> Outcome<Stream<'static>> {
    let Some(parsed) = Mode::parse(mode).filter(|parsed| !parsed.has_charset) else {
        return open_plain(client, path, mode);
    };
    let fd = open_at(AT_FDCWD, path, parsed.flags, 0o666)?;
    cookie::begin(fd, parsed);
    over(client, fd, parsed, mode).inspect_err(|_| {
        // The stream's failure is what the program hears of.
        ignore(close_number(fd));
    })
}

/// As `fopen(3)`, by libc itself, which refuses a mode that is none.
///
/// # Errors
///
/// `EINVAL`, as of a character set that libc does not know: it finds no remote file.
fn open_plain(client: &'static Client, path: Text<'_>, mode: Text<'_>) -> Outcome<Stream<'static>> {
    if let Some(name) = path.get() {
        if client.is_remote(AT_FDCWD, name) {
            return Err(Errno::INVAL);
        }
        settle_path(client, AT_FDCWD, path, 0);
    }
    let stream = plain_fopen(path, mode);
    if stream.is_null() { Err(last()) } else { Ok(stream) }
}

/// As `fdopen(3)`.
fn over(
    client: &'static Client,
    fd: c_int,
    parsed: Mode,
    mode: Text<'_>,
) -> Outcome<Stream<'static>> {
    // Also a stream that only reads: if the descriptor is written, the kernel has no position.
    if client.may_keep_position(fd) {
        check_access(flags_of(client, fd), parsed)?;
        if parsed.appends() && flags_of(client, fd) & libc::O_APPEND as usize == 0 {
            // SAFETY: `F_SETFL` takes a number, which is no address.
            unsafe { control(fd, libc::F_SETFL, flags_of(client, fd) | libc::O_APPEND as usize) }?;
            // As in libc, one that appends already stays where it is.
            cookie::begin(fd, parsed);
        }
        if let Some(stream) = cookie::stream(fd, parsed) {
            return Ok(stream);
        }
        client.detach(fd, Reason::Unsupported);
    }
    let stream = plain_fdopen(fd, mode);
    if stream.is_null() { Err(last()) } else { Ok(stream) }
}

/// Checks that a descriptor can do what a stream's mode asks for.
fn check_access(flags: usize, mode: Mode) -> Outcome<()> {
    let access = flags & libc::O_ACCMODE as usize;
    let reads = access != libc::O_WRONLY as usize;
    let writes = access != libc::O_RDONLY as usize;
    if mode.is_readable() && !reads || mode.is_writable() && !writes {
        return Err(Errno::INVAL);
    }
    Ok(())
}

/// As `freopen(3)`.
///
/// # Safety
///
/// Nobody uses the stream meanwhile, nor again if it cannot be opened.
unsafe fn reopen<'a>(
    client: &'static Client,
    path: Text<'_>,
    mode: Text<'_>,
    stream: Stream<'a>,
) -> Outcome<Stream<'a>> {
    let fd = stream.number();
    if cookie::is_ours(fd, stream) {
        // SAFETY: one of ours, as was just found, and the program's to open anew.
        return unsafe { reopen_ours(client, path, mode, fd, stream) };
    }
    let name = path.get();
    if name.is_some() {
        settle_path(client, AT_FDCWD, path, 0);
    }
    client.detach(fd, Reason::Unsupported);
    let can_open = name.is_some() || can_open_again(client, fd, mode);
    let owed = client.close(fd);
    if !can_open {
        // Nothing has an empty name, so that libc closes the stream, as ever when it cannot open.
        // SAFETY: libc's own stream, which the program gives up with what cannot be opened.
        unsafe { plain_freopen(Text::of(c""), mode, stream) };
        return Err(Errno::OPNOTSUPP);
    }
    if name.is_some_and(|name| client.is_remote(AT_FDCWD, name)) {
        // SAFETY: none of ours, so libc's own stream, and the program's to open anew.
        return unsafe { reopen_remote(client, path, mode, stream) };
    }
    // SAFETY: libc's own stream, which the program gives up to `freopen`.
    let stream = unsafe { plain_freopen(path, mode, stream) };
    owed.map(|()| stream)
}

/// True if libc can open by its number what `fd` refers to. What stands for a remote file is a
/// pipe, to write, or a copy, to read.
fn can_open_again(client: &'static Client, fd: c_int, mode: Text<'_>) -> bool {
    // libc refuses a mode that is none.
    let Some(mode) = Mode::parse(mode) else { return true };
    let is_pipe = is_writable(client, fd);
    !client.is_remote_file(fd) || (mode.is_readable(), mode.is_writable()) == (!is_pipe, is_pipe)
}

/// Puts a remote file beneath a stream of libc's, which cannot open it by its name: libc opens
/// another file in the same mode, whose number is then made the remote one's, as it was opened.
///
/// # Safety
///
/// As [`reopen`]; libc made the stream.
unsafe fn reopen_remote(
    client: &'static Client,
    path: Text<'_>,
    mode: Text<'_>,
    stream: Stream<'_>,
) -> Outcome<Stream<'static>> {
    // It may be the same file, and is cut only when it has what waits.
    stream.flush();
    let mut space = [0; MODE_LEN];
    let (parsed, shared) = Mode::parse(mode).zip(shared(mode, &mut space)).unzip();
    // The thread may be cancelled in here, so the stream is not locked yet.
    let opened = parsed.ok_or(Errno::INVAL).and_then(|parsed| {
        let fd = open_above(path, parsed, stream.number())?;
        cookie::begin(fd, parsed);
        let passable = client.passable(fd, Reason::StandardStream);
        passable.inspect_err(|_| ignore(close_number(fd)))?;
        Ok(fd)
    });
    // What other threads print meanwhile is in either file, as natively.
    stream.locked(|| {
        // Nothing has an empty name, so that libc closes the stream, as ever when it cannot open.
        let name = if opened.is_ok() { c"/dev/null" } else { c"" };
        let shared = Text::of(shared.unwrap_or(c"r"));
        // SAFETY: libc's own stream, as the caller promises, which it gives up.
        let stream = unsafe { plain_freopen(Text::of(name), shared, stream) };
        let fd = opened?;
        if stream.is_null() {
            let why = last();
            ignore(close_number(fd));
            return Err(why);
        }
        let number = stream.number();
        // Once `e` was in a mode of the stream, all of its files are closed by `exec`.
        let is_closed = descriptor_flags(number)? != 0;
        move_to(fd, number, if is_closed { libc::O_CLOEXEC } else { 0 })?;
        Ok(stream)
    })
}

/// Opens a file by another number than the one that libc closes before it opens its own.
fn open_above(path: Text<'_>, mode: Mode, number: c_int) -> Outcome<c_int> {
    let fd = open_at(AT_FDCWD, path, mode.flags, 0o666)?;
    if fd != number {
        return Ok(fd);
    }
    // SAFETY: `F_DUPFD` takes a number, which is no address.
    let above = unsafe { control(fd, libc::F_DUPFD, 0) };
    close_number(fd)?;
    above
}

/// Makes a number stand for what `fd` does, which is closed.
fn move_to(fd: c_int, number: c_int, flags: c_int) -> Outcome<()> {
    let moved = duplicate(fd, number, flags);
    close_number(fd)?;
    moved.map(drop)
}

/// Longest mode that names a character set.
const MODE_LEN: usize = 64;

/// A mode for a file that is there already: without `x`.
fn shared<'a>(mode: Text<'_>, space: &'a mut [u8; MODE_LEN]) -> Option<&'a CStr> {
    let mode = mode.get()?.to_bytes();
    let flags_len = mode.iter().position(|letter| *letter == b',').unwrap_or(mode.len());
    let (flags, charset) = mode.split_at_checked(flags_len)?;
    let kept = flags.iter().filter(|letter| **letter != b'x').chain(charset);
    let mut places = space.iter_mut();
    // The last place stays zero.
    kept.zip(places.by_ref()).for_each(|(letter, place)| *place = *letter);
    places.next()?;
    CStr::from_bytes_until_nul(space).ok()
}

/// Puts another file beneath a stream of ours, under the same number, as libc does.
///
/// # Safety
///
/// As [`reopen`]; the stream is one of ours.
unsafe fn reopen_ours<'a>(
    client: &'static Client,
    path: Text<'_>,
    mode: Text<'_>,
    fd: c_int,
    stream: Stream<'a>,
) -> Outcome<Stream<'a>> {
    // As in libc, what cannot be written any more is lost.
    stream.flush();
    // A server's file can be found by its number for as long as that is open.
    if !(path.is_null() && client.is_remote_file(fd)) {
        // As in libc, what closing the old file might report is lost.
        ignore(client.close(fd));
    }
    let opened = Mode::parse(mode).ok_or(Errno::INVAL).and_then(|mode| {
        move_to(open_again(path, mode, fd)?, fd, mode.flags & libc::O_CLOEXEC)?;
        Ok(mode)
    });
    match opened {
        // SAFETY: the stream is ours, as the caller promises, and its descriptor is the new file's.
        Ok(mode) => unsafe { cookie::restart(fd, stream, mode) },
        Err(errno) => {
            // SAFETY: the stream is ours, as the caller promises, and has no file any more.
            unsafe { cookie::strand(fd, stream) };
            // The error of opening is what the program hears of.
            ignore(close_number(fd));
            return Err(errno);
        }
    }
    Ok(stream)
}

/// Opens a file by its name, or once more the one that `fd` refers to.
fn open_again(path: Text<'_>, mode: Mode, fd: c_int) -> Outcome<c_int> {
    let mut name = [0; 32];
    let path = match link_of(fd, &mut name) {
        Some(link) if path.is_null() => Text::of(link),
        _ => path,
    };
    if mode.has_charset && remote(AT_FDCWD, path).is_some() {
        return Err(Errno::INVAL);
    }
    open_at(AT_FDCWD, path, mode.flags, 0o666)
}

/// As `fclose(3)`.
///
/// # Safety
///
/// Nobody uses the stream again.
unsafe fn close(client: &'static Client, stream: Stream<'_>) -> c_int {
    let fd = stream.number();
    let wide = cookie::wide_of(fd, stream);
    set_plain(fd, false);
    // A plain stream stages nothing, so its number can go before what it has buffered.
    let owed = if cookie::is_ours(fd, stream) { Ok(()) } else { client.close(fd) };
    // SAFETY: the caller gives the stream up.
    let outcome = unsafe { plain_fclose(stream) };
    drop(wide);
    match owed {
        Ok(()) => outcome,
        Err(errno) => refuse(errno),
    }
}

fn stream_or_null(outcome: Outcome<Stream<'_>>) -> Stream<'_> {
    outcome.unwrap_or_else(|errno| {
        set(errno);
        Stream::NULL
    })
}
