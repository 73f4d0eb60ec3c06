//! `kakehi multifile`: what a multifile holds, its streams as plain files, and back.
//!
//! Nothing here changes a file that it reads, but `repair` without `--output`, which says so. What
//! is made is written beside its final name and renamed when it is complete and durable
//! ([`beside`]). Memory is bounded by the tables of the multifile plus a buffer for each thread.

pub(crate) mod beside;
mod cat;
mod checked;
pub(crate) mod copy;
pub(crate) mod damage;
mod defrag;
mod dump;
mod extract;
mod join;
mod leftover;
mod list;
mod names;
mod naming;
pub(crate) mod progress;
mod repair;
pub(crate) mod split;
mod verify;
mod writers;

use std::{
    fs::{File, Metadata},
    io,
    path::Path,
};

use multifile::{
    Argument, Disk, Error, Growing, Peek, Reader, TaskReader, catalogue::records_at, error::Cause,
    keyval::Records, name,
};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use serde_json::Value;

use self::writers::writer_of;
use crate::{
    config::Environment,
    failure::{Code, Failure},
    job::Job,
};

pub(crate) use self::{
    cat::{Stopped, copy_stream},
    defrag::{Shape, defragment},
    dump::{library_version, order_name},
};

/// Reads, checks, and converts SIONlib multifiles.
///
/// Tasks are counted from 0 over the whole set when its first file is named. Exit status: 0; 1 when
/// it could not be done; 2 when an argument is wrong; 4 when data is damaged or was never closed.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Ls(list::Args),
    Dump(dump::Args),
    Cat(cat::Args),
    Split(split::Args),
    Extract(extract::Args),
    Join(join::Args),
    Defrag(defrag::Args),
    Verify(verify::Args),
    Repair(repair::Args),
}

/// Runs one of the commands.
pub(crate) fn multifile(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Ls(args) => list::list(args),
        Command::Dump(args) => dump::dump(args),
        Command::Cat(args) => cat::cat(args),
        Command::Split(args) => split::split(args),
        Command::Extract(args) => extract::extract(args),
        Command::Join(args) => join::join(args),
        Command::Defrag(args) => defrag::defrag(args),
        Command::Verify(args) => verify::verify(args),
        Command::Repair(args) => repair::repair(args),
    }
}

/// Opens the multifile at `path` with all its tasks.
pub(crate) fn open(path: &Path) -> Result<Reader<File>, Failure> {
    Reader::open(&Disk::new(), path).map_err(|why| failure(path, why))
}

/// Returns the physical files of `reader`, which must not be replaced.
pub(crate) fn inputs(reader: &Reader<File>) -> impl Iterator<Item = Metadata> {
    let files = (0..reader.file_count()).filter_map(|file| reader.file(file));
    files.filter_map(|file| file.metadata().ok())
}

/// Opens the stream of task `task` of the multifile at `path`.
pub(crate) fn stream(
    reader: &Reader<File>,
    path: &Path,
    task: usize,
) -> Result<TaskReader<File>, Failure> {
    reader.stream(task).map_err(|why| task_failure(path, task, why))
}

/// The key-value records of task `task` of the multifile at `path`.
pub(crate) fn records(
    reader: &Reader<File>,
    path: &Path,
    task: usize,
) -> Result<Records<File>, Failure> {
    reader.records(task).map_err(|why| task_failure(path, task, why))
}

/// Refuses a flag about key-value records where the streams are none.
fn check_records(reader: &Reader<File>, path: &Path, flag: &str) -> Result<(), Failure> {
    if reader.has_records() {
        return Ok(());
    }
    let why = "its streams hold no key-value records";
    Err(Failure::usage(path.display(), why, format_args!("leave out {flag}")))
}

/// Fails for the first of these tasks, of which one cannot be read.
fn check_readable(
    reader: &Reader<File>,
    path: &Path,
    mut tasks: impl Iterator<Item = usize>,
) -> Result<(), Failure> {
    tasks.try_for_each(|task| stream(reader, path, task).map(drop))
}

/// Length of the stream of task `task` in bytes; 0 when it cannot be read, because there is no such
/// task or its block lengths do not fit its chunk.
pub(crate) fn stream_len(reader: &Reader<File>, task: usize) -> u64 {
    reader.stream(task).map_or(0, |stream| stream.cursor().total())
}

/// Length of all streams together in bytes.
pub(crate) fn total_len(reader: &Reader<File>) -> u64 {
    (0..reader.task_count()).fold(0, |sum, task| sum.saturating_add(stream_len(reader, task)))
}

/// Says that the multifile at `path` could not be used, and what to do.
pub(crate) fn failure(path: &Path, why: Error) -> Failure {
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        let why = "it is no regular file";
        return Failure::new(Code::Failure, path.display(), why, "name a multifile");
    }
    if matches!(why, Error::Unclosed { .. } | Error::Damaged { .. }) {
        let writer = File::open(path).ok().and_then(|file| in_use(path, &file, false));
        if let Some(in_use) = writer {
            return in_use;
        }
    }
    held_failure(path, why)
}

/// The same where nobody else writes it.
fn held_failure(path: &Path, why: Error) -> Failure {
    about(&path.display(), path, why)
}

