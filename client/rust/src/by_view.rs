//! Remote files and folders that are the kernel's: their folder is mounted, so there they are as
//! any other, for all that only the kernel can do with one.
//!
//! A folder is opened, listed, and entered there alone. A file is left to its view once a child, a
//! mapping, or a standard stream needs a real descriptor: the program opens it by
//! its name there, and looks whether it is the same one, by its inode number, which the view mixes
//! with the device's where its files have several. The daemon serves the open as any stranger's, so
//! nothing here may hold what it waits for: what is staged is drained first.
//!
//! Without a view these calls fail, and the job's summary says so: what the kernel would find
//! instead is the folder that the view hides. A folder opened to be named is nothing but its name.

use core::{
    ffi::CStr,
    sync::atomic::{Ordering, fence},
};

use rustix::{
    fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd},
    fs::{self, AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, StatxFlags},
    io::{self, Errno},
};
use shm::copy::copy_out;
use wire::{Counter, Reason, Request};

use crate::{
    client::{Client, Status},
    file::FileEntry,
    locked_file::Locked,
    names::{Name, kind},
    paths::{AbsolutePath, Asked, apart, is_name_of_folder, name_of_folder},
    remote::placeholder_over,
    rooms::Room,
    staging,
    table::Entry,
};

/// `statfs(2)` of a FUSE file system: in another mount namespace a view has another device's number
/// than the daemon knows.
const FUSE: i64 = 0x6573_5546;
/// Flags of `open` that hold for the other descriptor of the file.
const KEPT: OFlags = OFlags::RWMODE
    .union(OFlags::APPEND)
    .union(OFlags::SYNC)
    .union(OFlags::DSYNC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NOATIME);

/// Looks at the name of a folder that was renamed.
const LOOKS_MAX: u32 = 10;

impl Client {
    /// Leaves a remote file to the kernel. Returns whether it did: its folder may have no view, the
    /// file no name, or this process a lock of it that would be lost.
    pub fn detach_to_view(&'static self, fd: RawFd, reason: Reason) -> bool {
        let Some(mut file) = self.locked_fd(fd) else { return false };
        file.detach_to_view(reason).is_ok()
    }

    /// Leaves every remote file that the program has open, or will open, to its view: system calls
    /// that nobody sees may be asked to work on any of them. What has no view stays as it is.
    pub fn detach_remote(&'static self) {
        if !self.has_remote() {
            return;
        }
        self.detaches_remote.store(true, Ordering::Relaxed);
        // A thread that opens one meanwhile sees the mark, or its file is found here.
        fence(Ordering::SeqCst);
        for (fd, id) in self.table.files(0, u32::MAX) {
            let Some(mut file) = self.locked(fd, id) else { continue };
            if file.state.is_remote() {
                file.detach(Reason::Unsupported);
            }
        }
    }

    /// Leaves a remote file that was just opened to its view, if every one is, or this process has
    /// mapped it: pages that it has changed there are in the view alone, and go whole to the file.
    pub(crate) fn detach_opened(&'static self, fd: RawFd) {
        fence(Ordering::SeqCst);
        if self.detaches_remote.load(Ordering::Relaxed) {
            self.detach(fd, Reason::Unsupported);
            return;
        }
        let Entry::File(id) = self.table.get(fd) else { return };
        let is_mapped = |entry: &FileEntry| self.mapped.has_identity(entry.identity());
        if self.files.get(id).is_some_and(is_mapped) {
            self.detach(fd, Reason::Mapped);
        }
    }

    /// Leaves a file that this process maps to its view: all descriptors that it has of it.
    pub(crate) fn detach_mapped(&'static self, identity: u64) {
        if !self.has_remote() {
            return;
        }
        // A thread that opens it meanwhile has seen the mark, or its file is found here.
        for (fd, id) in self.table.files(0, u32::MAX) {
            if self.files.get(id).is_none_or(|entry| entry.identity() != identity) {
                continue;
            }
            if let Some(mut file) = self.locked(fd, id).filter(|file| file.state.is_remote()) {
                file.detach(Reason::Mapped);
            }
        }
    }

    /// A descriptor of a remote file for the kernel to read it by, beside the program's own.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: its folder has no view. As `open(2)`.
    pub fn opened_in_view(&'static self, fd: RawFd) -> io::Result<OwnedFd> {
        let mut file = self.locked_fd(fd).ok_or(Errno::BADF)?;
        file.drain();
        file.open_in_view(OFlags::RDONLY)
    }

    /// Before a number becomes a standard stream, which libc reads and writes by itself, or that of
    /// another process.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: it is of a remote file that has to stay one.
    pub fn passable(&'static self, fd: RawFd, reason: Reason) -> io::Result<()> {
        self.detach(fd, reason);
        if self.is_remote_file(fd) { Err(Errno::NOTSUP) } else { Ok(()) }
    }

