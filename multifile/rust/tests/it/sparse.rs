//! Files that are long and hold nothing: what they claim takes neither memory nor time.

use std::{
    fs,
    io::{Seek as _, SeekFrom, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::Arc,
};

use multifile::{
    Disk, Error, Growing, NewTask, Options, Part, Reader, Repair, TaskReader, Writer,
    catalogue::{Catalogue, End, HEAD_LEN_MAX, Node},
    codec::Order,
    journal::{Slot, SlotKey},
    keyval::Records,
};
use tempfile::TempDir;

use crate::allocations::peak_during;

const NAME: &str = "a.sion";
/// A few times what tables in holes may take.
const MEMORY_MAX: usize = 256 << 20;
/// So many of anything would take a gigabyte.
const MANY: u64 = 1 << 27;
/// Beyond all that is claimed here, and what every file system allows.
const LEN: u64 = 1 << 42;
/// Of files with one task.
const COMMIT_AT: u64 = 1076 + 16;
const DATA_AT: u64 = 1536;
const CHUNK_LEN: u64 = 512;

/// A file of one task that wrote ten bytes.
fn file(folder: &TempDir, closed: bool, options: &Options) -> fs::File {
    let fs_block_len = Some(u32::try_from(CHUNK_LEN).unwrap());
    let options = Options { fs_block_len, order: Order::Little, journal: false, ..options.clone() };
    let tasks = NewTask::in_one_file(&[CHUNK_LEN]);
    let mut writer = Writer::create(&disk(folder), Path::new(NAME), &tasks, &options).unwrap();
    writer.task(0).unwrap().write(&[1; 10]).unwrap();
    if closed {
        writer.close().unwrap();
    } else {
        drop(writer);
    }
    let path = folder.path().join(NAME);
    fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn disk(folder: &TempDir) -> Disk {
    Disk::in_folder(folder.path())
}

/// Reads and repairs; every way is refused, in little memory, because of `part`.
#[track_caller]
fn refused(folder: &TempDir, part: Part) {
    let (disk, path) = (disk(folder), Path::new(NAME));
    let damaged = Some(Error::Damaged { part, file: 0 });
    let (peak, ()) = peak_during(|| {
        assert_eq!(Reader::open(&disk, path).err(), damaged);
        assert_eq!(TaskReader::open(&disk, path, 0).err(), damaged);
    });
    assert!(peak < MEMORY_MAX, "took {peak} bytes");
}

#[track_caller]
fn repaired(folder: &TempDir) -> Result<(), Error> {
    let (disk, path) = (disk(folder), Path::new(NAME));
    let (peak, done) = peak_during(|| Repair::examine(&disk, path)?.salvage());
    assert!(peak < MEMORY_MAX, "took {peak} bytes");
    done
}

/// Format rule 10.1.
#[test]
fn tasks_that_are_a_hole_are_refused() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder, true, &Options::default());
    file.write_all_at(&u32::try_from(MANY).unwrap().to_le_bytes(), 24).unwrap();
    file.set_len(LEN).unwrap();
    refused(&folder, Part::TaskCount);
    assert!(repaired(&folder).is_err());
}

/// Format rule 10.1. The block table is lost then; the data is not.
#[test]
fn blocks_that_are_a_hole_are_refused() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder, true, &Options::default());
    file.write_all_at(&u32::try_from(MANY).unwrap().to_le_bytes(), COMMIT_AT).unwrap();
    file.write_all_at(&MANY.to_le_bytes(), DATA_AT + CHUNK_LEN).unwrap();
    file.set_len(LEN).unwrap();
    refused(&folder, Part::Blocks);
    repaired(&folder).unwrap();
    let stream = Reader::open(&disk(&folder), Path::new(NAME)).unwrap().stream(0).unwrap();
    assert!(stream.cursor().total() >= 10);
}

