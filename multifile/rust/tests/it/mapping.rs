//! Sets whose tasks are in another order than their files, or that others wrote.

use std::path::Path;

use multifile::{NewTask, Options, Reader, Repair, Writer};

use crate::memory::Memory;

const NAMES: [&str; 2] = ["a.sion", "a.sion.000001"];
/// Of the first global rank.
const RANKS_AT: usize = 1076;

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
    Writer::create(memory, Path::new(NAMES[0]), &tasks, &options).unwrap().close().unwrap();
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
