//! Temporary folders. They go with the bench, also when a signal ends it; those of one that was
//! killed are removed by the next one.
//!
//! A folder is locked for as long as its process lives: one that can be locked is nobody's.

use std::{
    env,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, Once, PoisonError},
    thread,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::retry_on_intr,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};

const PREFIX: &str = "kakehi-scratch-";

/// A temporary folder of mode 0700; removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes a folder where temporary ones are.
    pub(crate) fn create() -> io::Result<Self> {
        Self::create_in(&env::temp_dir())
    }

    /// Makes a folder in `dir`.
    pub(crate) fn create_in(dir: &Path) -> io::Result<Self> {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(clean_up_on_signals);
        sweep(dir)?;
        let mut living = living();
        loop {
            let mode = Permissions::from_mode(0o700);
            let folder =
                tempfile::Builder::new().prefix(PREFIX).permissions(mode).tempdir_in(dir)?;
            // Until it is locked somebody else's sweep may take it away.
            let Ok(lock) = File::open(folder.path()) else { continue };
            retry_on_intr(|| flock(&lock, FlockOperation::LockExclusive))?;
            if folder.path().is_dir() {
                let folder = folder.keep();
                living.push(folder.clone());
                return Ok(Self { folder, _lock: lock });
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // No signal ends the process in the middle of it.
        let mut living = living();
        fs::remove_dir_all(&self.folder).ok();
        living.retain(|folder| *folder != self.folder);
    }
}

/// This process's folders. Who has the lock makes and removes them.
fn living() -> MutexGuard<'static, Vec<PathBuf>> {
    static LIVING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a signal that ends this process end its folders first. Without a thread for that, the next
/// bench removes them.
fn clean_up_on_signals() {
    // Those that it was started to ignore, as by `nohup`, it goes on to ignore.
    let ignored = ignored();
    let ending = [SIGHUP, SIGINT, SIGTERM];
    let heeded = ending.iter().filter(|signal| ignored >> (**signal - 1) & 1 == 0);
    let Ok(mut signals) = Signals::new(heeded) else { return };
    let clean_up = move || {
        for signal in signals.forever() {
            let living = living();
            for folder in &*living {
                // By another name, so that nobody fills it while it is emptied.
                let gone = folder.with_extension("gone");
                fs::rename(folder, &gone).and_then(|()| fs::remove_dir_all(&gone)).ok();
            }
            emulate_default_handler(signal).ok();
        }
    };
    thread::Builder::new().spawn(clean_up).ok();
}

/// The signals that this process ignores, each as the bit of its number less one.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
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
    use std::process::Command;

    use super::*;

    const HANG_UP_AND_INTERRUPT: u64 = 1 << (SIGHUP - 1) | 1 << (SIGINT - 1);

    #[test]
    #[ignore = "a part of signals_that_were_ignored_stay_so, which starts it"]
    fn child_that_ignores_signals() {
        let dir = tempfile::tempdir().expect("folder");
        Scratch::create_in(dir.path()).expect("made");
        assert_eq!(ignored() & HANG_UP_AND_INTERRUPT, HANG_UP_AND_INTERRUPT);
    }

    #[test]
    fn signals_that_were_ignored_stay_so() {
        let child = "scratch::tests::child_that_ignores_signals";
        let script = "trap '' HUP INT; exec \"$0\" --ignored --exact \"$1\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(env::current_exe().expect("a path")).arg(child);
        let said = String::from_utf8(command.output().expect("sh starts").stdout).expect("UTF-8");
        assert!(said.contains("1 passed"), "{said}");
    }

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
