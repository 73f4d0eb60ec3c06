//! Runs that have joined a job and want its statistics.
//!
//! Such a run becomes its program, and is not there any more when the job ends. So it leaves the
//! name of its file in the job's folder, and the run that started the job writes to that file, too.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf, absolute},
};

use rustix::{fs::OFlags, io::Errno};

use super::Job;

/// The file with the names, each with a NUL behind it.
pub(super) const JOINED: &str = "stats";
/// The file of records for the report.
pub(super) const RECORDS: &str = "records";
/// Most bytes of names that are read.
const NAMES_LEN_MAX: u64 = 1 << 20;

/// The names that are left in a job's folder, which may be gone by the time they are read.
#[derive(Debug)]
pub(crate) struct Joined(File);

impl Job {
    /// Has the run that started the job append its statistics to the file at `path`.
    pub(crate) fn join_statistics(&self, path: &Path) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND;
        let name = [absolute(path)?.as_os_str().as_bytes(), b"\0"].concat();
        self.open(JOINED, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC)?.write_all(&name)
    }

    /// For the run that has started the job; `None`: nobody can leave a name.
    pub(crate) fn joined(&self) -> Option<Joined> {
        let flags = OFlags::CREATE | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.open(JOINED, flags).ok().map(Joined)
    }
}

impl Job {
    /// The file to which processes append records for the report, in a job that has one; made if
    /// this run `reports`.
    pub(crate) fn records(&self, reports: bool) -> io::Result<Option<File>> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let flags = if reports { flags | OFlags::CREATE } else { flags };
        match self.open(RECORDS, flags) {
            Err(Errno::NOENT) if !reports => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    pub(crate) fn records_path(&self) -> PathBuf {
        self.folder.join(RECORDS)
    }
}

impl Joined {
    /// The files of those that have joined, each once, without `own`.
    pub(crate) fn files(self, own: Option<&Path>) -> Vec<PathBuf> {
        let mut names = Vec::new();
        // What cannot be read nobody has left.
        self.0.take(NAMES_LEN_MAX).read_to_end(&mut names).ok();
        let own = own.and_then(|path| absolute(path).ok());
        let mut files: Vec<_> = names
            .split_inclusive(|byte| *byte == 0)
            .filter_map(|name| name.strip_suffix(b"\0"))
            .map(|name| PathBuf::from(std::ffi::OsString::from_vec(name.to_vec())))
            .filter(|file| Some(file) != own.as_ref())
            .collect();
        files.sort();
        files.dedup();
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_joined_runs_are_told_once_and_without_the_starters() {
        let base = tempfile::tempdir().expect("folder");
        let job = Job { name: "a".to_owned(), folder: base.path().join("a") };
        job.create().expect("a folder");
        let joined = job.joined().expect("opened");
        for path in ["/x/one", "/x/two", "/x/one", "/x/own"] {
            job.join_statistics(Path::new(path)).expect("left");
        }
        job.remove_locked(&job.lock().expect("free"));
        assert!(!job.folder.exists());
        let files = joined.files(Some(Path::new("/x/own")));
        assert_eq!(files, [Path::new("/x/one"), Path::new("/x/two")]);
    }
}
