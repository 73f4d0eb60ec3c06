//! Where names are looked up: on the whole machine, or below one folder that nothing leads out of.
//!
//! Below a root every name is resolved by the kernel with `RESOLVE_BENEATH`: `..`, absolute links,
//! and links that somebody changes meanwhile cannot leave the root. What is done with a name is
//! done in its folder, found that way, and never follows the last part: where that is a link to be
//! followed, the name it stands for is looked up in its place. So before anything happens it is
//! known which folder it happens in, and the one that is the daemon's own is refused by what it is,
//! whatever path has led there.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use executor::lock;
use multifile::name::is_of_set;
use rustix::{
    fs::{
        AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, makedev, openat, openat2, readlinkat,
        statx,
    },
    io::Errno,
    path::Arg,
};
use wire::Base;

use crate::status::{is_same, status_of};

/// The folder below a root that belongs to the daemon; nothing of a client's leads there.
pub const OWN_FOLDER: &str = ".kakehi";
/// Links that a path may lead through, as in the kernel.
pub const LINKS_MAX: usize = 40;

/// Where names are looked up. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub enum Scope {
    /// Anywhere; names are absolute.
    #[default]
    Machine,
    /// Below this folder; names are absolute, the folder being `/`.
    Below(Arc<Root>),
    /// The same, as far as nothing is waited for: no name leads to another file system, which may
    /// stand still (`EXDEV`), and all are in the kernel's cache (`EAGAIN`, or `EINVAL` before Linux
    /// 5.12).
    Within(Arc<Root>),
}

/// A folder that nothing leads out of.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    identity: Identity,
    /// True if it is on a device of this machine.
    is_local: bool,
    /// The multifiles that the daemon itself writes, by folder and name.
    sets: Mutex<Vec<(Identity, Vec<u8>)>>,
}

/// Device and inode.
type Identity = ((u32, u32), u64);

/// A name to look up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sought<'a> {
    pub(crate) path: &'a [u8],
    /// The open folder that it is relative to.
    pub(crate) base: Option<Base>,
}

impl<'a> From<&'a CStr> for Sought<'a> {
    fn from(path: &'a CStr) -> Self {
        Self { path: path.to_bytes(), base: None }
    }
}

/// A name in an open folder.
#[derive(Debug)]
pub(crate) struct Anchored {
    folder: Option<OwnedFd>,
    pub(crate) name: CString,
}

impl Anchored {
    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_ref().map_or(CWD, AsFd::as_fd)
    }
}

impl Scope {
    /// The scope below `root`.
    ///
    /// # Errors
    ///
    /// Those of `open`; `ENOSYS`: the kernel has no `openat2` (Linux 5.6).
    pub fn below(root: &Path) -> io::Result<Self> {
        let fd = openat(CWD, root, folder_flags(), Mode::empty())?;
        let identity = identity(fd.as_fd(), c"")?;
        let ((major, minor), _) = identity;
        let is_local = uring::is_local(&fd, makedev(major, minor)).unwrap_or(false);
        let (path, sets) = (root.to_owned(), Mutex::default());
        let scope = Self::Below(Arc::new(Root { fd, path, identity, is_local, sets }));
        scope.find(c"/").map(|_| scope)
    }

    /// The scope on the file system of the root alone, and that one's device, if it is one of this
    /// machine. The root is open, so its device stays what it is.
    pub(crate) fn within(&self) -> Option<(Self, u64)> {
        let Self::Below(root) = self else { return None };
        let ((major, minor), _) = root.identity;
        root.is_local.then(|| (Self::Within(Arc::clone(root)), makedev(major, minor)))
    }

    /// True if names are as all programs of this machine have them.
    pub(crate) fn is_machine(&self) -> bool {
        matches!(self, Self::Machine)
    }

    /// True if nothing leads to another file system.
    pub(crate) fn is_within(&self) -> bool {
        matches!(self, Self::Within(_))
    }

    fn root(&self) -> Option<&Arc<Root>> {
        match self {
            Self::Machine => None,
            Self::Below(root) | Self::Within(root) => Some(root),
        }
    }

    fn bounds(&self) -> ResolveFlags {
        if self.is_within() {
            ResolveFlags::NO_XDEV | ResolveFlags::CACHED
        } else {
            ResolveFlags::empty()
        }
    }

