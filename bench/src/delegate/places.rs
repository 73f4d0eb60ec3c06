//! The folders files are written to and read from, and the files that are read.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tempfile::TempDir;

use crate::machine;

/// Where Linux keeps a tmpfs for everybody.
pub(super) const MEMORY: &str = "/dev/shm";
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

/// The two folders; removed when dropped.
pub(super) struct Places {
    disk: Place,
    memory: Result<Place, String>,
}

/// A folder with a file to read in it.
pub(super) struct Place {
    /// Its file system, as in the cases.
    pub(super) name: String,
    folder: TempDir,
}

impl Places {
    /// Creates the folders and fills the files to read.
    pub(super) fn create(dir: &Path) -> anyhow::Result<Self> {
        let disk = Place::create(dir)?;
        let memory = Place::create(Path::new(MEMORY)).map_err(|why| format!("{why:#}"));
        let memory = memory.and_then(|memory| {
            // Two rows of one name would not say which is which.
            if memory.name == disk.name {
                Err(format!("--dir is on {} as well", disk.name))
            } else {
                Ok(memory)
            }
        });
        Ok(Self { disk, memory })
    }

    /// The folder, or why there is none.
    pub(super) fn get(&self, place: Where) -> Result<&Place, String> {
        match place {
            Where::Disk => Ok(&self.disk),
            Where::Memory => self.memory.as_ref().map_err(String::clone),
        }
    }

    /// Name of a place in the cases.
    pub(super) fn name(&self, place: Where) -> &str {
        self.get(place).map_or("tmpfs", |place| &place.name)
    }
}

impl Place {
    fn create(dir: &Path) -> anyhow::Result<Self> {
        let failed = || format!("a folder in {}", dir.display());
        let folder = TempDir::with_prefix_in("kakehi-bench-", dir).with_context(failed)?;
        let place = Self { name: machine::file_system(dir), folder };
        place.fill().with_context(|| place.to_read().display().to_string())?;
        Ok(place)
    }

    /// A file of [`READ_FILE`] bytes, in the page cache.
    pub(super) fn to_read(&self) -> PathBuf {
        self.folder.path().join("read")
    }

    /// A file that is not there.
    pub(super) fn to_write(&self) -> PathBuf {
        self.folder.path().join("written")
    }

    /// Writes the file to read, and waits until it is clean: no write-back is to disturb the rest.
    fn fill(&self) -> io::Result<()> {
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut block = vec![0; BLOCK];
        random.fill(&mut block);
        let mut file = File::create_new(self.to_read())?;
        for _ in 0..READ_FILE / BLOCK {
            file.write_all(&block)?;
        }
        file.sync_all()
    }
}

/// Removes a file that may not be there, and returns how long it was.
pub(super) fn remove(path: &Path) -> io::Result<u64> {
    let len = match fs::metadata(path) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(0),
        status => status?.len(),
    };
    fs::remove_file(path).map(|()| len)
}
