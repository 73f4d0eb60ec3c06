//! Where physical files live: a folder of plain files, or whatever implements [`Storage`].
//!
//! All access is positional, so one open file serves any number of tasks and threads, and nothing
//! here moves a file offset that someone else relies on. Plain files are used through libc alone,
//! so that a program under `kakehi run` has them delegated.

use std::{
    fmt, fs,
    io::{self, ErrorKind},
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{FallocateFlags, fallocate},
    sys::statfs::{EXT4_SUPER_MAGIC, fstatfs},
    unistd::{Whence, close, lseek},
};

use crate::{
    codec::wide,
    error::{Error, Part, Result},
    name,
};

/// Opens and removes files by name. Cloning makes another way to the same files.
pub trait Storage: Clone + fmt::Debug {
    /// An open file.
    type File: File;

    /// Opens `path` for reading and writing, and creates it when missing. Existing content is
    /// removed if `truncate`.
    ///
    /// # Errors
    ///
    /// What the system reports.
    fn create(&self, path: &Path, truncate: bool) -> io::Result<Self::File>;

    /// Opens the existing file `path` for reading, and for writing too if `writable`.
    ///
    /// # Errors
    ///
    /// What the system reports.
    fn open(&self, path: &Path, writable: bool) -> io::Result<Self::File>;

    /// Removes `path`; a file that does not exist counts as removed.
    ///
    /// # Errors
    ///
    /// What the system reports.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The name of physical file `file` of the multifile `set`.
    ///
    /// The default is the format's rule; a program that names its files otherwise says so here.
    fn physical_name(&self, set: &Path, file: u32) -> PathBuf {
        name::physical(set, file)
    }
}

/// An open file, read and written at positions given in bytes from its start.
pub trait File: Send + Sync + fmt::Debug {
    /// Reads up to `buf.len()` bytes at `at`; 0 at or behind the end.
    ///
    /// # Errors
    ///
    /// What the system reports; `Interrupted` is retried by the caller.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes some of `buf` at `at`, extending the file as needed; returns the bytes written.
    ///
    /// # Errors
    ///
    /// What the system reports; `Interrupted` is retried by the caller.
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize>;

    /// Length of the file in bytes.
    ///
    /// # Errors
    ///
    /// What the system reports.
    fn size(&self) -> io::Result<u64>;

    /// Cuts or extends the file to `len` bytes.
    ///
    /// # Errors
    ///
    /// What the system reports.
    fn resize(&self, len: u64) -> io::Result<()>;

    /// Makes the file's data and size durable.
    ///
    /// # Errors
    ///
    /// What the system reports.
    fn sync(&self) -> io::Result<()>;

    /// Returns when the storage has taken what was written, and fails when it refuses some of it
    /// only now, as network file systems do with what exceeds a quota. It need not be durable.
    ///
    /// # Errors
    ///
    /// What the system reports.
    fn hand_over(&self) -> io::Result<()> {
        Ok(())
    }

    /// The block size the file system prefers, in bytes.
    ///
    /// # Errors
    ///
    /// What the system reports.
    fn block_len(&self) -> io::Result<u64>;

    /// Has the storage find space for `range` before anything is written there; neither the size
    /// nor what is read changes. A hint: it may do nothing.
    fn reserve(&self, _range: Range<u64>) {}

    /// Gives back the space of `range`, in which nothing was written, and which ends before the
    /// file does.
    fn release(&self, _range: Range<u64>) {}

    /// The first range at or behind `at` that may hold bytes other than zero, `None` if there is
    /// none. Bytes outside the ranges are holes.
    ///
    /// # Errors
    ///
    /// What the system reports.
    fn data_from(&self, at: u64) -> io::Result<Option<Range<u64>>>;

    /// Where the first of these ranges begins, or `at` when that lies within it: less work than
    /// finding its end, too.
    ///
    /// # Errors
    ///
    /// What the system reports.
    fn data_at(&self, at: u64) -> io::Result<Option<u64>> {
        Ok(self.data_from(at)?.map(|range| range.start.max(at)))
    }
}

/// Plain files, with relative names resolved in one folder.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    root: PathBuf,
    mode: Option<u32>,
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
        Self { root: root.into(), mode: None }
    }

    /// Files that are made have this mode, less the umask; otherwise all may read and write them
    /// whom the umask lets.
    #[must_use]
    pub fn making(self, mode: u32) -> Self {
        Self { mode: Some(mode), ..self }
    }
}

impl Storage for Disk {
    type File = fs::File;

    fn create(&self, path: &Path, truncate: bool) -> io::Result<fs::File> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(truncate);
        options.mode(self.mode.unwrap_or(0o666)).open(self.root.join(path))
    }

    fn open(&self, path: &Path, writable: bool) -> io::Result<fs::File> {
        fs::OpenOptions::new().read(true).write(writable).open(self.root.join(path))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(self.root.join(path)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
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
