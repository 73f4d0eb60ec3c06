//! A descriptor with what the choice of an engine needs to know of it.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, BorrowedFd, IntoRawFd as _, OwnedFd},
    sync::{Arc, PoisonError, RwLock},
};

use rustix::fs::{
    AtFlags, FileType, OFlags, StatxFlags, fcntl_getfl, fstat, fstatfs, makedev, statx,
};

use crate::long::Long;

/// A file of the [`Engines`](crate::Engines). Cheap to clone; closed when the last clone and the
/// last operation on it are gone.
#[derive(Clone, Debug)]
pub struct File {
    /// Of a file that may be written past the page cache; before `fd`, to be closed first.
    long: Option<Arc<Long>>,
    fd: Arc<OwnedFd>,
    storage: Storage,
    inode: u64,
    is_regular: bool,
}

/// Properties of a file on which the choice of an engine depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage {
    pub(crate) kind: Kind,
    /// Device number; slow storage is remembered by it.
    pub(crate) device: u64,
    /// True if closing a file of it waits for nobody.
    pub(crate) is_local: bool,
}

/// How a file moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// tmpfs, ramfs: a copy, never a wait.
    Memory,
    /// A regular file of a local file system with O_DIRECT: always a device access.
    Direct,
    /// A regular file of a local file system through the page cache.
    Cached,
    /// Network and user-space file systems, pipes, devices: any call may block for long.
    Other,
}

