//! Calls on folders: listing them, entering them, asking where one is.
//!
//! A remote folder is listed and entered by way of its mirror, a real local folder; where the
//! kernel would name the mirror, the program is told the name it knows.

use core::{ffi::CStr, mem::MaybeUninit};

use client::{Errno, FileSystem, Path, Room};
use libc::{AT_FDCWD, c_char, c_int, c_long, c_void, size_t, ssize_t};

use crate::{
    bits::{self, counted, returned},
    data::check,
    descriptor::forget,
    errno::{answer, last, set},
    interpose::{interpose, next},
    kernel::{Outcome, kernel},
    paths::{name_nothing_else, remote},
    real::real,
    served::{before_own_table, client, text},
    sync::is_placeholder,
};

/// Room for names, bytes, of which the kernel counts no more in one call.
const LISTED_MAX: usize = c_int::MAX as usize;

interpose! {
    fn opendir(path: *const c_char) -> *mut c_void {
        let mut space = None;
        match mirrored(path, &mut space) {
            Ok(path) => next!(opendir(path => *const c_char) -> *mut c_void),
            Err(errno) => {
                set(errno);
                core::ptr::null_mut()
            }
        }
    }

    fn fdopendir(fd: c_int) -> *mut c_void {
        if let Some(client) = client() {
            client.refresh_folder(fd);
        }
        forget(fd);
        next!(fdopendir(fd => c_int) -> *mut c_void)
    }

    fn rewinddir(dir: *mut c_void) {
        refresh(libc::dirfd(dir.cast()));
        next!(rewinddir(dir => *mut c_void) -> ())
    }

    fn seekdir(dir: *mut c_void, at: c_long) {
        if at == 0 {
            refresh(libc::dirfd(dir.cast()));
        }
        next!(seekdir(dir => *mut c_void, at => c_long) -> ())
    }

    fn getdents64(fd: c_int, entries: *mut c_void, len: size_t) -> ssize_t {
        answer(list(fd, || kernel!(SYS_getdents64, fd, entries, len.min(LISTED_MAX))))
    }

    fn scandir|scandir64(
        path: *const c_char, list: *mut c_void, filter: *const c_void, compare: *const c_void,
    ) -> c_int {
        let mut space = None;
        match mirrored(path, &mut space) {
            Ok(path) => next!(
                scandir(
                    path => *const c_char, list => *mut c_void, filter => *const c_void,
                    compare => *const c_void,
                ) -> c_int
            ),
            Err(errno) => answer(Err::<c_int, _>(errno)),
        }
    }

    fn scandirat|scandirat64(
        dir: c_int, path: *const c_char, list: *mut c_void, filter: *const c_void,
        compare: *const c_void,
    ) -> c_int {
        let mut space = None;
        let remote = remote(dir, path);
        match remote.map(|(client, name)| client.absolute(dir, name, taken(&mut space)?)) {
            Some(Ok(path)) => scandir(path.as_ptr(), list, filter, compare),
            Some(Err(errno)) => answer(Err::<c_int, _>(errno)),
            None => next!(
                scandirat(
                    dir => c_int, path => *const c_char, list => *mut c_void,
                    filter => *const c_void, compare => *const c_void,
                ) -> c_int
            ),
        }
    }

    fn chdir(path: *const c_char) -> c_int {
        // To enter a folder is not to read it: its mirror may have no names.
        if let Some(Err(errno)) = remote(AT_FDCWD, path)
            .and_then(|(client, name)| client.access(AT_FDCWD, name, bits::unsigned(libc::X_OK)))
        {
            return answer(Err::<c_int, _>(errno));
        }
        let mut space = None;
        match mirrored(path, &mut space) {
            Ok(path) => answer(kernel!(SYS_chdir, path)),
            Err(errno) => answer(Err::<c_int, _>(errno)),
        }
    }

    fn chroot(path: *const c_char) -> c_int {
        let done = kernel!(SYS_chroot, path);
        if let (Ok(_), Some(client)) = (done, client()) {
            client.change_root();
        }
        answer(done)
    }

    fn unshare(what: c_int) -> c_int {
        if what & libc::CLONE_FILES != 0 {
            before_own_table();
        }
        with_other_names(kernel!(SYS_unshare, what))
    }

    fn setns(of: c_int, what: c_int) -> c_int {
        with_other_names(kernel!(SYS_setns, of, what))
    }

    fn getcwd(buffer: *mut c_char, len: size_t) -> *mut c_char {
        // The name that the program knows may have room where the mirror's has not.
        let mut space = None;
        match current(&mut space).map(|name| give(name?, buffer, len)) {
            Some(Ok(name)) => name,
            Some(Err(errno)) => {
                set(errno);
                core::ptr::null_mut()
            }
            None => next!(getcwd(buffer => *mut c_char, len => size_t) -> *mut c_char),
        }
    }

    fn getwd(buffer: *mut c_char) -> *mut c_char {
        if buffer.is_null() {
            set(Errno::INVAL);
            return buffer;
        }
        getcwd(buffer, size_of::<Path>())
    }

    fn __getwd_chk(buffer: *mut c_char, room: size_t) -> *mut c_char {
        let name = getcwd(buffer, room);
        if name.is_null() && last() == Errno::RANGE {
            check(size_of::<Path>(), room);
        }
        name
    }

    fn __getcwd_chk(buffer: *mut c_char, len: size_t, room: size_t) -> *mut c_char {
        check(len, room);
        getcwd(buffer, len)
    }

    fn get_current_dir_name() -> *mut c_char {
        let mut space = None;
        if current(&mut space).is_some() {
            return getcwd(core::ptr::null_mut(), 0);
        }
        known(next!(get_current_dir_name() -> *mut c_char))
    }

    fn realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char {
        if let Err(errno) = name_nothing_else(path) {
            set(errno);
            return core::ptr::null_mut();
        }
        match remote(AT_FDCWD, path) {
            Some(_) => real_path(path, resolved),
            None => known(next!(
                realpath(path => *const c_char, resolved => *mut c_char) -> *mut c_char
            )),
        }
    }

    fn __realpath_chk(
        path: *const c_char, resolved: *mut c_char, _room: size_t,
    ) -> *mut c_char {
        realpath(path, resolved)
    }

    fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
        realpath(path, core::ptr::null_mut())
    }

    fn statfs|statfs64(path: *const c_char, out: *mut libc::statfs) -> c_int {
        match file_system(path) {
            None => answer(kernel!(SYS_statfs, path, out)),
            Some(found) => answer(found.map(|found| out.write(plain(found)))),
        }
    }

    fn fstatfs|fstatfs64(fd: c_int, out: *mut libc::statfs) -> c_int {
        match client().and_then(|client| client.file_system_of(fd)) {
            None => answer(kernel!(SYS_fstatfs, fd, out)),
            Some(found) => answer(found.map(|found| out.write(plain(found)))),
        }
    }

    fn pathconf(path: *const c_char, what: c_int) -> c_long {
        match file_system(path) {
            None => next!(pathconf(path => *const c_char, what => c_int) -> c_long),
            Some(Err(errno)) => answer(Err::<isize, _>(errno)),
            Some(Ok(found)) if what == libc::_PC_NAME_MAX => word(found.name_len_max),
            // The rest is what every file system of Linux has.
            Some(Ok(_)) => next!(pathconf(c"/".as_ptr() => *const c_char, what => c_int) -> c_long),
        }
    }

    fn statvfs|statvfs64(path: *const c_char, out: *mut libc::statvfs) -> c_int {
        match file_system(path) {
            None => next!(statvfs(path => *const c_char, out => *mut libc::statvfs) -> c_int),
            Some(found) => answer(found.map(|found| out.write(virtual_plain(found)))),
        }
    }

    fn fstatvfs|fstatvfs64(fd: c_int, out: *mut libc::statvfs) -> c_int {
        match client().and_then(|client| client.file_system_of(fd)) {
            None => next!(fstatvfs(fd => c_int, out => *mut libc::statvfs) -> c_int),
            Some(found) => answer(found.map(|found| out.write(virtual_plain(found)))),
        }
    }
}

