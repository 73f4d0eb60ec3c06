//! The files that are written and read, on the disk and in memory.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::places::{self, Place};

/// The largest volume that is read in a round, bytes.
const READ_FILE: usize = 256 << 20;
const BLOCK: usize = 1 << 20;
const SEED: u64 = 0x7265_6164;

/// Where a case has its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// In the folder the user named.
    Disk,
    /// On a tmpfs.
    Memory,
}

/// The two folders with a file to read in each; removed when dropped.
pub(super) struct Places(places::Places);

impl Places {
    /// Creates the folders and fills the files to read.
    pub(super) fn create(dir: &Path) -> anyhow::Result<Self> {
        let places::Places { disk, memory } = places::Places::create(dir)?;
        fill(&disk)?;
        let filled = |memory| fill(&memory).map(|()| memory).map_err(|why| format!("{why:#}"));
        Ok(Self(places::Places { disk, memory: memory.and_then(filled) }))
    }

    /// The folder, or why there is none.
    pub(super) fn get(&self, place: Where) -> Result<&Place, String> {
        match place {
            Where::Disk => Ok(&self.0.disk),
            Where::Memory => self.0.memory.as_ref().map_err(String::clone),
        }
    }

    /// Name of a place in the cases.
    pub(super) fn name(&self, place: Where) -> &str {
        self.get(place).map_or("tmpfs", |place| &place.name)
    }
}

/// A file of [`READ_FILE`] bytes, in the page cache.
pub(super) fn to_read(place: &Place) -> PathBuf {
    place.path("read")
}

/// A file that is not there.
pub(super) fn to_write(place: &Place) -> PathBuf {
    place.path("written")
}

/// Writes the file to read, and waits until it is clean: no write-back is to disturb the rest.
fn fill(place: &Place) -> anyhow::Result<()> {
    let path = to_read(place);
    write_blocks(&path).with_context(|| path.display().to_string())
}

fn write_blocks(path: &Path) -> io::Result<()> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut block = vec![0; BLOCK];
    random.fill(&mut block);
    let mut file = File::create_new(path)?;
    for _ in 0..READ_FILE / BLOCK {
        file.write_all(&block)?;
    }
    file.sync_all()
}

/// Removes a file that may not be there, and returns how long it was.
pub(super) fn remove(path: &Path) -> io::Result<u64> {
    let len = match fs::metadata(path) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(0),
        status => status?.len(),
    };
    fs::remove_file(path).map(|()| len)
}
