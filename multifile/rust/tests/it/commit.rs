//! In which order the files of a set become closed ones.

use std::path::Path;

use multifile::{NewTask, Options, ParWriter, Writer};

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
