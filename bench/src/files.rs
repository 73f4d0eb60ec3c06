//! The files that are written, all there from the start.

use std::{
    fs::File,
    io::{self, Write as _},
    iter,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use rustix::fs::{Advice, fadvise};

use crate::places;
pub(crate) use crate::places::MEMORY;

/// The file system that cases are named for by default.
const USUAL: &str = "ext4";
const BLOCK: usize = 1 << 20;

/// A folder with a file.
#[derive(Debug)]
pub(crate) struct Place {
    /// What the names of its cases end in: nothing on ext4.
    pub(crate) suffix: String,
    folder: places::Place,
}

/// On a disk and in memory; removed when dropped.
#[derive(Debug)]
pub(crate) struct Places(pub(crate) Vec<Place>);

impl Places {
    /// Creates files of `len` bytes, in `dir` and, if that is another file system, in memory.
    pub(crate) fn create(dir: &Path, len: u64) -> anyhow::Result<Self> {
        let places::Places { disk, memory } = places::Places::create(dir)?;
        let memory = memory.ok().and_then(|memory| Place::fill(memory, len).ok());
        Ok(Self(iter::once(Place::fill(disk, len)?).chain(memory).collect()))
    }
}

impl Place {
    /// The file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path("file")
    }

    /// Whether it is in memory, where one call after the other is as fast as many at a time.
    pub(crate) fn is_memory(&self) -> bool {
        self.folder.name == "tmpfs"
    }

    fn fill(folder: places::Place, len: u64) -> anyhow::Result<Self> {
        let name = &folder.name;
        let suffix = if name == USUAL { String::new() } else { format!("/{name}") };
        let place = Self { suffix, folder };
        fill(&place.file(), len).with_context(|| place.file().display().to_string())?;
        Ok(place)
    }
}

/// Writes every block: a write to blocks that were only reserved costs the file system more. None
/// stays in the page cache: the first direct write to a block would have to take it out.
fn fill(path: &Path, len: u64) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let block = vec![1; BLOCK];
    for _ in 0..len / BLOCK as u64 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}