impl File {
    /// Classifies `fd` once, by its type, flags and file system.
    ///
    /// Waits for no file system, but for the first file of a network or user-space one.
    ///
    /// # Errors
    ///
    /// Those of `fstat`, `fstatfs` and `fcntl`; `EIO` and `ESTALE` occur on network file systems.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Self::of(Arc::new(fd))
    }

    pub(crate) fn of(fd: Arc<OwnedFd>) -> io::Result<Self> {
        let Identity { device, inode, is_regular } = Identity::of(&fd)?;
        let (kind, is_local) = match is_regular {
            true => regular_kind(&fd, device, &ELSEWHERE)?,
            false => (Kind::Other, false),
        };
        let storage = Storage { kind, device, is_local };
        let long = (kind == Kind::Cached).then(|| Arc::new(Long::new(device, inode)));
        Ok(Self { long, fd, storage, inode, is_regular })
    }

    /// Its device's number, as `stat(2)` tells it.
    #[must_use]
    pub fn device(&self) -> u64 {
        self.storage.device
    }

    /// Its number on that device.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// True if it is a regular file.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        self.is_regular
    }

    /// The descriptor, shared with operations in flight.
    #[must_use]
    pub fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// True if it is a regular file of this machine: what the kernel knows of it takes no time to
    /// learn.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.storage.is_local
    }

    /// Leaves the file to the page cache for as long as it is open: somebody else reads or writes
    /// it meanwhile.
    pub fn leave_direct(&self) {
        if let Some(long) = &self.long {
            long.leave();
        }
    }

    /// Its progress as a stream, if it may be written past the page cache.
    pub(crate) fn long(&self) -> Option<&Long> {
        self.long.as_deref()
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

/// Constant properties of a file.
struct Identity {
    device: u64,
    inode: u64,
    is_regular: bool,
}

impl Identity {
    /// Asks no server: whoever has opened the file has learnt this. A plain `fstat` may first write
    /// all that is dirty.
    fn of(fd: &OwnedFd) -> io::Result<Self> {
        let (flags, mask) =
            (AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE | StatxFlags::INO);
        let known = statx(fd, c"", flags, mask).ok();
        if let Some(known) = known.filter(|known| known.stx_mask & mask.bits() == mask.bits()) {
            let device = makedev(known.stx_dev_major, known.stx_dev_minor);
            return Ok(Self::new(device, known.stx_ino, known.stx_mode.into()));
        }
        let stat = fstat(fd)?; // An old kernel.
        Ok(Self::new(stat.st_dev, stat.st_ino, stat.st_mode))
    }

    fn new(device: u64, inode: u64, mode: u32) -> Self {
        let is_regular = FileType::from_raw_mode(mode) == FileType::RegularFile;
        Self { device, inode, is_regular }
    }
}

/// Devices that are not of this machine: each was asked once what it is, which may take long.
///
/// When one is unmounted its number may become another's. A local one's files then move bytes as
/// these do, which is slower; those of what is not noted here are asked every time.
type Elsewhere = RwLock<BTreeSet<u64>>;

static ELSEWHERE: Elsewhere = RwLock::new(BTreeSet::new());

/// Says that the files of a device are not of this machine, so that it is never asked: it may be
/// this very thread that would have to answer.
pub fn note_elsewhere(device: u64) {
    ELSEWHERE.write().unwrap_or_else(PoisonError::into_inner).insert(device);
}

/// How a regular file moves bytes, and whether it is on this machine.
fn regular_kind(fd: &OwnedFd, device: u64, elsewhere: &Elsewhere) -> io::Result<(Kind, bool)> {
    let system = file_system(fd, device, elsewhere)?;
    let kind = match system {
        FileSystem::Memory => Kind::Memory,
        // Others may stand still: then only threads do.
        FileSystem::Elsewhere => Kind::Other,
        _ if fcntl_getfl(fd)?.contains(OFlags::DIRECT) => Kind::Direct,
        FileSystem::Local | FileSystem::Overlay => Kind::Cached,
    };
    Ok((kind, system != FileSystem::Elsewhere))
}

/// True if what is on a device waits for this machine's devices only, and an open copies nothing
/// (an overlay's may). May wait for others itself.
///
/// # Errors
///
/// Those of `fstatfs`.
pub fn is_local(fd: &OwnedFd, device: u64) -> io::Result<bool> {
    let system = file_system(fd, device, &ELSEWHERE)?;
    Ok(matches!(system, FileSystem::Memory | FileSystem::Local))
}

#[derive(PartialEq, Eq)]
enum FileSystem {
    Memory,
    Local,
    /// Of layers that may be anywhere, of which those of this machine are usual.
    Overlay,
    Elsewhere,
}

fn file_system(fd: &OwnedFd, device: u64, elsewhere: &Elsewhere) -> io::Result<FileSystem> {
    if elsewhere.read().unwrap_or_else(PoisonError::into_inner).contains(&device) {
        return Ok(FileSystem::Elsewhere);
    }
    // The kernel's type is signed on some machines; magic numbers are 32 bits wide.
    let magic = u32::try_from(fstatfs(fd)?.f_type & 0xffff_ffff).unwrap_or_default();
    Ok(match magic {
        TMPFS | RAMFS => FileSystem::Memory,
        EXT | XFS | BTRFS | F2FS => FileSystem::Local,
        OVERLAY => FileSystem::Overlay,
        _ => {
            elsewhere.write().unwrap_or_else(PoisonError::into_inner).insert(device);
            FileSystem::Elsewhere
        }
    })
}

// By name, for nothing else shows it: FUSE on a block device, GFS2, and OCFS2 have a device of this
// machine, too, and may stand still; btrfs and overlays have none, as file systems of a network.
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58f6;
const EXT: u32 = 0xef53;
const XFS: u32 = 0x5846_5342;
const BTRFS: u32 = 0x9123_683e;
const F2FS: u32 = 0xf2f5_2010;
const OVERLAY: u32 = 0x794c_7630;

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, open};

    use super::*;

    fn opened(path: &str) -> OwnedFd {
        open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("there")
    }

    #[test]
    fn a_file_is_known_by_the_numbers_that_programs_see() {
        for path in ["/proc/version", "/dev/null", "/dev/shm", "Cargo.toml"] {
            let fd = opened(path);
            let stat = fstat(&fd).expect("open");
            let file = File::new(fd).expect("a file");
            assert_eq!((file.device(), file.inode()), (stat.st_dev, stat.st_ino), "{path}");
            let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            assert_eq!(file.is_regular(), is_regular, "{path}");
        }
    }

    #[test]
    fn a_device_of_another_machine_is_asked_once() {
        let (fd, elsewhere) = (opened("/proc/version"), Elsewhere::default());
        let device = fstat(&fd).expect("open").st_dev;
        assert_eq!(regular_kind(&fd, device, &elsewhere).expect("known"), (Kind::Other, false));
        // Asked again, this one would say that it is here.
        let local = opened("Cargo.toml");
        assert!(regular_kind(&local, device + 1, &elsewhere).expect("known").1);
        assert_eq!(regular_kind(&local, device, &elsewhere).expect("known"), (Kind::Other, false));
    }
}