/// Format rule 10.1.
#[test]
fn a_mapping_that_is_a_hole_is_refused() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder, true, &Options::default());
    file.write_all_at(&2u32.to_le_bytes(), 28).unwrap();
    file.write_all_at(&0u32.to_le_bytes(), 32).unwrap();
    let mapping_at = DATA_AT + CHUNK_LEN + 8 + 8;
    file.write_all_at(&u32::try_from(MANY).unwrap().to_le_bytes(), mapping_at).unwrap();
    file.set_len(LEN).unwrap();
    let (peak, opened) = peak_during(|| Reader::open(&disk(&folder), Path::new(NAME)).err());
    assert_eq!(opened, Some(Error::Damaged { part: Part::Mapping, file: 0 }));
    assert!(peak < MEMORY_MAX, "took {peak} bytes");
}

/// Format rule 10.3: a row of the table for every chunk of the hole before the last one.
#[test]
fn an_unclosed_file_is_not_repaired_into_a_hole() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder, false, &Options::default());
    let end = DATA_AT + MANY * CHUNK_LEN;
    file.write_all_at(b"x", end - 1).unwrap();
    assert_eq!(repaired(&folder), Err(Error::Damaged { part: Part::Blocks, file: 0 }));
}

/// Format rule 10.3.
#[test]
fn an_unclosed_file_made_longer_is_repaired_to_its_data() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder, false, &Options::default());
    file.set_len(LEN).unwrap();
    assert_eq!(repaired(&folder), Ok(()));
    let stream = Reader::open(&disk(&folder), Path::new(NAME)).unwrap().stream(0).unwrap();
    assert_eq!(stream.cursor().total(), 10);
}

/// Format rule 10.3.
#[test]
fn a_journal_of_a_far_block_is_not_believed() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder, false, &Options::default());
    file.set_len(LEN).unwrap();
    // Rule 7.1: the file is being written, and this is its number.
    file.write_all_at(&(0x6b << 56 | 7u64).to_le_bytes(), 44).unwrap();
    let key = SlotKey { instance: 7, task_count: 1, task: 0, block: MANY };
    let journal = fs::File::create(folder.path().join("a.sion.journal")).unwrap();
    journal.write_all_at(&Slot::of(1, None).encode(&key), key.at().unwrap()).unwrap();
    assert_eq!(repaired(&folder), Err(Error::Damaged { part: Part::Blocks, file: 0 }));
}

/// Format rule 10.2: a hole reads as empty records with the key 0.
#[test]
fn records_that_are_a_hole_are_refused() {
    let folder = TempDir::new().unwrap();
    let options = Options { keyval: true, ..Options::default() };
    let file = file(&folder, true, &options);
    let len = MANY / 2 * 16;
    let table_at = DATA_AT + len;
    file.set_len(table_at + 16).unwrap();
    file.write_all_at(&[0; 10], DATA_AT).unwrap();
    file.write_all_at(&len.to_le_bytes(), 1076 + 8).unwrap();
    let commit = [&1u32.to_le_bytes()[..], &table_at.to_le_bytes()].concat();
    file.write_all_at(&commit, COMMIT_AT).unwrap();
    file.write_all_at(&[1u64.to_le_bytes(), len.to_le_bytes()].concat(), table_at).unwrap();
    let stream = Reader::open(&disk(&folder), Path::new(NAME)).unwrap().stream(0).unwrap();
    let (peak, found) = peak_during(|| Records::scan(stream, Order::Little).err());
    assert_eq!(found, Some(Error::Damaged { part: Part::Record, file: 0 }));
    assert!(peak < MEMORY_MAX, "took {peak} bytes");
}

/// To read it all would take longer than any test may.
#[test]
fn a_stream_that_is_mostly_a_hole_is_compared_with_its_checksum_without_being_read() {
    let folder = TempDir::new().unwrap();
    let options = Options { checksums: true, journal: false, ..Options::default() };
    let tasks = NewTask::in_one_file(&[LEN]);
    let mut writer = Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options).unwrap();
    let mut task = writer.task(0).unwrap();
    task.write(b"head").unwrap();
    let (at, left) = (task.fill().file_at().unwrap(), task.fill().left_in_block());
    let file = Arc::clone(task.file().unwrap());
    file.write_all_at(b"middle", at + LEN / 2).unwrap();
    file.set_len(at + left).unwrap();
    task.advance(left).unwrap();
    writer.close().unwrap();

    let verdict = || Reader::open(&disk(&folder), Path::new(NAME)).unwrap().verify(0);
    assert_eq!(verdict(), Ok(true));
    file.write_all_at(b"x", at + LEN / 4).unwrap();
    assert_eq!(verdict(), Err(Error::Damaged { part: Part::Checksum, file: 0 }));
}