    /// Opens a name.
    pub(crate) fn open<'a>(
        &self,
        path: impl Into<Sought<'a>>,
        flags: OFlags,
        mode: Mode,
    ) -> io::Result<OwnedFd> {
        let (sought, flags) = (path.into(), flags | OFlags::CLOEXEC);
        match self.root() {
            None => Ok(openat(CWD, sought.path, flags, mode)?),
            Some(root) => root.open(sought, flags, mode, self.bounds()),
        }
    }

    /// Finds what a name leads to, links followed.
    pub(crate) fn find<'a>(&self, path: impl Into<Sought<'a>>) -> io::Result<OwnedFd> {
        self.open(path, OFlags::PATH, Mode::empty())
    }

    /// The folder a name is in, and the last part of the name, which may be a link or be missing.
    pub(crate) fn anchor<'a>(&self, path: impl Into<Sought<'a>>) -> io::Result<Anchored> {
        let sought = path.into();
        match self.root() {
            None => Ok(Anchored { folder: None, name: CString::new(sought.path)? }),
            Some(root) => {
                let base = root.base(sought, self.bounds())?;
                Ok(root.anchor(sought.path, base.as_ref(), self.bounds())?)
            }
        }
    }

    /// The text of a link to which no other leads; `None`: it is there, and none.
    ///
    /// # Errors
    ///
    /// Those of `openat2`: there is nothing, or it is behind a link (`ELOOP`).
    pub fn link_of(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let Some(root) = self.root() else { return Ok(None) };
        let path = path.strip_prefix(b"/").filter(|path| !path.is_empty()).unwrap_or(b".");
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = resolve(root.fd.as_fd(), path, flags, Mode::empty(), how)?;
        Ok(readlinkat(&found, c"", Vec::new()).ok().map(CString::into_bytes))
    }

    /// Opens the folder of a file that is named by its path on the machine. Returns true with it if
    /// that is written as a path below the root: then nothing on the way leads out, since whoever
    /// may change names below the root could have put a link there.
    ///
    /// # Errors
    ///
    /// Those of `openat2`; `EXDEV`: a link leads out.
    pub fn folder_of(&self, path: &Path) -> io::Result<(OwnedFd, bool)> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let Some(root) = self.root() else {
            return Ok((openat(CWD, folder, folder_flags(), Mode::empty())?, false));
        };
        let Ok(below) = folder.strip_prefix(&root.path) else {
            return Ok((openat(CWD, folder, folder_flags(), Mode::empty())?, false));
        };
        let below = Path::new(".").join(below);
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let path = below.as_os_str().as_encoded_bytes();
        Ok((resolve(root.fd.as_fd(), path, folder_flags(), Mode::empty(), how)?, true))
    }

    /// Keeps the files of a multifile, those to come too, out of clients' reach.
    ///
    /// # Errors
    ///
    /// Those of looking at the folder.
    pub fn reserve(&self, folder: BorrowedFd<'_>, set: &[u8]) -> io::Result<()> {
        if let Some(root) = self.root() {
            let set = (identity(folder, c"")?, set.to_owned());
            lock(&root.sets).push(set);
        }
        Ok(())
    }

    /// True if this is the root that nothing leads out of.
    pub(crate) fn is_root(&self, folder: BorrowedFd<'_>) -> bool {
        let is_it = |root: &Arc<Root>| identity(folder, c"") == Ok(root.identity);
        self.root().is_some_and(is_it)
    }
}

/// The open folder that a path is relative to.
struct Opened {
    fd: OwnedFd,
    /// Length of its own path.
    len: usize,
}

impl Root {
    fn open(
        &self,
        sought: Sought<'_>,
        flags: OFlags,
        mode: Mode,
        bounds: ResolveFlags,
    ) -> io::Result<OwnedFd> {
        let base = self.base(sought, bounds)?;
        Ok(self.open_in(base.as_ref(), sought.path, flags, mode, bounds)?)
    }

    fn open_in(
        &self,
        base: Option<&Opened>,
        path: &[u8],
        flags: OFlags,
        mode: Mode,
        bounds: ResolveFlags,
    ) -> Result<OwnedFd, Errno> {
        let follows = !flags.contains(OFlags::NOFOLLOW);
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            let at = self.anchor(&path, base, bounds)?;
            let (folder, name) = (at.folder(), at.name.as_bytes());
            match resolve(folder, name, flags, mode, ResolveFlags::NO_SYMLINKS | bounds) {
                Err(Errno::LOOP) if follows => match readlinkat(folder, name, Vec::new()) {
                    Ok(text) if text.to_bytes().starts_with(b"/") => return Err(Errno::XDEV),
                    Ok(text) => {
                        path.truncate(split(&path).0.len());
                        path.extend([b"/", text.to_bytes()].concat());
                    }
                    // It is something else by now.
                    Err(Errno::INVAL | Errno::NOENT) => {}
                    Err(why) => return Err(why),
                },
                opened => return opened,
            }
        }
        Err(Errno::LOOP)
    }

    /// Opens the folder that a name is relative to. What has its name may be another one by now:
    /// then nothing is looked up.
    fn base(&self, sought: Sought<'_>, bounds: ResolveFlags) -> io::Result<Option<Opened>> {
        let Some(base) = sought.base else { return Ok(None) };
        let len = base.len_in(sought.path).ok_or(Errno::INVAL)?;
        let path = sought.path.get(..len).unwrap_or_default();
        let fd = beneath(self.fd.as_fd(), path, bounds)?;
        let found = status_of(&fd)?;
        // Servers of one file system may number its device apart.
        if !is_same(((0, base.number), base.born), ((0, found.inode), found.born)) {
            return Err(Errno::STALE.into());
        }
        Ok(Some(Opened { fd, len }))
    }

    fn anchor(
        &self,
        path: &[u8],
        base: Option<&Opened>,
        bounds: ResolveFlags,
    ) -> Result<Anchored, Errno> {
        let rest = base.and_then(|base| path.get(base.len..)).unwrap_or(path);
        let (folder, name) = split(rest);
        debug_assert!(!name.contains(&b'/'), "the last part of a name is one part");
        let folder = match base {
            None => beneath(self.fd.as_fd(), folder, bounds)?,
            Some(base) => match beneath(base.fd.as_fd(), folder, bounds) {
                // A link on the way may lead out of that folder, if not of the root.
                Err(Errno::XDEV) if bounds.is_empty() => {
                    beneath(self.fd.as_fd(), split(path).0, bounds)?
                }
                found => found?,
            },
        };
        let here = identity(folder.as_fd(), c"")?;
        let is_in_root = here == self.identity;
        // A root may know the folder by more names: as one that does not tell case from case.
        let entered = match is_in_root {
            true if bounds.is_empty() => if_there(identity(folder.as_fd(), name))?,
            true => if_there(identity_within(folder.as_fd(), name, bounds))?,
            false => Some(here),
        };
        let own = if_there(identity(self.fd.as_fd(), OWN_FOLDER))?;
        if is_in_root && name == OWN_FOLDER.as_bytes() || own.is_some() && entered == own {
            return Err(Errno::ACCESS);
        }
        let is_of = |(folder, set): &(Identity, Vec<u8>)| *folder == here && is_of_set(set, name);
        if lock(&self.sets).iter().any(is_of) {
            return Err(Errno::ACCESS);
        }
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        Ok(Anchored { folder: Some(folder), name })
    }
}

