//! The files that are written, all there from the start.

use std::{
    fs::File,
    io::{self, Write as _},
    iter,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tempfile::TempDir;

use crate::machine;

/// Where Linux keeps a tmpfs for everybody.
pub(crate) const MEMORY: &str = "/dev/shm";
/// The file system that cases are named for by default.
const USUAL: &str = "ext4";
const BLOCK: usize = 1 << 20;

/// A folder with a file.
#[derive(Debug)]
pub(crate) struct Place {
    /// What the names of its cases end in: nothing on ext4.
    pub(crate) suffix: String,
    folder: TempDir,
}

/// On a disk and in memory; removed when dropped.
#[derive(Debug)]
pub(crate) struct Places(pub(crate) Vec<Place>);

impl Places {
    /// Creates files of `len` bytes, in `dir` and, if that is another file system, in memory.
    pub(crate) fn create(dir: &Path, len: u64) -> anyhow::Result<Self> {
        let disk = Place::create(dir, len)?;
        let memory = Place::create(Path::new(MEMORY), len).ok();
        // Two rows of one name would not say which is which.
        let memory = memory.filter(|memory| memory.suffix != disk.suffix);
        Ok(Self(iter::once(disk).chain(memory).collect()))
    }
}

impl Place {
    /// The file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("file")
    }

    fn create(dir: &Path, len: u64) -> anyhow::Result<Self> {
        let failed = || format!("a folder in {}", dir.display());
        let folder = TempDir::with_prefix_in("kakehi-bench-", dir).with_context(failed)?;
        let name = machine::file_system(dir);
        let suffix = if name == USUAL { String::new() } else { format!("/{name}") };
        let place = Self { suffix, folder };
        fill(&place.file(), len).with_context(|| place.file().display().to_string())?;
        Ok(place)
    }
}

/// Writes every block: a write to blocks that were only reserved costs the file system more.
fn fill(path: &Path, len: u64) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let block = vec![1; BLOCK];
    for _ in 0..len / BLOCK as u64 {
        file.write_all(&block)?;
    }
    file.sync_all()
}
