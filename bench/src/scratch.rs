//! Temporary folders. Those of a bench that was killed are removed by the next one.
//!
//! A folder is locked for as long as its process lives: one that can be locked is nobody's.

use std::{
    env,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::retry_on_intr,
};
use tempfile::TempDir;

const PREFIX: &str = "kakehi-scratch-";

/// A temporary folder of mode 0700; removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// Makes a folder where temporary ones are.
    pub(crate) fn create() -> io::Result<Self> {
        Self::create_in(&env::temp_dir())
    }

    /// Makes a folder in `dir`.
    pub(crate) fn create_in(dir: &Path) -> io::Result<Self> {
        sweep(dir)?;
        loop {
            let mode = Permissions::from_mode(0o700);
            let folder =
                tempfile::Builder::new().prefix(PREFIX).permissions(mode).tempdir_in(dir)?;
            // Until it is locked somebody else's sweep may take it away.
            let Ok(lock) = File::open(folder.path()) else { continue };
            retry_on_intr(|| flock(&lock, FlockOperation::LockExclusive))?;
            if folder.path().is_dir() {
                return Ok(Self { folder, _lock: lock });
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders in `dir` whose processes are gone.
fn sweep(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        // Another user's cannot be opened; another bench may have been first.
        let Ok(folder) = File::open(entry.path()) else { continue };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_bench_has_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().expect("folder");
        for name in ["kakehi-scratch-dead/inner", "other"] {
            fs::create_dir_all(dir.path().join(name)).expect("folder");
        }
        fs::write(dir.path().join("kakehi-scratch-file"), "").expect("file");
        let living = Scratch::create_in(dir.path()).expect("made");
        assert!(!dir.path().join("kakehi-scratch-dead").exists());

        let next = Scratch::create_in(dir.path()).expect("made");

        assert!(living.path().is_dir() && next.path().is_dir());
        assert!(dir.path().join("other").is_dir());
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
        assert!(dir.path().join("kakehi-scratch-file").is_file());
    }
}
