//! Writers that die at any moment: what had completed is there after repair.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use multifile::{Disk, Doubt, Error, NewTask, Options, Reader, Repair, Writer};
use tempfile::TempDir;

use crate::{failing::Failing, model::with_seeds};

const NAME: &str = "a.sion";
const DEADLINE: Duration = Duration::from_secs(120);
const FOLDER_ENV: &str = "MULTIFILE_TEST_CHILD_FOLDER";
const LEN_ENV: &str = "MULTIFILE_TEST_CHILD_LEN";

/// The byte at position `at` of task `task`'s stream: never a run of equal ones; some are zero.
fn byte(task: usize, at: usize) -> u8 {
    u8::try_from((at * 7 + task * 13) % 17).unwrap()
}

fn piece(task: usize, from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| byte(task, at)).collect()
}

/// The storage fails at some write, which may have reached it in part; the process ends there.
/// Format rules 8.3 and 8.7: nothing of a write that did not complete is taken for part of the
/// data.
#[test]
fn every_completed_write_survives_a_crash_at_any_write() {
    with_seeds(1500, |rng| {
        let folder = TempDir::new().unwrap();
        let storage = Failing::torn_after(folder.path().to_owned(), rng.u64(0..30_000));
        let checksums = rng.bool();
        let options = Options {
            fs_block_len: Some(rng.u32(1..300)),
            buffer_len: 0,
            checksums,
            ..Options::default()
        };
        let requests: Vec<u64> = (0..rng.usize(1..6)).map(|_| rng.u64(1..4000)).collect();
        let files = rng.u32(1..=2);
        let tasks = NewTask::in_files(&requests, files);
        let mut completed = vec![0; requests.len()];
        let mut attempted = completed.clone();
        let Ok(mut writer) = Writer::create(&storage, Path::new(NAME), &tasks, &options) else {
            return; // Nothing was promised.
        };
        let (mut task, mut usual) = (0, 1);
        for _ in 0..rng.usize(1..100) {
            // Mostly as before: such writes are not recorded one by one.
            if rng.u8(0..8) == 0 {
                (task, usual) = (rng.usize(0..requests.len()), rng.u64(0..200));
            }
            let mut out = writer.task(task).unwrap();
            match rng.u8(0..40) {
                0 => out.next_block().unwrap(),
                1 if out.sync().is_err() => break,
                _ => {}
            }
            // One call of at most the rest of a block is one write to the storage.
            let len = out.fill().left_in_block().min(usual);
            let bytes = piece(task, completed[task], usize::try_from(len).unwrap());
            attempted[task] = completed[task] + bytes.len();
            if out.write(&bytes).is_err() {
                break;
            }
            completed[task] = attempted[task];
        }
        let closed = writer.close().is_ok();
        let restored = check(folder.path(), &completed, &attempted, closed);
        for (restored, either) in restored.iter().zip(completed.iter().zip(&attempted)) {
            assert!(restored == either.0 || restored == either.1, "{restored} of {either:?}");
        }
    });
}

/// Repairs and returns the lengths of the streams, which are at least what completed and at most
/// what was attempted.
fn check(folder: &Path, completed: &[usize], attempted: &[usize], closed: bool) -> Vec<usize> {
    let disk = Disk::in_folder(folder);
    let found = Repair::examine(&disk, Path::new(NAME)).unwrap();
    // Closing may fail at its last write, a hint, when the file is complete.
    assert!(!(closed && found.needed()));
    for (found, completed) in found.tasks().iter().zip(completed) {
        // A torn write may follow the completed ones; their length is certain all the same.
        assert_ne!(found.doubt, Doubt::Checksum);
        assert!(found.doubt == Doubt::None || *completed == 0, "{found:?} {completed}");
    }
    found.apply().unwrap();
    let reader = Reader::open(&disk, Path::new(NAME)).unwrap();
    let mut lens = Vec::new();
    for (task, (completed, attempted)) in completed.iter().zip(attempted).enumerate() {
        let mut bytes = Vec::new();
        reader.stream(task).unwrap().read_to_end(&mut bytes).unwrap();
        assert!((*completed..=*attempted).contains(&bytes.len()), "{task}: {}", bytes.len());
        assert!(bytes == piece(task, 0, bytes.len()), "{task}");
        lens.push(bytes.len());
    }
    lens
}

/// A repair that dies, too, leaves no part of a table that the next one takes for data.
#[test]
fn a_repair_that_ends_at_any_write_can_be_done_again() {
    let path = Path::new(NAME);
    let options = Options { fs_block_len: Some(64), journal: false, ..Options::default() };
    for room in 0.. {
        let folder = TempDir::new().unwrap();
        let disk = Disk::in_folder(folder.path());
        let tasks = NewTask::in_one_file(&[100, 64, 64]);
        let mut writer = Writer::create(&disk, path, &tasks, &options).unwrap();
        writer.task(0).unwrap().write(&[7; 300]).unwrap();
        writer.task(1).unwrap().write(&[7; 64]).unwrap();
        drop(writer);
        let before = Repair::examine(&disk, path).unwrap();
        let failing = Failing::torn_after(folder.path().to_owned(), room);
        let is_done = Repair::examine(&failing, path).unwrap().apply().is_ok();
        let after = Repair::examine(&disk, path).unwrap();
        assert!(!is_done || !after.needed());
        let needed = after.needed();
        for (before, after) in before.tasks().iter().zip(after.tasks()) {
            assert_eq!((before.task, before.len), (after.task, after.len), "room for {room}");
            let is_sure = |doubt| doubt == Doubt::None;
            assert!(!needed || is_sure(before.doubt) == is_sure(after.doubt), "{after:?}");
        }
        after.apply().unwrap();
        if is_done {
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
            break;
        }
    }
}

