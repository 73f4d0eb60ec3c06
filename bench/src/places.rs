//! The folders of a bench's files: where the user said, and in memory.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use rustix::fs::syncfs;

use crate::{machine, scratch::Scratch};

/// The folder the user named and one on a tmpfs; removed when dropped.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) disk: Place,
    pub(crate) memory: Result<Place, String>,
}

/// One folder.
#[derive(Debug)]
pub(crate) struct Place {
    /// Its file system, as in the cases.
    pub(crate) name: String,
    folder: Scratch,
}

impl Places {
    /// Creates both folders, the one in memory unless the other is there too.
    pub(crate) fn create(dir: &Path) -> anyhow::Result<Self> {
        let disk = Place::create(dir)?;
        let memory = Place::create(Path::new(machine::MEMORY)).map_err(|why| format!("{why:#}"));
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

    /// Name and place, or why there is none, of both.
    pub(crate) fn all(&self) -> [(&str, Result<&Place, String>); 2] {
        let memory = self.memory.as_ref().map_err(String::clone);
        let name = memory.as_ref().map_or("memory", |place| &place.name);
        [(name, memory), (&self.disk.name, Ok(&self.disk))]
    }

    /// The same with suffixes: what is in memory has none; without it, the disk.
    pub(crate) fn memory_first(&self) -> Vec<(String, Result<&Place, String>)> {
        match &self.memory {
            Ok(memory) => {
                vec![(String::new(), Ok(memory)), (format!("/{}", self.disk.name), Ok(&self.disk))]
            }
            Err(_) => vec![(String::new(), Ok(&self.disk))],
        }
    }
}

impl Place {
    /// Makes one below `dir`.
    pub(crate) fn create(dir: &Path) -> anyhow::Result<Self> {
        let failed = || format!("a folder in {}", dir.display());
        let folder = Scratch::create_in(dir).with_context(failed)?;
        Ok(Self { name: machine::file_system(dir), folder })
    }

    /// A file or folder in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until the file system has nothing left to write back.
    pub(crate) fn settle(&self) -> io::Result<()> {
        Ok(syncfs(File::open(self.folder.path())?)?)
    }

    /// Length of all files in it, bytes.
    pub(crate) fn len(&self) -> io::Result<u64> {
        fs::read_dir(self.folder.path())?.map(|entry| Ok(entry?.metadata()?.len())).sum()
    }

    /// Removes everything in it.
    pub(crate) fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.folder.path())? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}
