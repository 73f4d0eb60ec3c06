//! In which order the files of a set become closed ones.

use std::{path::Path, sync::atomic::Ordering};

use multifile::{Error, Growing, NewFile, NewTask, Options, ParWriter, Writer};

use crate::{
    memory::{Memory, Step},
    ranks::on_ranks,
};

const NAMES: [&str; 2] = ["a.sion", "a.sion.000001"];
/// Of the commit fields in a file of two tasks.
const COMMIT_AT: u64 = 1076 + 2 * 16;

/// The set of four tasks in two files.
fn set(durable: bool) -> (Vec<NewTask>, Options) {
    let options = Options { fs_block_len: Some(64), durable, ..Options::default() };
    (NewTask::in_files(&[100; 4], 2), options)
}

/// Writes the set by one process, and by four.
fn write(memory: &Memory, durable: bool, by_ranks: bool) -> Result<(), Error> {
    let (tasks, options) = set(durable);
    let path = Path::new(NAMES[0]);
    if !by_ranks {
        let mut writer = Writer::create(memory, path, &tasks, &options).unwrap();
        (0..4).for_each(|task| writer.task(task).unwrap().write(&[7; 300]).unwrap());
        return writer.close();
    }
    let shared = memory.clone();
    let closed = on_ranks(4, move |group| {
        let task = tasks[usize::try_from(multifile::Group::rank(group)).unwrap()];
        let mut writer = ParWriter::create(group, &shared, path, task, &options).unwrap();
        writer.task(0).unwrap().write(&[7; 300]).unwrap();
        writer.close(group)
    });
    assert!(closed.iter().all(|outcome| *outcome == closed[0]), "{closed:?}");
    closed[0]
}

#[test]
fn a_set_is_committed_when_the_storage_has_it_and_file_0_last() {
    for (durable, by_ranks) in [(true, false), (true, true), (false, false), (false, true)] {
        let memory = Memory::default();
        assert_eq!(write(&memory, durable, by_ranks), Ok(()));
        let settled = if durable { Step::Sync } else { Step::HandOver };
        let steps = memory.counts.steps.lock().unwrap();
        let committed = NAMES.map(|name| {
            let own = steps.iter().enumerate().filter(|(_, (path, _))| path == Path::new(name));
            let own: Vec<(usize, Step)> = own.map(|(at, (_, step))| (at, *step)).collect();
            let commit = own.iter().position(|(_, step)| *step == Step::Write(COMMIT_AT)).unwrap();
            assert_eq!(own[commit - 1].1, settled, "{name}: it has what they vouch for");
            assert_eq!(own.last().unwrap().1, settled, "{name}: and them");
            own[commit].0
        });
        assert!(committed[0] > committed[1], "file 0 makes the set readable");
    }
}

/// Some file systems say only when a file is closed that there was no room for what was written.
#[test]
fn data_that_is_refused_late_is_told_to_all_and_the_set_stays_unclosed() {
    for by_ranks in [false, true] {
        let memory = Memory::default();
        memory.counts.refuses.store(true, Ordering::Relaxed);
        assert!(write(&memory, false, by_ranks).is_err());
        let steps = memory.counts.steps.lock().unwrap();
        assert!(!steps.iter().any(|(_, step)| *step == Step::Write(COMMIT_AT)));
    }
}

/// Whatever a node that is lost then leaves of this: tables that count, or the journal.
#[test]
fn tables_go_when_it_is_durable_that_they_do_not_count_any_more() {
    let path = Path::new(NAMES[0]);
    let file = NewFile { task_count: 2, chunk_len: 64, fs_block_len: None };
    let options = Options { fs_block_len: Some(64), ..Options::default() };
    for grows in [true, false] {
        let memory = Memory::default();
        let growing = Growing::create(&memory, path, file, &options).unwrap();
        growing.close(&[0, 0], false).unwrap();
        memory.counts.steps.lock().unwrap().clear();
        if grows {
            let (mut growing, held) = Growing::open(&memory, path, &options).unwrap();
            growing.begin(&held.lens).unwrap();
        } else {
            let mut writer = Writer::append(&memory, path, &options).unwrap();
            writer.task(0).unwrap().write(&[7; 300]).unwrap();
            writer.flush().unwrap();
        }
        let steps = memory.counts.steps.lock().unwrap();
        let own = steps.iter().filter(|(path, _)| path == Path::new(NAMES[0]));
        let own: Vec<Step> = own.map(|(_, step)| *step).collect();
        let said = own.iter().position(|step| *step == Step::Write(COMMIT_AT)).unwrap();
        assert_eq!(own[said + 1], Step::Sync, "{own:?}");
        let gone = if grows { own.contains(&Step::Cut) } else { own.len() > said + 2 };
        assert!(gone && !own[..said].contains(&Step::Cut), "{own:?}");
        let journal = steps.iter().filter(|(path, _)| path == Path::new("a.sion.journal"));
        assert!(journal.map(|(_, step)| *step).any(|step| step == Step::Sync));
    }
}

/// A set that is not to outlive the loss of the node does not wait for the disk.
#[test]
fn a_durable_set_counts_a_file_that_is_on_the_disk() {
    let (memory, path) = (Memory::default(), Path::new(NAMES[0]));
    let file = NewFile { task_count: 2, chunk_len: 64, fs_block_len: None };
    let options = Options { fs_block_len: Some(64), ..Options::default() };
    for durable in [true, false] {
        let mut growing = Growing::create(&memory, path, file, &options).unwrap();
        memory.counts.steps.lock().unwrap().clear();
        growing.add(file, durable).unwrap();
        let steps = memory.counts.steps.lock().unwrap();
        let first = steps.iter().position(|(path, _)| path == Path::new(NAMES[0])).unwrap();
        let second = steps.iter().rposition(|(path, _)| path == Path::new(NAMES[1])).unwrap();
        assert_eq!(second + 1, first);
        let syncs = steps.iter().filter(|(_, step)| *step == Step::Sync).count();
        assert_eq!((syncs > 0, steps[second].1 == Step::Sync), (durable, durable));
    }
}
