//! Where physical files live: a folder of plain files, or whatever implements [`Storage`].
//!
//! All access is positional, so one open file serves any number of tasks and threads, and nothing
//! here moves a file offset that someone else relies on. Plain files are used through libc alone,
//! so that a program under `kakehi run` has them delegated.

use std::{
    fmt, fs,
    io::{self, ErrorKind},
    ops::Range,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, FallocateFlags, FcntlArg, OFlag, fallocate, fcntl, openat},
    sys::{
        stat::{Mode, fstatat},
        statfs::{EXT4_SUPER_MAGIC, fstatfs},
    },
    unistd::{UnlinkatFlags, Whence, close, geteuid, lseek, unlinkat},
};

use crate::{
    codec::wide,
    error::{Error, Part, Result},
    header::{FIXED_LEN, Header},
    name,
};

/// How a file that is written got its name.
///
/// Somebody who may write the folder can put a link, or a file of his own, where a derived name
/// will be looked for. Nobody asked for that file by name, so it is not written through a link,
/// nor if it is not a regular file of this user, of root, or of the owner of the set.
#[derive(Clone, Copy, Debug)]
pub enum Naming<'a> {
    /// The program or its user chose the name; links are followed, as by `open(2)`.
    Chosen,
    /// Derived from the name of this set.
    Derived(&'a Path),
}

impl<'a> Naming<'a> {
    /// Of physical file `number` of `set`: the first has the set's name, which is a derived one if
    /// it is that of a buddy copy.
    #[must_use]
    pub fn of(set: &'a Path, number: u32) -> Self {
        match name::original(set) {
            Some(original) => Self::Derived(original),
            None if number == 0 => Self::Chosen,
            None => Self::Derived(set),
        }
    }
}

/// Opens and removes files by name. Cloning makes another way to the same files.
#[expect(clippy::missing_errors_doc, reason = "any is what the system reports")]
pub trait Storage: Clone + fmt::Debug {
    /// An open file.
    type File: File;

    /// Opens `path` for reading and writing, and creates it when missing. If `truncate`, the file
    /// is empty on return: what was there is cut, or replaced where the name is derived.
    fn create(&self, path: &Path, naming: Naming<'_>, truncate: bool) -> io::Result<Self::File>;

    /// Opens the existing file `path` for reading; also for writing if it says how it was named.
    fn open(&self, path: &Path, writable: Option<Naming<'_>>) -> io::Result<Self::File>;

    /// Removes `path`; a file that does not exist counts as removed.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The name of physical file `file` of the multifile `set`.
    ///
    /// The default is the format's rule; a program that names its files otherwise says so here.
    fn physical_name(&self, set: &Path, file: u32) -> PathBuf {
        name::physical(set, file)
    }
}

/// An open file, read and written at positions given in bytes from its start. Errors are what the
/// system reports; `Interrupted` is retried by the caller.
#[expect(clippy::missing_errors_doc, reason = "they are said above")]
pub trait File: Send + Sync + fmt::Debug {
    /// Reads up to `buf.len()` bytes at `at`; 0 at or behind the end.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes some of `buf` at `at`, extending the file as needed; returns the bytes written.
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize>;

    /// Length of the file in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Cuts or extends the file to `len` bytes.
    fn resize(&self, len: u64) -> io::Result<()>;

    /// Makes the file's data and size durable.
    fn sync(&self) -> io::Result<()>;

    /// Returns when the storage has taken what was written, and fails when it refuses some of it
    /// only now, as network file systems do with what exceeds a quota. It need not be durable.
    fn hand_over(&self) -> io::Result<()> {
        Ok(())
    }

    /// The block size the file system prefers, in bytes.
    fn block_len(&self) -> io::Result<u64>;

    /// Has the storage find space for `range` before anything is written there; neither the size
    /// nor what is read changes. A hint: it may do nothing.
    fn reserve(&self, _range: Range<u64>) {}

    /// Gives back the space of `range`, in which nothing was written, and which ends before the
    /// file does.
    fn release(&self, _range: Range<u64>) {}

    /// The first range at or behind `at` that may hold bytes other than zero, `None` if there is
    /// none. Bytes outside the ranges are holes.
    fn data_from(&self, at: u64) -> io::Result<Option<Range<u64>>>;

    /// Where the first of these ranges begins, or `at` when that lies within it: less work than
    /// finding its end, too.
    fn data_at(&self, at: u64) -> io::Result<Option<u64>> {
        Ok(self.data_from(at)?.map(|range| range.start.max(at)))
    }
}

/// Plain files, with relative names resolved in one folder.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// The current folder if there is none.
    folder: Option<Arc<OwnedFd>>,
    /// In that folder.
    root: PathBuf,
    mode: Option<u32>,
    follows: Follows,
}

/// True if a name that was chosen may be a link.
#[derive(Clone, Copy, Debug)]
struct Follows(bool);

impl Default for Follows {
    fn default() -> Self {
        Self(true)
    }
}

impl Disk {
    /// Names are resolved in the current folder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Relative names are resolved in `root`; absolute ones stay as they are.
    #[must_use]
    pub fn in_folder(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), ..Self::default() }
    }

    /// Relative names are resolved in an open folder, wherever that is moved to.
    #[must_use]
    pub fn at(folder: Arc<OwnedFd>) -> Self {
        Self { folder: Some(folder), ..Self::default() }
    }

    /// A name that was chosen is not followed if it is a link, as a derived one.
    #[must_use]
    pub fn without_links(self) -> Self {
        Self { follows: Follows(false), ..self }
    }

    /// Files that are made have this mode, less the umask; otherwise all may read and write them
    /// whom the umask lets.
    #[must_use]
    pub fn making(self, mode: u32) -> Self {
        Self { mode: Some(mode), ..self }
    }
}