/// The same of one of its tasks.
pub(crate) fn task_failure(path: &Path, task: usize, why: Error) -> Failure {
    about(&format_args!("{}: task {task}", path.display()), path, why)
}

/// The same of what a stream returned through `io`.
pub(crate) fn stream_failure(path: &Path, task: usize, why: &io::Error) -> Failure {
    match why.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(inner) => task_failure(path, task, *inner),
        None => file_failure(path, why),
    }
}

/// Says that the plain file at `path` could not be used.
pub(crate) fn file_failure(path: &Path, why: &io::Error) -> Failure {
    let advice = match why.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room and try again",
        io::ErrorKind::NotFound => "check the name",
        io::ErrorKind::PermissionDenied => "check the permissions of the file and its folder",
        _ => "check the file and its file system",
    };
    Failure::new(Code::Failure, path.display(), why, advice)
}

/// Keeps daemons from writing a multifile as long as the file is open, and with `is_exclusive`,
/// which takes a file that may be written, others from repairing it; false if somebody has it.
fn lock(file: &File, is_exclusive: bool) -> bool {
    let how = if is_exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    // Some file systems know no locks.
    flock(file, how) != Err(Errno::AGAIN)
}

/// Says who still writes a multifile; `None`: nobody does who is known, and it is [locked](lock).
fn in_use(path: &Path, file: &File, is_exclusive: bool) -> Option<Failure> {
    let why = if lock(file, is_exclusive) {
        format!("process {} still writes it", writer_of(path)?)
    } else {
        "in use by a daemon or server".to_owned()
    };
    let advice = if is_coalesced(path) {
        if let Some(failure) = holder(path) {
            return Some(failure);
        }
        "to read its files now, run a program in the job that has it: \
         'KAKEHI_JOB=NAME kakehi run --coalesce …' with the same folder; or wait until that has \
         ended"
    } else {
        "wait until that has ended"
    };
    Some(Failure::new(Code::Failure, path.display(), why, advice))
}

/// The failure that names the job of this user and node which has a multifile.
fn holder(path: &Path) -> Option<Failure> {
    let file = path.canonicalize().ok()?;
    let has = |kept: &Value| kept.as_str().is_some_and(|kept| Path::new(kept) == file);
    Job::all(&Environment::read()).ok()?.iter().find_map(|served| {
        let mut kept = served.status.get("multifiles")?.as_object()?.iter();
        let (folder, _) = kept.find(|(_, file)| has(file))?;
        let advice = format!(
            "to read its files now: KAKEHI_JOB={} kakehi run --coalesce {folder}={} -- ls \
             {folder}; or wait until that job has ended",
            served.job.name,
            file.display()
        );
        let why = format!("in use by job {}", served.named());
        Some(Failure::new(Code::Failure, path.display(), why, advice))
    })
}

fn is_empty(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.len() == 0)
}

/// True if it is a multifile, closed or not.
fn is_multifile(path: &Path) -> bool {
    Growing::peek(&Disk::new(), path).is_ok()
}

/// True if it keeps the files of a folder, closed or not.
fn is_coalesced(path: &Path) -> bool {
    let names = Growing::peek(&Disk::new(), path).map(|Peek { head, .. }| records_at(&head));
    names.is_ok_and(|found| found.is_ok())
}

fn about(what: &dyn std::fmt::Display, path: &Path, why: Error) -> Failure {
    let (code, advice) = match why {
        Error::Unclosed { .. } | Error::OnRank { cause: Cause::Unclosed(_), .. } => {
            let advice = format!("see 'kakehi multifile repair --dry-run {}'", path.display());
            let advice = if is_coalesced(path) {
                format!("a run with --coalesce LOCAL={} completes it, or {advice}", path.display())
            } else {
                advice
            };
            return Failure::new(Code::Damaged, what, "it was never closed", advice);
        }
        Error::Damaged { .. } if is_empty(path) => {
            let advice = "it was created and never written: there is nothing to read or repair";
            return Failure::new(Code::Damaged, what, "the file is empty", advice);
        }
        Error::Damaged { part: multifile::Part::Magic, .. } => {
            (Code::Damaged, "name a file that SIONlib or kakehi wrote")
        }
        Error::Damaged { .. } => (Code::Damaged, "see 'kakehi multifile repair --dry-run'"),
        Error::Argument(Argument::Task) => (Code::Usage, "see 'kakehi multifile ls'"),
        Error::Argument(_) => (Code::Usage, "see 'kakehi multifile --help'"),
        Error::Io { file, os, .. } if os != 0 => {
            let physical = name::physical(path, file);
            let system = io::Error::from_raw_os_error(os);
            // In a set the number says which of its files it was; one that is missing is named.
            if physical.exists() {
                return file_failure(&physical, &system).about(what, why);
            }
            if file > 0 {
                let advice = format!("it belongs to {}: bring it back there", path.display());
                return Failure::new(Code::Failure, physical.display(), system, advice);
            }
            return file_failure(&physical, &system);
        }
        _ => (Code::Failure, "check the file and its file system"),
    };
    Failure::new(code, what, why, advice)
}
