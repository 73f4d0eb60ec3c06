//! A set that cannot be leaves the one before it whole.

use std::{fs, path::Path};

use multifile::{Disk, Group as _, NewTask, Options, Packing, ParWriter, Writer};
use tempfile::TempDir;

use crate::ranks::on_ranks;

const NAMES: [&str; 2] = ["a.sion", "a.sion.000001"];

/// Writes a set of two files; returns their bytes.
fn written(folder: &TempDir) -> [Vec<u8>; 2] {
    let (disk, path) = (Disk::in_folder(folder.path()), Path::new(NAMES[0]));
    let tasks = NewTask::in_files(&[100; 2], 2);
    let mut writer = Writer::create(&disk, path, &tasks, &Options::default()).unwrap();
    (0..2).for_each(|task| writer.task(task).unwrap().write(&[7; 300]).unwrap());
    writer.close().unwrap();
    bytes(folder)
}

fn bytes(folder: &TempDir) -> [Vec<u8>; 2] {
    NAMES.map(|name| fs::read(folder.path().join(name)).unwrap())
}

#[test]
fn one_process_cuts_nothing_before_its_chunks_are_known_to_fit() {
    let folder = TempDir::new().unwrap();
    let before = written(&folder);
    let (disk, path) = (Disk::in_folder(folder.path()), Path::new(NAMES[0]));
    let packing = Packing::Modular { size: 1 };
    for (chunk_len, options) in
        [(100, Options { packing, ..Options::default() }), (u64::MAX / 2 - 100, Options::default())]
    {
        let tasks = NewTask::in_one_file(&[chunk_len]);
        assert!(Writer::create(&disk, path, &tasks, &options).is_err(), "{options:?}");
        assert!(bytes(&folder) == before, "{options:?}");
    }
}

#[test]
fn ranks_cut_nothing_before_all_of_them_agree() {
    let folder = TempDir::new().unwrap();
    let before = written(&folder);
    let own = |fs_block_len| Options { fs_block_len, ..Options::default() };
    for asked in [[(100, Some(512)), (100, Some(1024))], [(u64::MAX / 2 - 1000, None); 2]] {
        let disk = Disk::in_folder(folder.path());
        let refused = on_ranks(2, move |group| {
            let (chunk_len, fs_block_len) = asked[group.rank() as usize];
            let task = NewTask::in_files(&[chunk_len; 2], 2)[group.rank() as usize];
            let path = Path::new(NAMES[0]);
            ParWriter::create(group, &disk, path, task, &own(fs_block_len)).is_err()
        });
        assert_eq!(refused, [true; 2]);
        assert!(bytes(&folder) == before, "{asked:?}");
    }
}
