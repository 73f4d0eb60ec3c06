//! File systems for whole programs: one in memory, and ext4 and xfs in files, if root may mount.
//!
//! An ext4 without a journal, as virtual machines often have, says little of others: it searches
//! the inodes it has freed at each creation.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::{
    fs::{major, minor},
    process::geteuid,
};

use crate::{
    machine::{self, MEMORY},
    process,
    scratch::Scratch,
};

/// Sparse: it takes what is written.
const IMAGE_LEN: u64 = 4 << 30;
const MOUNTED: &str = "mounted";

/// A folder to write to, by the name of its file system, or why there is none.
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) folder: Result<PathBuf, String>,
}

/// All of them; unmounted and removed when dropped.
pub(super) struct Volumes {
    pub(super) all: Vec<Volume>,
    mounts: Vec<PathBuf>,
    _scratch: Vec<Scratch>,
}

impl Volumes {
    /// Makes them; images lie in `dir`.
    pub(super) fn make(dir: &Path) -> Self {
        let mut volumes = Self { all: Vec::new(), mounts: Vec::new(), _scratch: Vec::new() };
        volumes.plain("tmpfs".to_owned(), Path::new(MEMORY));
        if !geteuid().is_root() {
            warn_of_journal(dir);
            volumes.plain(machine::file_system(dir), dir);
            return volumes;
        }
        let apart = live_apart();
        for (name, make) in [("ext4", ["mkfs.ext4", "-qF"]), ("xfs", ["mkfs.xfs", "-qf"])] {
            let mounted = apart.clone().and_then(|()| volumes.mount(dir, make));
            volumes.all.push(Volume { name: name.to_owned(), folder: mounted });
        }
        volumes
    }

    fn plain(&mut self, name: String, dir: &Path) {
        let made = Scratch::create_in(dir).map_err(|why| why.to_string());
        let folder = made.as_ref().map(|made| made.path().to_owned()).map_err(String::clone);
        self._scratch.extend(made);
        self.all.push(Volume { name, folder });
    }

    fn mount(&mut self, dir: &Path, [make, flags]: [&str; 2]) -> Result<PathBuf, String> {
        let scratch = Scratch::create_in(dir).map_err(|why| why.to_string())?;
        let (image, folder) = (scratch.path().join("image"), scratch.path().join(MOUNTED));
        self._scratch.push(scratch);
        let sized = File::create(&image).and_then(|image| image.set_len(IMAGE_LEN));
        sized.and_then(|()| fs::create_dir(&folder)).map_err(|why| why.to_string())?;
        succeed(Command::new(make).arg(flags).arg(&image))?;
        succeed(Command::new("mount").args(["-o", "loop"]).args([&image, &folder]))?;
        self.mounts.push(folder.clone());
        Ok(folder)
    }
}

impl Drop for Volumes {
    fn drop(&mut self) {
        for folder in &self.mounts {
            // One that is in use goes with this process, who alone sees it.
            succeed(Command::new("umount").arg(folder)).ok();
        }
    }
}

/// Has what this process mounts from now on seen by nobody else, and gone with it.
fn live_apart() -> Result<(), String> {
    // SAFETY: no pointers; the calling thread gets a copy of the table of mounts.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } < 0 {
        return Err(format!("a table of mounts: {}", io::Error::last_os_error()));
    }
    succeed(Command::new("mount").args(["--make-rprivate", "/"]))
}

/// Runs a command to its end.
pub(super) fn succeed(command: &mut Command) -> Result<(), String> {
    process::succeed(command.stdout(Stdio::null())).map(drop).map_err(|why| format!("{why:#}"))
}

#[expect(clippy::print_stderr, reason = "a table does not say what its numbers are not worth")]
fn warn_of_journal(dir: &Path) {
    if machine::file_system(dir) == "ext4" && has_journal(dir) == Some(false) {
        eprintln!(
            "kakehi-bench: {}: an ext4 without a journal is slow to create files; name another \
             folder by --dir, or run this as root",
            dir.display()
        );
    }
}

/// True if the ext4 of a folder has a journal; `None` if that cannot be said.
fn has_journal(dir: &Path) -> Option<bool> {
    let device = fs::metadata(dir).ok()?.dev();
    let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let name = fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned() + "-";
    let journals = fs::read_dir("/proc/fs/jbd2").ok()?.flatten();
    let mut names = journals.map(|entry| entry.file_name().to_string_lossy().into_owned());
    Some(names.any(|journal| journal.starts_with(&name)))
}
