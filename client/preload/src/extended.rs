//! Extended attributes, by name and of an open file. Servers keep none.

use client::{Client, Errno};
use libc::{AT_EMPTY_PATH, AT_FDCWD, c_char, c_int, c_long, c_void, size_t, ssize_t};

use crate::{
    errno::answer,
    interpose::interpose,
    kernel::{self, Outcome, Word as _, kernel},
    paths::remote,
    served::{client, text},
    sync::drain,
};

/// The younger calls, which have one number everywhere.
pub(crate) const AT_NUMBERS: core::ops::RangeInclusive<c_long> = 463..=466;

interpose! {
    fn getxattr(
        path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t,
    ) -> ssize_t {
        answer(by_name(path, |path| kernel!(SYS_getxattr, path, name, value, len)))
    }

    fn lgetxattr(
        path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t,
    ) -> ssize_t {
        answer(by_name(path, |path| kernel!(SYS_lgetxattr, path, name, value, len)))
    }

    fn listxattr(path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t {
        answer(by_name(path, |path| kernel!(SYS_listxattr, path, list, len)))
    }

    fn llistxattr(path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t {
        answer(by_name(path, |path| kernel!(SYS_llistxattr, path, list, len)))
    }

    fn setxattr(
        path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, flags: c_int,
    ) -> c_int {
        answer(by_name(path, |path| kernel!(SYS_setxattr, path, name, value, len, flags)))
    }

    fn lsetxattr(
        path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, flags: c_int,
    ) -> c_int {
        answer(by_name(path, |path| kernel!(SYS_lsetxattr, path, name, value, len, flags)))
    }

    fn removexattr(path: *const c_char, name: *const c_char) -> c_int {
        answer(by_name(path, |path| kernel!(SYS_removexattr, path, name)))
    }

    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int {
        answer(by_name(path, |path| kernel!(SYS_lremovexattr, path, name)))
    }

    fn fsetxattr(
        fd: c_int, name: *const c_char, value: *const c_void, len: size_t, flags: c_int,
    ) -> c_int {
        answer(by_number(fd, || kernel!(SYS_fsetxattr, fd, name, value, len, flags)))
    }

    fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t {
        answer(by_number(fd, || kernel!(SYS_fgetxattr, fd, name, value, len)))
    }

    fn flistxattr(fd: c_int, list: *mut c_char, len: size_t) -> ssize_t {
        answer(by_number(fd, || kernel!(SYS_flistxattr, fd, list, len)))
    }

    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
        answer(by_number(fd, || kernel!(SYS_fremovexattr, fd, name)))
    }
}

/// `setxattrat(2)` and its like, which libc has no functions for: all begin with a folder, a name,
/// and flags.
///
/// # Safety
///
/// The arguments are right for the system call.
pub(crate) unsafe fn at(
    number: c_long,
    args: [usize; 6],
    dir: c_int,
    path: *const c_char,
    flags: c_int,
) -> Outcome {
    let [dir_word, _, rest @ ..] = args;
    let call = |path: *const c_char| {
        let [third, fourth, fifth, sixth] = rest;
        let args = [dir_word, path.word(), third, fourth, fifth, sixth];
        // SAFETY: as the caller promises.
        unsafe { kernel::call(number, args) }
    };
    // SAFETY: as the caller promises.
    let name = unsafe { text(path) };
    if flags & AT_EMPTY_PATH != 0 && name.is_none_or(|name| name.is_empty()) && dir != AT_FDCWD {
        return by_number(dir, || call(path));
    }
    // SAFETY: as the caller promises.
    unsafe { at_name(dir, path, call) }
}

/// As [`at_name`], from the current folder.
///
/// # Safety
///
/// The same.
unsafe fn by_name(path: *const c_char, ask: impl FnOnce(*const c_char) -> Outcome) -> Outcome {
    // SAFETY: as the caller promises.
    unsafe { at_name(AT_FDCWD, path, ask) }
}

/// Asks the kernel of a name that is not remote.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn at_name(
    dir: c_int,
    path: *const c_char,
    ask: impl FnOnce(*const c_char) -> Outcome,
) -> Outcome {
    // SAFETY: as the caller promises.
    match unsafe { remote(dir, path) } {
        Some(_) => Err(Errno::NOTSUP),
        None => ask(path),
    }
}

/// Asks the kernel, once the file has what was written: a placeholder has no attributes of its own,
/// so the file behind it takes its place.
fn by_number(fd: c_int, ask: impl FnOnce() -> Outcome) -> Outcome {
    if client().is_some_and(|client: &'static Client| client.is_remote_file(fd)) {
        return Err(Errno::NOTSUP);
    }
    drain(fd);
    ask()
}
