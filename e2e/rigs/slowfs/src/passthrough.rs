//! The requests of the kernel, each done to the folder below after it has taken its time.

use std::{
    collections::HashMap,
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use fuser::{
    BsdFileFlags, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::{
    fs::{self, AtFlags, Dir, Mode, OFlags, SeekFrom, Timespec, Timestamps},
    io::{self, Errno},
    process::{Gid, Uid},
};

use crate::{
    delay::{Delay, Kind},
    nodes::{Nodes, give, kind, link},
};

/// The files of a folder.
#[derive(Debug)]
pub(crate) struct Passthrough {
    nodes: Nodes,
    open: Mutex<HashMap<u64, Arc<OwnedFd>>>,
    next: AtomicU64,
    delay: Arc<Delay>,
    keep: Duration,
    /// Files without a name are stale.
    is_stale: bool,
}

impl Passthrough {
    pub(crate) fn new(
        source: &Path,
        delay: Arc<Delay>,
        keep: Duration,
        is_stale: bool,
    ) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let nodes = Nodes::new(fs::open(source, flags, Mode::empty())?);
        Ok(Self { nodes, open: Mutex::default(), next: AtomicU64::new(1), delay, keep, is_stale })
    }

    fn keep_open(&self, fd: OwnedFd) -> FileHandle {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.open_files().insert(handle, Arc::new(fd));
        FileHandle(handle)
    }

    fn opened(&self, handle: FileHandle) -> io::Result<Arc<OwnedFd>> {
        self.open_files().get(&handle.0).map(Arc::clone).ok_or(Errno::BADF)
    }

    fn open_files(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<OwnedFd>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a name by `make`, and looks it up for whoever asked.
    fn made(
        &self,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        make: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<FileAttr> {
        self.delay.take(Kind::Change, 0);
        let folder = self.nodes.get(parent)?;
        make(&folder)?;
        give(&folder, name, request)?;
        self.nodes.look_up(parent, name)
    }

    fn entry(&self, found: io::Result<FileAttr>, reply: ReplyEntry) {
        match found {
            Ok(found) => reply.entry(&self.keep, &found, Generation(0)),
            Err(why) => reply.error(error(why)),
        }
    }

    fn change(&self, done: impl FnOnce() -> io::Result<()>, reply: ReplyEmpty) {
        self.delay.take(Kind::Change, 0);
        answer(done(), reply);
    }
}

fn error(why: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(why.raw_os_error())
}

fn answer(done: io::Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(why) => reply.error(error(why)),
    }
}

impl Filesystem for Passthrough {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.delay.take(Kind::Lookup, 0);
        self.entry(self.nodes.look_up(parent, name), reply);
    }

    fn forget(&self, _: &Request, inode: INodeNo, times: u64) {
        self.nodes.forget(inode, times);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.delay.take(Kind::Attributes, 0);
        match self.nodes.attributes(inode) {
            Ok(found) if self.is_stale && found.nlink == 0 => reply.error(error(Errno::STALE)),
            Ok(found) => reply.attr(&self.keep, &found),
            Err(why) => reply.error(error(why)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        owner: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.delay.take(Kind::Change, 0);
        let set = || {
            let node = self.nodes.get(inode)?;
            if let Some(mode) = mode {
                fs::chmod(link(&node), Mode::from_raw_mode(mode))?;
            }
            if owner.is_some() || group.is_some() {
                let (owner, group) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
                fs::chownat(&node, "", owner, group, AtFlags::EMPTY_PATH)?;
            }
            if let Some(size) = size {
                let opened = match handle {
                    Some(handle) => self.opened(handle)?,
                    None => Arc::new(self.nodes.open(inode, OFlags::WRONLY)?),
                };
                fs::ftruncate(&*opened, size)?;
            }
            if accessed.is_some() || modified.is_some() {
                let (last_access, last_modification) = (timespec(accessed), timespec(modified));
                let times = Timestamps { last_access, last_modification };
                fs::utimensat(fs::CWD, link(&node), &times, AtFlags::empty())?;
            }
            self.nodes.attributes(inode)
        };
        match set() {
            Ok(found) => reply.attr(&self.keep, &found),
            Err(why) => reply.error(error(why)),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        self.delay.take(Kind::Lookup, 0);
        let read = self.nodes.get(inode).and_then(|node| fs::readlinkat(&node, "", Vec::new()));
        match read {
            Ok(target) => reply.data(target.as_bytes()),
            Err(why) => reply.error(error(why)),
        }
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = Mode::from_raw_mode(mode & !umask);
        self.entry(self.made(request, (parent, name), |dir| fs::mkdirat(dir, name, mode)), reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let kind = fs::FileType::from_raw_mode(mode);
        let mode = Mode::from_raw_mode(mode & !umask);
        let make = |dir: &OwnedFd| fs::mknodat(dir, name, kind, mode, device.into());
        self.entry(self.made(request, (parent, name), make), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let make = |dir: &OwnedFd| fs::symlinkat(target, dir, name);
        self.entry(self.made(request, (parent, name), make), reply);
    }

    fn link(&self, _: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.delay.take(Kind::Change, 0);
        let made = || {
            let (node, folder) = (self.nodes.get(inode)?, self.nodes.get(parent)?);
            fs::linkat(fs::CWD, link(&node), &folder, name, AtFlags::SYMLINK_FOLLOW)?;
            self.nodes.look_up(parent, name)
        };
        self.entry(made(), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = || fs::unlinkat(&*self.nodes.get(parent)?, name, AtFlags::empty());
        self.change(gone, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = || fs::unlinkat(&*self.nodes.get(parent)?, name, AtFlags::REMOVEDIR);
        self.change(gone, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = fs::RenameFlags::from_bits_retain(flags.bits());
        let renamed = || {
            let (from, to) = (self.nodes.get(parent)?, self.nodes.get(to)?);
            fs::renameat_with(&from, name, &to, new_name, flags)
        };
        self.change(renamed, reply);
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.delay.take(Kind::Open, 0);
        match self.nodes.open(inode, OFlags::from_bits_retain(flags.0.unsigned_abs())) {
            Ok(fd) => reply.opened(self.keep_open(fd), FopenFlags::empty()),
            Err(why) => reply.error(error(why)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.delay.take(Kind::Open, 0);
        let flags = OFlags::from_bits_retain(flags.unsigned_abs());
        let created = || {
            let folder = self.nodes.get(parent)?;
            let not_ours = OFlags::APPEND | OFlags::DIRECT;
            let how = flags.difference(not_ours) | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(mode & !umask);
            let fd = fs::openat(&folder, name, how | OFlags::CREATE, mode)?;
            give(&folder, name, request)?;
            Ok((self.nodes.look_up(parent, name)?, fd))
        };
        match created() {
            Ok((found, fd)) => {
                let (handle, flags) = (self.keep_open(fd), FopenFlags::empty());
                reply.created(&self.keep, &found, Generation(0), handle, flags);
            }
            Err(why) => reply.error(error(why)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        at: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let read = self.opened(handle).and_then(|fd| io::pread(&fd, &mut bytes[..], at));
        self.delay.take(Kind::Read, read.unwrap_or(0));
        match read {
            Ok(len) => reply.data(bytes.get(..len).unwrap_or_default()),
            Err(why) => reply.error(error(why)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        at: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.delay.take(Kind::Write, data.len());
        match self.opened(handle).and_then(|fd| io::pwrite(&fd, data, at)) {
            Ok(len) => reply.written(u32::try_from(len).unwrap_or(u32::MAX)),
            Err(why) => reply.error(error(why)),
        }
    }

    fn flush(&self, _: &Request, inode: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.delay.take(Kind::Close, 0);
        match self.nodes.attributes(inode) {
            Ok(found) if self.is_stale && found.nlink == 0 => reply.error(error(Errno::NOENT)),
            _ => reply.ok(),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.open_files().remove(&handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, data: bool, reply: ReplyEmpty) {
        self.delay.take(Kind::Sync, 0);
        let sync = |fd| if data { fs::fdatasync(fd) } else { fs::fsync(fd) };
        answer(self.opened(handle).and_then(sync), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        from: u64,
        mut reply: ReplyDirectory,
    ) {
        self.delay.take(Kind::Lookup, 0);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let listed = self.nodes.open(inode, flags).and_then(Dir::new);
        let entries = match listed.and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Ok(entries) => entries,
            Err(why) => return reply.error(error(why)),
        };
        // A folder that changes in between is listed as far as its order stays.
        let rest = entries.iter().zip(1..).skip(usize::try_from(from).unwrap_or(usize::MAX));
        for (entry, next) in rest {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if reply.add(INodeNo(entry.ino()), next, kind(entry.file_type()), name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, inode: INodeNo, reply: ReplyStatfs) {
        self.delay.take(Kind::Attributes, 0);
        let narrow = |wide: u64| u32::try_from(wide).unwrap_or(u32::MAX);
        match self.nodes.get(inode).and_then(|node| fs::fstatvfs(&node)) {
            Ok(found) => reply.statfs(
                found.f_blocks,
                found.f_bfree,
                found.f_bavail,
                found.f_files,
                found.f_ffree,
                narrow(found.f_bsize),
                narrow(found.f_namemax),
                narrow(found.f_frsize),
            ),
            Err(why) => reply.error(error(why)),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        at: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = fs::FallocateFlags::from_bits_retain(mode.unsigned_abs());
        self.change(|| fs::fallocate(&*self.opened(handle)?, mode, at, len), reply);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.delay.take(Kind::Attributes, 0);
        // SEEK_DATA and SEEK_HOLE only: the kernel knows the rest.
        let to = offset.unsigned_abs();
        let to = if whence == 3 { SeekFrom::Data(to) } else { SeekFrom::Hole(to) };
        match self.opened(handle).and_then(|fd| fs::seek(&fd, to)) {
            Ok(at) => reply.offset(i64::try_from(at).unwrap_or(i64::MAX)),
            Err(why) => reply.error(error(why)),
        }
    }
}

/// `None` leaves a time as it is.
fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let tv_sec = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            Timespec { tv_sec, tv_nsec: since.subsec_nanos().into() }
        }
    }
}