/// Lists an open folder; `ask` is the kernel's call for the next names. At the start the names are
/// those that are there by now.
pub(crate) fn list(fd: c_int, ask: impl FnOnce() -> Outcome) -> Outcome {
    if is_placeholder(fd) {
        return Err(Errno::NOTDIR); // A file's.
    }
    // SAFETY: no pointers.
    if unsafe { kernel!(SYS_lseek, fd, 0_i64, libc::SEEK_CUR) } == Ok(0) {
        refresh(fd);
    }
    ask()
}

/// As the system call `getcwd`, which answers with the name's length.
///
/// # Safety
///
/// There is room for `len` bytes at `buffer`.
#[inline(never)]
pub(crate) unsafe fn name_current(buffer: *mut c_char, len: size_t) -> Outcome {
    let mut space = None;
    match current(&mut space) {
        // SAFETY: as the caller promises.
        Some(name) => unsafe { put(name?, buffer, len) },
        // SAFETY: the program's own call.
        None => unsafe { kernel!(SYS_getcwd, buffer, len) },
    }
}

/// Takes room for a path, of which most calls need none.
fn taken(space: &mut Option<Room>) -> Outcome<&mut Path> {
    if space.is_none() {
        *space = Some(Room::take().ok_or(Errno::NOMEM)?);
    }
    space.as_deref_mut().ok_or(Errno::NOMEM)
}

