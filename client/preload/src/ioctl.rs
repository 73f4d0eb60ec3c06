//! `ioctl`: what every regular file answers, and what only a device or a file system knows, for
//! which the file has what was written.
//!
//! Whether a file is a terminal many programs ask, so that is answered of a placeholder without
//! giving it up, and so is what is about the number alone.

use core::ptr::with_exposed_provenance_mut as pointer;

use client::{Client, Errno};
use libc::{c_int, c_ulong};
use rustix::param::page_size;

use crate::{
    bits::unsigned,
    descriptor::control,
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, blocking},
    process_client::client,
};

/// Shares the blocks of files that have the same content.
const FIDEDUPERANGE: c_ulong = 0xc018_9436;

interpose! {
    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
        if let Some(refused) = refusal(fd, request, argument) {
            return answer(Err::<isize, _>(refused));
        }
        if let Some(done) = of_placeholder(fd, request, argument) {
            return answer(done);
        }
        before(fd, request, argument);
        answer(blocking!(SYS_ioctl, fd, request, argument))
    }
}

/// Why a remote file does not become a clone, nor is one made of it: the error of file systems that
/// have none, which programs know.
///
/// # Safety
///
/// `argument` is what the request asks for.
unsafe fn refusal(fd: c_int, request: c_ulong, argument: usize) -> Option<Errno> {
    let client = client().filter(|_| matches!(request, libc::FICLONE | libc::FICLONERANGE))?;
    // SAFETY: the argument of a request to clone, as the program gave it.
    let mut files = unsafe { others(client, fd, request, argument) }.chain([fd]);
    files.any(|fd| client.is_remote_file(fd)).then_some(Errno::OPNOTSUPP)
}

/// Answers as a regular file in place of a placeholder; `None`: the file itself has to answer.
///
/// # Safety
///
/// `argument` is what the request asks for.
unsafe fn of_placeholder(fd: c_int, request: c_ulong, argument: usize) -> Option<Outcome> {
    let client = client().filter(|client| client.is_placeholder(fd))?;
    match request {
        libc::FIOCLEX | libc::FIONCLEX => {
            let flag = if request == libc::FIOCLEX { libc::FD_CLOEXEC } else { 0 };
            // SAFETY: `F_SETFD` takes a number, which is no address.
            let done = unsafe { control(fd, libc::F_SETFD, unsigned(flag) as usize) };
            Some(done.map(|_| 0))
        }
        libc::FIONREAD | libc::FIONBIO if argument == 0 => Some(Err(Errno::FAULT)),
        libc::FIONREAD => {
            let place = pointer::<c_int>(argument);
            // SAFETY: not null, so there is room for a number.
            Some(unread(client, fd)?.map(|len| unsafe { place.write(len) }).map(|()| 0))
        }
        libc::FIONBIO => {
            // SAFETY: not null, so there is a number.
            let is_on = unsafe { pointer::<c_int>(argument).read() } != 0;
            let bit = unsigned(libc::O_NONBLOCK);
            let flags = client.flags(fd)? & !bit;
            // It changes nothing of a regular file but what `F_GETFL` says.
            client.set_flags(fd, if is_on { flags | bit } else { flags });
            Some(Ok(0))
        }
        libc::TCGETS | libc::TIOCGWINSZ | libc::TIOCGPGRP => Some(Err(Errno::NOTTY)),
        _ => client.is_remote_file(fd).then_some(Err(Errno::NOTTY)),
    }
}

/// Bytes between the position and the end; beyond that less than none, as the kernel counts.
#[expect(clippy::cast_possible_truncation, reason = "as in the kernel")]
fn unread(client: &'static Client, fd: c_int) -> Option<Outcome<c_int>> {
    let size = client.stat(fd)?.map(|status| status.size);
    let at = || client.seek(fd, 0, unsigned(libc::SEEK_CUR));
    Some(size.and_then(|size| Ok(size.wrapping_sub(at()?) as c_int)))
}

/// Before a device's own call, and those of file systems: the files have what was written.
///
/// # Safety
///
/// `argument` is what the request asks for.
unsafe fn before(fd: c_int, request: c_ulong, argument: usize) {
    let Some(client) = client() else { return };
    // What programs ask of every file, to know a terminal.
    if matches!(request, libc::TCGETS | libc::TIOCGWINSZ) {
        return;
    }
    client.drain(fd);
    client.publish_position(fd);
    // SAFETY: the argument of any request, as the program gave it.
    unsafe { others(client, fd, request, argument) }.for_each(|other| client.drain(other));
}

/// The files that a request is about besides the one it is made of. Memory is looked at for what
/// may be a file alone: to other numbers the request is nothing, or something else.
///
/// # Safety
///
/// `argument` is what the request asks for.
unsafe fn others(
    client: &'static Client,
    fd: c_int,
    request: c_ulong,
    argument: usize,
) -> impl Iterator<Item = c_int> {
    const COUNT_AT: usize = 16;
    const FIRST_AT: usize = 24;
    const ONE_LEN: usize = 32;
    let count = match request {
        libc::FICLONE => 1,
        _ if argument == 0 || !client.is_file(fd) => 0,
        libc::FICLONERANGE => 1,
        // SAFETY: the caller promises a list, with its length.
        FIDEDUPERANGE => unsafe { pointer::<u16>(argument + COUNT_AT).read() },
        _ => 0,
    };
    // The kernel takes a list of one page at most, and reads no other.
    let is_list = FIRST_AT + usize::from(count) * ONE_LEN <= page_size();
    let count = if is_list { count } else { 0 };
    // SAFETY: the caller promises that many, in the places that the kernel knows.
    let number_at = |place| unsafe { pointer::<i64>(place).read() };
    let one = move |index: usize| match request {
        libc::FICLONE => c_int::try_from(argument).ok(),
        libc::FICLONERANGE => c_int::try_from(number_at(argument)).ok(),
        _ => c_int::try_from(number_at(argument + FIRST_AT + index * ONE_LEN)).ok(),
    };
    (0..usize::from(count)).filter_map(one)
}
