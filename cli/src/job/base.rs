//! Where the folders of a user's jobs are.
//!
//! `$XDG_RUNTIME_DIR/kakehi`, if that folder is there, ours, and of use, else `/tmp/kakehi-UID`,
//! which has the jobs of compute nodes that were entered without a login. Anybody can make the
//! latter first. Then the jobs have a folder whose name nobody could know,
//! `/tmp/kakehi-UID.RANDOM`: all of them the oldest one that is ours, so that the ranks of one job
//! meet.

use std::{
    fs,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::fs::{Access, CWD, access, mkdirat};

use super::{Job, MADE, SOCKET, check_private, unmasked};
use crate::{
    config::{Config, Environment},
    failure::{Code, Failure},
    remote::SOCKET_PATH_LEN_MAX,
    report,
};

const SHARED: &str = "/tmp";
/// Longer than the clock of a file system takes for one step.
const CLOCK_STEP: Duration = Duration::from_millis(20);

impl Job {
    /// The job of this process, with its folder: where the usual one cannot be made, another.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find) and [`create`](Self::create).
    pub(crate) fn make(config: &Config, environment: &Environment) -> Result<Self, Failure> {
        let job = Self::find(config, environment)?;
        let made = job.create();
        let is_bound = config.socket.is_some() || !made.as_ref().is_err_and(Failure::is_of_node);
        let all = if is_bound { Vec::new() } else { bases(environment) };
        let mut others = all.into_iter().map(|base| Self::below(&base, &job.name));
        match others.find(|other| *other != job && other.create().is_ok()) {
            Some(other) => Ok(other),
            None => made.map(|_| job),
        }
    }
}

/// Where this process's jobs have their folders, of which one is called `job`. Makes the folder
/// only if the usual one is not ours.
pub(super) fn base(environment: &Environment, job: &str) -> PathBuf {
    let bases = bases(environment);
    let usable = bases.iter().position(|base| has_room(base, job)).unwrap_or(0);
    if let Some(base) = bases.into_iter().nth(usable) {
        return base;
    }
    let (base, is_new) = instead(Path::new(SHARED)).unwrap_or_else(|_| (usual(SHARED), false));
    if is_new {
        let why = "it is not a folder of this user";
        let advice = format!("jobs use {} until it is removed", base.display());
        report::warn(&Failure::new(Code::Failure, usual(SHARED).display(), why, advice));
    }
    base
}

/// All folders in which jobs of this user may be, those of this process's first.
pub(super) fn bases(environment: &Environment) -> Vec<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let runtime = environment.get("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usable = |folder: &PathBuf| {
        folder.is_absolute()
            && fs::metadata(folder).is_ok_and(|folder| folder.is_dir() && folder.uid() == uid)
    };
    let runtime = runtime.filter(usable).map(|folder| folder.join("kakehi"));
    let runtime = runtime.filter(|folder| !is_taken(folder));
    runtime.into_iter().chain(shared(Path::new(SHARED))).collect()
}

/// True if this process may make the folder of a job there, and the socket in it has a short name.
fn has_room(base: &Path, job: &str) -> bool {
    let len = base.join(job).join(SOCKET).as_os_str().len();
    let there = if base.is_dir() { base } else { base.parent().unwrap_or(base) };
    len <= SOCKET_PATH_LEN_MAX && access(there, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// True if jobs make this folder and remove it.
pub(super) fn is_ours(folder: &Path) -> bool {
    let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { return false };
    let usual = format!("kakehi-{}", rustix::process::getuid().as_raw());
    let rest = name.strip_prefix(&usual);
    name == "kakehi" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn usual(shared: impl AsRef<Path>) -> PathBuf {
    shared.as_ref().join(format!("kakehi-{}", rustix::process::getuid().as_raw()))
}

fn shared(folder: &Path) -> Vec<PathBuf> {
    let usual = usual(folder);
    if is_taken(&usual) { others(folder) } else { vec![usual] }
}

/// True if somebody else has made it. What this user has made there is his to correct.
fn is_taken(folder: &Path) -> bool {
    let uid = rustix::process::getuid().as_raw();
    folder.symlink_metadata().is_ok_and(|found| !found.is_dir() || found.uid() != uid)
}

/// The folders that stand for the usual one, the oldest first.
fn others(folder: &Path) -> Vec<PathBuf> {
    let usual = usual(folder);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let private = paths.filter(|path| {
        path != &usual && path.file_name() != Some("kakehi".as_ref()) && is_ours(path)
    });
    let aged = private.filter(|path| check_private(path).is_ok()).map(|path| {
        let made = fs::metadata(&path).and_then(|found| found.created());
        (made.unwrap_or(SystemTime::UNIX_EPOCH), path)
    });
    let mut aged: Vec<_> = aged.collect();
    aged.sort();
    aged.into_iter().map(|(_, path)| path).collect()
}

/// Makes a folder that stands for the usual one, unless another process does so at the same time;
/// returns true if it is the one that was made.
fn instead(shared: &Path) -> io::Result<(PathBuf, bool)> {
    let mut name = usual(shared).into_os_string();
    name.push(format!(".{:016x}", RandomState::new().build_hasher().finish()));
    let made = PathBuf::from(name);
    unmasked(|| mkdirat(CWD, &made, MADE))?;
    // Of those that are made in one step of the clock all have to see all, to agree on one.
    wait(CLOCK_STEP);
    match others(shared).into_iter().next() {
        Some(first) if first != made => {
            fs::remove_dir(&made).ok(); // Nobody is in it who saw the other one.
            Ok((first, false))
        }
        _ => Ok((made, true)),
    }
}

fn wait(time: Duration) {
    let time = time.try_into().ok();
    rustix::event::poll(&mut [], time.as_ref()).ok(); // A signal cuts it short: then they differ.
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, thread};

    use super::*;

    #[test]
    fn jobs_agree_on_another_folder_where_the_usual_one_is_taken() {
        let folder = tempfile::tempdir().expect("temporary folder");
        assert_eq!(shared(folder.path()), [usual(folder.path())]);
        symlink("/", usual(folder.path())).expect("a link");
        assert!(shared(folder.path()).is_empty());
        let starts = [(); 8].map(|()| {
            let path = folder.path().to_owned();
            thread::spawn(move || match shared(&path).into_iter().next() {
                Some(first) => (first, false),
                None => instead(&path).expect("made"),
            })
        });
        let bases = starts.map(|start| start.join().expect("no panic"));
        assert!(bases.iter().all(|(base, _)| *base == bases[0].0), "{bases:?}");
        assert_eq!(bases.iter().filter(|(_, is_new)| *is_new).count(), 1, "{bases:?}");
        check_private(&bases[0].0).expect("private");
        assert!(is_ours(&bases[0].0));
        assert_eq!(shared(folder.path()), [bases[0].0.clone()]);
    }
}