/// The current folder's name as the program knows it, with its NUL; `None`: the kernel knows it.
/// `ENOENT`: the folder is removed, and its mirror is there yet.
fn current(space: &mut Option<Room>) -> Option<Outcome<&[u8]>> {
    let client = client().filter(|client| client.has_remote())?;
    let space = taken(space).ok()?;
    // SAFETY: there is so much room.
    let len = unsafe { kernel!(SYS_getcwd, space.as_mut_ptr(), space.len()) }.ok()?;
    let name = space.get(..counted(len))?;
    let known = client.known_path(name);
    if known.len() == name.len() {
        return None;
    }
    Some(match client.stat_path(AT_FDCWD, c".", true) {
        Some(Err(Errno::NOENT)) => Err(Errno::NOENT),
        _ => Ok(known),
    })
}

/// As `getcwd(3)` gives the program a name: without a buffer in memory of its own, of `len` bytes,
/// or as many as it takes.
///
/// # Safety
///
/// `buffer` is null or has room for `len` bytes.
unsafe fn give(name: &[u8], buffer: *mut c_char, len: size_t) -> Outcome<*mut c_char> {
    let len = match len {
        0 if buffer.is_null() => name.len(),
        0 => return Err(Errno::INVAL),
        len if len < name.len() => return Err(Errno::RANGE),
        len => len,
    };
    // SAFETY: any length may be asked for.
    let made = || unsafe { libc::malloc(len) }.cast();
    let room = if buffer.is_null() { made() } else { buffer };
    if room.is_null() {
        return Err(Errno::NOMEM);
    }
    // SAFETY: there is so much room.
    unsafe { put(name, room, len) }.map(|_| room)
}

/// Gives the program a name, and returns its length.
///
/// # Safety
///
/// There is room for `len` bytes at `buffer`.
unsafe fn put(name: &[u8], buffer: *mut c_char, len: size_t) -> Outcome {
    if name.len() > len {
        return Err(Errno::RANGE);
    }
    // SAFETY: as the caller promises.
    unsafe { name.as_ptr().copy_to_nonoverlapping(buffer.cast(), name.len()) };
    Ok(returned(name.len()))
}

/// Before an open folder is listed from its start.
fn refresh(fd: c_int) {
    if let Some(client) = client().filter(|client| client.has_remote()) {
        client.refresh_folder(fd);
    }
}

/// The path to give to libc or the kernel: a remote folder's mirror, or the path itself.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn mirrored(path: *const c_char, space: &mut Option<Room>) -> Outcome<*const c_char> {
    // SAFETY: as the caller promises.
    let name = unsafe { text(path) };
    // SAFETY: as the caller promises.
    match unsafe { remote(AT_FDCWD, path) } {
        None => match client().zip(name) {
            Some((client, name)) if client.may_lead_out(name) => {
                Ok(client.outside(AT_FDCWD, name, taken(space)?).map_or(path, CStr::as_ptr))
            }
            _ => Ok(path),
        },
        Some((client, name)) => match client.mirror(name, taken(space)?) {
            Some(mirror) => mirror.map(CStr::as_ptr),
            None => Ok(path),
        },
    }
}

/// Puts the name that the program knows in the place of a mirror's.
///
/// # Safety
///
/// `path` is null or a C string that may be changed.
unsafe fn known(path: *mut c_char) -> *mut c_char {
    if path.is_null() {
        return path;
    }
    if let Some(client) = client() {
        // SAFETY: not null, so a C string.
        let found = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
        let skip = found.len() - client.known_path(found).len();
        let len = found.len() - skip;
        // SAFETY: the string is longer than what is skipped.
        let start = unsafe { path.add(skip) };
        // SAFETY: both lie in the string, the NUL included.
        unsafe { start.copy_to(path, len) };
    }
    path
}

/// As `realpath(3)` of a remote name.
///
/// # Safety
///
/// `path` is a C string, `resolved` null or with room for 4096 bytes.
unsafe fn real_path(path: *const c_char, resolved: *mut c_char) -> *mut c_char {
    let mut space = None;
    // SAFETY: as the caller promises.
    let found = unsafe { remote(AT_FDCWD, path) }
        .ok_or(Errno::NOENT)
        .and_then(|(client, name)| real(client, name, taken(&mut space)?));
    match found {
        Err(errno) => {
            set(errno);
            core::ptr::null_mut()
        }
        // SAFETY: a C string.
        Ok(found) if resolved.is_null() => unsafe { libc::strdup(found.as_ptr()) },
        Ok(found) => {
            let bytes = found.to_bytes_with_nul();
            // SAFETY: the caller gives room for the longest path.
            unsafe { bytes.as_ptr().copy_to_nonoverlapping(resolved.cast(), bytes.len()) };
            resolved
        }
    }
}

/// Returns the server's description of its file system; `None` when the name is not remote.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn file_system(path: *const c_char) -> Option<Outcome<FileSystem>> {
    // SAFETY: as the caller promises.
    let (client, name) = unsafe { remote(AT_FDCWD, path) }?;
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