    /// Before the kernel, or libc by itself, uses a name.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: it is remote, and its folder has no view.
    pub fn viewable(&'static self, dir: RawFd, path: &CStr) -> io::Result<()> {
        if !self.has_remote() {
            return Ok(());
        }
        let view = || self.remote_path(dir, path).map(|path| self.view_of(&path));
        apart(view).unwrap_or(Ok(()))
    }

    /// As `fstat(2)` of an open remote folder: with the numbers that its name has.
    pub fn stat_folder(&'static self, fd: RawFd) -> Option<io::Result<Status>> {
        if !self.has_remote() {
            return None;
        }
        apart(|| if self.is_remote_folder(fd) { self.stat_path(fd, c".", true) } else { None })
    }

    /// Opens a remote folder, or anything else only to be named: as the program names it, since the
    /// kernel knows which folder the name is relative to.
    pub(crate) fn open_folder(
        &'static self,
        name: Name<'_>,
        path: &AbsolutePath,
        flags: OFlags,
    ) -> io::Result<RawFd> {
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::CREATE) {
            return Err(Errno::ISDIR);
        }
        let fd = if flags.contains(OFlags::PATH) && !self.is_viewed(path)? {
            self.name_folder(path, flags)?
        } else {
            self.view_of(path)?;
            fs::openat(self.borrow(name.dir), name.path, flags, Mode::empty())?
        };
        let fd = fd.into_raw_fd();
        self.table.take(fd);
        self.table.set(fd, Entry::Foreign);
        Ok(fd)
    }

    /// A remote folder only to be named, which needs no view.
    fn name_folder(&'static self, path: &AbsolutePath, flags: OFlags) -> io::Result<OwnedFd> {
        let follow = !flags.contains(OFlags::NOFOLLOW);
        let request = |path_len| Request::Stat { path_len, follow };
        let found = self.status(path.asked(), request).unwrap_or(Err(Errno::IO))?;
        if kind(&found) != FileType::Directory {
            if !flags.contains(OFlags::DIRECTORY) {
                self.view_of(path)?;
            }
            return Err(Errno::NOTDIR);
        }
        let mut space = Room::take().ok_or(Errno::NOMEM)?;
        let mut folder = name_of_folder(path.bytes(), &mut space)?;
        placeholder_over(&mut folder, flags)?;
        Ok(folder)
    }

    /// True if calls may be relative to a descriptor.
    pub(crate) fn is_folder(&'static self, fd: RawFd) -> io::Result<bool> {
        let kind = FileType::from_raw_mode(fs::fstat(self.borrow(fd))?.st_mode);
        Ok(kind == FileType::Directory || is_name_of_folder(self.host, fd))
    }

    /// True if there are views of remote folders.
    #[must_use]
    pub fn has_view(&'static self) -> bool {
        self.connection().is_some_and(|connection| connection.has_view)
    }

    /// Has the kernel look a remote path up.
    pub(crate) fn look_in_view(&'static self, path: &AbsolutePath) {
        let Some(mut space) = Room::take() else { return };
        let Ok(path) = path.terminated(&mut space) else { return };
        let look = || fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE);
        // Others that look there at the same time keep the kernel from taking the name over.
        for _ in 0..LOOKS_MAX {
            if !matches!(look(), Err(Errno::STALE)) {
                return;
            }
        }
    }

    /// # Errors
    ///
    /// `EOPNOTSUPP`: there is no view of it here.
    fn view_of(&'static self, path: &AbsolutePath) -> io::Result<()> {
        if self.is_viewed(path)? {
            return Ok(());
        }
        self.count(Counter::Unviewed, 1);
        Err(Errno::NOTSUP)
    }

    fn is_viewed(&'static self, path: &AbsolutePath) -> io::Result<bool> {
        let connection = self.connection().ok_or_else(|| self.unserved())?;
        Ok(connection.has_view && self.is_in_view(path))
    }

    /// True if a remote path is that of its folder's view here.
    fn is_in_view(&'static self, path: &AbsolutePath) -> bool {
        let mut space = Room::take();
        let mut is_mounted = || {
            let path = path.terminated(space.as_mut()?).ok()?;
            Some(self.shares_view() || fs::statfs(path).ok()?.f_type == FUSE)
        };
        // What is not there, the kernel says.
        is_mounted().unwrap_or(true)
    }

    /// True if files of a device are those of a view: one may be opened by a link of which no rule
    /// knows. Nothing may be staged for these, for who drains it would ask itself. Asks
    /// nobody: the kernel knows the folders that are mounted.
    pub(crate) fn is_of_view(&'static self, device: u64) -> bool {
        let may_be = fs::major(device) == 0 && self.has_remote();
        if !may_be || self.plain_device.load(Ordering::Relaxed) == device {
            return false;
        }
        let is_of_view = apart(|| self.views().any(|view| view == device));
        if !is_of_view {
            self.plain_device.store(device, Ordering::Relaxed);
        }
        is_of_view
    }

    /// Devices of the remote folders.
    fn views(&'static self) -> impl Iterator<Item = u64> {
        let remote = self.active().into_iter().flat_map(|config| config.rules().remote());
        remote.filter(|glob| !glob.ends_with(b"/**")).filter_map(|folder| {
            let mut space = Room::take()?;
            space.get_mut(..folder.len())?.copy_from_slice(folder);
            *space.get_mut(folder.len())? = 0;
            let folder = CStr::from_bytes_until_nul(&space[..]).ok()?;
            let (flags, mask) = (AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
            let found = fs::statx(CWD, folder, flags, mask).ok()?;
            Some(fs::makedev(found.stx_dev_major, found.stx_dev_minor))
        })
    }

    /// The path that a remote one is when links are followed as only the kernel can: those of its
    /// folder, or all of them if `is_whole`. `None`: it is not there, or has no view.
    pub(crate) fn beyond_links(
        &'static self,
        dir: RawFd,
        path: &[u8],
        is_whole: bool,
    ) -> Option<AbsolutePath> {
        let config = self.active().filter(|config| config.rules().has_remote())?;
        if !self.connection()?.has_view {
            return None;
        }
        let slash = path.iter().rposition(|byte| *byte == b'/')?;
        let (folder, name) = path.split_at_checked(slash + 1)?;
        let (opened, name) = if is_whole { (path, None) } else { (folder, Some(name)) };
        let mut space = Room::take()?;
        space.get_mut(..opened.len())?.copy_from_slice(opened);
        *space.get_mut(opened.len())? = 0;
        let opened = CStr::from_bytes_until_nul(&space[..]).ok()?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = fs::openat(self.borrow(dir), opened, flags, Mode::empty()).ok()?;
        AbsolutePath::in_folder(config, self.host, opened.as_raw_fd(), name)
    }

    /// Leaves a call to the kernel if a link leads to what is not remote, and there is a view in
    /// which to follow it: then `None`.
    pub(crate) fn unless_elsewhere<T>(
        &'static self,
        path: &AbsolutePath,
        answer: Option<io::Result<T>>,
    ) -> Option<io::Result<T>> {
        let is_elsewhere = matches!(answer, Some(Err(Errno::XDEV)));
        let is_kernels = is_elsewhere && path.is_remote() && self.view_of(path).is_ok();
        if is_kernels { None } else { answer }
    }

    /// True if a descriptor is a remote folder. Its view is not asked.
    fn is_remote_folder(&'static self, fd: RawFd) -> bool {
        let Some(config) = self.active() else { return false };
        let folder = AbsolutePath::in_folder(config, self.host, fd, None);
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let kind = || fs::statx(self.host.borrow(fd), c"", flags, StatxFlags::TYPE).ok();
        let found = folder.filter(AbsolutePath::is_remote).and_then(|_| kind());
        found.is_some_and(|found| {
            FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory
                || is_name_of_folder(self.host, fd)
        })
    }
}

