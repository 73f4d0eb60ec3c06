//! A descriptor with what the choice of an engine needs to know of it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, IntoRawFd as _, OwnedFd},
    sync::Arc,
};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, fstatfs};

/// A file of the [`Engines`](crate::Engines). Cheap to clone; closed when the last clone and the
/// last operation on it are gone.
#[derive(Clone, Debug)]
pub struct File {
    fd: Arc<OwnedFd>,
    storage: Storage,
}

/// What the choice of an engine depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage {
    pub(crate) kind: Kind,
    /// Device number; slow storage is remembered by it.
    pub(crate) device: u64,
    /// Whether closing a file of it waits for nobody.
    pub(crate) is_local: bool,
}

/// How a file moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// tmpfs, ramfs: a copy, never a wait.
    Memory,
    /// A regular file with O_DIRECT: always a device access.
    Direct,
    /// A regular file of a local file system through the page cache.
    Cached,
    /// Network and user-space file systems, pipes, devices: any call may block for long.
    Other,
}

impl File {
    /// Classifies `fd` once, by its type, flags and file system.
    ///
    /// # Errors
    ///
    /// Those of `fstat`, `fstatfs` and `fcntl`; `EIO` and `ESTALE` occur on network file systems.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let stat = fstat(&fd)?;
        let (kind, is_local) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => regular_kind(&fd)?,
            _ => (Kind::Other, true),
        };
        let storage = Storage { kind, device: stat.st_dev, is_local };
        Ok(Self { fd: Arc::new(fd), storage })
    }

    /// The descriptor, shared with operations in flight.
    #[must_use]
    pub fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Whether it is on this machine: what the kernel knows of it takes no time to learn.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.storage.is_local
    }

    /// The descriptor, if nobody else has it.
    pub(crate) fn into_fd(self) -> Option<OwnedFd> {
        Arc::into_inner(self.fd)
    }

    pub(crate) fn storage(&self) -> Storage {
        self.storage
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Closes a descriptor and says what went wrong, which a drop does not.
pub(crate) fn close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: it is this function's, and nobody uses it afterwards.
    match unsafe { libc::close(fd.into_raw_fd()) } {
        0 => Ok(()),
        // Interrupted, Linux has closed it all the same.
        _ => Err(io::Error::last_os_error()).or_else(|why| match why.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(why),
        }),
    }
}

/// How a regular file moves bytes, and whether it is on this machine.
fn regular_kind(fd: &OwnedFd) -> io::Result<(Kind, bool)> {
    // The kernel's type is signed on some machines; magic numbers are 32 bits wide.
    let magic = u32::try_from(fstatfs(fd)?.f_type & 0xffff_ffff).unwrap_or_default();
    let is_memory = matches!(magic, TMPFS | RAMFS);
    let is_local = is_memory || matches!(magic, EXT | XFS | BTRFS | F2FS | OVERLAY);
    let kind = match is_local {
        _ if is_memory => Kind::Memory,
        _ if fcntl_getfl(fd)?.contains(OFlags::DIRECT) => Kind::Direct,
        true => Kind::Cached,
        false => Kind::Other,
    };
    Ok((kind, is_local))
}

const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58f6;
const EXT: u32 = 0xef53;
const XFS: u32 = 0x5846_5342;
const BTRFS: u32 = 0x9123_683e;
const F2FS: u32 = 0xf2f5_2010;
const OVERLAY: u32 = 0x794c_7630;
