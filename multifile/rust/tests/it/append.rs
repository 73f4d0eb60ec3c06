//! Closed multifiles are written on.

use std::{fs, io::Read, path::Path};

use multifile::{Disk, Error, NewTask, Options, Part, Reader, Repair, Writer};
use tempfile::TempDir;

use crate::golden::Golden;

const NAME: &str = "a.sion";

fn streams(reader: &Reader<fs::File>) -> Vec<Vec<u8>> {
    let read = |task| {
        let mut bytes = Vec::new();
        reader.stream(task).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    (0..reader.task_count()).map(read).collect()
}

#[test]
fn appended_bytes_follow_what_was_there_in_every_golden_file() {
    let golden = Golden::unpack();
    for case in golden.cases.iter().filter(|case| case["closed"] == true) {
        let path = golden.path(&case["file"]);
        let reader = Reader::open(&Disk::new(), &path).unwrap();
        let before = streams(&reader);
        let options = Options { buffer_len: 0, ..Options::default() };
        let opened = Writer::append(&Disk::new(), &path, &options);
        if case["files"][0]["header"]["version"] == 3 {
            assert!(matches!(opened, Err(Error::Damaged { .. })));
            continue;
        }
        let mut writer = opened.unwrap();
        for (task, before) in before.iter().enumerate() {
            if reader.task(task).unwrap().chunk_len > 0 {
                writer.task(task).unwrap().write(&before[..before.len() / 2]).unwrap();
            }
        }
        writer.close().unwrap();
        let after = streams(&Reader::open(&Disk::new(), &path).unwrap());
        for (before, after) in before.iter().zip(&after) {
            let expected = [&before[..], &before[..before.len() / 2]].concat();
            assert_eq!(*after, expected, "{}", case["name"]);
        }
    }
}

/// Format rule 4.3: behind such a block there is no place to go on, and the file stays as it is.
#[test]
fn a_file_with_a_block_longer_than_its_chunk_is_not_written_on() {
    let folder = TempDir::new().unwrap();
    let disk = Disk::in_folder(folder.path());
    let options = Options { fs_block_len: Some(64), ..Options::default() };
    let tasks = NewTask::in_one_file(&[64]);
    Writer::create(&disk, Path::new(NAME), &tasks, &options).unwrap().close().unwrap();
    let table = Reader::open(&disk, Path::new(NAME)).unwrap().table(0).unwrap();
    let mut bytes = fs::read(folder.path().join(NAME)).unwrap();
    for len in [65, u64::MAX] {
        let at = usize::try_from(table.slot_at(0, 0)).unwrap();
        bytes[at..at + 8].copy_from_slice(&table.order.bytes_u64(len));
        fs::write(folder.path().join(NAME), &bytes).unwrap();
        let refused = Writer::append(&disk, Path::new(NAME), &options).err();
        assert_eq!(refused, Some(Error::Damaged { part: Part::Blocks, file: 0 }));
        assert_eq!(fs::read(folder.path().join(NAME)).unwrap(), bytes);
    }
}

#[test]
fn a_writer_that_dies_appending_loses_nothing_that_was_closed() {
    let folder = TempDir::new().unwrap();
    let disk = Disk::in_folder(folder.path());
    let options = Options { fs_block_len: Some(64), checksums: true, ..Options::default() };
    let tasks = NewTask::in_files(&[64; 4], 2);
    let mut writer = Writer::create(&disk, Path::new(NAME), &tasks, &options).unwrap();
    for task in 0..4u8 {
        writer.task(task.into()).unwrap().write(&[task; 100]).unwrap();
    }
    writer.close().unwrap();
    let mut writer = Writer::append(&disk, Path::new(NAME), &options).unwrap();
    writer.task(1).unwrap().write(&[9; 300]).unwrap();
    writer.task(2).unwrap().write(&[8; 1]).unwrap();
    writer.flush().unwrap();
    drop(writer);
    assert!(matches!(Reader::open(&disk, Path::new(NAME)), Err(Error::Unclosed { .. })));
    let found = Repair::examine(&disk, Path::new(NAME)).unwrap();
    assert!(found.tasks().iter().all(|found| found.doubt == multifile::Doubt::None));
    found.apply().unwrap();
    let reader = Reader::open(&disk, Path::new(NAME)).unwrap();
    let expected = [
        vec![0; 100],
        [vec![1; 100], vec![9; 300]].concat(),
        [vec![2; 100], vec![8; 1]].concat(),
        vec![3; 100],
    ];
    assert_eq!(streams(&reader), expected);
    assert!((0..4).all(|task| reader.verify(task) == Ok(true)));
}
