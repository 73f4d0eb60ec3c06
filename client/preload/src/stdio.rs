//! Streams that are opened and closed.
//!
//! libc's streams do not call the `write` that a program would. So a stream over a descriptor that
//! may stage writes is one with [callbacks](crate::cookie); everything that works on streams then
//! works on it. What can only be read, and what is not ours, gets a plain stream over the same
//! descriptor.

use client::{Client, Errno, Reason, link_of};
use libc::{AT_FDCWD, c_int};

use crate::{
    cookie,
    descriptor::{close_number, control, duplicate, flags_of, forget, is_writable, refuse},
    errno::{last, set},
    glibc::Stream,
    interpose::interpose,
    kernel::{Outcome, ignore},
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

/// Puts what stands for a remote file beneath a stream of libc's, which opens files by itself.
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
    let parsed = Mode::parse(mode).filter(|mode| !mode.has_charset).ok_or(Errno::INVAL);
    let opened = parsed.and_then(|mode| open_at(AT_FDCWD, path, mode.flags, 0o666));
    let mode = match parsed.map_or(0, |mode| mode.flags) & libc::O_ACCMODE {
        libc::O_RDONLY => c"r",
        libc::O_WRONLY => c"w",
        _ => c"r+",
    };
    client.detach(opened.unwrap_or(-1), Reason::StandardStream);
    let mut link = [0; 32];
    // Nothing has an empty name, so that libc closes the stream, as ever when it cannot open.
    let name = opened.ok().and_then(|fd| link_of(fd, &mut link)).unwrap_or(c"");
    // SAFETY: libc's own stream, as the caller promises, which it gives up.
    let stream = unsafe { plain_freopen(Text::of(name), Text::of(mode), stream) };
    close_number(opened?)?;
    Ok(stream)
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
        let new = open_again(path, mode, fd)?;
        let moved = duplicate(new, fd, mode.flags & libc::O_CLOEXEC);
        close_number(new)?;
        moved.map(|_| mode)
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