impl Disk {
    fn open_as(&self, path: &Path, naming: Naming<'_>, flags: OFlag) -> io::Result<fs::File> {
        let is_derived = matches!(naming, Naming::Derived(_));
        let flags = match is_derived || !self.follows.0 {
            true => flags | OFlag::O_NOFOLLOW,
            false => flags,
        };
        let mode = Mode::from_bits_truncate(self.mode.unwrap_or(0o666));
        let path = self.root.join(path);
        // At the name somebody may have put a pipe, and nobody is at its other end.
        let guarded = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let file = openat(self.folder(), &path, guarded, mode)?;
        fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
        let file = fs::File::from(file);
        match naming {
            Naming::Derived(set) => self.check(&file, set).map(|()| file),
            Naming::Chosen => Ok(file),
        }
    }

    /// Refuses a file that somebody else has put at a derived name.
    fn check(&self, file: &fs::File, set: &Path) -> io::Result<()> {
        let found = file.metadata()?;
        let is_of_set = || {
            let set = fstatat(self.folder(), &self.root.join(set), AtFlags::empty());
            set.is_ok_and(|set| set.st_uid == found.uid())
        };
        let owners = [geteuid().as_raw(), 0];
        if found.is_file() && (owners.contains(&found.uid()) || is_of_set()) {
            return Ok(());
        }
        Err(Errno::EPERM.into())
    }

    /// Refuses to replace another multifile, of which a physical file of `set` has the name.
    fn check_is_no_other(&self, path: &Path, set: &Path) -> io::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW;
        let mut bytes = [0; FIXED_LEN];
        let found = self.open_as(path, Naming::Chosen, flags);
        let len = found.and_then(|found| read_up_to(&found, &mut bytes, 0)).unwrap_or_default();
        let Ok(found) = Header::parse(bytes.get(..len).unwrap_or_default(), 0) else {
            return Ok(());
        };
        let is_further = (1..found.file_count).contains(&found.file_number);
        if is_further || !name::is_further(set, path) { Ok(()) } else { Err(Errno::EEXIST.into()) }
    }

    fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_ref().map_or(AT_FDCWD, |folder| folder.as_fd())
    }
}

impl Storage for Disk {
    type File = fs::File;

    fn create(&self, path: &Path, naming: Naming<'_>, truncate: bool) -> io::Result<fs::File> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT;
        match (naming, truncate) {
            (_, false) => self.open_as(path, naming, flags),
            (Naming::Chosen, true) => self.open_as(path, naming, flags | OFlag::O_TRUNC),
            (Naming::Derived(set), true) => {
                // There seldom is one, and on a network file system each call is a round trip.
                match self.open_as(path, naming, flags | OFlag::O_EXCL) {
                    Err(why) if why.kind() == ErrorKind::AlreadyExists => {}
                    made => return made,
                }
                self.check_is_no_other(path, set)?;
                self.remove(path)?;
                self.open_as(path, naming, flags | OFlag::O_EXCL)
            }
        }
    }

