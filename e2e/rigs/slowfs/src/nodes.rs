//! The inodes that the kernel knows, by descriptors that survive a change of name.

use std::{
    collections::HashMap,
    ffi::OsStr,
    os::fd::{AsRawFd as _, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::{
    fs::{self, AtFlags, Mode, OFlags, Stat},
    io::{self, Errno},
};

/// The inodes that the kernel knows, each with how often it was told of it.
#[derive(Debug)]
pub(crate) struct Nodes {
    known: Mutex<HashMap<u64, (Arc<OwnedFd>, u64)>>,
    root: Arc<OwnedFd>,
}

impl Nodes {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { known: Mutex::default(), root: Arc::new(root) }
    }

    /// An `O_PATH` descriptor of an inode.
    pub(crate) fn get(&self, inode: INodeNo) -> io::Result<Arc<OwnedFd>> {
        if inode == INodeNo::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let known = self.known();
        known.get(&inode.0).map(|(fd, _)| Arc::clone(fd)).ok_or(Errno::STALE)
    }

    /// Looks a name up, and counts that the kernel is told of it.
    pub(crate) fn look_up(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(&*self.get(parent)?, name, flags, Mode::empty())?;
        let attributes = attributes(&fs::fstat(&fd)?);
        let mut known = self.known();
        known.entry(attributes.ino.0).or_insert_with(|| (Arc::new(fd), 0)).1 += 1;
        Ok(attributes)
    }

    /// The kernel has forgotten an inode so many times.
    pub(crate) fn forget(&self, inode: INodeNo, times: u64) {
        let mut known = self.known();
        if let Some((_, count)) = known.get_mut(&inode.0) {
            *count = count.saturating_sub(times);
            if *count == 0 {
                known.remove(&inode.0);
            }
        }
    }

    /// Opens an inode.
    pub(crate) fn open(&self, inode: INodeNo, flags: OFlags) -> io::Result<OwnedFd> {
        let fd = self.get(inode)?;
        // The kernel says where an append goes, and what is aligned.
        let not_ours =
            OFlags::NOFOLLOW | OFlags::CREATE | OFlags::EXCL | OFlags::APPEND | OFlags::DIRECT;
        let flags = flags.difference(not_ours) | OFlags::CLOEXEC;
        fs::open(link(&fd), flags, Mode::empty())
    }

    pub(crate) fn attributes(&self, inode: INodeNo) -> io::Result<FileAttr> {
        let mut found = attributes(&fs::fstat(&*self.get(inode)?)?);
        found.ino = inode;
        Ok(found)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, (Arc<OwnedFd>, u64)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name for what an `O_PATH` descriptor stands for.
pub(crate) fn link(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Gives a new file to whoever asked for it.
pub(crate) fn give(parent: &OwnedFd, name: &OsStr, request: &fuser::Request) -> io::Result<()> {
    let owner = Some(rustix::process::Uid::from_raw(request.uid()));
    let group = Some(rustix::process::Gid::from_raw(request.gid()));
    fs::chownat(parent, name, owner, group, AtFlags::SYMLINK_NOFOLLOW)
}

fn attributes(stat: &Stat) -> FileAttr {
    let time = |seconds: i64, nanos: u64| {
        let since = Duration::new(seconds.unsigned_abs(), u32::try_from(nanos).unwrap_or(0));
        SystemTime::UNIX_EPOCH + since
    };
    FileAttr {
        ino: INodeNo(stat.st_ino),
        size: stat.st_size.unsigned_abs(),
        blocks: stat.st_blocks.unsigned_abs(),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(fs::FileType::from_raw_mode(stat.st_mode)),
        perm: u16::try_from(stat.st_mode & 0o7777).unwrap_or(0),
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: u32::try_from(stat.st_rdev).unwrap_or(0),
        blksize: 1 << 20,
        flags: 0,
    }
}

pub(crate) fn kind(kind: fs::FileType) -> FileType {
    match kind {
        fs::FileType::Directory => FileType::Directory,
        fs::FileType::Symlink => FileType::Symlink,
        fs::FileType::Fifo => FileType::NamedPipe,
        fs::FileType::Socket => FileType::Socket,
        fs::FileType::CharacterDevice => FileType::CharDevice,
        fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}