impl Locked {
    pub(crate) fn detach_to_view(&mut self, reason: Reason) -> io::Result<()> {
        if !self.state.is_remote() {
            return Err(Errno::BADF);
        }
        if self.locks != 0 {
            return Err(Errno::NOLCK);
        }
        self.state.release_window();
        self.drain();
        let real = self.open_in_view(OFlags::from_bits_retain(self.flags) & KEPT)?;
        let to = match self.entry.cursor.at() {
            u64::MAX => SeekFrom::End(0),
            at => SeekFrom::Start(at),
        };
        fs::seek(&real, to)?;
        self.client.replace_numbers(self.fd, &real);
        self.state.substitute();
        staging::unlink(self);
        self.fall_back(reason);
        Ok(())
    }

    fn open_in_view(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let link = self.state.link().filter(|_| self.state.is_remote()).ok_or(Errno::BADF)?;
        if !link.connection.has_view {
            self.client.count(Counter::Unviewed, 1);
            return Err(Errno::NOTSUP);
        }
        let mut name = Room::take().ok_or(Errno::NOMEM)?;
        let request = Request::Name { file: link.slot };
        let (len, lane) = self.client.ask_remote(Asked::default(), &[], |_| request)?;
        let len = usize::try_from(len).map_err(|_| Errno::NAMETOOLONG)?;
        copy_out(name.get_mut(..len).ok_or(Errno::NAMETOOLONG)?, lane.buffer());
        *name.get_mut(len).ok_or(Errno::NAMETOOLONG)? = 0;
        drop(lane);
        let path = CStr::from_bytes_until_nul(&name[..]).map_err(|_| Errno::INVAL)?;
        let open = |flags| fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty());
        let opened = match open(flags) {
            // Only a file's owner may ask for that; here its server is, or was, asked.
            Err(Errno::PERM) if flags.contains(OFlags::NOATIME) => open(flags - OFlags::NOATIME),
            opened => opened,
        }?;
        let found = fs::fstat(&opened)?.st_ino;
        let mixed = self.inode ^ self.device.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1 << 63;
        if found != self.inode && found != mixed {
            return Err(Errno::STALE);
        }
        Ok(opened)
    }
}
