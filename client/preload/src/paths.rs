//! Calls on names that the kernel makes by itself for local files: attributes, links, permissions.
//! Where a name is remote they are the server's to make.
//!
//! What is staged for a file is drained before its mode, owner, or times change: drained later, it
//! would change them once more (a write takes set-user-id away, and sets the time).

use core::ffi::CStr;

use client::{Client, Errno, Room, Times};
use libc::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_long, gid_t, mode_t, size_t,
    ssize_t, timespec, timeval, uid_t,
};

use crate::{
    bits::unsigned,
    data::check,
    errno::{Value, answer, last},
    interpose::{interpose, next},
    kernel::{self, Outcome, Word as _, kernel},
    served::{client, ruled, text},
    settle::settle_path,
};

/// One of the younger calls, which have one number everywhere.
#[expect(non_upper_case_globals, reason = "as libc names those that it knows")]
pub(crate) const SYS_fchmodat2: c_long = 452;

interpose! {
    fn access(path: *const c_char, mode: c_int) -> c_int {
        answer(access_at(AT_FDCWD, path, mode, 0))
    }

    fn eaccess|euidaccess(path: *const c_char, mode: c_int) -> c_int {
        answer(access_at(AT_FDCWD, path, mode, libc::AT_EACCESS))
    }

    fn faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        answer(access_at(dir, path, mode, flags))
    }

    fn readlink(path: *const c_char, buffer: *mut c_char, len: size_t) -> ssize_t {
        answer(read_link_at(AT_FDCWD, path, buffer, len))
    }

    fn readlinkat(dir: c_int, path: *const c_char, buffer: *mut c_char, len: size_t) -> ssize_t {
        answer(read_link_at(dir, path, buffer, len))
    }

    fn __readlink_chk(
        path: *const c_char, buffer: *mut c_char, len: size_t, room: size_t,
    ) -> ssize_t {
        check(len, room);
        answer(read_link_at(AT_FDCWD, path, buffer, len))
    }

    fn __readlinkat_chk(
        dir: c_int, path: *const c_char, buffer: *mut c_char, len: size_t, room: size_t,
    ) -> ssize_t {
        check(len, room);
        answer(read_link_at(dir, path, buffer, len))
    }

    fn chmod(path: *const c_char, mode: mode_t) -> c_int {
        answer(set_mode_at(AT_FDCWD, path, mode, 0))
    }

    fn fchmodat(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        answer(set_mode_at(dir, path, mode, flags))
    }

    fn lchmod(path: *const c_char, mode: mode_t) -> c_int {
        answer(set_mode_at(AT_FDCWD, path, mode, AT_SYMLINK_NOFOLLOW))
    }

    fn chown(path: *const c_char, user: uid_t, group: gid_t) -> c_int {
        answer(set_owner_at(AT_FDCWD, path, user, group, 0))
    }

    fn lchown(path: *const c_char, user: uid_t, group: gid_t) -> c_int {
        answer(set_owner_at(AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW))
    }

    fn fchownat(
        dir: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int,
    ) -> c_int {
        answer(set_owner_at(dir, path, user, group, flags))
    }

    fn utimensat(
        dir: c_int, path: *const c_char, times: *const timespec, flags: c_int,
    ) -> c_int {
        // Only the system call takes none, for the open file `dir`.
        if path.is_null() {
            return answer(Err::<c_int, _>(Errno::INVAL));
        }
        answer(set_times_at(dir, path, times, flags))
    }

    fn utimes(path: *const c_char, times: *const timeval) -> c_int {
        answer(set_times_of(AT_FDCWD, path, times, 0))
    }

    fn lutimes(path: *const c_char, times: *const timeval) -> c_int {
        answer(set_times_of(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW))
    }

    fn utime(path: *const c_char, times: *const libc::utimbuf) -> c_int {
        let both = |times: &libc::utimbuf| [times.actime, times.modtime];
        let seconds = times.as_ref().map(both);
        let times = seconds.map(|both| both.map(|tv_sec| timespec { tv_sec, tv_nsec: 0 }));
        let times = times.as_ref().map_or(core::ptr::null(), |times| times.as_ptr());
        answer(set_times_at(AT_FDCWD, path, times, 0))
    }
}

/// The client, when the name is remote.
///
/// # Safety
///
/// `path` is null or a C string.
pub(crate) unsafe fn remote<'a>(
    dir: c_int,
    path: *const c_char,
) -> Option<(&'static Client, &'a CStr)> {
    let client = ruled()?;
    // SAFETY: as the caller promises.
    let path = unsafe { text(path) }?;
    client.is_remote(dir, path).then_some((client, path))
}

