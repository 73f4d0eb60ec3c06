//! Calls on folders: listing them, entering them, asking where one is. Walking them: `walks`.
//!
//! A remote folder is listed and entered in its view. Where there is none these calls fail: the
//! kernel would find the folder that a view hides.

use core::mem::MaybeUninit;

use client::{Errno, FileSystem};
use libc::{AT_FDCWD, c_char, c_int, c_long, c_void, size_t, ssize_t};

use crate::{
    descriptor::forget,
    errno::{answer, set},
    interpose::{interpose, next},
    kernel::{Outcome, ask, kernel},
    path_attributes::remote,
    pointers::{Out, Text},
    process_client::{before_own_table, client},
    sync::is_placeholder,
};

/// Room for names, bytes, of which the kernel counts no more in one call.
const LISTED_MAX: usize = c_int::MAX as usize;

interpose! { safe:
    fn chdir(path: Text<'_>) -> c_int =>
        viewable(AT_FDCWD, path).and_then(|()| ask!(SYS_chdir, path));

    fn chroot(path: Text<'_>) -> c_int {
        let done = ask!(SYS_chroot, path);
        if let (Ok(_), Some(client)) = (done, client()) {
            client.change_root();
        }
        answer(done)
    }

    fn unshare(what: c_int) -> c_int {
        if what & libc::CLONE_FILES != 0 {
            before_own_table();
        }
        with_other_names(ask!(SYS_unshare, what))
    }

    fn setns(of: c_int, what: c_int) -> c_int {
        with_other_names(ask!(SYS_setns, of, what))
    }
}

interpose! {
    fn opendir(path: Text<'_>) -> *mut c_void, next {
        match viewable(AT_FDCWD, path) {
            Ok(()) => next(),
            Err(errno) => {
                set(errno);
                core::ptr::null_mut()
            }
        }
    }

    fn fdopendir(fd: c_int) -> *mut c_void, next {
        forget(fd);
        next()
    }

    fn getdents64(fd: c_int, entries: *mut c_void, len: size_t) -> ssize_t =>
        list(fd, || kernel!(SYS_getdents64, fd, entries, len.min(LISTED_MAX)));

    fn scandir|scandir64(
        path: Text<'_>, list: *mut c_void, filter: *const c_void, compare: *const c_void,
    ) -> c_int {
        scandirat(AT_FDCWD, path, list, filter, compare)
    }

    fn scandirat|scandirat64(
        dir: c_int, path: Text<'_>, list: *mut c_void, filter: *const c_void,
        compare: *const c_void,
    ) -> c_int, next {
        match viewable(dir, path) {
            Ok(()) => next(),
            Err(errno) => answer(Err::<c_int, _>(errno)),
        }
    }

    fn realpath(path: Text<'_>, resolved: *mut c_char) -> *mut c_char, next {
        let detached = match client().zip(path.get()) {
            Some((client, name)) => client.detach_number(name),
            None => Ok(()),
        };
        match detached.and_then(|()| viewable(AT_FDCWD, path)) {
            Ok(()) => next(),
            Err(errno) => {
                set(errno);
                core::ptr::null_mut()
            }
        }
    }

    fn __realpath_chk(
        path: Text<'_>, resolved: *mut c_char, _room: size_t,
    ) -> *mut c_char {
        realpath(path, resolved)
    }

    fn canonicalize_file_name(path: Text<'_>) -> *mut c_char {
        realpath(path, core::ptr::null_mut())
    }

    fn statfs|statfs64(path: Text<'_>, out: Out<'_, libc::statfs>) -> c_int {
        match file_system(path) {
            None => answer(kernel!(SYS_statfs, path, out)),
            Some(found) => answer(found.and_then(|found| out.put(plain(found)))),
        }
    }

    fn fstatfs|fstatfs64(fd: c_int, out: Out<'_, libc::statfs>) -> c_int {
        match client().and_then(|client| client.file_system_of(fd)) {
            None => answer(kernel!(SYS_fstatfs, fd, out)),
            Some(found) => answer(found.and_then(|found| out.put(plain(found)))),
        }
    }

    fn pathconf(path: Text<'_>, what: c_int) -> c_long, next {
        match file_system(path) {
            None => next(),
            Some(Err(errno)) => answer(Err::<isize, _>(errno)),
            Some(Ok(found)) if what == libc::_PC_NAME_MAX => word(found.name_len_max),
            // The rest is what every file system of Linux has.
            Some(Ok(_)) => next!(pathconf(Text::of(c"/") => Text<'_>, what => c_int) -> c_long),
        }
    }

    fn statvfs|statvfs64(path: Text<'_>, out: Out<'_, libc::statvfs>) -> c_int {
        match file_system(path) {
            None => next!(statvfs(path => Text<'_>, out => Out<'_, libc::statvfs>) -> c_int),
            Some(found) => answer(found.and_then(|found| out.put(virtual_plain(found)))),
        }
    }

    fn fstatvfs|fstatvfs64(fd: c_int, out: Out<'_, libc::statvfs>) -> c_int {
        match client().and_then(|client| client.file_system_of(fd)) {
            None => next!(fstatvfs(fd => c_int, out => Out<'_, libc::statvfs>) -> c_int),
            Some(found) => answer(found.and_then(|found| out.put(virtual_plain(found)))),
        }
    }
}

/// Lists an open folder; `ask` is the kernel's call for the next names.
pub(crate) fn list(fd: c_int, ask: impl FnOnce() -> Outcome) -> Outcome {
    if is_placeholder(fd) {
        return Err(Errno::NOTDIR); // A file's.
    }
    ask()
}

/// Before libc or the kernel takes a name by itself.
pub(crate) fn viewable(dir: c_int, path: Text<'_>) -> Outcome<()> {
    match client().zip(path.get()) {
        Some((client, name)) => client.viewable(dir, name),
        None => Ok(()),
    }
}

/// Returns the server's description of its file system; `None` when the name is not remote.
fn file_system(path: Text<'_>) -> Option<Outcome<FileSystem>> {
    let (client, name) = client().zip(path.get())?;
    if let Some(fd) = client.placeholder_at(AT_FDCWD, name) {
        let found = client.file_system_of(fd);
        return found.or_else(|| client.detach_number(name).err().map(Err));
    }
    let (client, name) = remote(AT_FDCWD, path)?;
    client.file_system(AT_FDCWD, name)
}

fn plain(found: FileSystem) -> libc::statfs {
    // SAFETY: integers all through.
    let mut out: libc::statfs = unsafe { MaybeUninit::zeroed().assume_init() };
    out.f_bsize = word(found.block_size);
    out.f_frsize = word(found.block_size);
    (out.f_blocks, out.f_bfree, out.f_bavail) = (found.block_count, found.free, found.available);
    (out.f_files, out.f_ffree) = (found.inode_count, found.inodes_free);
    (out.f_namelen, out.f_type) = (word(found.name_len_max), word(found.magic));
    out
}

fn virtual_plain(found: FileSystem) -> libc::statvfs {
    // SAFETY: integers all through.
    let mut out: libc::statvfs = unsafe { MaybeUninit::zeroed().assume_init() };
    (out.f_bsize, out.f_frsize) = (found.block_size, found.block_size);
    (out.f_blocks, out.f_bfree, out.f_bavail) = (found.block_count, found.free, found.available);
    (out.f_files, out.f_ffree) = (found.inode_count, found.inodes_free);
    out.f_favail = found.inodes_free;
    out.f_namemax = found.name_len_max;
    out
}

fn word(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// After a call by which names mean something else.
fn with_other_names(outcome: Outcome) -> c_int {
    if let (Ok(_), Some(client)) = (outcome, client()) {
        client.change_view();
    }
    answer(outcome)
}
