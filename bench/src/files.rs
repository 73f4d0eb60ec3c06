//! The files that are written, all there from the start.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    iter,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process,
};

use anyhow::Context as _;
use rustix::fs::{Advice, fadvise};

use crate::places::{Place, Places};

/// The file system that cases are named for by default.
const USUAL: &str = "ext4";
const BLOCK: usize = 1 << 20;

/// A file, in a folder.
#[derive(Debug)]
pub(crate) struct TestFile {
    /// Suffix of its cases' names: empty on ext4.
    pub(crate) suffix: String,
    folder: Place,
    /// It has no name: however the bench ends, nothing is left of it.
    file: File,
}

/// On a disk and in memory; removed when dropped.
#[derive(Debug)]
pub(crate) struct TestFiles(pub(crate) Vec<TestFile>);

impl TestFiles {
    /// Creates files of `len` bytes, in `dir` and, if that is another file system, in memory.
    pub(crate) fn create(dir: &Path, len: u64) -> anyhow::Result<Self> {
        let Places { disk, memory } = Places::create(dir)?;
        let memory = memory.ok().and_then(|memory| TestFile::fill(memory, len).ok());
        Ok(Self(iter::once(TestFile::fill(disk, len)?).chain(memory).collect()))
    }
}

impl TestFile {
    /// Path by which other processes open the file.
    pub(crate) fn file(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd()).into()
    }

    /// True if it is in memory, where one call after the other is as fast as many at a time.
    pub(crate) fn is_memory(&self) -> bool {
        self.folder.name == "tmpfs"
    }

    fn fill(folder: Place, len: u64) -> anyhow::Result<Self> {
        let name = &folder.name;
        let suffix = if name == USUAL { String::new() } else { format!("/{name}") };
        let path = folder.path("file");
        let file = filled(&path, len).with_context(|| path.display().to_string())?;
        Ok(Self { suffix, folder, file })
    }
}

/// Writes every block: a write to blocks that were only reserved costs the file system more. None
/// stays in the page cache: the first direct write to a block would have to take it out.
fn filled(path: &Path, len: u64) -> io::Result<File> {
    let mut file = File::options().read(true).write(true).create_new(true).open(path)?;
    fs::remove_file(path)?;
    let block = vec![1; BLOCK];
    for _ in 0..len / BLOCK as u64 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(file)
}
