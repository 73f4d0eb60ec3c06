//! A storage in memory that counts what is done to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use multifile::{Naming, Storage, storage::File};

/// No file grows beyond this: what a file claims to be is not worth more memory.
const SIZE_MAX: u64 = 1 << 24;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;

#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    files: Arc<Mutex<BTreeMap<PathBuf, MemoryFile>>>,
    pub(crate) counts: Arc<Counts>,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) reads: AtomicU64,
    pub(crate) syncs: AtomicU64,
    opened: Mutex<BTreeSet<PathBuf>>,
    /// Writes by their offset, cuts, and syncs, of all files in order.
    pub(crate) steps: Mutex<Vec<(PathBuf, Step)>>,
    pub(crate) reserved: Mutex<Vec<Range<u64>>>,
    pub(crate) released: Mutex<Vec<Range<u64>>>,
    /// True if buffered writes are refused when they are handed over.
    pub(crate) refuses: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Write(u64),
    Cut,
    Sync,
    HandOver,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryFile {
    path: PathBuf,
    bytes: Arc<Mutex<Vec<u8>>>,
    counts: Arc<Counts>,
}

impl Memory {
    pub(crate) fn put(&self, path: &Path, bytes: Vec<u8>) {
        let bytes = Arc::new(Mutex::new(bytes));
        let counts = Arc::clone(&self.counts);
        let file = MemoryFile { path: path.to_owned(), bytes, counts };
        self.files.lock().unwrap().insert(path.to_owned(), file);
    }

    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        let file = self.files.lock().unwrap()[Path::new(path)].clone();
        file.bytes.lock().unwrap().clone()
    }

    /// The same files, counted apart.
    pub(crate) fn apart(&self) -> Self {
        Self { files: Arc::clone(&self.files), counts: Arc::default() }
    }

    /// Names of the files that were opened.
    pub(crate) fn opened(&self) -> Vec<PathBuf> {
        self.counts.opened.lock().unwrap().iter().cloned().collect()
    }

    /// Reads since the last call.
    pub(crate) fn reads(&self) -> u64 {
        self.counts.reads.swap(0, Ordering::Relaxed)
    }
}

impl Storage for Memory {
    type File = MemoryFile;

    fn create(&self, path: &Path, _: Naming<'_>, truncate: bool) -> io::Result<MemoryFile> {
        let counts = || Arc::clone(&self.counts);
        let mut files = self.files.lock().unwrap();
        let path_of = || path.to_owned();
        let new = || MemoryFile { path: path_of(), counts: counts(), ..MemoryFile::default() };
        let file = files.entry(path.to_owned()).or_insert_with(new);
        if truncate {
            file.bytes.lock().unwrap().clear();
        }
        Ok(file.clone())
    }

    fn open(&self, path: &Path, _: Option<Naming<'_>>) -> io::Result<MemoryFile> {
        self.counts.opened.lock().unwrap().insert(path.to_owned());
        let files = self.files.lock().unwrap();
        files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.lock().unwrap().remove(path);
        Ok(())
    }
}

impl MemoryFile {
    fn note(&self, step: Step) {
        self.counts.steps.lock().unwrap().push((self.path.clone(), step));
    }
}

impl File for MemoryFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        let bytes = self.bytes.lock().unwrap();
        let rest = bytes.get(usize::try_from(at).unwrap()..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        let end = at + u64::try_from(buf.len()).unwrap();
        if end > self.size()? {
            self.resize(end)?;
        }
        self.note(Step::Write(at));
        let at = usize::try_from(at).unwrap();
        self.bytes.lock().unwrap()[at..at + buf.len()].copy_from_slice(buf);
        Ok(buf.len())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(u64::try_from(self.bytes.lock().unwrap().len()).unwrap())
    }

    fn resize(&self, len: u64) -> io::Result<()> {
        if len > SIZE_MAX {
            return Err(io::Error::from_raw_os_error(EFBIG));
        }
        if len < self.size()? {
            self.note(Step::Cut);
        }
        self.bytes.lock().unwrap().resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        self.note(Step::Sync);
        Ok(())
    }

    fn hand_over(&self) -> io::Result<()> {
        self.note(Step::HandOver);
        let refuses = self.counts.refuses.load(Ordering::Relaxed);
        if refuses { Err(io::Error::from_raw_os_error(ENOSPC)) } else { Ok(()) }
    }

    fn block_len(&self) -> io::Result<u64> {
        Ok(4096)
    }

    fn reserve(&self, range: Range<u64>) {
        self.counts.reserved.lock().unwrap().push(range);
    }

    fn release(&self, range: Range<u64>) {
        self.counts.released.lock().unwrap().push(range);
    }

    fn data_from(&self, at: u64) -> io::Result<Option<Range<u64>>> {
        let size = self.size()?;
        Ok((at < size).then_some(at..size))
    }
}