/// Says that there is nothing, where that is sure.
fn if_there(found: Result<Identity, Errno>) -> Result<Option<Identity>, Errno> {
    match found {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some),
    }
}

/// A name of what an open descriptor refers to, for calls that take names only.
pub(crate) fn link_to(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

const fn folder_flags() -> OFlags {
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC)
}

/// Opens a folder, to which no link leads out of this one.
fn beneath(folder: BorrowedFd<'_>, path: &[u8], bounds: ResolveFlags) -> Result<OwnedFd, Errno> {
    let start = path.iter().position(|byte| *byte != b'/');
    let path = start.and_then(|start| path.get(start..)).unwrap_or(b".");
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | bounds;
    resolve(folder, path, folder_flags(), Mode::empty(), how)
}

fn resolve(
    folder: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
    how: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let (flags, mode) = heeded(flags, mode);
    // Refused only while somebody renames on the way: then the kernel asks to be asked again. Of
    // its cache alone it is asked once.
    let tries = if how.contains(ResolveFlags::CACHED) { 1 } else { 64 };
    let mut opened = Err(Errno::AGAIN);
    for _ in 0..tries {
        opened = openat2(folder, path, flags, mode, how);
        if opened.as_ref().err() != Some(&Errno::AGAIN) {
            break;
        }
    }
    opened
}

/// Returns the flags and mode that `openat` would heed; `openat2` refuses the others.
fn heeded(flags: OFlags, mode: Mode) -> (OFlags, Mode) {
    let flags = match flags.contains(OFlags::PATH) {
        true => flags & (folder_flags() | OFlags::NOFOLLOW),
        false => flags & known_flags(),
    };
    let creates = flags.contains(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
    let mode_max = if creates { 0o7777 } else { 0 };
    (flags, mode & Mode::from_bits_retain(mode_max))
}

/// Flags of `open`. Of the rest some programs have meanings of their own: `dd` passes its flags.
fn known_flags() -> OFlags {
    OFlags::RWMODE
        | OFlags::CREATE
        | OFlags::EXCL
        | OFlags::NOCTTY
        | OFlags::TRUNC
        | OFlags::APPEND
        | OFlags::NONBLOCK
        | OFlags::SYNC
        | OFlags::DIRECT
        | OFlags::LARGEFILE
        | OFlags::DIRECTORY
        | OFlags::NOFOLLOW
        | OFlags::NOATIME
        | OFlags::CLOEXEC
        | OFlags::PATH
        | OFlags::TMPFILE
}

/// The folder of a name as seen from the root, and its last part; `.` in itself where that is none.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let (folder, name) = path.split_at(slash.map_or(0, |slash| slash + 1));
    if matches!(name, b"" | b"." | b"..") { (path, b".") } else { (folder, name) }
}

/// Returns the identity of a name in a folder, or with none of the folder itself. That never
/// changes, so a network file system need not ask for it.
fn identity(folder: BorrowedFd<'_>, name: impl Arg) -> Result<Identity, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let found = statx(folder, name, flags, StatxFlags::INO)?;
    Ok(((found.stx_dev_major, found.stx_dev_minor), found.stx_ino))
}

/// The same of a name that may not lead to another file system.
fn identity_within(
    folder: BorrowedFd<'_>,
    name: &[u8],
    bounds: ResolveFlags,
) -> Result<Identity, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    identity(resolve(folder, name, flags, Mode::empty(), bounds)?.as_fd(), c"")
}

#[cfg(test)]
mod tests;
