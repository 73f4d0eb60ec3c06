//! A storage that fails on purpose.

use std::{
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use multifile::{Disk, Naming, Storage, storage::File};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// Aligned writes of so few bytes lie in one sector and are never torn.
const SECTOR_PART: usize = 16;

/// Plain files until so many bytes were written; then the disk is full. Reads and writes move at
/// most a few bytes at once, so callers have to repeat them.
#[derive(Clone, Debug)]
pub(crate) struct Failing {
    disk: Disk,
    room: Arc<AtomicU64>,
    step: usize,
    torn: bool,
    bad_at: u64,
}

#[derive(Debug)]
pub(crate) struct FailingFile {
    file: fs::File,
    room: Arc<AtomicU64>,
    step: usize,
    torn: bool,
    bad_at: u64,
}

impl Failing {
    pub(crate) fn after(folder: PathBuf, bytes: u64) -> Self {
        Self {
            disk: Disk::in_folder(folder),
            room: Arc::new(bytes.into()),
            step: usize::MAX,
            torn: false,
            bad_at: u64::MAX,
        }
    }

    /// The write that finds no more room still writes as much as there was.
    pub(crate) fn torn_after(folder: PathBuf, bytes: u64) -> Self {
        Self { torn: true, ..Self::after(folder, bytes) }
    }

    pub(crate) fn in_steps_of(folder: PathBuf, step: usize) -> Self {
        Self { step, ..Self::after(folder, u64::MAX) }
    }

    /// The byte at `bad_at` cannot be read.
    pub(crate) fn unreadable_at(folder: PathBuf, bad_at: u64) -> Self {
        Self { bad_at, ..Self::after(folder, u64::MAX) }
    }

    /// Bytes that can still be written.
    pub(crate) fn room(&self) -> u64 {
        self.room.load(Ordering::Relaxed)
    }

    fn wrap(&self, file: fs::File) -> FailingFile {
        let Self { step, torn, bad_at, .. } = *self;
        FailingFile { file, room: Arc::clone(&self.room), step, torn, bad_at }
    }
}

impl Storage for Failing {
    type File = FailingFile;

    fn create(&self, path: &Path, naming: Naming<'_>, truncate: bool) -> io::Result<FailingFile> {
        self.disk.create(path, naming, truncate).map(|file| self.wrap(file))
    }

    fn open(&self, path: &Path, writable: Option<Naming<'_>>) -> io::Result<FailingFile> {
        self.disk.open(path, writable).map(|file| self.wrap(file))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
}

impl File for FailingFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let left = usize::try_from(self.bad_at.checked_sub(at).unwrap_or(u64::MAX)).unwrap();
        if left == 0 && !buf.is_empty() {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let len = buf.len().min(self.step).min(left);
        File::read_at(&self.file, &mut buf[..len], at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        let part = &buf[..buf.len().min(self.step)];
        let wanted = u64::try_from(part.len()).unwrap();
        let room = self
            .room
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(wanted));
        if let Err(room) = room {
            let left = usize::try_from(self.room.swap(0, Ordering::Relaxed).min(room)).unwrap();
            if self.torn && part.len() > SECTOR_PART && left > 0 {
                File::write_at(&self.file, &part[..left], at)?;
            }
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        File::write_at(&self.file, part, at)
    }

    fn size(&self) -> io::Result<u64> {
        File::size(&self.file)
    }

    fn resize(&self, len: u64) -> io::Result<()> {
        self.file.resize(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn block_len(&self) -> io::Result<u64> {
        self.file.block_len()
    }

    fn data_from(&self, at: u64) -> io::Result<Option<Range<u64>>> {
        self.file.data_from(at)
    }
}