/// Flags of most calls on names.
const OF_NAMES: c_int = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;

/// The client, unless the kernel refuses such flags of any name.
fn client_for(flags: c_int, known: c_int) -> Option<&'static Client> {
    client().filter(|_| flags & !known == 0)
}

/// The name, if the kernel takes it as one: an empty one only with the flag for it.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn named<'a>(path: *const c_char, flags: c_int) -> Option<&'a CStr> {
    // SAFETY: as the caller promises.
    unsafe { text(path) }.filter(|name| !name.is_empty() || flags & AT_EMPTY_PATH != 0)
}

/// As `faccessat(2)`.
///
/// # Safety
///
/// `path` is null or a C string.
pub(crate) unsafe fn access_at(
    dir: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
) -> Outcome {
    let known = libc::AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
    // SAFETY: as the caller promises.
    let name = unsafe { named(path, flags) };
    // Of other bits than these the kernel asks for no name.
    let has_sense = mode & !(libc::R_OK | libc::W_OK | libc::X_OK) == 0;
    let client = client_for(flags, known).filter(|client| has_sense && client.is_ruled());
    if let (Some(client), Some(name)) = (client, name) {
        if let Some(done) = client.access(dir, name, unsigned(mode)) {
            return done.map(|()| 0);
        }
    }
    match flags {
        // SAFETY: the program's own call.
        0 => unsafe { kernel!(SYS_faccessat, dir, path, mode) },
        // SAFETY: the program's own call.
        _ => unsafe { kernel!(SYS_faccessat2, dir, path, mode, flags) },
    }
}

/// As `readlinkat(2)`.
///
/// # Safety
///
/// `path` is null or a C string; there is room for `len` bytes at `buffer`.
pub(crate) unsafe fn read_link_at(
    dir: c_int,
    path: *const c_char,
    buffer: *mut c_char,
    len: size_t,
) -> Outcome {
    // SAFETY: as the caller promises.
    if let (Some(client), Some(name)) = (client(), unsafe { text(path) }) {
        client.leave_number(name);
    }
    // SAFETY: as the caller promises.
    let named = unsafe { remote(dir, path) };
    // Without room the kernel refuses whatever the name is.
    let named = named.filter(|(_, name)| !name.is_empty() && len > 0);
    if let Some((client, name)) = named {
        // SAFETY: as the caller promises.
        if let Some(found) = unsafe { read_remote_link(client, dir, name, buffer, len) } {
            return found;
        }
    }
    // SAFETY: the program's own call.
    unsafe { kernel!(SYS_readlinkat, dir, path, buffer, len) }
}

/// Apart, for its room for a path: a thread may have little stack.
///
/// # Safety
///
/// There is room for `len` bytes at `buffer`.
#[cold]
#[inline(never)]
unsafe fn read_remote_link(
    client: &'static Client,
    dir: c_int,
    name: &CStr,
    buffer: *mut c_char,
    len: size_t,
) -> Option<Outcome> {
    let Some(mut link) = Room::take() else { return Some(Err(Errno::NOMEM)) };
    let found = client.read_link(dir, name, &mut link[..])?;
    Some(found.map(|found| {
        let found = found.min(len);
        // SAFETY: the program gives room for so many bytes.
        unsafe { link.as_ptr().copy_to_nonoverlapping(buffer.cast(), found) };
        found.value()
    }))
}

/// As `fchmodat(3)`.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn set_mode_at(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> Outcome {
    // SAFETY: as the caller promises.
    let name = unsafe { named(path, flags) };
    if let (Some(client), Some(name)) = (client_for(flags, OF_NAMES), name) {
        let is_link = || {
            let found = client.stat_path(dir, name, false);
            matches!(found, Some(Ok(status)) if status.mode & libc::S_IFMT == libc::S_IFLNK)
        };
        if flags & AT_SYMLINK_NOFOLLOW != 0 && is_link() {
            return Err(Errno::NOTSUP);
        }
        let done = match flags & AT_EMPTY_PATH {
            AT_EMPTY_PATH if name.is_empty() => client.set_mode_of(dir, mode),
            _ => client.set_mode(dir, name, mode),
        };
        if let Some(done) = done {
            return done.map(|()| 0);
        }
        // SAFETY: a C string.
        unsafe { settle_path(client, dir, path, flags) };
    }
    if flags == 0 {
        // SAFETY: the program's own call.
        return unsafe { kernel!(SYS_fchmodat, dir, path, mode) };
    }
    // SAFETY: the program's own call.
    let done = unsafe {
        kernel::call(SYS_fchmodat2, [dir.word(), path.word(), mode.word(), flags.word()])
    };
    // Where there is no such call, or a container keeps it from us, libc serves flags.
    if !matches!(done, Err(Errno::NOSYS | Errno::PERM)) {
        return done;
    }
    // SAFETY: the program's own call.
    let done = unsafe {
        next!(
            fchmodat(
                dir => c_int, path => *const c_char, mode => mode_t, flags => c_int,
            ) -> c_int
        )
    };
    if done < 0 { Err(last()) } else { Ok(0) }
}

