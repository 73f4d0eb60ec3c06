//! Calls on names, as the policies `delegate` and `remote` send them: plain system calls with the
//! daemon's own credentials, which are the client's.
//!
//! These block, so they run on engine threads, but for short ones (`learned`). Nothing here follows
//! a client's memory: paths are copies, answers are copied back by the session.

mod call;
mod listing;

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
    time::Instant,
};

use executor::lock;
use rustix::{
    fs::{
        Access, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec,
        Timestamps, Uid, accessat, chmodat, chownat, fstat, linkat, mkdirat, readlinkat,
        renameat_with, statat, symlinkat, unlinkat, utimensat,
    },
    io::Errno,
};
use shm::CallKind;
use uring::with_umask;
use wire::{FileSystem, NewMode, Status, Times};

pub use self::call::{Attributes, CallPath, FileCall, NameCall, OpenCall};
pub use crate::status::{
    Identity, device_of, is_of_view, is_same, show_in_view, status_at, status_of,
};
use crate::{
    learned::Learned,
    scope::{Scope, link_to},
    status::file_system,
    verdict::errno,
};

impl Attributes {
    /// Sets the attributes of an open file.
    pub(crate) fn apply(self, fd: &OwnedFd) -> io::Result<()> {
        match self {
            Self::Mode(mode) => rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))?,
            Self::Owner(user, group) => {
                let (user, group) = owners(user, group);
                rustix::fs::fchown(fd, user, group)?;
            }
            Self::Times(times) => rustix::fs::futimens(fd, &timestamps(times))?,
        }
        Ok(())
    }
}

/// Result of a call on a name or on an open file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The request's value.
    pub value: u64,
    /// For the lane's buffer.
    pub bytes: Vec<u8>,
}

impl Answer {
    /// A value alone.
    pub const fn value(value: u64) -> Self {
        Self { value, bytes: Vec::new() }
    }

    /// Of a file.
    pub fn status(status: &Status) -> Self {
        Self { value: 0, bytes: status.encode().to_vec() }
    }

    /// Of a file system.
    pub fn file_system(found: &FileSystem) -> Self {
        Self::counted(found.encode().to_vec())
    }

    /// Bytes whose number is the value.
    pub fn counted(bytes: Vec<u8>) -> Self {
        Self { value: bytes.len() as u64, bytes }
    }
}

/// Opens a regular file; others are refused, and neither opened for long nor waited for. `EAGAIN`:
/// somebody has a lease on it.
pub(crate) fn open(
    scope: &Scope,
    call: &OpenCall,
    learned: &Learned,
) -> io::Result<(uring::File, Status)> {
    let flags = OFlags::from_bits_retain(call.flags) | OFlags::CLOEXEC;
    if flags.contains(OFlags::PATH) {
        return Err(Errno::NOTSUP.into());
    }
    let began = Instant::now();
    refuse_special(scope, &call.path, flags)?;
    // What has become special since then must not block this thread or take a terminal.
    let guarded = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = making(call.mode, |mode| scope.open(&call.path, guarded, mode))?;
    let status = status_of(&fd)?;
    must_be_regular(&status)?;
    let creates = flags.contains(OFlags::CREATE);
    let kind = if creates { CallKind::Create } else { CallKind::Open };
    learned.learn(status.device, kind, began.elapsed());
    if !flags.contains(OFlags::NONBLOCK) {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK)?;
    }
    Ok((uring::File::new(fd)?, status))
}

/// Makes what a request asks for, under the umask of its program.
fn making<T>(mode: u32, make: impl FnOnce(Mode) -> T) -> T {
    let NewMode { bits, umask } = NewMode::decode(mode);
    with_umask(Mode::from_bits_retain(bits), Mode::from_bits_retain(umask), make)
}

/// Opens a file that is there, and waits until whoever has a lease on it gives that up. What is
/// opened is what was found to be a regular file: nothing else is waited for.
pub(crate) fn open_leased(
    scope: &Scope,
    call: &OpenCall,
    learned: &Learned,
) -> io::Result<(uring::File, Status)> {
    let flags = OFlags::from_bits_retain(call.flags) | OFlags::CLOEXEC;
    let found = scope.open(&call.path, OFlags::PATH | flags & OFlags::NOFOLLOW, Mode::empty());
    let found = match found {
        // It was removed meanwhile.
        Err(why) if errno(&why) == Errno::NOENT => return open(scope, call, learned),
        found => found?,
    };
    must_be_regular(&status_of(&found)?)?;
    let flags = flags - (OFlags::CREATE | OFlags::NOFOLLOW);
    let fd = rustix::fs::open(link_to(&found), flags, Mode::empty())?;
    let status = status_of(&fd)?;
    Ok((uring::File::new(fd)?, status))
}

fn must_be_regular(status: &Status) -> Result<(), Errno> {
    match FileType::from_raw_mode(status.mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(Errno::NOTSUP),
    }
}

