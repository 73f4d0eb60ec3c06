//! Calls on names that the kernel makes by itself for local files: attributes, links, permissions.
//! Where a name is remote they are the server's to make.
//!
//! What is staged for a file is drained before its mode, owner, or times change: drained later, it
//! would change them once more (a write takes set-user-id away, and sets the time).

use core::ffi::CStr;

use client::{Client, Errno, Room, Times};
use libc::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_int, c_void, gid_t, mode_t, size_t, ssize_t,
    timespec, timeval, uid_t,
};

use crate::{
    bits::unsigned,
    data::check,
    errno::{Value, answer, last},
    interpose::{interpose, next},
    kernel::{Harmless, Outcome, SYS_fchmodat2, Word as _, ask, call_harmless, kernel},
    pointers::{Buffer, Given, Text},
    process_client::{client, ruled},
    settle::settle_path,
    sync::drain,
};

interpose! { safe:
    fn access(path: Text<'_>, mode: c_int) -> c_int => access_at(AT_FDCWD, path, mode, 0);
    fn eaccess|euidaccess(path: Text<'_>, mode: c_int) -> c_int =>
        access_at(AT_FDCWD, path, mode, libc::AT_EACCESS);
    fn faccessat(dir: c_int, path: Text<'_>, mode: c_int, flags: c_int) -> c_int =>
        access_at(dir, path, mode, flags);
    fn chmod(path: Text<'_>, mode: mode_t) -> c_int => set_mode_at(AT_FDCWD, path, mode, 0);
    fn fchmodat(dir: c_int, path: Text<'_>, mode: mode_t, flags: c_int) -> c_int =>
        set_mode_at(dir, path, mode, flags);
    fn lchmod(path: Text<'_>, mode: mode_t) -> c_int =>
        set_mode_at(AT_FDCWD, path, mode, AT_SYMLINK_NOFOLLOW);
    fn chown(path: Text<'_>, user: uid_t, group: gid_t) -> c_int =>
        set_owner_at(AT_FDCWD, path, user, group, 0);
    fn lchown(path: Text<'_>, user: uid_t, group: gid_t) -> c_int =>
        set_owner_at(AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW);
    fn fchownat(
        dir: c_int, path: Text<'_>, user: uid_t, group: gid_t, flags: c_int,
    ) -> c_int =>
        set_owner_at(dir, path, user, group, flags);

    fn utimensat(
        dir: c_int, path: Text<'_>, times: Given<'_, [timespec; 2]>, flags: c_int,
    ) -> c_int {
        // Only the system call takes none, for the open file `dir`.
        if path.is_null() {
            return answer(Err::<c_int, _>(Errno::INVAL));
        }
        answer(set_times_at(dir, path, times, flags))
    }

    fn utimes(path: Text<'_>, times: Given<'_, [timeval; 2]>) -> c_int =>
        set_times_of(AT_FDCWD, path, times, 0);
    fn lutimes(path: Text<'_>, times: Given<'_, [timeval; 2]>) -> c_int =>
        set_times_of(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);

    fn utime(path: Text<'_>, times: Given<'_, libc::utimbuf>) -> c_int {
        let both = |times: libc::utimbuf| [times.actime, times.modtime];
        let seconds = times.get().map(both);
        let times = seconds.map(|both| both.map(|tv_sec| timespec { tv_sec, tv_nsec: 0 }));
        answer(set_times_at(AT_FDCWD, path, times.as_ref().map_or(Given::NULL, Given::of), 0))
    }
}

interpose! {
    fn readlink(path: Text<'_>, buffer: *mut c_void, len: size_t) -> ssize_t =>
        read_link_at(AT_FDCWD, path, Buffer::new(buffer, len));
    fn readlinkat(dir: c_int, path: Text<'_>, buffer: *mut c_void, len: size_t) -> ssize_t =>
        read_link_at(dir, path, Buffer::new(buffer, len));

    fn __readlink_chk(
        path: Text<'_>, buffer: *mut c_void, len: size_t, room: size_t,
    ) -> ssize_t {
        check(len, room);
        answer(read_link_at(AT_FDCWD, path, Buffer::new(buffer, len)))
    }

    fn __readlinkat_chk(
        dir: c_int, path: Text<'_>, buffer: *mut c_void, len: size_t, room: size_t,
    ) -> ssize_t {
        check(len, room);
        answer(read_link_at(dir, path, Buffer::new(buffer, len)))
    }
}

/// The client, when the name is remote.
pub(crate) fn remote<'a>(dir: c_int, path: Text<'a>) -> Option<(&'static Client, &'a CStr)> {
    let client = ruled()?;
    let path = path.get()?;
    client.is_remote(dir, path).then_some((client, path))
}

/// Flags of most calls on names.
const OF_NAMES: c_int = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;

/// The client, unless the kernel refuses such flags of any name.
fn client_for(flags: c_int, known: c_int) -> Option<&'static Client> {
    client().filter(|_| flags & !known == 0)
}

/// The name, if the kernel takes it as one: an empty one only with the flag for it.
fn named<'a>(path: Text<'a>, flags: c_int) -> Option<&'a CStr> {
    path.get().filter(|name| !name.is_empty() || flags & AT_EMPTY_PATH != 0)
}

/// The open file that such a name means, if the kernel has a placeholder of it.
fn placeholder(dir: c_int, path: Text<'_>, flags: c_int) -> Option<c_int> {
    let name = named(path, flags)?;
    let is_followed = name.is_empty() || flags & AT_SYMLINK_NOFOLLOW == 0;
    client_for(flags, OF_NAMES).filter(|_| is_followed)?.placeholder_at(dir, name)
}

/// As `faccessat(2)`.
pub(crate) fn access_at(dir: c_int, path: Text<'_>, mode: c_int, flags: c_int) -> Outcome {
    let known = libc::AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
    let name = named(path, flags);
    // Of other bits than these the kernel asks for no name.
    let has_sense = mode & !(libc::R_OK | libc::W_OK | libc::X_OK) == 0;
    let client = client_for(flags, known).filter(|client| has_sense && client.is_ruled());
    if let (Some(client), Some(name)) = (client, name) {
        if let Some(done) = client.access(dir, name, unsigned(mode)) {
            return done.map(|()| 0);
        }
        // Without a view the kernel answers of the placeholder: it is there.
        match client.detach_at(dir, name) {
            Ok(()) | Err(Errno::NOTSUP) => {}
            Err(errno) => return Err(errno),
        }
    }
    match flags {
        0 => ask!(SYS_faccessat, dir, path, mode),
        _ => ask!(SYS_faccessat2, dir, path, mode, flags),
    }
}

/// As `readlinkat(2)`.
pub(crate) fn read_link_at(dir: c_int, path: Text<'_>, mut buffer: Buffer<'_>) -> Outcome {
    if let (Some(client), Some(name)) = (client(), path.get()) {
        client.detach_number(name)?;
    }
    // Without room the kernel refuses whatever the name is.
    let named = remote(dir, path).filter(|(_, name)| !name.is_empty() && buffer.len() > 0);
    if let Some((client, name)) = named {
        if let Some(found) = read_remote_link(client, dir, name, buffer.slice()?) {
            return found;
        }
    }
    // SAFETY: the kernel writes at most `len` bytes of text, for which the buffer has room.
    unsafe { kernel!(SYS_readlinkat, dir, path, buffer.at(), buffer.len()) }
}

/// Apart, for its room for a path: a thread may have little stack.
#[cold]
#[inline(never)]
fn read_remote_link(
    client: &'static Client,
    dir: c_int,
    name: &CStr,
    buffer: &mut [u8],
) -> Option<Outcome> {
    let Some(mut link) = Room::take() else { return Some(Err(Errno::NOMEM)) };
    let found = client.read_link(dir, name, &mut link[..])?;
    Some(found.map(|found| {
        let copied = buffer.iter_mut().zip(link.iter().take(found));
        copied.map(|(to, from)| *to = *from).count().value()
    }))
}

/// As `fchmodat(3)`.
fn set_mode_at(dir: c_int, path: Text<'_>, mode: mode_t, flags: c_int) -> Outcome {
    if let Some(fd) = placeholder(dir, path, flags) {
        return set_mode(fd, mode);
    }
    let name = named(path, flags);
    if let (Some(client), Some(name)) = (client_for(flags, OF_NAMES), name) {
        let is_link = || {
            let found = client.stat_path(dir, name, false);
            matches!(found, Some(Ok(status)) if status.mode & libc::S_IFMT == libc::S_IFLNK)
        };
        if flags & AT_SYMLINK_NOFOLLOW != 0 && is_link() {
            return Err(Errno::NOTSUP);
        }
        if let Some(done) = client.set_mode(dir, name, mode) {
            return done.map(|()| 0);
        }
        settle_path(client, dir, path, flags);
    }
    if flags == 0 {
        return ask!(SYS_fchmodat, dir, path, mode);
    }
    let args = [dir.word(), path.word(), mode.word(), flags.word()];
    let done = call_harmless(Harmless::new(SYS_fchmodat2), args);
    // Where there is no such call, or a container keeps it from us, libc serves flags.
    if !matches!(done, Err(Errno::NOSYS | Errno::PERM)) {
        return done;
    }
    // SAFETY: libc's function asks for a C string, as a `Text` is.
    let done = unsafe {
        next!(
            fchmodat(
                dir => c_int, path => Text<'_>, mode => mode_t, flags => c_int,
            ) -> c_int
        )
    };
    if done < 0 { Err(last()) } else { Ok(0) }
}

/// As `fchownat(2)`.
fn set_owner_at(dir: c_int, path: Text<'_>, user: uid_t, group: gid_t, flags: c_int) -> Outcome {
    if let Some(fd) = placeholder(dir, path, flags) {
        return set_owner(fd, user, group);
    }
    let name = named(path, flags);
    if let (Some(client), Some(name)) = (client_for(flags, OF_NAMES), name) {
        let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
        if let Some(done) = client.set_owner(dir, name, user, group, follow) {
            return done.map(|()| 0);
        }
        settle_path(client, dir, path, flags);
    }
    ask!(SYS_fchownat, dir, path, user, group, flags)
}

/// As `fchmod(2)`.
pub(crate) fn set_mode(fd: c_int, mode: mode_t) -> Outcome {
    if let Some(done) = client().and_then(|client| client.set_mode_of(fd, mode)) {
        return done.map(|()| 0);
    }
    drain(fd);
    ask!(SYS_fchmod, fd, mode)
}

/// As `fchown(2)`.
pub(crate) fn set_owner(fd: c_int, owner: uid_t, group: gid_t) -> Outcome {
    if let Some(done) = client().and_then(|client| client.set_owner_of(fd, owner, group)) {
        return done.map(|()| 0);
    }
    drain(fd);
    ask!(SYS_fchown, fd, owner, group)
}

/// As `futimens(3)`.
pub(crate) fn set_times(fd: c_int, times: Given<'_, [timespec; 2]>) -> Outcome {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    drain(fd);
    set_times_at(fd, Text::NULL, times, 0)
}

/// As the system call `utimensat`; a null path means the open file `dir`.
pub(crate) fn set_times_at(
    dir: c_int,
    path: Text<'_>,
    times: Given<'_, [timespec; 2]>,
    flags: c_int,
) -> Outcome {
    if let Some(fd) = placeholder(dir, path, flags) {
        return set_times(fd, times);
    }
    let given = given(times);
    // Where neither is to change, the kernel asks for no name either.
    let changes = [given.accessed, given.modified].iter().any(|time| time.1 != libc::UTIME_OMIT);
    if let Some(client) = client_for(flags, OF_NAMES).filter(|_| changes) {
        let done = match named(path, flags) {
            Some(name) => client.set_times(dir, name, given, flags & AT_SYMLINK_NOFOLLOW == 0),
            None if path.is_null() => client.set_times_of(dir, given),
            None => None,
        };
        if let Some(done) = done {
            return done.map(|()| 0);
        }
        if !path.is_null() {
            settle_path(client, dir, path, flags);
        }
    }
    ask!(SYS_utimensat, dir, path, times, flags)
}

/// As `futimesat(2)`.
pub(crate) fn set_times_of(
    dir: c_int,
    path: Text<'_>,
    times: Given<'_, [timeval; 2]>,
    flags: c_int,
) -> Outcome {
    if path.is_null() {
        return Err(Errno::FAULT);
    }
    let times = times.get().map(|both| both.map(precise));
    set_times_at(dir, path, times.as_ref().map_or(Given::NULL, Given::of), flags)
}

/// A time in nanoseconds. What is no number of microseconds stays out of range, and names none of
/// the numbers that mean something else to `utimensat`.
pub(crate) fn precise(time: timeval) -> timespec {
    let is_time = (0..1_000_000).contains(&time.tv_usec);
    timespec { tv_sec: time.tv_sec, tv_nsec: if is_time { time.tv_usec * 1000 } else { -1 } }
}

/// Two times as the client takes them; null means now.
fn given(times: Given<'_, [timespec; 2]>) -> Times {
    let now = timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
    let both = times.get().unwrap_or([now, now]);
    let [accessed, modified] = both.map(|time| (time.tv_sec, time.tv_nsec));
    Times { accessed, modified }
}
