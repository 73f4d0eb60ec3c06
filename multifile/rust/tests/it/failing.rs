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

use multifile::{Disk, Storage, storage::File};

const ENOSPC: i32 = 28;

/// Plain files until so many bytes were written; then the disk is full. Reads and writes move at
/// most a few bytes at once, so callers have to repeat them.
#[derive(Clone, Debug)]
pub(crate) struct Failing {
    disk: Disk,
    room: Arc<AtomicU64>,
    step: usize,
}

#[derive(Debug)]
pub(crate) struct FailingFile {
    file: fs::File,
    room: Arc<AtomicU64>,
    step: usize,
}

impl Failing {
    pub(crate) fn after(folder: PathBuf, bytes: u64) -> Self {
        Self { disk: Disk::in_folder(folder), room: Arc::new(bytes.into()), step: usize::MAX }
    }

    pub(crate) fn in_steps_of(folder: PathBuf, step: usize) -> Self {
        Self { disk: Disk::in_folder(folder), room: Arc::new(u64::MAX.into()), step }
    }

    fn wrap(&self, file: fs::File) -> FailingFile {
        FailingFile { file, room: Arc::clone(&self.room), step: self.step }
    }
}

impl Storage for Failing {
    type File = FailingFile;

    fn create(&self, path: &Path, truncate: bool) -> io::Result<FailingFile> {
        self.disk.create(path, truncate).map(|file| self.wrap(file))
    }

    fn open(&self, path: &Path, writable: bool) -> io::Result<FailingFile> {
        self.disk.open(path, writable).map(|file| self.wrap(file))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
}

impl File for FailingFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let len = buf.len().min(self.step);
        File::read_at(&self.file, &mut buf[..len], at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        let part = &buf[..buf.len().min(self.step)];
        let wanted = u64::try_from(part.len()).unwrap();
        let room = self
            .room
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(wanted));
        room.map_err(|_| io::Error::from_raw_os_error(ENOSPC))?;
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