/// Another open file of the same inode: for both reading and writing where that is allowed.
///
/// # Errors
///
/// Those of `open`.
pub fn reopen(fd: &OwnedFd) -> io::Result<OwnedFd> {
    let mode = rustix::fs::fcntl_getfl(fd)? & OFlags::RWMODE;
    let open = |mode| rustix::fs::open(link_to(fd), mode | OFlags::CLOEXEC, Mode::empty());
    Ok(open(OFlags::RDWR).or_else(|_| open(mode))?)
}

/// Refuses a name that leads to something else than a regular file: opening may have effects.
fn refuse_special(scope: &Scope, path: &CallPath, flags: OFlags) -> io::Result<()> {
    let follow = !flags.intersects(OFlags::NOFOLLOW | OFlags::EXCL);
    let status = match status(scope, path, follow) {
        Ok(status) => status,
        // What was not in the kernel's cache may be there at the next look.
        Err(why) if scope.is_within() => return Err(why),
        Err(_) => return Ok(()),
    };
    match FileType::from_raw_mode(status.mode) {
        // The errors of a folder or a link are those of the open itself.
        FileType::RegularFile | FileType::Symlink => Ok(()),
        FileType::Directory if flags.intersects(OFlags::WRONLY | OFlags::RDWR) => Ok(()),
        _ if flags.contains(OFlags::CREATE | OFlags::EXCL) => Ok(()),
        _ => Err(Errno::NOTSUP.into()),
    }
}

