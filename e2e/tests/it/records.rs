//! Program `writer`, and what its files have to hold for what it was told is accepted.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use crate::harness::{Daemon, Running, program, wait_for};

/// How `writer` writes; its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Blocks,
    Append,
    Spread,
    Stdio,
    Files,
}

pub(crate) const KINDS: [Kind; 5] =
    [Kind::Blocks, Kind::Append, Kind::Spread, Kind::Stdio, Kind::Files];
const RECORDS_PER_FILE: u64 = 16;
/// Room of a log, records.
const LOG_LEN: u64 = 1 << 20;

/// One record that was accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub(crate) number: u64,
    /// `CLOCK_MONOTONIC` when it was, nanoseconds.
    pub(crate) at: u64,
}

/// A `writer` that runs.
pub(crate) struct Writer {
    pub(crate) running: Running,
    pub(crate) kind: Kind,
    path: PathBuf,
    record_len: usize,
    log: Log,
}

impl Writer {
    /// Starts one that writes `count` records, or without end when that is 0.
    #[track_caller]
    pub(crate) fn start(
        daemon: &Daemon,
        kind: Kind,
        path: PathBuf,
        count: u64,
        record_len: usize,
    ) -> Self {
        let log = path.with_extension("log");
        Self::start_logging(daemon, kind, (path, log), count, record_len)
    }

    /// The same with the log of what is accepted elsewhere, which is mapped.
    #[track_caller]
    pub(crate) fn start_logging(
        daemon: &Daemon,
        kind: Kind,
        (path, log): (PathBuf, PathBuf),
        count: u64,
        record_len: usize,
    ) -> Self {
        let log = Log::create(log);
        let mut command = daemon.wrap(program("writer"));
        command.arg(format!("{kind:?}").to_lowercase()).arg(&path);
        command.args([count.to_string(), record_len.to_string()]).arg(&log.path);
        let running = Running::start(command.stdin(Stdio::null()));
        Self { running, kind, path, record_len, log }
    }

    /// Records accepted so far.
    pub(crate) fn count(&self) -> u64 {
        self.log.count()
    }

    /// Waits until `count` records are accepted, or as many as the log holds; returns whether they
    /// were in time.
    pub(crate) fn reaches(&self, count: u64, time: Duration) -> bool {
        wait_for(time, || self.log.count() >= count.min(LOG_LEN))
    }

    /// What has been accepted so far.
    pub(crate) fn accepted(&self) -> Vec<Accepted> {
        self.log.read()
    }

    /// Which of the records accepted are not, or not right, in the file. Files may also hold what
    /// was not accepted any more: at most one record, the one being written, or one file of them.
    pub(crate) fn missing(&self, accepted: &[Accepted]) -> Vec<Accepted> {
        match self.kind {
            Kind::Blocks | Kind::Spread | Kind::Stdio => {
                let file = fs::read(&self.path).unwrap_or_default();
                let is_missing = |one: &&Accepted| !self.has(&file, one.number, one.number);
                accepted.iter().filter(is_missing).copied().collect()
            }
            Kind::Append => {
                let file = fs::read(&self.path).unwrap_or_default();
                self.assert_no_record_twice(&file);
                let is_missing = |one: &&Accepted| !self.has(&file, one.number, one.number);
                accepted.iter().filter(is_missing).copied().collect()
            }
            Kind::Files => self.missing_in_files(accepted),
        }
    }

    fn missing_in_files(&self, accepted: &[Accepted]) -> Vec<Accepted> {
        let mut missing = Vec::new();
        for group in accepted.chunk_by(|one, other| file_of(*one) == file_of(*other)) {
            let name = format!("{}.{:06}", self.path.display(), file_of(group[0]));
            let file = fs::read(&name).unwrap_or_default();
            let is_missing =
                |one: &&Accepted| !self.has(&file, one.number % RECORDS_PER_FILE, one.number);
            missing.extend(group.iter().filter(is_missing));
        }
        missing
    }

    /// Whether the record at `place` is the one numbered `number`.
    fn has(&self, file: &[u8], place: u64, number: u64) -> bool {
        let start = usize::try_from(place).expect("64 bits") * self.record_len;
        file.get(start..start + self.record_len) == Some(&record(number, self.record_len)[..])
    }

    /// Numbers go up by one: nothing is in the file twice, whoever wrote it last.
    #[track_caller]
    fn assert_no_record_twice(&self, file: &[u8]) {
        for (place, found) in file.chunks_exact(self.record_len).enumerate() {
            let wanted = record(place as u64, self.record_len);
            let number = u64::from_le_bytes(found[..8].try_into().expect("8"));
            assert!(found == wanted, "{:?}: place {place} has record {number}", self.path);
        }
    }

    /// Removes the writer's files.
    pub(crate) fn clear(&self) {
        let folder = self.path.parent().expect("a folder");
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            if is_of(&entry.path(), &self.path) {
                fs::remove_file(entry.path()).expect("a file");
            }
        }
    }
}

/// The mapped file in which a writer logs what was accepted.
struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    fn create(path: PathBuf) -> Self {
        let options = File::options().read(true).write(true).create_new(true).open(&path);
        let file = options.expect("a new file");
        file.set_len(8 * (1 + 2 * LOG_LEN)).expect("a sparse file");
        Self { path, file }
    }

    /// Records accepted so far.
    fn count(&self) -> u64 {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, 0).expect("the log");
        u64::from_le_bytes(word)
    }

    fn read(&self) -> Vec<Accepted> {
        let count = usize::try_from(self.count()).expect("64 bits");
        let mut bytes = vec![0; 16 * count];
        self.file.read_exact_at(&mut bytes, 8).expect("the log");
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8"));
        let entry = |pair: &[u8]| Accepted { number: word(&pair[..8]), at: word(&pair[8..]) };
        bytes.chunks_exact(16).map(entry).collect()
    }
}

fn is_of(path: &Path, writer: &Path) -> bool {
    path == writer || path.with_extension("") == writer
}

fn file_of(accepted: Accepted) -> u64 {
    accepted.number / RECORDS_PER_FILE
}

fn record(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().repeat(len / 8 - 1);
    bytes.extend((!number).to_le_bytes());
    bytes
}
