//! In which order the files of a set become closed ones.

use std::path::Path;

use multifile::{Growing, NewTask, Options, ParWriter, Shape, Writer};

use crate::{
    memory::{Memory, Step},
    ranks::on_ranks,
};

const NAMES: [&str; 2] = ["a.sion", "a.sion.000001"];
/// Of the commit fields in a file of two tasks.
const COMMIT_AT: u64 = 1076 + 2 * 16;

/// The durable set of four tasks in two files, and what is written to it.
fn set() -> (Vec<NewTask>, Options) {
    let options = Options { fs_block_len: Some(64), durable: true, ..Options::default() };
    (NewTask::in_files(&[100; 4], 2), options)
}

/// Checks what closing has done to the files of the set.
fn check(memory: &Memory) {
    let steps = memory.counts.steps.lock().unwrap();
    let committed = NAMES.map(|name| {
        let own = steps.iter().enumerate().filter(|(_, (path, _))| path == Path::new(name));
        let own: Vec<(usize, Step)> = own.map(|(at, (_, step))| (at, *step)).collect();
        let commit = own.iter().position(|(_, step)| *step == Step::Write(COMMIT_AT)).unwrap();
        assert_eq!(own[commit - 1].1, Step::Sync, "{name}: what it vouches for is durable");
        assert_eq!(own.last().unwrap().1, Step::Sync, "{name}: and so is it");
        own[commit].0
    });
    assert!(committed[0] > committed[1], "file 0 makes the set readable");
}

#[test]
fn a_durable_set_is_committed_when_it_is_durable_and_file_0_last() {
    let (memory, (tasks, options)) = (Memory::default(), set());
    let mut writer = Writer::create(&memory, Path::new(NAMES[0]), &tasks, &options).unwrap();
    (0..4).for_each(|task| writer.task(task).unwrap().write(&[7; 300]).unwrap());
    writer.close().unwrap();
    check(&memory);
}

#[test]
fn ranks_commit_a_durable_set_when_it_is_durable_and_file_0_last() {
    let memory = Memory::default();
    let shared = memory.clone();
    on_ranks(4, move |group| {
        let (tasks, options) = set();
        let task = tasks[usize::try_from(multifile::Group::rank(group)).unwrap()];
        let path = Path::new(NAMES[0]);
        let mut writer = ParWriter::create(group, &shared, path, task, &options).unwrap();
        writer.task(0).unwrap().write(&[7; 300]).unwrap();
        writer.close(group).unwrap();
    });
    check(&memory);
}

/// Whatever a node that is lost then leaves of this: tables that count, or the journal.
#[test]
fn tables_go_when_it_is_durable_that_they_do_not_count_any_more() {
    let path = Path::new(NAMES[0]);
    let shape = Shape { first: 2, most: 2, chunk_len: 64 };
    let options = Options { fs_block_len: Some(64), ..Options::default() };
    for grows in [true, false] {
        let memory = Memory::default();
        let growing = Growing::create(&memory, path, shape, &options).unwrap();
        growing.close(&[0, 0], false).unwrap();
        memory.counts.steps.lock().unwrap().clear();
        if grows {
            let (mut growing, held) = Growing::open(&memory, path, shape, &options).unwrap();
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

#[test]
fn a_set_counts_a_file_that_is_on_the_disk() {
    let (memory, path) = (Memory::default(), Path::new(NAMES[0]));
    let shape = Shape { first: 2, most: 2, chunk_len: 64 };
    let options = Options { fs_block_len: Some(64), ..Options::default() };
    let mut growing = Growing::create(&memory, path, shape, &options).unwrap();
    memory.counts.steps.lock().unwrap().clear();
    growing.add().unwrap();
    let steps = memory.counts.steps.lock().unwrap();
    let first = steps.iter().position(|(path, _)| path == Path::new(NAMES[0])).unwrap();
    let second = steps.iter().rposition(|(path, _)| path == Path::new(NAMES[1])).unwrap();
    assert_eq!((second + 1, steps[second].1), (first, Step::Sync));
}