/// As `fchownat(2)`.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn set_owner_at(
    dir: c_int,
    path: *const c_char,
    user: uid_t,
    group: gid_t,
    flags: c_int,
) -> Outcome {
    // SAFETY: as the caller promises.
    let name = unsafe { named(path, flags) };
    if let (Some(client), Some(name)) = (client_for(flags, OF_NAMES), name) {
        let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
        if let Some(done) = client.set_owner(dir, name, user, group, follow) {
            return done.map(|()| 0);
        }
        // SAFETY: a C string.
        unsafe { settle_path(client, dir, path, flags) };
    }
    // SAFETY: the program's own call.
    unsafe { kernel!(SYS_fchownat, dir, path, user, group, flags) }
}

/// As the system call `utimensat`; a null path means the open file `dir`.
///
/// # Safety
///
/// `path` is null or a C string, `times` null or two times.
pub(crate) unsafe fn set_times_at(
    dir: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> Outcome {
    // SAFETY: as the caller promises.
    let given = unsafe { given(times) };
    // Where neither is to change, the kernel asks for no name either.
    let changes = [given.accessed, given.modified].iter().any(|time| time.1 != libc::UTIME_OMIT);
    if let Some(client) = client_for(flags, OF_NAMES).filter(|_| changes) {
        // SAFETY: as the caller promises.
        let done = match unsafe { named(path, flags) } {
            Some(name) => client.set_times(dir, name, given, flags & AT_SYMLINK_NOFOLLOW == 0),
            None if path.is_null() => client.set_times_of(dir, given),
            None => None,
        };
        if let Some(done) = done {
            return done.map(|()| 0);
        }
        if !path.is_null() {
            // SAFETY: a C string.
            unsafe { settle_path(client, dir, path, flags) };
        }
    }
    // SAFETY: the program's own call.
    unsafe { kernel!(SYS_utimensat, dir, path, times, flags) }
}

/// As `futimesat(2)`.
///
/// # Safety
///
/// `path` is null or a C string, `times` null or two times.
pub(crate) unsafe fn set_times_of(
    dir: c_int,
    path: *const c_char,
    times: *const timeval,
    flags: c_int,
) -> Outcome {
    if path.is_null() {
        return Err(Errno::FAULT);
    }
    if times.is_null() {
        // SAFETY: as the caller promises.
        return unsafe { set_times_at(dir, path, core::ptr::null(), flags) };
    }
    // SAFETY: as the caller promises.
    let times = unsafe { times.cast::<[timeval; 2]>().read() };
    let times = times.map(precise);
    // SAFETY: as the caller promises; there are two times.
    unsafe { set_times_at(dir, path, times.as_ptr(), flags) }
}

/// A time in nanoseconds. What is no number of microseconds stays out of range, and names none of
/// the numbers that mean something else to `utimensat`.
pub(crate) fn precise(time: timeval) -> timespec {
    let is_time = (0..1_000_000).contains(&time.tv_usec);
    timespec { tv_sec: time.tv_sec, tv_nsec: if is_time { time.tv_usec * 1000 } else { -1 } }
}

/// Two times as the client takes them; null means now.
///
/// # Safety
///
/// `times` is null or points to two times.
unsafe fn given(times: *const timespec) -> Times {
    if times.is_null() {
        return Times { accessed: (0, libc::UTIME_NOW), modified: (0, libc::UTIME_NOW) };
    }
    // SAFETY: as the caller promises.
    let both = unsafe { times.cast::<[timespec; 2]>().read() };
    let [accessed, modified] = both.map(|time| (time.tv_sec, time.tv_nsec));
    Times { accessed, modified }
}
