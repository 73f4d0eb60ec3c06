//! Policy `remote`: files that are elsewhere. As `delegate`, but nothing here may be left to the
//! kernel, which has no such file.
//!
//! A remote open file has the job's socket for a placeholder, opened only to be named. A remote
//! folder is opened in its view (`by_view.rs`).

use core::ffi::CStr;

use rustix::{
    fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd},
    fs::{self, CWD, FileType, MemfdFlags, Mode, OFlags, SealFlags},
    io::{self, DupFlags, Errno},
};
use wire::{Counter, Request};

use crate::{
    ask::status_in,
    client::Client,
    file,
    names::{Ending, Name, kind},
    paths::{AbsolutePath, apart},
    proc::link_of,
    rooms::Path,
    slot::Slot,
    slots::Holder,
    state::{Descriptor, State},
    table::Entry,
};

/// Flags that mean something beside `O_PATH`, with that.
const OF_PATHS: OFlags =
    OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

impl Client {
    /// Opens a remote file or folder.
    #[inline(never)]
    pub(crate) fn open_remote(
        &'static self,
        name: Name<'_>,
        path: &AbsolutePath,
        flags: OFlags,
        mode: Mode,
    ) -> io::Result<RawFd> {
        let is_plain = Ending::of(name.path) == Ending::Plain;
        // The kernel ignores all others.
        let flags = if flags.contains(OFlags::PATH) { flags & OF_PATHS } else { flags };
        if flags.contains(OFlags::TMPFILE) {
            return Err(Errno::OPNOTSUPP);
        }
        if flags.contains(OFlags::DIRECTORY) || !is_plain {
            if flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::CREATE) {
                return Err(self.why_unwritable(name.path, path, flags));
            }
            if is_plain && flags.contains(OFlags::NOFOLLOW) {
                self.refuse_link(path)?;
            }
            return self.open_folder(name, path, flags | OFlags::DIRECTORY);
        }
        if flags.contains(OFlags::PATH) {
            return self.open_folder(name, path, flags).map_err(|_| self.why_unnamed(path, flags));
        }
        if let Some(opened) = self.open_bundled(path, flags - OFlags::DIRECT, mode) {
            return opened;
        }
        if let Some(opened) = self.open_at_rest(path, flags) {
            return opened;
        }
        let connection = self.connection().ok_or_else(|| self.unserved())?;
        let slot = Slot::take(connection, Holder::Server).ok_or(Errno::MFILE)?;
        match self.open_file(slot, path, flags - OFlags::DIRECT, mode) {
            // Not a regular file: a folder can be opened to be read.
            Err(Errno::NOTSUP) if !flags.intersects(OFlags::WRONLY | OFlags::RDWR) => {
                self.open_folder(name, path, flags).map_err(|errno| match errno {
                    Errno::ISDIR => errno,
                    _ => Errno::NOTSUP,
                })
            }
            opened => opened,
        }
    }

    /// The error of a name that the kernel does not find in a view: there may be none.
    fn why_unnamed(&'static self, path: &AbsolutePath, flags: OFlags) -> Errno {
        let follow = !flags.contains(OFlags::NOFOLLOW);
        let found = self.status(path.asked(), |path_len| Request::Stat { path_len, follow });
        found.map_or(Errno::IO, |found| found.err().unwrap_or(Errno::NOTSUP))
    }

    /// # Errors
    ///
    /// `ENOTDIR`: the name is a link, so no folder.
    fn refuse_link(&'static self, path: &AbsolutePath) -> io::Result<()> {
        let request = |path_len| Request::Stat { path_len, follow: false };
        match self.status(path.asked(), request).unwrap_or(Err(Errno::IO))? {
            status if kind(&status) == FileType::Symlink => Err(Errno::NOTDIR),
            _ => Ok(()),
        }
    }

    fn open_file(
        &'static self,
        slot: Slot,
        path: &AbsolutePath,
        flags: OFlags,
        mode: Mode,
    ) -> io::Result<RawFd> {
        let connection = slot.connection();
        let mode = self.umask.new_mode(flags, mode);
        // First, as in the kernel: where no number is free nothing is created or truncated.
        let fd = self.placeholder(flags)?;
        let (file, open_flags) = (slot.number(), flags.bits());
        let request =
            |path_len| Request::Open { file, flags: open_flags, mode, path_len, inode: 0 };
        let (_, lane) = self.ask_remote(path.asked(), &[], request)?;
        let status = status_in(&lane)?;
        drop(lane);
        let mut file = file::fresh(status.device, status.inode, flags);
        let link = slot.into_link(false);
        file.state = State::opened(link, Descriptor::Remote);
        let Some(id) = self.add_file(file) else {
            let closed = connection.call(Request::Close { file: link.slot });
            link.end();
            return Err(if closed.is_ok() { Errno::MFILE } else { Errno::IO });
        };
        let fd = fd.into_raw_fd();
        if let Some(entry) = self.files.get(id) {
            entry.cursor.begin();
        }
        self.watch_name(status.device, status.inode, path.bytes());
        self.table.set(fd, Entry::File(id));
        self.count(Counter::Files, 1);
        Ok(fd)
    }

    /// The target of a program's number, the lowest that is free: the job's socket, by which
    /// nothing can be read, written, or entered.
    pub(crate) fn placeholder(&'static self, flags: OFlags) -> io::Result<OwnedFd> {
        let connection = self.connection().ok_or(Errno::IO)?;
        let config = self.active().ok_or(Errno::IO)?;
        match connection.placeholder(config, &self.table, flags) {
            Err(errno @ (Errno::MFILE | Errno::NFILE)) => Err(errno),
            Err(_) => placeholder_in_memory(flags),
            made => made,
        }
    }

    /// A remote path in full, without `.` and `..`.
    ///
    /// # Errors
    ///
    /// `ENOENT`: it is not remote. `ENAMETOOLONG`.
    pub fn absolute<'a>(
        &'static self,
        dir: RawFd,
        path: &CStr,
        space: &'a mut Path,
    ) -> io::Result<&'a CStr> {
        self.remote_path(dir, path).ok_or(Errno::NOENT)?.terminated(space)
    }

    /// True if any folder is remote.
    #[must_use]
    pub fn has_remote(&'static self) -> bool {
        self.active().is_some_and(|config| config.rules().has_remote())
    }

    /// True if a path is remote.
    #[must_use]
    pub fn is_remote(&'static self, dir: RawFd, path: &CStr) -> bool {
        self.has_remote() && apart(|| self.remote_path(dir, path).is_some())
    }

    /// True if an open file is remote.
    #[must_use]
    pub fn is_remote_file(&'static self, fd: RawFd) -> bool {
        self.has_remote() && self.locked_fd_as_is(fd).is_some_and(|file| file.state.is_remote())
    }
}

/// A placeholder where the job's socket cannot be reached, as after `chroot`.
fn placeholder_in_memory(flags: OFlags) -> io::Result<OwnedFd> {
    let mut memory = fs::memfd_create(c"kakehi", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fs::fcntl_add_seals(&memory, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK)?;
    placeholder_over(&mut memory, flags)?;
    Ok(memory)
}

/// Makes a descriptor one by which its file cannot be read or written.
pub(crate) fn placeholder_over(file: &mut OwnedFd, flags: OFlags) -> io::Result<()> {
    let mut name = [0; 32];
    let link = link_of(file.as_raw_fd(), &mut name).ok_or(Errno::BADF)?;
    let path = fs::openat(CWD, link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let is_inherited = !flags.contains(OFlags::CLOEXEC);
    let flags = if is_inherited { DupFlags::empty() } else { DupFlags::CLOEXEC };
    io::dup3(&path, file, flags)
}
