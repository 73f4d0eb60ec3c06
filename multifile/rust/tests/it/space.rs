//! Space that is reserved for a task which writes much, and given back.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use multifile::{Disk, Doubt, NewTask, Options, ParWriter, Reader, Repair, Writer, group::Alone};
use tempfile::TempDir;

use crate::memory::Memory;

const NAME: &str = "a.sion";
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Where the first chunk begins.
const DATA_AT: u64 = 4 * KIB;

fn options() -> Options {
    Options { fs_block_len: Some(4096), ..Options::default() }
}

fn piece() -> Vec<u8> {
    vec![7; 512 << 10]
}

#[test]
fn a_task_that_writes_much_reserves_as_much_again_and_gives_the_rest_back() {
    let memory = Memory::default();
    let tasks = NewTask::in_one_file(&[6 * MIB, 6 * MIB]);
    let mut writer = Writer::create(&memory, Path::new(NAME), &tasks, &options()).unwrap();
    for _ in 0..9 {
        writer.task(0).unwrap().write(&piece()).unwrap();
    }
    writer.task(1).unwrap().write(&piece()).unwrap();
    writer.close().unwrap();
    let [half, at] = [512 * KIB, DATA_AT];
    let reserved = [at + 2 * half..at + 5 * half, at + 5 * half..at + 11 * half];
    assert_eq!(*memory.counts.reserved.lock().unwrap(), reserved);
    let rest = at + 9 * half..at + 11 * half;
    assert_eq!(*memory.counts.released.lock().unwrap(), [rest]);
}

#[test]
fn what_is_reserved_ends_with_the_chunk_and_with_the_block() {
    let memory = Memory::default();
    let (path, task) = (Path::new(NAME), NewTask::in_one_file(&[2 * MIB])[0]);
    let mut writer = ParWriter::create(&Alone, &memory, path, task, &options()).unwrap();
    let [half, at, skip] = [512 * KIB, DATA_AT, 2 * MIB];
    for _ in 0..5 {
        writer.task(0).unwrap().write(&piece()).unwrap();
    }
    writer.task(0).unwrap().ensure(2 * MIB).unwrap();
    writer.task(0).unwrap().write(&piece()).unwrap();
    writer.task(0).unwrap().next_block().unwrap();
    writer.task(0).unwrap().write(&piece()).unwrap();
    writer.close(&Alone).unwrap();
    let whole = |block: u64| at + block * skip..at + (block + 1) * skip;
    let first = at + 2 * half..at + 4 * half;
    assert_eq!(*memory.counts.reserved.lock().unwrap(), [first, whole(1), whole(2), whole(3)]);
    let rest = |block: u64| at + block * skip + half..at + (block + 1) * skip;
    assert_eq!(*memory.counts.released.lock().unwrap(), [rest(1), rest(2), rest(3)]);
}

#[test]
fn a_closed_file_takes_the_space_of_what_was_written() {
    let folder = TempDir::new().unwrap();
    let disk = Disk::in_folder(folder.path());
    let tasks = NewTask::in_one_file(&[64 * MIB]);
    let mut writer = Writer::create(&disk, Path::new(NAME), &tasks, &options()).unwrap();
    for _ in 0..9 {
        writer.task(0).unwrap().write(&piece()).unwrap();
    }
    writer.sync().unwrap();
    writer.close().unwrap();
    let allocated = fs::metadata(folder.path().join(NAME)).unwrap().blocks() * 512;
    assert!(allocated < 9 * 512 * KIB + 256 * KIB, "{allocated}");
}

#[test]
fn space_without_data_is_nothing_to_repair() {
    let folder = TempDir::new().unwrap();
    let (disk, path) = (Disk::in_folder(folder.path()), Path::new(NAME));
    let tasks = NewTask::in_one_file(&[64 * MIB]);
    let mut writer = Writer::create(&disk, path, &tasks, &options()).unwrap();
    for _ in 0..9 {
        writer.task(0).unwrap().write(&piece()).unwrap();
    }
    drop(writer);
    for journal in [true, false] {
        if !journal {
            fs::remove_file(folder.path().join("a.sion.journal")).unwrap();
        }
        let found = Repair::examine(&disk, path).unwrap();
        assert_eq!(found.tasks()[0].doubt, Doubt::None);
        assert_eq!(found.tasks()[0].len, 9 * 512 * KIB);
    }
    Repair::examine(&disk, path).unwrap().apply().unwrap();
    let reader = Reader::open(&disk, path).unwrap();
    assert_eq!(reader.block_lens(0).unwrap(), [9 * 512 * KIB]);
}
