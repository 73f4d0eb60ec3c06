//! Status of files. The size of a file that is being written has to be right.

use core::mem::MaybeUninit;

use client::{Client, Status};
use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_int, c_uint};

use crate::{
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, kernel},
    pointers::{Out, Text},
    process_client::{client, is_programs},
};

/// Flags of `fstatat` and `statx`.
const KNOWN_FLAGS: c_int =
    AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_STATX_SYNC_TYPE;

interpose! { safe:
    fn stat|stat64(path: Text<'_>, out: Out<'_, libc::stat>) -> c_int =>
        stat_at(AT_FDCWD, path, out, 0);
    fn lstat|lstat64(path: Text<'_>, out: Out<'_, libc::stat>) -> c_int =>
        stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
    fn fstatat|fstatat64(
        dir: c_int, path: Text<'_>, out: Out<'_, libc::stat>, flags: c_int,
    ) -> c_int =>
        stat_at(dir, path, out, flags);
    fn fstat|fstat64|__fstat64(fd: c_int, out: Out<'_, libc::stat>) -> c_int =>
        stat_number(fd, out);
    fn __xstat|__xstat64(_version: c_int, path: Text<'_>, out: Out<'_, libc::stat>) -> c_int =>
        stat_at(AT_FDCWD, path, out, 0);
    fn __lxstat|__lxstat64(_version: c_int, path: Text<'_>, out: Out<'_, libc::stat>) -> c_int =>
        stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
    fn __fxstat|__fxstat64(_version: c_int, fd: c_int, out: Out<'_, libc::stat>) -> c_int =>
        stat_number(fd, out);
    fn __fxstatat|__fxstatat64(
        _version: c_int, dir: c_int, path: Text<'_>, out: Out<'_, libc::stat>, flags: c_int,
    ) -> c_int =>
        stat_at(dir, path, out, flags);

    fn ftok(path: Text<'_>, project: c_int) -> libc::key_t {
        let (device, inode) = match file_at(path) {
            Ok(found) => found,
            Err(errno) => return answer(Err::<c_int, _>(errno)),
        };
        let ([low, high, ..], [device, ..]) = (inode.to_le_bytes(), device.to_le_bytes());
        libc::key_t::from_le_bytes([low, high, device, project.to_le_bytes()[0]])
    }

    fn statx(
        dir: c_int, path: Text<'_>, flags: c_int, mask: c_uint, out: Out<'_, libc::statx>,
    ) -> c_int =>
        statx_at(dir, path, flags, mask, out);
}

/// The device and inode of a file.
fn file_at(path: Text<'_>) -> Outcome<(u64, u64)> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is room for a status, which nobody else uses.
    let place = unsafe { Out::new(found.as_mut_ptr()) };
    stat_at(AT_FDCWD, path, place, 0)?;
    // SAFETY: the call has succeeded, so the client or the kernel has filled it in.
    let found = unsafe { found.assume_init() };
    Ok((found.st_dev, found.st_ino))
}

/// The status of an open file, as the program is told it.
pub(crate) fn status_of(fd: c_int) -> Outcome<libc::stat> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is room for a status, which nobody else uses.
    let place = unsafe { Out::new(found.as_mut_ptr()) };
    stat_number(fd, place)?;
    // SAFETY: the call has succeeded, so the client or the kernel has filled it in.
    Ok(unsafe { found.assume_init() })
}

/// As `fstatat(2)`.
fn stat_at(dir: c_int, path: Text<'_>, out: Out<'_, libc::stat>, flags: c_int) -> Outcome {
    let ask = || {
        // SAFETY: the kernel reads a name, and writes one status, for which an `Out` has room.
        unsafe { kernel!(SYS_newfstatat, dir, path, out, flags) }
    };
    let Some(client) = client() else { return ask() };
    if let Some(status) = delegated(client, dir, path, flags) {
        return out.put(plain(&status?));
    }
    settled(client, ask, || {
        // SAFETY: called after the kernel's success.
        let found = unsafe { out.answer() };
        (found.st_dev, found.st_ino)
    })
}

/// As `fstat(2)`.
fn stat_number(fd: c_int, out: Out<'_, libc::stat>) -> Outcome {
    // SAFETY: the kernel writes one status, for which an `Out` has room.
    let ask = || unsafe { kernel!(SYS_fstat, fd, out) };
    let Some(client) = client() else { return ask() };
    if let Some(status) = client.stat(fd) {
        return out.put(plain(&status?));
    }
    ask()?;
    // SAFETY: the kernel has just succeeded.
    let found = unsafe { out.answer() };
    match found.st_mode & libc::S_IFMT {
        libc::S_IFDIR => {
            return client.stat_folder(fd).map_or(Ok(0), |status| out.put(plain(&status?)));
        }
        // Without a name of its own, as the memory that stands for a folder's.
        libc::S_IFREG if found.st_nlink == 0 => {
            if let Some(status) = client.stat_folder(fd) {
                return out.put(plain(&status?));
            }
        }
        libc::S_IFSOCK => is_programs(fd)?,
        _ => {}
    }
    client.note_status(fd, found.st_dev, found.st_ino);
    if client.settle(found.st_dev, found.st_ino) { ask() } else { Ok(0) }
}

/// As `statx(2)`.
fn statx_at(
    dir: c_int,
    path: Text<'_>,
    flags: c_int,
    mask: c_uint,
    out: Out<'_, libc::statx>,
) -> Outcome {
    let ask = || {
        // SAFETY: the kernel reads a name, and writes one `statx`, for which an `Out` has room.
        unsafe { kernel!(SYS_statx, dir, path, flags, mask, out) }
    };
    let Some(client) = client() else { return ask() };
    if let Some(status) = delegated(client, dir, path, flags) {
        return out.put(extended(&status?));
    }
    settled(client, ask, || {
        // SAFETY: called after the kernel's success.
        let found = unsafe { out.answer() };
        (libc::makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino)
    })
}

/// Asks the kernel again when the file was still being written at the first time.
fn settled(
    client: &'static Client,
    ask: impl Fn() -> Outcome,
    file: impl FnOnce() -> (u64, u64),
) -> Outcome {
    let timed = client.stat_begins();
    let first = ask()?;
    let (device, inode) = file();
    if let Some(timed) = timed {
        client.learn_stat(timed, device);
    }
    if client.settle(device, inode) { ask() } else { Ok(first) }
}

/// Returns the client's status of a delegated file; `None` when the kernel has it.
fn delegated(
    client: &'static Client,
    dir: c_int,
    path: Text<'_>,
    flags: c_int,
) -> Option<Outcome<Status>> {
    if flags & !KNOWN_FLAGS != 0 {
        return None; // The kernel says that there are no such flags.
    }
    if flags & AT_EMPTY_PATH == 0 && !client.is_ruled() {
        return None; // It is a name, and not the client's.
    }
    match path.get() {
        Some(path) if !path.is_empty() => {
            let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
            let first = client.stat_path(dir, path, follow)?;
            match first {
                Ok(status) if client.settle(status.device, status.inode) => {
                    client.stat_path(dir, path, follow)
                }
                _ => Some(first),
            }
        }
        _ if flags & AT_EMPTY_PATH != 0 => client.stat(dir).or_else(|| client.stat_folder(dir)),
        _ => None,
    }
}

fn plain(status: &Status) -> libc::stat {
    // SAFETY: integers all through, padding included.
    let mut out: libc::stat = unsafe { MaybeUninit::zeroed().assume_init() };
    out.st_dev = status.device;
    out.st_ino = status.inode;
    out.st_mode = status.mode;
    out.st_nlink = fit(status.link_count, libc::nlink_t::MAX);
    out.st_uid = status.user;
    out.st_gid = status.group;
    out.st_rdev = status.special_device;
    out.st_size = fit(status.size, libc::off_t::MAX);
    out.st_blksize = fit(status.block_size, libc::blksize_t::MAX);
    out.st_blocks = fit(status.block_count, libc::blkcnt_t::MAX);
    (out.st_atime, out.st_atime_nsec) = (status.accessed.0, status.accessed.1.into());
    (out.st_mtime, out.st_mtime_nsec) = (status.modified.0, status.modified.1.into());
    (out.st_ctime, out.st_ctime_nsec) = (status.changed.0, status.changed.1.into());
    out
}

/// A number as wide as it is on this machine.
fn fit<T: TryFrom<u64>>(value: u64, max: T) -> T {
    value.try_into().unwrap_or(max)
}

fn extended(status: &Status) -> libc::statx {
    // SAFETY: integers all through, padding included.
    let mut out: libc::statx = unsafe { MaybeUninit::zeroed().assume_init() };
    out.stx_mask = libc::STATX_BASIC_STATS;
    out.stx_dev_major = libc::major(status.device);
    out.stx_dev_minor = libc::minor(status.device);
    out.stx_ino = status.inode;
    out.stx_mode = u16::try_from(status.mode).unwrap_or(u16::MAX);
    out.stx_nlink = u32::try_from(status.link_count).unwrap_or(u32::MAX);
    out.stx_uid = status.user;
    out.stx_gid = status.group;
    out.stx_rdev_major = libc::major(status.special_device);
    out.stx_rdev_minor = libc::minor(status.special_device);
    out.stx_size = status.size;
    out.stx_blksize = u32::try_from(status.block_size).unwrap_or(u32::MAX);
    out.stx_blocks = status.block_count;
    for (time, (seconds, nanoseconds)) in [
        (&mut out.stx_atime, status.accessed),
        (&mut out.stx_mtime, status.modified),
        (&mut out.stx_ctime, status.changed),
    ] {
        time.tv_sec = seconds;
        time.tv_nsec = nanoseconds;
    }
    out
}
