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

/// The byte at position `at` of task `task`'s stream: never a run of equal ones, zeros included.
fn byte(task: usize, at: usize) -> u8 {
    u8::try_from((at * 7 + task * 13) % 17).unwrap()
}

fn piece(task: usize, from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| byte(task, at)).collect()
}

/// The storage fails at some write, which may have reached it in part; the process ends there.
#[test]
fn every_completed_write_survives_a_crash_at_any_write() {
    with_seeds(400, |rng| {
        let folder = TempDir::new().unwrap();
        let storage = Failing::torn_after(folder.path().to_owned(), rng.u64(0..30_000));
        let checksums = rng.bool();
        let options = Options {
            fs_block_len: Some(rng.u32(1..300)),
            buffer_len: 0,
            checksums,
            ..Options::default()
        };
        let requests: Vec<u64> = (0..rng.usize(1..6)).map(|_| rng.u64(1..400)).collect();
        let files = rng.u32(1..=2);
        let tasks = NewTask::in_files(&requests, files);
        let mut completed = vec![0; requests.len()];
        let mut attempted = completed.clone();
        let Ok(mut writer) = Writer::create(&storage, Path::new(NAME), &tasks, &options) else {
            return; // Nothing was promised.
        };
        for _ in 0..rng.usize(1..100) {
            let task = rng.usize(0..requests.len());
            let mut out = writer.task(task).unwrap();
            if rng.u8(0..5) == 0 {
                out.next_block().unwrap();
            }
            // One call of at most the rest of a block is one write to the storage.
            let len = rng.u64(0..=out.fill().left_in_block().min(200));
            let bytes = piece(task, completed[task], usize::try_from(len).unwrap());
            attempted[task] = completed[task] + bytes.len();
            if out.write(&bytes).is_err() {
                break;
            }
            completed[task] = attempted[task];
        }
        let closed = writer.close().is_ok();
        check(folder.path(), &completed, &attempted, closed);
    });
}

fn check(folder: &Path, completed: &[usize], attempted: &[usize], closed: bool) {
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
    for (task, (completed, attempted)) in completed.iter().zip(attempted).enumerate() {
        let mut bytes = Vec::new();
        reader.stream(task).unwrap().read_to_end(&mut bytes).unwrap();
        assert!((*completed..=*attempted).contains(&bytes.len()), "{task}: {}", bytes.len());
        assert_eq!(bytes, piece(task, 0, bytes.len()));
    }
}

/// A process that is killed while it writes, at moments nobody chose.
#[test]
fn every_completed_write_survives_sigkill() {
    for lines in [1, 7, 200, 1999] {
        let folder = TempDir::new().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child_that_writes_until_killed", "--ignored", "--nocapture"])
            .env(FOLDER_ENV, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut progress = lines_with_deadline(child.stdout.take().unwrap());
        let mut completed = vec![0; 3];
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
        let attempted: Vec<_> = completed.iter().map(|completed| completed + 1000).collect();
        check(folder.path(), &completed, &attempted, false);
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

#[test]
#[ignore = "a part of every_completed_write_survives_sigkill, which kills it"]
#[expect(clippy::disallowed_methods, reason = "how the parent tells the folder")]
fn child_that_writes_until_killed() {
    let Some(folder) = std::env::var_os(FOLDER_ENV) else { return };
    let options = Options { fs_block_len: Some(512), buffer_len: 0, ..Options::default() };
    let tasks = NewTask::in_one_file(&[5000, 700, 100]);
    let disk = Disk::in_folder(PathBuf::from(folder));
    let mut writer = Writer::create(&disk, Path::new(NAME), &tasks, &options).unwrap();
    let mut totals = [0; 3];
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nstarted").unwrap();
    // Ends by itself if the parent died before it could end this.
    for round in 0..100_000 {
        let task = round % 3;
        let bytes = piece(task, totals[task], 1 + (round * 31) % 999);
        writer.task(task).unwrap().write(&bytes).unwrap();
        totals[task] += bytes.len();
        if writeln!(out, "{task} {}", totals[task]).is_err() {
            return;
        }
    }
}
