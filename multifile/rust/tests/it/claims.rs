//! Who writes a multifile is not disturbed by who would create it anew.

use std::{fs, io::ErrorKind, path::Path};

use multifile::{Disk, Error, Group, NewTask, Options, ParWriter, Reader, Writer, error::Cause};
use tempfile::TempDir;

use crate::ranks::on_ranks;

const NAME: &str = "a.sion";
const EBUSY: i32 = 16;

fn disk(folder: &TempDir) -> Disk {
    Disk::in_folder(folder.path())
}

#[test]
fn a_multifile_that_is_written_is_not_created_anew() {
    let (folder, path) = (TempDir::new().unwrap(), Path::new(NAME));
    let (disk, options) = (disk(&folder), Options::default());
    let tasks = NewTask::in_files(&[100; 2], 2);
    let mut writer = Writer::create(&disk, path, &tasks, &options).unwrap();
    writer.task(1).unwrap().write(b"precious").unwrap();
    writer.flush().unwrap();
    let content =
        || ["a.sion", "a.sion.000001"].map(|name| fs::read(folder.path().join(name)).ok());
    let before = content();
    let is_busy = |error| matches!(error, Error::Io { kind: ErrorKind::ResourceBusy, .. });
    assert!(is_busy(Writer::create(&disk, path, &tasks, &options).unwrap_err()));
    assert!(before == content());
    writer.close().unwrap();
    let appending = Writer::append(&disk, path, &options).unwrap();
    assert!(is_busy(Writer::create(&disk, path, &tasks, &options).unwrap_err()));
    drop(appending);
    Writer::create(&disk, path, &tasks, &options).unwrap().close().unwrap();
}

/// Each of a set that ranks create: somebody else has the second.
#[test]
fn ranks_create_no_file_anew_that_is_written() {
    let folder = TempDir::new().unwrap();
    let (storage, other) = (disk(&folder), Path::new("a.sion.000001"));
    let create = move |count: u32| {
        let storage = storage.clone();
        on_ranks(4, move |group| {
            let task = NewTask::in_files(&[100; 4], count)[group.rank() as usize];
            let path = Path::new(NAME);
            let mut writer = ParWriter::create(group, &storage, path, task, &Options::default())?;
            writer.task(0).unwrap().write(&[7; 10])?;
            writer.close(group)
        })
    };
    let one = NewTask::in_one_file(&[100]);
    let writer = Writer::create(&disk(&folder), other, &one, &Options::default()).unwrap();
    for outcome in create(2) {
        let cause = Cause::Io(1, EBUSY);
        assert_eq!(outcome, Err(Error::OnRank { rank: 2, cause }));
    }
    drop(writer);
    // Other ranks create what others just closed.
    for count in [2, 4, 1, 3].repeat(25) {
        assert_eq!(create(count), [Ok(()); 4]);
    }
    assert_eq!(Reader::open(&disk(&folder), Path::new(NAME)).unwrap().file_count(), 3);
}
