//! Calls that close, duplicate, and control descriptors.
//!
//! The client is told before a number goes away and after a number appears, so that between the two
//! a number of ours is at worst served by the kernel, never taken for another file.

use client::{Client, Errno, Reason};
use libc::{c_int, c_uint};

use crate::{
    bits::{counted, number, signed, unsigned},
    errno::{answer, set},
    interpose::{interpose, next},
    kernel::{
        Outcome, ask, ask_blocking, blocking, cancellation_point, descriptor_flags,
        descriptor_limit, file_flags, ignore, kernel,
    },
    lock,
    plain_streams::has_plain,
    process_client::{before_own_table, client, is_programs},
};

#[cfg(target_arch = "x86_64")]
const LARGE_FILE: c_int = 0o10_0000;
#[cfg(target_arch = "aarch64")]
const LARGE_FILE: c_int = 0o40_0000;

interpose! { safe:
    fn close|__close(fd: c_int) -> c_int {
        if client().is_some() {
            cancellation_point();
        }
        answer(close_number(fd))
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int =>
        close_numbers(first, last, flags);
    fn dup|__dup(old: c_int) -> c_int => copy_number(old);
    fn dup2|__dup2(old: c_int, new: c_int) -> c_int => duplicate_over(old, new);
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int => duplicate(old, new, flags);
    fn pidfd_getfd(process: c_int, old: c_int, flags: c_uint) -> c_int =>
        copy_from(process, old, flags);
}

interpose! {
    fn closefrom(first: c_int) {
        let from = c_uint::try_from(first).unwrap_or(0);
        if close_numbers(from, c_uint::MAX, 0).is_err() {
            next!(closefrom(first => c_int) -> ())
        }
    }

    fn fcntl|fcntl64|__fcntl(fd: c_int, command: c_int, argument: usize) -> c_int =>
        control(fd, command, argument);
}

/// Closes a number, and reports what a write behind still owes. Inlined for its
/// [depth](crate::kernel).
#[inline(always)]
pub(crate) fn close_number(fd: c_int) -> Outcome {
    let Some(client) = client() else {
        return ask_blocking!(SYS_close, fd);
    };
    if client.close_unexamined(fd) {
        return ask_close(client, fd);
    }
    close_examined(client, fd)
}

#[inline(never)]
fn close_examined(client: &'static Client, fd: c_int) -> Outcome {
    if client.is_own(fd) {
        return Err(Errno::BADF);
    }
    let owed = client.close(fd);
    ask_close(client, fd).and_then(|closed| owed.map(|()| closed))
}

/// Has the kernel close a number; some closes are timed.
#[inline(always)]
fn ask_close(client: &'static Client, fd: c_int) -> Outcome {
    let timed = client.close_begins(fd);
    let closed = ask!(SYS_close, fd);
    if let Some(timed) = timed {
        client.learn_close(timed);
    }
    closed
}

/// As `dup(2)`.
fn copy_number(old: c_int) -> Outcome<c_int> {
    is_programs(old)?;
    number(ask!(SYS_dup, old)?).inspect(|new| duplicated(old, *new))
}

/// As `dup2(2)`: to make a number what it is changes nothing.
fn duplicate_over(old: c_int, new: c_int) -> Outcome<c_int> {
    if old == new {
        is_programs(old)?;
        return descriptor_flags(old).map(|_| new);
    }
    duplicate(old, new, 0)
}

/// As `dup3(2)`.
pub(crate) fn duplicate(old: c_int, new: c_int, flags: c_int) -> Outcome<c_int> {
    if flags & !libc::O_CLOEXEC != 0 || old == new {
        return Err(Errno::INVAL);
    }
    is_programs(old)?;
    if let Some(client) = client() {
        descriptor_flags(old)?;
        // Nothing is closed for a call that fails.
        if !(0..descriptor_limit()).contains(&new) {
            return Err(Errno::BADF);
        }
        let is_stream = (0..=libc::STDERR_FILENO).contains(&new) || has_plain(new);
        if is_stream && client.is_remote_file(old) {
            client.passable(old, Reason::StandardStream).inspect_err(|_| occupy(new))?;
        }
        if client.make_way(new)? {
            // Nobody uses the number, and a socket is closed whatever this says.
            ignore(ask!(SYS_close, new));
        }
        // As the kernel does: what closing `new` might report is lost.
        ignore(client.close(new));
    }
    let new = number(ask!(SYS_dup3, old, new, flags)?)?;
    duplicated(old, new);
    Ok(new)
}

/// Has a number that is free refer to what can be neither read nor written: dash closes it before
/// it duplicates, does not look whether that fails, and runs a program whose first file would be
/// its standard output.
fn occupy(taken: c_int) {
    if descriptor_flags(taken).is_ok() {
        return;
    }
    let root = c"/".as_ptr();
    let Ok(found) = ask!(SYS_openat, libc::AT_FDCWD, root, libc::O_PATH).and_then(number) else {
        return;
    };
    if found != taken {
        ignore(ask!(SYS_dup3, found, taken, 0));
        ignore(ask!(SYS_close, found));
    }
}

/// As `pidfd_getfd(2)`. What this very process has open is duplicated.
fn copy_from(process: c_int, old: c_int, flags: c_uint) -> Outcome<c_int> {
    const WHETHER_SAME_FILE: c_int = 0;
    let new = number(ask!(SYS_pidfd_getfd, process, old, flags)?)?;
    let own = ask!(SYS_getpid)?;
    match ask!(SYS_kcmp, own, own, WHETHER_SAME_FILE, old, new) {
        Ok(0) => duplicated(old, new),
        _ => appeared(new),
    }
    Ok(new)
}

/// The number refers to what may be a file that this process has open by another one.
pub(crate) fn appeared(fd: c_int) {
    if let Some(client) = client() {
        client.appeared(fd);
    }
}

/// The number refers to something that libc or the kernel just made.
pub(crate) fn forget(fd: c_int) {
    if let Some(client) = client() {
        client.forget(fd);
    }
}

/// Before libc closes a number that is no file of ours.
pub(crate) fn let_go(fd: c_int) {
    if let Some(client) = client() {
        // It owes nothing.
        ignore(client.close(fd));
    }
}

fn duplicated(old: c_int, new: c_int) {
    if let Some(client) = client() {
        client.forget(new);
        client.duplicated(old, new);
        if has_plain(new) {
            client.detach(new, Reason::StandardStream);
        }
    }
}

fn close_numbers(first: c_uint, last: c_uint, flags: c_int) -> Outcome {
    if unsigned(flags) & libc::CLOSE_RANGE_UNSHARE != 0 {
        before_own_table();
    }
    let closes = unsigned(flags) & libc::CLOSE_RANGE_CLOEXEC == 0;
    let client = client().filter(|_| closes && first <= last);
    if let Some(client) = client {
        client.close_range(first, last);
    }
    let mut from = first;
    while let Some(own) = client.and_then(|client| client.own_number(from, last)) {
        if from < own {
            ask!(SYS_close_range, from, own - 1, flags)?;
        }
        if own == last {
            return Ok(0);
        }
        from = own + 1;
    }
    ask!(SYS_close_range, from, last, flags)
}

/// `fcntl`, for every command.
///
/// # Safety
///
/// `argument` is what the command asks for.
pub(crate) unsafe fn control(fd: c_int, command: c_int, argument: usize) -> Outcome<c_int> {
    // SAFETY: the argument is what the command asks for: `control` was promised so.
    let kernel = || number(unsafe { kernel!(SYS_fcntl, fd, command, argument) }?);
    let Some(client) = client() else {
        // SAFETY: as for `kernel` above. Waiting for a lock can be cancelled.
        return number(unsafe { blocking!(SYS_fcntl, fd, command, argument) }?);
    };
    is_programs(fd)?;
    if command == libc::F_SETLEASE {
        client.drain(fd);
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => kernel().inspect(|new| duplicated(fd, *new)),
        libc::F_GETFL => match client.flags(fd) {
            // 64-bit kernels set it on every file that is opened.
            Some(flags) => Ok(signed(flags) | LARGE_FILE),
            None => kernel(),
        },
        libc::F_SETFL => {
            if let Some(done) = client.set_remote_flags(fd, narrowed(argument)) {
                return done.map(|()| 0);
            }
            detach_when_flags_change(client, fd, argument);
            // A placeholder takes none, and what is left over changes nothing of a regular file.
            if client.set_flags(fd, narrowed(argument)) { Ok(0) } else { kernel() }
        }
        libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW
        | libc::F_GETLK
        | libc::F_OFD_GETLK => {
            if matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW) {
                cancellation_point();
            }
            // SAFETY: the argument of a command about locks is the address of a `struct flock`.
            if let Some(done) = unsafe { lock::control(client, fd, command, argument) } {
                return done;
            }
            lock::before(client, fd);
            // SAFETY: that address is the kernel's to read. Waiting for a lock can be cancelled.
            let done = unsafe { blocking!(SYS_fcntl, fd, command, argument) }?;
            lock::after();
            number(done)
        }
        _ => kernel().or_else(|errno| match command {
            _ if errno != Errno::BADF || !client.is_placeholder(fd) => Err(errno),
            // What the kernel says of a regular file.
            libc::F_GETLEASE => Ok(libc::F_UNLCK),
            libc::F_GETOWN | F_GETSIG => Ok(0),
            // As where others have it open.
            libc::F_SETLEASE if LEASES.contains(&signed(narrowed(argument))) => Err(Errno::AGAIN),
            // No signal ever comes of one.
            F_SETSIG if argument <= SIGNAL_MAX => Ok(0),
            libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => Err(Errno::BADF),
            _ => Err(Errno::INVAL),
        }),
    }
}

