//! Sets whose tasks are in another order than their files, or that others wrote.

use std::path::Path;

use multifile::{NewTask, Options, ParReader, Reader, Repair, Writer};

use crate::{memory::Memory, ranks::on_ranks};

const NAMES: [&str; 2] = ["a.sion", "a.sion.000001"];
/// Of the first global rank.
const RANKS_AT: usize = 1076;
/// Of the commit fields in a file of two tasks.
const COMMIT_AT: usize = RANKS_AT + 2 * 16;

/// Two files that take turns: tasks 0 and 2 are in the first.
fn turns(memory: &Memory) {
    let task = |index: u32| NewTask {
        file: index % 2,
        local_rank: index / 2,
        global_rank: index.into(),
        chunk_len: 100,
    };
    let tasks: Vec<_> = (0..4).map(task).collect();
    let options = Options { fs_block_len: Some(64), ..Options::default() };
    let mut writer = Writer::create(memory, Path::new(NAMES[0]), &tasks, &options).unwrap();
    for index in 0..4 {
        writer.task(index).unwrap().write(&vec![7; index + 1]).unwrap();
    }
    writer.close().unwrap();
}

/// Closed, and without its tables.
#[test]
fn repair_counts_tasks_as_readers_do() {
    let (memory, path) = (Memory::default(), Path::new(NAMES[0]));
    turns(&memory);
    let check = || {
        let found = Repair::examine(&memory, path).unwrap();
        let tasks = found.tasks().iter().map(|found| (found.task.global_rank, found.len));
        assert_eq!(tasks.collect::<Vec<_>>(), [(0, 1), (1, 2), (2, 3), (3, 4)]);
        found
    };
    assert!(!check().needed());
    for name in NAMES {
        let mut bytes = memory.bytes(name);
        bytes[COMMIT_AT..COMMIT_AT + 12].fill(0);
        memory.put(Path::new(name), bytes);
    }
    check().apply().unwrap();
    check();
}

/// Format rule 6.3: of another program, which names tasks that we give to nobody.
#[test]
fn a_mapping_of_every_task_is_whole_whatever_their_ranks() {
    let memory = Memory::default();
    turns(&memory);
    let mut bytes = memory.bytes(NAMES[1]);
    bytes[RANKS_AT..RANKS_AT + 8].copy_from_slice(&(-5i64).to_le_bytes());
    memory.put(Path::new(NAMES[1]), bytes);
    assert_eq!(Reader::open(&memory, Path::new(NAMES[0])).unwrap().task_count(), 4);
    assert!(!Repair::examine(&memory, Path::new(NAMES[0])).unwrap().needed());
}

/// Of whatever numbers: what one open tells the next one takes.
#[test]
fn tasks_are_opened_by_their_ranks() {
    let (memory, path) = (Memory::default(), Path::new(NAMES[0]));
    let tasks = NewTask::in_files(&[100; 3], 2).into_iter().zip([100, 7, 105]);
    let tasks: Vec<_> = tasks.map(|(task, global_rank)| NewTask { global_rank, ..task }).collect();
    let mut writer = Writer::create(&memory, path, &tasks, &Options::default()).unwrap();
    (0..3).for_each(|task| writer.task(task).unwrap().write(b"x").unwrap());
    writer.close().unwrap();
    for (wanted, found) in [([105, 100], [105, 100]), ([7, 2], [7, 105])] {
        let memory = memory.clone();
        let ranks = on_ranks(1, move |group| {
            let reader = ParReader::open_mapped(group, &memory, path, &wanted, |_| Ok(())).unwrap();
            reader.tasks().iter().map(|local| local.task.global_rank).collect::<Vec<_>>()
        });
        assert_eq!(ranks, [found]);
    }
}
