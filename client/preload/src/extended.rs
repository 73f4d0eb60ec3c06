//! Extended attributes, by name and of an open file. Servers keep none.

use client::{Client, Errno};
use libc::{AT_EMPTY_PATH, AT_FDCWD, c_int, c_long, c_void, size_t, ssize_t};

use crate::{
    errno::answer,
    interpose::interpose,
    kernel::{self, Outcome, Word as _, ask, kernel},
    path_attributes::remote,
    pointers::Text,
    process_client::client,
    sync::drain,
};

/// The younger calls, which have one number everywhere.
pub(crate) const AT_NUMBERS: core::ops::RangeInclusive<c_long> = 463..=466;

interpose! { safe:
    fn setxattr(
        path: Text<'_>, name: Text<'_>, value: *const c_void, len: size_t, flags: c_int,
    ) -> c_int =>
        by_name(path, |path| ask!(SYS_setxattr, path, name, value, len, flags));
    fn lsetxattr(
        path: Text<'_>, name: Text<'_>, value: *const c_void, len: size_t, flags: c_int,
    ) -> c_int =>
        by_name(path, |path| ask!(SYS_lsetxattr, path, name, value, len, flags));
    fn removexattr(path: Text<'_>, name: Text<'_>) -> c_int =>
        by_name(path, |path| ask!(SYS_removexattr, path, name));
    fn lremovexattr(path: Text<'_>, name: Text<'_>) -> c_int =>
        by_name(path, |path| ask!(SYS_lremovexattr, path, name));
    fn fsetxattr(
        fd: c_int, name: Text<'_>, value: *const c_void, len: size_t, flags: c_int,
    ) -> c_int =>
        by_number(fd, || ask!(SYS_fsetxattr, fd, name, value, len, flags));
    fn fremovexattr(fd: c_int, name: Text<'_>) -> c_int =>
        by_number(fd, || ask!(SYS_fremovexattr, fd, name));
}

interpose! {
    fn getxattr(
        path: Text<'_>, name: Text<'_>, value: *mut c_void, len: size_t,
    ) -> ssize_t =>
        by_name(path, |path| kernel!(SYS_getxattr, path, name, value, len));
    fn lgetxattr(
        path: Text<'_>, name: Text<'_>, value: *mut c_void, len: size_t,
    ) -> ssize_t =>
        by_name(path, |path| kernel!(SYS_lgetxattr, path, name, value, len));
    fn listxattr(path: Text<'_>, list: *mut c_void, len: size_t) -> ssize_t =>
        by_name(path, |path| kernel!(SYS_listxattr, path, list, len));
    fn llistxattr(path: Text<'_>, list: *mut c_void, len: size_t) -> ssize_t =>
        by_name(path, |path| kernel!(SYS_llistxattr, path, list, len));
    fn fgetxattr(fd: c_int, name: Text<'_>, value: *mut c_void, len: size_t) -> ssize_t =>
        by_number(fd, || kernel!(SYS_fgetxattr, fd, name, value, len));
    fn flistxattr(fd: c_int, list: *mut c_void, len: size_t) -> ssize_t =>
        by_number(fd, || kernel!(SYS_flistxattr, fd, list, len));
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
    path: Text<'_>,
    flags: c_int,
) -> Outcome {
    let [dir_word, _, rest @ ..] = args;
    let call = |path: Text<'_>| {
        let [third, fourth, fifth, sixth] = rest;
        let args = [dir_word, path.word(), third, fourth, fifth, sixth];
        // SAFETY: the program's arguments, or with a path that means the same.
        unsafe { kernel::call(number, args) }
    };
    let name = path.get();
    if flags & AT_EMPTY_PATH != 0 && name.is_none_or(|name| name.is_empty()) && dir != AT_FDCWD {
        return by_number(dir, || call(path));
    }
    at_name(dir, path, call)
}

/// As [`at_name`], from the current folder.
fn by_name(path: Text<'_>, ask: impl FnOnce(Text<'_>) -> Outcome) -> Outcome {
    at_name(AT_FDCWD, path, ask)
}

/// Asks the kernel of a name that is not remote.
fn at_name(dir: c_int, path: Text<'_>, ask: impl FnOnce(Text<'_>) -> Outcome) -> Outcome {
    let named = client().zip(path.get()).filter(|(_, name)| !name.is_empty());
    if let Some(fd) = named.and_then(|(client, name)| client.placeholder_at(dir, name)) {
        return by_number(fd, || ask(path));
    }
    match remote(dir, path) {
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