/// Not in `libc` for every target.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;
const SIGNAL_MAX: usize = 64;
const LEASES: [c_int; 3] = [libc::F_RDLCK, libc::F_WRLCK, libc::F_UNLCK];

/// Flags as the kernel takes them.
fn narrowed(flags: usize) -> u32 {
    u32::try_from(flags & u32::MAX as usize).unwrap_or_default()
}

/// The client keeps to the flags of `open`; with others, the kernel serves the file.
fn detach_when_flags_change(client: &'static Client, fd: c_int, flags: usize) {
    const KEPT: usize = (libc::O_APPEND | libc::O_DIRECT) as usize;
    if (flags_of(client, fd) ^ flags) & KEPT != 0 {
        client.detach(fd, Reason::Unsupported);
    }
}

/// True if the program may write to what `fd` refers to.
pub(crate) fn is_writable(client: &'static Client, fd: c_int) -> bool {
    flags_of(client, fd) & libc::O_ACCMODE as usize != libc::O_RDONLY as usize
}

/// `F_GETFL`; zero when there is no such descriptor.
pub(crate) fn flags_of(client: &'static Client, fd: c_int) -> usize {
    match client.flags(fd) {
        Some(flags) => flags as usize,
        None => file_flags(fd).map_or(0, counted),
    }
}

/// Sets `errno` and answers -1.
pub(crate) fn refuse(errno: Errno) -> c_int {
    set(errno);
    -1
}
