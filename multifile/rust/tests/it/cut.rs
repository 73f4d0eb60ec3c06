//! A closed file that has been cut short, as by a copy onto a full disk.

use std::{fs, path::Path};

use multifile::{Disk, Doubt, NewTask, Options, Repair, Writer};
use tempfile::TempDir;

const NAME: &str = "a.sion";
const BLOCK_LEN: u64 = 512;
/// Bytes of each task's stream; the chunks have one block's length.
const LENS: [usize; 3] = [700, 100, 900];

/// Cut at every length, a file never passes for one that has lost nothing.
#[test]
fn tasks_that_the_end_of_a_closed_file_was_cut_off_with_are_named() {
    let folder = TempDir::new().unwrap();
    let (disk, path) = (Disk::in_folder(folder.path()), Path::new(NAME));
    let options = Options { fs_block_len: Some(512), ..Options::default() };
    let tasks = NewTask::in_one_file(&[BLOCK_LEN; 3]);
    let mut writer = Writer::create(&disk, path, &tasks, &options).unwrap();
    for (task, len) in LENS.into_iter().enumerate() {
        writer.task(task).unwrap().write(&vec![7; len]).unwrap();
    }
    writer.close().unwrap();
    let whole = fs::read(folder.path().join(NAME)).unwrap();
    let data_at = (1088 + 16 * 3_u64).next_multiple_of(BLOCK_LEN);
    // Two blocks of three chunks.
    let table_at = data_at + 6 * BLOCK_LEN;
    for size in (data_at..whole.len() as u64).step_by(60) {
        fs::write(folder.path().join(NAME), &whole[..usize::try_from(size).unwrap()]).unwrap();
        let found = Repair::examine(&disk, path).unwrap();
        assert!(found.needed(), "{size}");
        for (index, (task, len)) in found.tasks().iter().zip(LENS).enumerate() {
            let end = table_at - (2 - index as u64) * BLOCK_LEN;
            assert_eq!(task.doubt == Doubt::Cut, end > size, "{size}: {task:?}");
            assert!(task.doubt == Doubt::Cut || task.len == len as u64, "{size}: {task:?}");
        }
    }
}