/// Format rule 8.7: what a stream of equal writes costs besides its data.
#[test]
fn writes_of_one_length_cost_two_slots_and_then_one_a_block() {
    let folder = TempDir::new().unwrap();
    let storage = Failing::after(folder.path().to_owned(), u64::MAX);
    let options = Options { fs_block_len: Some(512), buffer_len: 0, ..Options::default() };
    let tasks = NewTask::in_one_file(&[512 * 10]);
    let mut writer = Writer::create(&storage, Path::new(NAME), &tasks, &options).unwrap();
    let before = storage.room();
    for _ in 0..100 {
        writer.task(0).unwrap().write(&[7; 512]).unwrap();
    }
    assert_eq!(before - storage.room(), 100 * 512 + 16 * (2 + 9));
    drop(writer);
    check_len(folder.path(), 100 * 512);
}

/// Bytes that others left in unwritten space are not taken for data.
#[test]
fn blocks_behind_those_of_a_closed_file_are_recorded_each_time() {
    let folder = TempDir::new().unwrap();
    let (disk, path) = (Disk::in_folder(folder.path()), Path::new(NAME));
    let options = Options { fs_block_len: Some(512), buffer_len: 0, ..Options::default() };
    let tasks = NewTask::in_one_file(&[1024]);
    let mut writer = Writer::create(&disk, path, &tasks, &options).unwrap();
    // The tables of so many blocks reach far into the next ones.
    for _ in 0..500 {
        writer.task(0).unwrap().write(&[7; 1024]).unwrap();
    }
    writer.close().unwrap();
    let mut writer = Writer::append(&disk, path, &options).unwrap();
    for _ in 0..3 {
        writer.task(0).unwrap().write(&[7; 100]).unwrap();
    }
    drop(writer);
    check_len(folder.path(), 500 * 1024 + 300);
}

fn check_len(folder: &Path, len: u64) {
    let found = Repair::examine(&Disk::in_folder(folder), Path::new(NAME)).unwrap();
    assert_eq!(found.tasks().first().map(|task| (task.len, task.doubt)), Some((len, Doubt::None)));
}

/// A process that is killed while it writes, at moments nobody chose.
#[test]
fn every_completed_write_survives_sigkill() {
    for (lines, len) in [(1, 0), (7, 0), (200, 0), (1999, 0), (3, 1 << 20), (100, 1 << 20)] {
        let folder = TempDir::new().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child_that_writes_until_killed", "--ignored", "--nocapture"])
            .env(FOLDER_ENV, folder.path())
            .env(LEN_ENV, len.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut progress = lines_with_deadline(child.stdout.take().unwrap());
        let mut completed = vec![0; if len == 0 { 3 } else { 1 }];
        let mut note = |line: String| {
            let mut fields = line.split(' ').filter_map(|field| field.parse::<usize>().ok());
            if let (Some(task), Some(total)) = (fields.next(), fields.next()) {
                completed[task] = total;
            }
        };
        assert!(progress.any(|line| line == "started"));
        progress.by_ref().take(lines).for_each(&mut note);
        child.kill().unwrap();
        progress.for_each(note);
        child.wait().unwrap();
        let opened = Reader::open(&Disk::in_folder(folder.path()), Path::new(NAME)).map(|_| ());
        assert_eq!(opened, Err(Error::Unclosed { file: 0 }));
        // One more write per task may have completed without the time to say so.
        let attempted: Vec<_> = completed
            .iter()
            .zip(0..)
            .map(|(completed, task)| completed + next_len(len, task, *completed))
            .collect();
        let restored = check(folder.path(), &completed, &attempted, false);
        // A write of just these is one write to the storage.
        assert!(len == 0 || restored[0] % len == 0, "{restored:?}");
    }
}

/// The lines of a child's output to its end; none for too long is a failure.
fn lines_with_deadline(output: ChildStdout) -> impl Iterator<Item = String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            sender.send(Some(line)).unwrap();
        }
        sender.send(None).unwrap();
    });
    std::iter::from_fn(move || receiver.recv_timeout(DEADLINE).expect("the child goes on"))
}

/// Length of the write behind `total` bytes of task `task`: always `len`, or another each time.
fn next_len(len: usize, task: usize, total: usize) -> usize {
    if len == 0 { 1 + (total * 31 + task) % 999 } else { len }
}

#[test]
#[ignore = "a part of every_completed_write_survives_sigkill, which kills it"]
#[expect(clippy::disallowed_methods, reason = "how the parent tells the folder")]
fn child_that_writes_until_killed() {
    let Some(folder) = std::env::var_os(FOLDER_ENV) else { return };
    let len = std::env::var(LEN_ENV).unwrap().parse().unwrap();
    let options = Options { fs_block_len: Some(512), buffer_len: 0, ..Options::default() };
    let tasks = NewTask::in_one_file(if len == 0 { &[5000, 700, 100] } else { &[500 << 20] });
    let disk = Disk::in_folder(PathBuf::from(folder));
    let mut writer = Writer::create(&disk, Path::new(NAME), &tasks, &options).unwrap();
    let mut totals = vec![0; tasks.len()];
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nstarted").unwrap();
    // Ends by itself if the parent died before it could end this.
    for round in 0..if len == 0 { 100_000 } else { 400 } {
        let task = round % tasks.len();
        let bytes = piece(task, totals[task], next_len(len, task, totals[task]));
        writer.task(task).unwrap().write(&bytes).unwrap();
        totals[task] += bytes.len();
        if writeln!(out, "{task} {}", totals[task]).is_err() {
            return;
        }
    }
}
