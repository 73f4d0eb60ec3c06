//! Calls on names, as the `delegate` policy sends them: plain system calls with the daemon's own
//! credentials, which are the client's.
//!
//! These block, so they run on engine threads. Nothing here follows a client's memory: paths are
//! copies, answers are copied back by the session.

use std::{
    ffi::CString,
    io,
    sync::{Arc, Mutex},
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, linkat, mkdirat, openat,
        renameat_with, statat, symlinkat, unlinkat,
    },
    io::Errno,
};

use crate::mail::lock;

/// Words of a [`Status`].
pub(crate) const STATUS_WORDS: usize = 16;
const DEVICE: usize = 0;
const INODE: usize = 1;
const MODE: usize = 2;
const SIZE: usize = 7;

/// What `stat(2)` says, in the daemon's own layout (`docs/protocol.md`, section 5): device, inode,
/// mode, links, user, group, special device, size, block size, blocks, then seconds and
/// nanoseconds of access, modification, and change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) [u64; STATUS_WORDS]);

impl Status {
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.word(DEVICE), self.word(INODE))
    }

    pub(crate) fn mode(&self) -> u64 {
        self.word(MODE)
    }

    pub(crate) fn size(&self) -> u64 {
        self.word(SIZE)
    }

    /// The words, little-endian.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The identity in a status as [`bytes`](Self::bytes) gives it.
    pub(crate) fn identity_in(bytes: &[u8]) -> Option<(u64, u64)> {
        let word = |index: usize| {
            let at = index * size_of::<u64>();
            let word = bytes.get(at..at + size_of::<u64>())?;
            word.try_into().ok().map(u64::from_le_bytes)
        };
        Some((word(DEVICE)?, word(INODE)?))
    }

    fn word(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or_default()
    }
}

impl From<&Stat> for Status {
    #[expect(clippy::cast_sign_loss, reason = "the same bits, whatever the platform's types")]
    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_lossless,
        clippy::allow_attributes,
        reason = "the widths of these fields differ between platforms"
    )]
    fn from(stat: &Stat) -> Self {
        Self([
            stat.st_dev as u64,
            stat.st_ino as u64,
            stat.st_mode as u64,
            stat.st_nlink as u64,
            stat.st_uid as u64,
            stat.st_gid as u64,
            stat.st_rdev as u64,
            stat.st_size as u64,
            stat.st_blksize as u64,
            stat.st_blocks as u64,
            stat.st_atime as u64,
            stat.st_atime_nsec as u64,
            stat.st_mtime as u64,
            stat.st_mtime_nsec as u64,
            stat.st_ctime as u64,
            stat.st_ctime_nsec as u64,
        ])
    }
}

/// Opening a file by name.
#[derive(Debug)]
pub(crate) struct OpenCall {
    pub(crate) path: CString,
    /// `O_*` bits.
    pub(crate) flags: u32,
    /// Permission bits of a created file.
    pub(crate) mode: u32,
}

/// Any other call on names.
#[derive(Debug)]
pub(crate) enum NameCall {
    Stat { path: CString, follow: bool },
    Truncate { path: CString, len: u64 },
    Unlink { path: CString },
    Rename { from: CString, to: CString, flags: u32 },
    MakeDir { path: CString, mode: u32 },
    RemoveDir { path: CString },
    ReadDir { path: CString, skip: u64, room: usize },
    Link { from: CString, to: CString },
    Symlink { text: CString, name: CString },
}

/// What a call on names gives.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The request's value.
    pub(crate) value: u64,
    /// For the lane's buffer.
    pub(crate) bytes: Vec<u8>,
}

/// Opens a regular file; others are refused, and neither opened for long nor waited for.
pub(crate) fn open(call: &OpenCall) -> io::Result<uring::File> {
    let flags = OFlags::from_bits_retain(call.flags) | OFlags::CLOEXEC;
    if flags.contains(OFlags::PATH) {
        return Err(Errno::NOTSUP.into());
    }
    refuse_special(&call.path, flags)?;
    // What has become special since then must not block this thread or take a terminal.
    let guarded = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = openat(CWD, &call.path, guarded, Mode::from_raw_mode(call.mode))?;
    if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::RegularFile {
        return Err(Errno::NOTSUP.into());
    }
    if !flags.contains(OFlags::NONBLOCK) {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK)?;
    }
    uring::File::new(fd)
}

/// Refuses a name that leads to something else than a regular file: opening may have effects.
fn refuse_special(path: &CString, flags: OFlags) -> io::Result<()> {
    let follow = if flags.contains(OFlags::NOFOLLOW) || flags.contains(OFlags::EXCL) {
        AtFlags::SYMLINK_NOFOLLOW
    } else {
        AtFlags::empty()
    };
    let Ok(stat) = statat(CWD, path, follow) else { return Ok(()) };
    match FileType::from_raw_mode(stat.st_mode) {
        // The errors of a folder or a link are those of the open itself.
        FileType::RegularFile | FileType::Symlink => Ok(()),
        FileType::Directory if flags.intersects(OFlags::WRONLY | OFlags::RDWR) => Ok(()),
        _ if flags.contains(OFlags::CREATE | OFlags::EXCL) => Ok(()),
        _ => Err(Errno::NOTSUP.into()),
    }
}

/// Executes a call.
pub(crate) fn execute(call: &NameCall) -> io::Result<Answer> {
    match call {
        NameCall::Stat { path, follow } => {
            let flags = if *follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
            let bytes = Status::from(&statat(CWD, path, flags)?).bytes();
            return Ok(Answer { value: 0, bytes });
        }
        NameCall::ReadDir { path, skip, room } => return read_dir(path, *skip, *room),
        NameCall::Truncate { path, len } => {
            let fd = openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::fs::ftruncate(&fd, *len)?;
        }
        NameCall::Unlink { path } => unlinkat(CWD, path, AtFlags::empty())?,
        NameCall::Rename { from, to, flags } => {
            renameat_with(CWD, from, CWD, to, RenameFlags::from_bits_retain(*flags))?;
        }
        NameCall::MakeDir { path, mode } => mkdirat(CWD, path, Mode::from_raw_mode(*mode))?,
        NameCall::RemoveDir { path } => unlinkat(CWD, path, AtFlags::REMOVEDIR)?,
        NameCall::Link { from, to } => linkat(CWD, from, CWD, to, AtFlags::empty())?,
        NameCall::Symlink { text, name } => symlinkat(text, CWD, name)?,
    }
    Ok(Answer::default())
}

/// The names of a folder from the `skip`-th on, as many as fit into `room` bytes with a NUL each.
fn read_dir(path: &CString, skip: u64, room: usize) -> io::Result<Answer> {
    let fd = openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    for entry in Dir::new(fd)?.skip(skip) {
        let entry = entry?;
        let name = entry.file_name().to_bytes_with_nul();
        if bytes.len() + name.len() > room {
            break;
        }
        bytes.extend_from_slice(name);
    }
    Ok(Answer { value: bytes.len() as u64, bytes })
}

/// Where an engine thread leaves what does not fit a completion.
#[derive(Debug)]
pub(crate) struct Shared<T>(Arc<Mutex<Option<T>>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Shared<T> {
    pub(crate) fn fill(&self, value: T) -> io::Result<u64> {
        *lock(&self.0) = Some(value);
        Ok(0)
    }

    pub(crate) fn take(&self) -> io::Result<T> {
        lock(&self.0).take().ok_or_else(|| Errno::IO.into())
    }
}