    fn open(&self, path: &Path, writable: Option<Naming<'_>>) -> io::Result<fs::File> {
        match writable {
            Some(naming) => self.open_as(path, naming, OFlag::O_RDWR),
            None => self.open_as(path, Naming::Chosen, OFlag::O_RDONLY),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = self.root.join(path);
        match unlinkat(self.folder(), &path, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }
}

impl File for fs::File {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        FileExt::write_at(self, buf, at)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn resize(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    /// Closing says it, be it another descriptor's; where there is none left, making it durable.
    fn hand_over(&self) -> io::Result<()> {
        match self.try_clone() {
            Ok(copy) => Ok(close(copy)?),
            Err(_) => self.sync(),
        }
    }

    fn block_len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.blksize())
    }

    fn reserve(&self, range: Range<u64>) {
        allocate(self, FallocateFlags::FALLOC_FL_KEEP_SIZE, range);
    }

    fn release(&self, range: Range<u64>) {
        let hole = FallocateFlags::FALLOC_FL_KEEP_SIZE | FallocateFlags::FALLOC_FL_PUNCH_HOLE;
        allocate(self, hole, range);
    }

    fn data_from(&self, at: u64) -> io::Result<Option<Range<u64>>> {
        let Some(start) = self.data_at(at)? else { return Ok(None) };
        match seek(self, start, Whence::SeekHole) {
            Ok(end) => Ok(Some(start..end)),
            Err(Errno::EINVAL) => Ok(Some(start..File::size(self)?)),
            Err(error) => Err(error.into()),
        }
    }

    fn data_at(&self, at: u64) -> io::Result<Option<u64>> {
        match seek(self, at, Whence::SeekData) {
            Ok(start) => Ok(Some(start)),
            Err(Errno::ENXIO) => Ok(None),
            // The file system knows no holes: everything may be data.
            Err(Errno::EINVAL) => Ok((at < File::size(self)?).then_some(at)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Changes which bytes of a file have space, on the one file system where it was found to make
/// writing faster. Whether it succeeds is all the same: writing finds space where there is none.
fn allocate(file: &fs::File, how: FallocateFlags, range: Range<u64>) {
    let len = range.end.saturating_sub(range.start);
    let (Ok(at), Ok(len)) = (range.start.try_into(), len.try_into()) else { return };
    if fstatfs(file).is_ok_and(|found| found.filesystem_type() == EXT4_SUPER_MAGIC) {
        fallocate(file, how, at, len).ok();
    }
}

/// Where the next data, or the next hole, begins. Who writes by the file's own position, as through
/// a stdio stream, finds that as it was.
fn seek(file: &fs::File, at: u64, what: Whence) -> nix::Result<u64> {
    let at = at.try_into().map_err(|_| Errno::ENXIO)?;
    let position = lseek(file, 0, Whence::SeekCur)?;
    let found = lseek(file, at, what);
    lseek(file, position, Whence::SeekSet)?;
    Ok(found?.unsigned_abs())
}

/// Fills as much of `buf` as the file holds from `at`, and returns how much that is.
pub(crate) fn read_up_to<F: File>(file: &F, buf: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let offset = at.checked_add(wide(done)).ok_or(ErrorKind::InvalidInput)?;
        match file.read_at(rest, offset) {
            Ok(0) => break,
            Ok(n) => done += n.min(rest.len()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Fills `buf` from `at`; a file that ends before is [`Part::Truncated`].
pub(crate) fn read_exactly<F: File>(file: &F, number: u32, buf: &mut [u8], at: u64) -> Result<()> {
    match read_up_to(file, buf, at) {
        Ok(n) if n == buf.len() => Ok(()),
        Ok(_) => Err(Error::Damaged { part: Part::Truncated, file: number }),
        Err(error) => Err(Error::io(number, &error)),
    }
}

/// Writes all of `buf` at `at`.
pub(crate) fn write_all<F: File>(file: &F, mut buf: &[u8], mut at: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match file.write_at(buf, at) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => {
                buf = buf.get(n..).unwrap_or_default();
                at = at.checked_add(wide(n)).ok_or(ErrorKind::FileTooLarge)?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
