//! The kernel's status of a file by `statx(2)`, with its birth time.
//!
//! Device and inode alone do not tell a file from one that was made later: a file system gives the
//! number of a file that is gone to the next.

use std::{
    collections::BTreeMap,
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{PoisonError, RwLock},
};

use rustix::{
    fs::{
        AtFlags, Stat, Statx, StatxFlags, StatxTimestamp, fstatfs, major, makedev, statat, statx,
    },
    io::Errno,
};
use wire::{FileSystem, Status};

/// Device and inode of a file. Zeros are nobody's.
pub type Identity = (u64, u64);

/// First major number of 12 bits that no device here has.
const MAJOR: u32 = 0x800;

/// Servers' devices, as numbers that nobody has here, and the views that show their files.
static VIEWS: RwLock<BTreeMap<u64, u64>> = RwLock::new(BTreeMap::new());

/// Returns the device number of a server's files: that of the view which shows them, or nobody's
/// here, and one as the kernel's are, of 12 and 20 bits. Some programs take no others.
pub fn device_of(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    let mixed = u32::try_from(mixed).unwrap_or(u32::MAX >> 1);
    let nobodys = makedev(MAJOR | mixed >> 20, mixed & 0xf_ffff);
    let views = VIEWS.read().unwrap_or_else(PoisonError::into_inner);
    views.get(&nobodys).copied().unwrap_or(nobodys)
}

/// Has the files of a server's device be those of a view, as the kernel says of them: a program
/// compares what it hears of a file from either. Of several views the first has them. Returns the
/// device's number from now on.
pub fn show_in_view(device: u64, view: u64) -> u64 {
    if major(device) < MAJOR {
        return device;
    }
    *VIEWS.write().unwrap_or_else(PoisonError::into_inner).entry(device).or_insert(view)
}

/// Of an open file.
///
/// # Errors
///
/// Those of `statx`.
pub fn status_of(fd: impl AsFd) -> io::Result<Status> {
    status_at(fd.as_fd(), c"", AtFlags::EMPTY_PATH)
}

/// Of a name in a folder.
///
/// # Errors
///
/// Those of `statx`.
pub fn status_at(folder: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> io::Result<Status> {
    let asked = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    match statx(folder, name, flags, asked) {
        Ok(found) => {
            let status = of_statx(&found);
            let born = if keeps_births(folder, &status) { status.born } else { 0 };
            Ok(Status { born, ..status })
        }
        // An old kernel, or a container that knows no such call.
        Err(Errno::NOSYS | Errno::PERM) => Ok(of_stat(&statat(folder, name, flags)?)),
        Err(why) => Err(why.into()),
    }
}

/// True if two are one file, by device and inode and, as far as both are known, when it was made.
pub fn is_same(one: (Identity, u64), other: (Identity, u64)) -> bool {
    one.0 == other.0 && (one.1 == other.1 || one.1 == 0 || other.1 == 0)
}

/// True if a file that was asked about in this folder has the same birth for ever: one of an
/// overlay is born again when it is first written to.
fn keeps_births(folder: BorrowedFd<'_>, status: &Status) -> bool {
    const OVERLAY: u64 = 0x794c_7630;
    static OVERLAYS: RwLock<BTreeMap<u64, bool>> = RwLock::new(BTreeMap::new());
    let device = status.device;
    let known = OVERLAYS.read().unwrap_or_else(PoisonError::into_inner).get(&device).copied();
    let is_overlay = known.unwrap_or_else(|| {
        let found = file_system(folder).is_ok_and(|found| found.magic == OVERLAY);
        OVERLAYS.write().unwrap_or_else(PoisonError::into_inner).insert(device, found);
        found
    });
    !is_overlay
}

fn of_statx(found: &Statx) -> Status {
    let time = |time: StatxTimestamp| (time.tv_sec, time.tv_nsec);
    let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    let (seconds, nanoseconds) = time(found.stx_btime);
    let seconds = u64::try_from(seconds).unwrap_or_default();
    let born = seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds.into());
    Status {
        device: makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        mode: found.stx_mode.into(),
        link_count: found.stx_nlink.into(),
        user: found.stx_uid,
        group: found.stx_gid,
        special_device: makedev(found.stx_rdev_major, found.stx_rdev_minor),
        size: found.stx_size,
        block_size: found.stx_blksize.into(),
        block_count: found.stx_blocks,
        accessed: time(found.stx_atime),
        modified: time(found.stx_mtime),
        changed: time(found.stx_ctime),
        born: if has_birth { born } else { 0 },
    }
}

#[expect(clippy::cast_sign_loss, reason = "the same bits, whatever the platform's types")]
#[allow(
    clippy::unnecessary_cast,
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::allow_attributes,
    reason = "the widths of these fields differ between platforms; nanoseconds are no more"
)]
const fn of_stat(stat: &Stat) -> Status {
    Status {
        device: stat.st_dev as u64,
        inode: stat.st_ino as u64,
        mode: stat.st_mode as u32,
        link_count: stat.st_nlink as u64,
        user: stat.st_uid as u32,
        group: stat.st_gid as u32,
        special_device: stat.st_rdev as u64,
        size: stat.st_size as u64,
        block_size: stat.st_blksize as u64,
        block_count: stat.st_blocks as u64,
        accessed: (stat.st_atime as i64, stat.st_atime_nsec as u32),
        modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u32),
        changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u32),
        born: 0,
    }
}

/// True if a device's files are those of a view of this daemon's.
pub fn is_of_view(device: u64) -> bool {
    let views = VIEWS.read().unwrap_or_else(PoisonError::into_inner);
    views.values().any(|view| *view == device)
}

#[expect(clippy::cast_sign_loss, reason = "the same bits, whatever the platform's types")]
#[allow(
    clippy::unnecessary_cast,
    clippy::cast_lossless,
    clippy::allow_attributes,
    reason = "the widths of these fields differ between platforms"
)]
pub(crate) fn file_system(fd: impl AsFd) -> io::Result<FileSystem> {
    let found = fstatfs(fd)?;
    Ok(FileSystem {
        block_size: found.f_bsize as u64,
        block_count: found.f_blocks as u64,
        free: found.f_bfree as u64,
        available: found.f_bavail as u64,
        inode_count: found.f_files as u64,
        inodes_free: found.f_ffree as u64,
        name_len_max: found.f_namelen as u64,
        magic: found.f_type as u64,
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::fstat;

    use super::*;

    #[test]
    fn both_calls_say_the_same() {
        for path in ["/dev/null", "/proc/version", "Cargo.toml", "src"] {
            let file = std::fs::File::open(path).expect("is there");
            let status = status_of(&file).expect("open");
            assert_eq!(Status { born: 0, ..status }, of_stat(&fstat(&file).expect("open")));
        }
    }

    #[test]
    fn files_whose_birth_nobody_knows_are_told_by_their_numbers() {
        assert!(is_same(((1, 2), 0), ((1, 2), 3)) && is_same(((1, 2), 3), ((1, 2), 3)));
        assert!(!is_same(((1, 2), 3), ((1, 2), 4)) && !is_same(((1, 2), 0), ((1, 3), 0)));
    }

    #[test]
    fn a_file_that_gets_the_number_of_one_that_is_gone_is_another() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("folder");
        let path = folder.path().join("file");
        let made = || {
            let file = std::fs::File::create(&path).expect("made");
            let status = status_of(&file).expect("open");
            std::fs::remove_file(&path).expect("there");
            status
        };
        let (first, second) = (made(), made());
        assert!((first.inode, first.born) != (second.inode, second.born) || first.born == 0);
    }
}