/// A writer that uses its own position finds it unmoved.
#[test]
fn looking_for_holes_moves_no_position_of_the_file() {
    let folder = TempDir::new().unwrap();
    let options = Options { checksums: true, ..Options::default() };
    let tasks = NewTask::in_one_file(&[LEN]);
    let mut writer = Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options).unwrap();
    let mut task = writer.task(0).unwrap();
    let mut stream = task.file().unwrap().try_clone().unwrap();
    stream.seek(SeekFrom::Start(task.fill().file_at().unwrap())).unwrap();
    for part in [b"head", b"tail"] {
        stream.write_all(part).unwrap();
        task.advance(part.len() as u64).unwrap();
    }
    writer.close().unwrap();

    let reader = Reader::open(&disk(&folder), Path::new(NAME)).unwrap();
    let mut found = [0; 9];
    assert_eq!(reader.stream(0).unwrap().read(&mut found), Ok(8));
    assert_eq!(found.get(..8), Some(&b"headtail"[..]));
    assert_eq!(reader.verify(0), Ok(true));
}

/// As names, which are read as a whole.
#[test]
fn a_stream_that_is_a_hole_is_not_read_as_a_whole() {
    let folder = TempDir::new().unwrap();
    let (disk, path) = (disk(&folder), Path::new(NAME));
    let chunk_len = 8 * MANY;
    let mut writer =
        Writer::create(&disk, path, &NewTask::in_one_file(&[chunk_len]), &Options::default());
    writer.as_mut().unwrap().task(0).unwrap().write(&[1; 10]).unwrap();
    writer.as_mut().unwrap().task(0).unwrap().advance(chunk_len - 10).unwrap();
    writer.unwrap().close().unwrap();
    let (peak, ()) = peak_during(|| {
        let mut stream = Reader::open(&disk, path).unwrap().stream(0).unwrap();
        let damaged = Some(Error::Damaged { part: Part::Blocks, file: 0 });
        assert_eq!(stream.read_rest().err(), damaged);
    });
    assert!(peak < MEMORY_MAX, "took {peak} bytes");
}

/// As after they were written anew: where they were before is a hole of any length.
#[test]
fn names_behind_a_long_hole_are_read_and_those_that_are_a_hole_are_not() {
    let (path, chunk_len) = (Path::new(NAME), 8 * MANY);
    let catalogue = Catalogue::new(7, Node { mode: 0o040_755, ..Node::default() });
    let records = catalogue.records();
    for begin in [HEAD_LEN_MAX as u64, chunk_len - records.len() as u64] {
        let folder = TempDir::new().unwrap();
        let disk = disk(&folder);
        let tasks = NewTask::in_one_file(&[chunk_len]);
        let mut writer = Writer::create(&disk, path, &tasks, &Options::default()).unwrap();
        let mut task = writer.task(0).unwrap();
        task.write(&catalogue.head_at(begin)).unwrap();
        task.advance(chunk_len - HEAD_LEN_MAX as u64 - records.len() as u64).unwrap();
        task.write(&records).unwrap();
        writer.close().unwrap();
        let (peak, ()) = peak_during(|| {
            let mut stream = Reader::open(&disk, path).unwrap().stream(0).unwrap();
            let opened = Growing::open_to_read(&disk, path, &Options::default()).unwrap().0;
            for names in [stream.read_names(), opened.names(chunk_len)] {
                if begin == HEAD_LEN_MAX as u64 {
                    assert_eq!(names.err(), Some(Error::Damaged { part: Part::Blocks, file: 0 }));
                } else {
                    let read = names.unwrap().unwrap();
                    assert_eq!((read.begin, read.len, read.end), (begin, chunk_len, End::Whole));
                    assert_eq!(read.catalogue.number(), 7);
                }
            }
        });
        assert!(peak < MEMORY_MAX, "took {peak} bytes");
    }
}
