//! Mirrors: local folders that the daemon gives the names of remote ones. What the kernel is to
//! list, to enter, or to name is one of these; where the program is told of it, it is the remote
//! folder. Where the daemon has mounted the folder's view, that is entered and listed instead: the
//! daemon answers with the path of the folder itself. A path that leads into a mirror means the
//! remote folder, so a current folder or an open one serves every name below it, in child processes
//! too.

use core::ffi::CStr;

use rustix::{
    fd::{IntoRawFd as _, RawFd},
    fs::{self, AtFlags, CWD, FileType, Mode, OFlags, StatxFlags},
    io::{self, Errno},
};
use shm::copy::copy_out;
use wire::Request;

use crate::{
    client::{Client, Status},
    paths::{AbsolutePath, apart, without_mirror},
    proc::link_of,
    rooms::{PATH_MAX, Path, Room},
    rules::{CURRENT_FOLDER, Policy, match_rules},
    table::Entry,
};

impl Client {
    /// A local folder with the names of a remote one, for calls that take names only: its path.
    pub fn mirror<'a>(
        &'static self,
        path: &CStr,
        mirror: &'a mut Path,
    ) -> Option<io::Result<&'a CStr>> {
        let path = self.remote_path(CURRENT_FOLDER, path)?;
        Some(self.mirror_of(&path, mirror))
    }

    /// The path that the program knows for what the kernel calls `path`: that of a remote folder
    /// for its mirror's.
    #[must_use]
    pub fn known_path<'a>(&'static self, path: &'a [u8]) -> &'a [u8] {
        let folder = self.active().map_or(&[][..], |config| config.folder());
        without_mirror(folder, path)
    }

    /// Before an open folder is listed: its mirror gets the names that are there by now.
    pub fn refresh_folder(&'static self, fd: RawFd) {
        // What cannot be asked for any more stays as it was.
        self.of_mirror(fd, |path| self.mirror(path, &mut *Room::take()?).map(drop));
    }

    /// As `fstat(2)` of an open folder that is a mirror.
    pub fn stat_folder(&'static self, fd: RawFd) -> Option<io::Result<Status>> {
        self.of_mirror(fd, |path| self.stat_path(CURRENT_FOLDER, path, true))
    }

    /// As `fsync(2)` of an open folder that is a mirror: the names are the server's.
    pub fn sync_folder(&'static self, fd: RawFd) -> Option<io::Result<()>> {
        let request = |path_len| Request::SyncFolder { path_len };
        self.of_mirror(fd, |path| {
            Some(self.about_remote(CURRENT_FOLDER, path, &[], request)?.map(drop))
        })
    }

    /// Opens the mirror of a remote folder.
    pub(crate) fn open_folder(
        &'static self,
        path: &AbsolutePath,
        flags: OFlags,
    ) -> io::Result<RawFd> {
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::CREATE) {
            return Err(Errno::ISDIR);
        }
        let mut mirror = Room::take().ok_or(Errno::NOMEM)?;
        let mirror = self.mirror_of(path, &mut mirror)?;
        let fd = fs::openat(CWD, mirror, flags - OFlags::NOFOLLOW, Mode::empty())?.into_raw_fd();
        self.table.take(fd);
        self.table.set(fd, Entry::Foreign);
        Ok(fd)
    }

    /// Has the daemon make the mirror of a remote folder, and returns its path.
    pub(crate) fn mirror_of<'a>(
        &'static self,
        path: &AbsolutePath,
        mirror: &'a mut Path,
    ) -> io::Result<&'a CStr> {
        let request = |path_len| Request::Mirror { path_len };
        let (len, lane) = self.ask_remote(path.bytes(), &[], request)?;
        let len = usize::try_from(len).map_err(|_| Errno::NAMETOOLONG)?;
        let room = mirror.get_mut(..len).filter(|_| len < PATH_MAX).ok_or(Errno::NAMETOOLONG)?;
        copy_out(room, lane.buffer());
        if let Some(end) = mirror.get_mut(len) {
            *end = 0;
        }
        CStr::from_bytes_until_nul(mirror).map_err(|_| Errno::INVAL)
    }

    /// Asks about the remote folder that a descriptor is the mirror of.
    pub(crate) fn of_mirror<T>(
        &'static self,
        fd: RawFd,
        ask: impl FnOnce(&CStr) -> Option<T>,
    ) -> Option<T> {
        if !self.has_remote() {
            return None;
        }
        apart(|| ask(self.path_of_mirror(fd, &mut *Room::take()?)?))
    }

    /// True if a descriptor, of this path, is a folder in a view, which is not asked.
    fn is_viewed(&'static self, fd: RawFd, path: &[u8]) -> bool {
        let policy = self.active().map(|config| match_rules(config.rules(), path).0);
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        policy == Some(Policy::Remote)
            && fs::statx(self.host.borrow(fd), c"", flags, StatxFlags::TYPE).is_ok_and(|found| {
                FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory
            })
    }

    /// The remote path of a descriptor that is a mirror, or a folder in a view.
    fn path_of_mirror<'a>(&'static self, fd: RawFd, space: &'a mut Path) -> Option<&'a CStr> {
        let config = self.active().filter(|config| config.has_remote())?;
        let mut name = [0; 32];
        let link = link_of(fd, &mut name)?;
        let mirrored = fs::readlinkat_raw(CWD, link, &mut space[..]).ok()?;
        let known = without_mirror(config.folder(), space.get(..mirrored)?).len();
        if known == mirrored && !self.is_viewed(fd, space.get(..mirrored)?) {
            return None;
        }
        space.copy_within(mirrored - known..mirrored, 0);
        *space.get_mut(known)? = 0;
        CStr::from_bytes_until_nul(space).ok()
    }
}
