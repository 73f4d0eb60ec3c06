//! A rank that fails while all open, write, or close: the others are told, and the file can be
//! repaired.

use std::path::Path;

use multifile::{
    Disk, Error, Group, NewTask, Options, ParWriter, Repair, Style, error::Cause, group::RANK_GONE,
};
use tempfile::TempDir;

use crate::{failing::Failing, ranks::on_ranks};

const NAME: &str = "a.sion";

fn disk(folder: &TempDir) -> Disk {
    Disk::in_folder(folder.path())
}

fn options() -> Options {
    Options { fs_block_len: Some(512), style: Style::Parallel, ..Options::default() }
}

/// E5: no room for the header is an error of all.
#[test]
fn a_full_disk_at_opening_fails_all() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().to_owned();
    let outcomes = on_ranks(3, move |group| {
        let storage = Failing::after(root.clone(), 100);
        let task = NewTask::in_one_file(&[5000; 3])[group.rank() as usize];
        ParWriter::create(group, &storage, Path::new(NAME), task, &options()).map(|_| ()).err()
    });
    assert_eq!(outcomes, [Some(Error::OnRank { rank: 0, cause: Cause::Io(0, 28) }); 3]);
}

/// E5: no room for the tables is an error of all, and no byte is lost.
#[test]
fn a_full_disk_at_closing_fails_all_and_loses_nothing() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().to_owned();
    let outcomes = on_ranks(3, move |group| {
        // Rank 0 has room for the header, its data, and their slot.
        let room = if group.rank() == 0 { 1076 + 16 * 3 + 3000 + 2 * 16 } else { u64::MAX };
        let storage = Failing::after(root.clone(), room);
        let task = NewTask::in_one_file(&[5000; 3])[group.rank() as usize];
        let path = Path::new(NAME);
        let mut writer = ParWriter::create(group, &storage, path, task, &options()).unwrap();
        writer.task(0).unwrap().write(&[9; 3000]).unwrap();
        writer.task(0).unwrap().flush().unwrap();
        writer.close(group).err()
    });
    assert_eq!(outcomes, [Some(Error::OnRank { rank: 0, cause: Cause::Io(0, 28) }); 3]);
    assert_eq!(restored(&folder), [3000; 3]);
}

fn restored(folder: &TempDir) -> Vec<u64> {
    let found = Repair::examine(&disk(folder), Path::new(NAME)).unwrap();
    assert!(found.needed());
    found.tasks().iter().map(|found| found.len).collect()
}

/// E5: a full disk on one rank fails the close of all, and what was written can be repaired.
#[test]
fn a_full_disk_on_one_rank_fails_the_close_of_all() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().to_owned();
    let outcomes = on_ranks(3, move |group| {
        let room = if group.rank() == 1 { 100 } else { u64::MAX };
        let storage = Failing::after(root.clone(), room);
        let task = NewTask::in_one_file(&[5000; 3])[group.rank() as usize];
        let path = Path::new(NAME);
        let mut writer = ParWriter::create(group, &storage, path, task, &options()).unwrap();
        writer.task(0).unwrap().write(&[9; 3000]).unwrap();
        writer.close(group).err()
    });
    assert_eq!(outcomes, [Some(Error::OnRank { rank: 1, cause: Cause::Io(0, 28) }); 3]);
    assert_eq!(restored(&folder), [3000, 0, 3000]);
}

#[test]
fn a_rank_that_is_gone_ends_the_group_for_the_others() {
    let folder = TempDir::new().unwrap();
    let disk = disk(&folder);
    let outcomes = on_ranks(3, move |group| {
        let task = NewTask::in_one_file(&[100; 3])[group.rank() as usize];
        let path = Path::new(NAME);
        let writer = ParWriter::create(group, &disk, path, task, &options()).unwrap();
        if group.rank() == 1 { None } else { writer.close(group).err() }
    });
    let gone = Some(Error::Group { code: RANK_GONE });
    assert_eq!(outcomes, [gone, None, gone]);
}