fn status(scope: &Scope, path: &CallPath, follow: bool) -> io::Result<Status> {
    if follow {
        let found = status_of(scope.find(path)?);
        let is_stale = |why: &io::Error| Errno::from_io_error(why) == Some(Errno::STALE);
        if !scope.is_machine() || !found.as_ref().is_err_and(is_stale) {
            return found;
        }
        // Another node has removed or replaced it; only by its name the kernel looks again.
        let at = scope.anchor(path)?;
        return status_at(at.folder(), &at.name, AtFlags::empty());
    }
    if scope.is_within() {
        return status_of(scope.open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?);
    }
    let at = scope.anchor(path)?;
    status_at(at.folder(), &at.name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Executes a call.
pub(crate) fn execute(scope: &Scope, call: &NameCall, learned: &Learned) -> io::Result<Answer> {
    match call {
        NameCall::Stat { path, follow } => {
            let began = Instant::now();
            let status = status(scope, path, *follow)?;
            learned.learn(status.device, CallKind::Stat, began.elapsed());
            return Ok(Answer::status(&status));
        }
        NameCall::ReadDir { path, from, room } => {
            return listing::read_dir(scope, path, *from, *room);
        }
        NameCall::ReadLink { path } => {
            let at = scope.anchor(path)?;
            let text = readlinkat(at.folder(), &at.name, Vec::new())?;
            return Ok(Answer::counted(text.into_bytes()));
        }
        NameCall::FileSystem { path } => {
            return Ok(Answer::file_system(&file_system(scope.find(path)?)?));
        }
        NameCall::Truncate { path, len } => {
            rustix::fs::ftruncate(open_to_cut(scope, path)?, *len)?;
        }
        NameCall::Unlink { path } => {
            let at = scope.anchor(path)?;
            unlinkat(at.folder(), &at.name, AtFlags::empty())?;
        }
        NameCall::Rename { from, to, flags } => {
            let (from, to) = (scope.anchor(from)?, scope.anchor(to)?);
            let flags = RenameFlags::from_bits_retain(*flags);
            renameat_with(from.folder(), &from.name, to.folder(), &to.name, flags)?;
        }
        NameCall::MakeDir { path, mode } => {
            let at = scope.anchor(path)?;
            making(*mode, |mode| mkdirat(at.folder(), &at.name, mode))?;
        }
        NameCall::RemoveDir { path } => {
            let at = scope.anchor(path)?;
            unlinkat(at.folder(), &at.name, AtFlags::REMOVEDIR)?;
        }
        NameCall::Link { from, to } => {
            let from = scope.anchor(from)?;
            let to = scope.anchor(to).or_else(|why| {
                // That a file is missing the kernel says first.
                statat(from.folder(), &from.name, AtFlags::SYMLINK_NOFOLLOW)?;
                Err(why)
            })?;
            linkat(from.folder(), &from.name, to.folder(), &to.name, AtFlags::empty())?;
        }
        NameCall::Symlink { text, name } => {
            let at = scope.anchor(name)?;
            symlinkat(text, at.folder(), &at.name)?;
        }
        NameCall::Set { path, follow, what } => set(scope, path, *follow, *what)?,
        NameCall::Access { path, mode } => {
            let found = scope.find(path)?;
            accessat(CWD, link_to(&found), Access::from_bits_retain(*mode), AtFlags::empty())?;
        }
        NameCall::SyncFolder { path } => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            rustix::fs::fsync(scope.open(path, flags, Mode::empty())?)?;
        }
        // Names that others than the daemon change can be known to nobody.
        NameCall::Lease { .. } => return Err(Errno::OPNOTSUPP.into()),
    }
    Ok(Answer::default())
}

/// Executes a call on an open file.
pub(crate) fn execute_on(file: &uring::File, call: FileCall) -> io::Result<Answer> {
    match call {
        FileCall::Status => return Ok(Answer::status(&status_of(file)?)),
        FileCall::FileSystem => return Ok(Answer::file_system(&file_system(file.fd())?)),
        FileCall::Seek(to) => {
            return Ok(Answer::value(rustix::fs::seek(file, to)?));
        }
        FileCall::Sync { data_only: true } => rustix::fs::fdatasync(file)?,
        FileCall::Sync { data_only: false } => rustix::fs::fsync(file)?,
        FileCall::Truncate { len } => rustix::fs::ftruncate(file, len)?,
        FileCall::Allocate { mode, at, len } => {
            rustix::fs::fallocate(file, FallocateFlags::from_bits_retain(mode), at, len)?;
        }
        FileCall::SetAppend(appends) => {
            file.leave_direct(); // What goes past the page cache has a place.
            let mut flags = rustix::fs::fcntl_getfl(file)?;
            flags.set(OFlags::APPEND, appends);
            rustix::fs::fcntl_setfl(file, flags)?;
        }
        FileCall::Set(what) => what.apply(file.fd())?,
        // An engine's to make.
        FileCall::CloseDuplicate => return Err(Errno::NOSYS.into()),
    }
    Ok(Answer::default())
}

/// Opens a regular file to cut it; what is none is refused as by `truncate(2)`, and not opened:
/// that may wait for others, and have effects.
fn open_to_cut(scope: &Scope, path: &CallPath) -> io::Result<OwnedFd> {
    let found = scope.find(path)?;
    match FileType::from_raw_mode(fstat(&found)?.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(Errno::ISDIR.into()),
        _ => return Err(Errno::INVAL.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(link_to(&found), flags, Mode::empty())?)
}

fn set(scope: &Scope, path: &CallPath, follow: bool, what: Attributes) -> io::Result<()> {
    if !follow {
        let at = scope.anchor(path)?;
        let (folder, name, flags) = (at.folder(), &at.name, AtFlags::SYMLINK_NOFOLLOW);
        match what {
            Attributes::Mode(_) => return Err(Errno::NOTSUP.into()),
            Attributes::Owner(user, group) => {
                let (user, group) = owners(user, group);
                chownat(folder, name, user, group, flags)?;
            }
            Attributes::Times(times) => utimensat(folder, name, &timestamps(times), flags)?,
        }
        return Ok(());
    }
    let found = scope.find(path)?;
    match what {
        Attributes::Mode(mode) => {
            chmodat(CWD, link_to(&found), Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        Attributes::Owner(user, group) => {
            let (user, group) = owners(user, group);
            chownat(&found, c"", user, group, AtFlags::EMPTY_PATH)?;
        }
        Attributes::Times(times) => {
            utimensat(CWD, link_to(&found), &timestamps(times), AtFlags::empty())?;
        }
    }
    Ok(())
}

/// User and group, but for those that are to stay.
fn owners(user: u32, group: u32) -> (Option<Uid>, Option<Gid>) {
    let is_set = |id: &u32| *id != u32::MAX;
    (Some(user).filter(is_set).map(Uid::from_raw), Some(group).filter(is_set).map(Gid::from_raw))
}

const fn timestamps(times: Times) -> Timestamps {
    let (accessed, modified) = (times.accessed, times.modified);
    Timestamps {
        last_access: Timespec { tv_sec: accessed.0, tv_nsec: accessed.1 },
        last_modification: Timespec { tv_sec: modified.0, tv_nsec: modified.1 },
    }
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
        let before = lock(&self.0).replace(value);
        debug_assert!(before.is_none(), "a call has one result");
        Ok(0)
    }

    pub(crate) fn take(&self) -> io::Result<T> {
        lock(&self.0).take().ok_or_else(|| Errno::IO.into())
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::CString, fs, os::unix::ffi::OsStrExt as _};

    use rustix::fs::mknodat;

    use super::*;

    /// Opened to be cut, a pipe would wait for who reads it.
    #[test]
    fn what_is_no_regular_file_is_refused_to_be_cut_at_once() {
        let folder = tempfile::tempdir().expect("folder");
        mknodat(CWD, folder.path().join("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        fs::write(folder.path().join("file"), "12345").expect("file");
        let cut = |name: &str, len| {
            let path = CString::new(folder.path().join(name).as_os_str().as_bytes()).unwrap();
            let call = NameCall::Truncate { path: path.into(), len };
            let cut = execute(&Scope::Machine, &call, &Learned::default());
            cut.map(drop).map_err(|why| why.raw_os_error().map(Errno::from_raw_os_error))
        };
        assert_eq!(cut("pipe", 0), Err(Some(Errno::INVAL)));
        assert_eq!(cut("", 0), Err(Some(Errno::ISDIR)));
        assert_eq!(cut("gone", 0), Err(Some(Errno::NOENT)));
        assert_eq!(cut("file", 2), Ok(()));
        assert_eq!(fs::read(folder.path().join("file")).expect("there"), b"12");
    }
}
