//! Program `writer`, and what its files have to hold for what it was told is accepted.

use std::{
    collections::HashSet,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use crate::harness::{Daemon, Running, SOON, program, python, succeed, wait_for};

/// How `writer` writes; its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Blocks,
    Direct,
    Append,
    Spread,
    Stdio,
    Files,
    Checked,
    Shared,
    Renamed,
    Bodies,
    /// Rows of a SQLite database; `inserted.py` writes them.
    Inserted,
}

pub(crate) const KINDS: [Kind; 6] =
    [Kind::Blocks, Kind::Append, Kind::Spread, Kind::Stdio, Kind::Files, Kind::Direct];
const RECORDS_PER_FILE: u64 = 16;
const BODY_LEN: usize = 300 << 10;
/// Bits of a number that are below its writer's.
const WRITER_SHIFT: u32 = 48;
/// Room of a log, records.
pub(crate) const LOG_LEN: u64 = 1 << 20;

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
    /// It was told that something may not be there.
    pub(crate) is_told: bool,
    /// Most appends that may be there in part.
    pub(crate) torn_max: usize,
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
        paths: (PathBuf, PathBuf),
        count: u64,
        record_len: usize,
    ) -> Self {
        Self::start_as(0, daemon, kind, paths, count, record_len)
    }

    /// As [`start`](Self::start), with a writer's number, and a log elsewhere. Standard error goes
    /// to a file beside that.
    #[track_caller]
    pub(crate) fn start_as(
        writer: u64,
        daemon: &Daemon,
        kind: Kind,
        (path, log): (PathBuf, PathBuf),
        count: u64,
        record_len: usize,
    ) -> Self {
        let log = Log::create(log);
        let record_len = if kind == Kind::Direct { 4096 } else { record_len };
        let mut command = if kind == Kind::Inserted {
            let [python, script] = python("SQLite", "inserted").expect("it was looked for");
            let mut command = daemon.wrap(python);
            command.arg(script).arg(&path).arg(count.to_string()).arg(&log.path);
            command
        } else {
            let mut command = daemon.wrap(program("writer"));
            command.arg(format!("{kind:?}").to_lowercase()).arg(&path);
            command.args([count.to_string(), record_len.to_string()]).arg(&log.path);
            command.arg(writer.to_string());
            command
        };
        command.stdin(Stdio::null());
        command.stderr(File::create(log.path.with_extension("err")).expect("a file"));
        let running = Running::start(&mut command);
        Self { running, kind, path, record_len, is_told: false, torn_max: 0, log }
    }

    /// Returns the writer's output.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.log.path.with_extension("err")).unwrap_or_default()
    }

    /// From now on its files are in `folder`.
    pub(crate) fn found_in(&mut self, folder: &Path) {
        self.path = folder.join(self.path.file_name().expect("a name"));
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

    /// Returns the data accepted so far.
    pub(crate) fn accepted(&self) -> Vec<Accepted> {
        self.log.read()
    }

    /// Which of the records accepted are not, or not right, in the file. Files may also hold what
    /// was not accepted any more: at most one record, the one being written, or one file of them.
    pub(crate) fn missing(&self, accepted: &[Accepted]) -> Vec<Accepted> {
        match self.kind {
            Kind::Blocks | Kind::Direct | Kind::Spread | Kind::Stdio | Kind::Checked => {
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
            Kind::Shared => {
                let found = self.records_once();
                accepted.iter().filter(|one| !found.contains(&one.number)).copied().collect()
            }
            Kind::Renamed => {
                let file = fs::read(&self.path).unwrap_or_default();
                let first = file.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                let count = if file.is_empty() { 0 } else { first + RECORDS_PER_FILE };
                accepted.iter().filter(|one| one.number >= count).copied().collect()
            }
            Kind::Bodies => {
                let whole = fs::metadata(&self.path).map_or(0, |found| found.len());
                let whole = whole / (self.record_len + BODY_LEN) as u64;
                accepted.iter().filter(|one| one.number >= whole).copied().collect()
            }
            Kind::Inserted => {
                let [python, script] = python("SQLite", "inserted").expect("it was looked for");
                let count = succeed(Command::new(python).arg(script).arg(&self.path), SOON);
                let count: u64 = count.trim().parse().expect("a number");
                accepted.iter().filter(|one| one.number >= count).copied().collect()
            }
        }
    }

    /// Asserts that nothing is in the files but records in their places, from the first one on: no
    /// hole, none twice. Where records are scattered there are holes among the last.
    #[track_caller]
    pub(crate) fn assert_in_order(&self) {
        let file = fs::read(&self.path).unwrap_or_default();
        match self.kind {
            Kind::Blocks | Kind::Direct | Kind::Append | Kind::Stdio => {
                self.assert_no_record_twice(&file)
            }
            Kind::Renamed => {
                let first = file.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                for (place, found) in file.chunks(self.record_len).enumerate() {
                    let wanted = record(first + place as u64, self.record_len);
                    assert!(found == wanted, "{:?}: place {place} of {first}", self.path);
                }
            }
            Kind::Bodies => {
                for (number, found) in (0..).zip(file.chunks(self.record_len + BODY_LEN)) {
                    let mut wanted = record(number, self.record_len);
                    wanted.resize(self.record_len + BODY_LEN, number.to_le_bytes()[0]);
                    assert!(wanted.starts_with(found), "{:?}: record {number}", self.path);
                }
            }
            Kind::Shared => drop(self.records_once()),
            Kind::Spread | Kind::Checked | Kind::Files | Kind::Inserted => {}
        }
    }

    /// The numbers of a file to which several have appended: each record is there as a whole, and
    /// once, and those of one writer are in order. Of those that were told of an error, one append
    /// may be there in part.
    #[track_caller]
    fn records_once(&self) -> HashSet<u64> {
        let file = fs::read(&self.path).unwrap_or_default();
        let (mut found, mut next) = (HashSet::new(), [0; 16]);
        let (mut at, mut torn, mut gapped) = (0, 0, HashSet::new());
        while let Some(bytes) = file.get(at..at + self.record_len) {
            let number = u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes"));
            let wanted = record(number, self.record_len);
            if bytes != wanted {
                torn += 1;
                assert!(torn <= self.torn_max, "{:?}: byte {at}", self.path);
                at += bytes.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
                continue;
            }
            at += self.record_len;
            let writer = usize::try_from(number >> WRITER_SHIFT).expect("64 bits");
            let count = number % (1 << WRITER_SHIFT);
            assert!(count >= next[writer], "{count} of writer {writer}, not {}", next[writer]);
            if count > next[writer] {
                gapped.insert(writer);
                assert!(gapped.len() <= self.torn_max, "{count} of {writer}, not {}", next[writer]);
            }
            next[writer] = count + 1;
            found.insert(number);
        }
        found
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

    /// True if the record at `place` is the one numbered `number`.
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
