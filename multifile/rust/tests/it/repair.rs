//! Files that were never closed read back after repair, ours and SIONlib's.

use std::{fs, path::Path};

use multifile::{
    Disk, Doubt, Error, Group, NewTask, Options, Packing, ParWriter, Reader, Repair, Writer,
    keyval::{Records, encode_header},
};
use tempfile::TempDir;

use crate::{
    failing::Failing,
    golden::{Golden, sha256},
    ranks::on_ranks,
};

const NAME: &str = "a.sion";

fn disk(folder: &TempDir) -> Disk {
    Disk::in_folder(folder.path())
}

fn repair(disk: &Disk) -> Vec<Doubt> {
    let repair = Repair::examine(disk, Path::new(NAME)).unwrap();
    assert!(repair.needed());
    let doubts = repair.tasks().iter().map(|found| found.doubt).collect();
    repair.apply().unwrap();
    doubts
}

/// Checks the remainder of a closed file that cannot be repaired in place.
fn salvage(disk: &Disk) {
    let found = Repair::examine(disk, Path::new(NAME)).unwrap();
    assert!(found.needed());
    found.salvage().unwrap();
}

fn read_all(disk: &Disk, task: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut stream = Reader::open(disk, Path::new(NAME)).unwrap().stream(task).unwrap();
    std::io::Read::read_to_end(&mut stream, &mut bytes).unwrap();
    bytes
}

fn options() -> Options {
    Options { fs_block_len: Some(512), buffer_len: 0, ..Options::default() }
}

/// Format rule 8.7: merged data is recorded by the next call, when all ranks have written theirs:
/// zeros, too. Until then it reaches to its last byte that is not zero.
#[test]
fn merged_writes_but_zeros_at_the_end_of_the_last_are_certain_after_repair() {
    let zeros = [vec![0; 90], vec![0; 90], vec![0; 90]];
    // The first block ends in a zero, or in many, and others have nothing else.
    let one = [[vec![7; 241], vec![0]].concat(), vec![], vec![7; 28]];
    let many = [vec![7; 200], vec![0; 1100], vec![7; 90]];
    for (first, second, len, most) in
        [(0, zeros, 270, 1024), (9, one, 540, 1024), (9, many, 1660, 2048)]
    {
        let folder = TempDir::new().unwrap();
        let (storage, own) = (disk(&folder), second.clone());
        on_ranks(3, move |group| {
            let rank = usize::try_from(group.rank()).unwrap();
            let options = Options { packing: Packing::Merge { size: Some(3) }, ..options() };
            let task = NewTask::in_one_file(&[100; 3])[rank];
            let mut writer =
                ParWriter::create(group, &storage, Path::new(NAME), task, &options).unwrap();
            writer.write_merged(group, &[first; 90]).unwrap();
            writer.write_merged(group, &own[rank]).unwrap();
            group.barrier().unwrap();
        });
        assert_eq!(repair(&disk(&folder))[0], Doubt::Zeros { most });
        let written = [vec![first; 270], second.concat()].concat();
        assert_eq!(read_all(&disk(&folder), 0), written[..len]);
    }
}

/// Format rule 4.5.
#[test]
fn unclosed_files_of_sionlib_read_back_after_repair() {
    let golden = Golden::unpack();
    for name in ["ser_n3_unclosed", "mpi_n3_unclosed"] {
        let case = golden.case(name);
        let path = golden.path(&case["file"]);
        let found = Repair::examine(&Disk::new(), &path).unwrap();
        let doubts: Vec<_> = found.tasks().iter().map(|found| found.doubt).collect();
        assert!(matches!(doubts[0], Doubt::Zeros { most } if most > 700), "{name}");
        assert_eq!(doubts[2], Doubt::None, "{name}: the file ends with this task's data");
        found.apply().unwrap();
        let reader = Reader::open(&Disk::new(), &path).unwrap();
        for (task, written) in case["written"].as_array().unwrap().iter().enumerate() {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut reader.stream(task).unwrap(), &mut bytes).unwrap();
            assert_eq!(written["sha256"], sha256(&bytes), "{name} task {task}");
        }
        assert!(!Repair::examine(&Disk::new(), &path).unwrap().needed());
    }
}

/// Format rules 8.3 and 8.5: zeros at the end of a task and unused ends of blocks are told by the
/// journal.
#[test]
fn the_journal_restores_every_completed_write_exactly() {
    for files in [1, 3] {
        let folder = TempDir::new().unwrap();
        let tasks = NewTask::in_files(&[600, 100, 2000, 0], files);
        let mut writer =
            Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options()).unwrap();
        writer.task(0).unwrap().write(&[7; 3000]).unwrap();
        writer.task(1).unwrap().write(&[0; 1000]).unwrap();
        writer.task(1).unwrap().next_block().unwrap();
        writer.task(1).unwrap().write(&[1, 0]).unwrap();
        drop(writer);
        assert_eq!(repair(&disk(&folder)), [Doubt::None; 4]);
        assert_eq!(read_all(&disk(&folder), 0), [7; 3000]);
        let second = [vec![0; 1000], vec![1, 0]].concat();
        assert_eq!(read_all(&disk(&folder), 1), second);
        assert_eq!(read_all(&disk(&folder), 2), b"");
        assert_eq!(read_all(&disk(&folder), 3), b"");
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, usize::try_from(files).unwrap(), "journals are removed");
    }
}

/// Format rule 8.4.
#[test]
fn without_a_journal_zeros_at_the_end_are_in_doubt() {
    let folder = TempDir::new().unwrap();
    let tasks = NewTask::in_one_file(&[512; 2]);
    let options = Options { journal: false, ..options() };
    let mut writer = Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options).unwrap();
    writer.task(0).unwrap().write(&[vec![5; 700], vec![0; 20]].concat()).unwrap();
    writer.task(1).unwrap().write(&[6; 600]).unwrap();
    drop(writer);
    assert_eq!(repair(&disk(&folder)), [Doubt::Zeros { most: 1024 }, Doubt::None]);
    assert_eq!(read_all(&disk(&folder), 0), [5; 700]);
    assert_eq!(read_all(&disk(&folder), 1), [6; 600]);
}

/// Format rule 8.6; of SIONlib too: its writers die while closing as well.
#[test]
fn a_writer_that_died_just_before_the_commit_loses_nothing() {
    let golden = Golden::unpack();
    for name in ["ser_n2_exactchunk.sion", "mpi_n64.sion", "mpi_n7_coll3.sion"] {
        let path = golden.folder.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        let commit_at = 1076 + 16 * usize::from(bytes[24]);
        bytes[commit_at..commit_at + 12].fill(0);
        let before = fs::read(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        let found = Repair::examine(&Disk::new(), &path).unwrap();
        assert!(found.needed() && found.tasks().iter().all(|found| found.doubt == Doubt::None));
        found.apply().unwrap();
        assert_eq!(fs::read(&path).unwrap(), before, "{name}");
    }
}

/// A table that speaks of less than there is is none, nor is one that does not end the file.
#[test]
fn data_that_looks_like_a_table_is_data() {
    for (block, tail) in [(&[1u64, 10][..], &[][..]), (&[1, 64], &[5; 3]), (&[1, 64], &[5; 8])] {
        let folder = TempDir::new().unwrap();
        let options = Options { journal: false, fs_block_len: Some(64), ..options() };
        let tasks = NewTask::in_one_file(&[64]);
        let mut writer = Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options).unwrap();
        let numbers = block.iter().flat_map(|number| options.order.bytes_u64(*number));
        let data = [vec![7; 64], numbers.collect(), tail.to_vec()].concat();
        writer.task(0).unwrap().write(&data).unwrap();
        drop(writer);
        repair(&disk(&folder));
        assert_eq!(read_all(&disk(&folder), 0), data);
    }
}

/// Format rule 4.1: a closed file whose commit fields are damaged may point anywhere.
#[test]
fn data_that_a_damaged_file_points_to_is_no_table() {
    let folder = TempDir::new().unwrap();
    // In which numbers do not end in zeros.
    let order = multifile::codec::Order::Big;
    let options = Options { fs_block_len: Some(64), order, ..options() };
    let tasks = NewTask::in_one_file(&[64]);
    let mut writer = Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options).unwrap();
    let data = [options.order.bytes_u64(1), options.order.bytes_u64(16)].concat().repeat(8);
    writer.task(0).unwrap().write(&data).unwrap();
    writer.close().unwrap();
    let path = folder.path().join(NAME);
    let reader = Reader::open(&disk(&folder), Path::new(NAME)).unwrap();
    let data_at = reader.layout(0).unwrap().data_at();
    drop(reader);
    let mut bytes = fs::read(&path).unwrap();
    let commit_at = 1076 + 16;
    bytes[commit_at..commit_at + 4].copy_from_slice(&options.order.bytes_u32(1));
    bytes[commit_at + 4..commit_at + 12].copy_from_slice(&options.order.bytes_u64(data_at));
    fs::write(&path, bytes).unwrap();
    salvage(&disk(&folder));
    assert!(read_all(&disk(&folder), 0).starts_with(&data));
}

/// Of a mapping, or of checksums.
#[test]
fn a_table_is_found_whatever_is_missing_of_what_stands_behind_it() {
    for checksums in [false, true] {
        for missing in 0..30 {
            let folder = TempDir::new().unwrap();
            let options = Options { journal: false, checksums, ..options() };
            let tasks = NewTask::in_files(&[100; 4], 2);
            let path = Path::new(NAME);
            let mut writer = Writer::create(&disk(&folder), path, &tasks, &options).unwrap();
            (0..4).for_each(|task| writer.task(task).unwrap().write(&[1, 2, 0, 0]).unwrap());
            writer.close().unwrap();
            let mut bytes = fs::read(folder.path().join(NAME)).unwrap();
            let commit_at = 1076 + 16 * 2;
            bytes[commit_at..commit_at + 12].fill(0);
            bytes.truncate(bytes.len() - missing);
            fs::write(folder.path().join(NAME), bytes).unwrap();
            let found = Repair::examine(&disk(&folder), path).unwrap();
            let lens: Vec<_> = found.tasks().iter().map(|found| (found.len, found.doubt)).collect();
            assert_eq!(lens, [(4, Doubt::None); 4], "{checksums} {missing}");
        }
    }
}

/// A set of which one file has no data: its tables, cut anywhere, are not taken for some.
#[test]
fn half_a_table_of_a_file_without_data_is_no_data() {
    for room in 0..200 {
        let folder = TempDir::new().unwrap();
        let fronts = 2 * (1076 + 16 * 2);
        let storage = Failing::torn_after(folder.path().to_owned(), fronts + 5 + 16 + room);
        let tasks = NewTask::in_files(&[1000; 4], 2);
        let mut writer = Writer::create(&storage, Path::new(NAME), &tasks, &options()).unwrap();
        writer.task(0).unwrap().write(&[1; 5]).unwrap();
        if writer.close().is_ok() {
            assert!(room > 100);
            continue;
        }
        let found = Repair::examine(&disk(&folder), Path::new(NAME)).unwrap();
        let lens: Vec<_> = found.tasks().iter().map(|found| (found.len, found.doubt)).collect();
        let none = (0, Doubt::None);
        assert_eq!(lens, [(5, Doubt::None), none, none, none], "{room}");
    }
}

#[test]
fn records_tell_the_end_of_their_stream() {
    let folder = TempDir::new().unwrap();
    let tasks = NewTask::in_one_file(&[100, 100]);
    let options = Options { journal: false, keyval: true, ..options() };
    let mut writer = Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options).unwrap();
    writer.task(0).unwrap().write_record(9, &[0; 700]).unwrap();
    writer.task(1).unwrap().write_record(1, &[1; 10]).unwrap();
    writer.task(1).unwrap().write_record(2, &[]).unwrap();
    drop(writer);
    repair(&disk(&folder));
    assert_eq!(read_all(&disk(&folder), 0).len(), 716);
    assert_eq!(read_all(&disk(&folder), 1).len(), 16 + 10 + 16);
}

/// Format rule 8.8: what a writer had begun is not in the way of who writes on.
#[test]
fn a_record_that_was_begun_is_left_out_also_with_a_journal() {
    for checksums in [false, true] {
        let folder = TempDir::new().unwrap();
        let tasks = NewTask::in_one_file(&[100]);
        let options = Options { checksums, keyval: true, buffer_len: 0, ..options() };
        let path = Path::new(NAME);
        let mut writer = Writer::create(&disk(&folder), path, &tasks, &options).unwrap();
        let mut task = writer.task(0).unwrap();
        task.write_record(9, &[3; 700]).unwrap();
        // Its header, and some of it.
        task.write(&encode_header(1, 50, options.order)).unwrap();
        task.write(&[4; 20]).unwrap();
        drop(writer);
        assert_eq!(repair(&disk(&folder)), [Doubt::None]);
        assert_eq!(read_all(&disk(&folder), 0).len(), 716);
        let mut writer = Writer::append(&disk(&folder), path, &options).unwrap();
        writer.task(0).unwrap().write_record(2, b"next").unwrap();
        writer.close().unwrap();
        let reader = Reader::open(&disk(&folder), path).unwrap();
        let mut records = Records::scan(reader.stream(0).unwrap(), options.order).unwrap();
        let mut found = [0; 9];
        assert_eq!((records.read(2, &mut found).unwrap(), &found[..4]), (4, &b"next"[..]));
    }
}

/// As of a rank that has no descriptor left for it.
#[test]
fn a_journal_that_does_not_know_of_a_rank_is_not_believed() {
    let folder = TempDir::new().unwrap();
    let tasks = NewTask::in_one_file(&[512; 2]);
    let mut writer = Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options()).unwrap();
    let journal = folder.path().join("a.sion.journal");
    fs::create_dir(&journal).unwrap();
    writer.task(0).unwrap().write(&[1; 10]).unwrap();
    drop(writer);
    fs::remove_dir(&journal).unwrap();
    // What another one has recorded.
    fs::write(&journal, [0; 32]).unwrap();
    assert!(matches!(repair(&disk(&folder))[0], Doubt::None | Doubt::Zeros { .. }));
    assert_eq!(read_all(&disk(&folder), 0), [1; 10]);
}

#[test]
fn a_journal_of_an_earlier_file_is_not_believed() {
    let folder = TempDir::new().unwrap();
    let tasks = NewTask::in_one_file(&[512]);
    let create = || Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options()).unwrap();
    let mut writer = create();
    writer.task(0).unwrap().write(&[1; 500]).unwrap();
    drop(writer);
    let journal = folder.path().join("a.sion.journal");
    let old = fs::read(&journal).unwrap();
    let mut writer = create();
    writer.task(0).unwrap().write(&[2; 10]).unwrap();
    drop(writer);
    fs::write(&journal, old).unwrap();
    assert!(matches!(repair(&disk(&folder))[0], Doubt::None | Doubt::Zeros { .. }));
    assert_eq!(read_all(&disk(&folder), 0), [2; 10], "told from the data instead");
}

#[test]
fn a_closed_file_cut_anywhere_keeps_its_complete_chunks() {
    let folder = TempDir::new().unwrap();
    let options = Options { fs_block_len: Some(32), ..Options::default() };
    let tasks = NewTask::in_one_file(&[32; 3]);
    let path = folder.path().join(NAME);
    let mut writer = Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options).unwrap();
    for task in 0..3u8 {
        writer.task(task.into()).unwrap().write(&[task + 1; 70]).unwrap();
    }
    writer.close().unwrap();
    let whole = fs::read(&path).unwrap();
    let data_at =
        Reader::open(&disk(&folder), Path::new(NAME)).unwrap().layout(0).unwrap().data_at();
    let data_at = usize::try_from(data_at).unwrap();
    for len in 0..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        assert!(Reader::open(&disk(&folder), Path::new(NAME)).is_err() || len >= whole.len() - 4);
        match Repair::examine(&disk(&folder), Path::new(NAME)) {
            Ok(found) => found.salvage().unwrap(),
            Err(error) => {
                assert!(matches!(error, Error::Damaged { .. }) && len < data_at, "{len}: {error}");
                continue;
            }
        }
        for task in 0..3 {
            let complete = |block: usize| data_at + 96 * block + 32 * (task + 1) <= len;
            let expected = (0..2).take_while(|block| complete(*block)).count() * 32;
            let read = read_all(&disk(&folder), task);
            assert!(read.len() >= expected && read.len() <= 70, "{len} {task}: {}", read.len());
            assert!(read.iter().all(|byte| usize::from(*byte) == task + 1), "{len}");
        }
    }
}

#[test]
fn a_set_that_lost_the_end_of_its_first_file_keeps_all_tasks() {
    let folder = TempDir::new().unwrap();
    let tasks = NewTask::in_files(&[100; 5], 2);
    let mut writer = Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options()).unwrap();
    for task in 0..5u8 {
        writer.task(task.into()).unwrap().write(&[task + 1; 700]).unwrap();
    }
    writer.close().unwrap();
    let path = folder.path().join(NAME);
    let whole = fs::read(&path).unwrap();
    let tables = 2 * 8 * 3 + 4 + 5 * 8;
    for len in whole.len() - tables..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        assert!(Reader::open(&disk(&folder), Path::new(NAME)).is_err());
        salvage(&disk(&folder));
        for task in 0..5u8 {
            assert_eq!(read_all(&disk(&folder), task.into()), [task + 1; 700], "{len}");
        }
    }
}

/// Format rules 6.3, 7.1, and 7.3: only what was lost is made anew.
#[test]
fn a_set_that_lost_its_mapping_keeps_checksums_and_mark() {
    for cut in [false, true] {
        let folder = TempDir::new().unwrap();
        let tasks = NewTask::in_files(&[512; 4], 2);
        let options = Options { checksums: true, ..options() };
        let mut writer = Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options).unwrap();
        for task in 0..4u8 {
            writer.task(task.into()).unwrap().write(&[task + 1; 700]).unwrap();
        }
        writer.close().unwrap();
        let path = folder.path().join(NAME);
        let mut bytes = fs::read(&path).unwrap();
        // Behind the mapping: the magic, and a checksum of each of two blocks of two tasks.
        let sums_at = bytes.len() - 8 - 4 * 4;
        let mark = bytes[44..52].to_vec();
        bytes[sums_at - 8..sums_at].fill(0xff);
        bytes.truncate(if cut { sums_at + 12 } else { bytes.len() });
        fs::write(&path, bytes).unwrap();
        let found = Repair::examine(&disk(&folder), Path::new(NAME)).unwrap();
        assert!(found.needed());
        assert_eq!((found.is_in_doubt(), found.loses_checksums()), (cut, cut));
        found.salvage().unwrap();
        let reader = Reader::open(&disk(&folder), Path::new(NAME)).unwrap();
        assert_eq!(reader.verify(0), Ok(!cut));
        assert_eq!(reader.verify(3), Ok(true));
        assert_eq!(read_all(&disk(&folder), 1), [2; 700]);
        let kept = fs::read(&path).unwrap()[44..52].to_vec();
        // Bit 55 says that all chunks are equal.
        assert_eq!(kept[6..], if cut { [0x80, 0x4b] } else { [mark[6], mark[7]] });
        assert!(cut || kept == mark);
    }
}

/// Two tasks of 700 and 100 bytes, written with checksums and not closed.
fn abandoned_with_checksums() -> TempDir {
    let folder = TempDir::new().unwrap();
    let tasks = NewTask::in_one_file(&[512; 2]);
    let options = Options { checksums: true, ..options() };
    let mut writer = Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options).unwrap();
    writer.task(0).unwrap().write(&[1; 700]).unwrap();
    writer.task(1).unwrap().write(&[2; 100]).unwrap();
    drop(writer);
    folder
}

/// Format rule 7.3.
#[test]
fn data_that_differs_from_its_checksum_is_reported() {
    let folder = abandoned_with_checksums();
    let path = folder.path().join(NAME);
    let mut bytes = fs::read(&path).unwrap();
    bytes[1536 + 512 + 99] ^= 4;
    fs::write(&path, bytes).unwrap();
    assert_eq!(repair(&disk(&folder)), [Doubt::None, Doubt::Checksum]);
    let reader = Reader::open(&disk(&folder), Path::new(NAME)).unwrap();
    assert_eq!(reader.verify(0), Ok(true));
    assert!(reader.verify(1).is_err());
}

/// Format rule 8.4: a slot that is not readable takes the checksum of no other block.
#[test]
fn a_block_without_a_readable_slot_does_not_pass_for_damaged() {
    for task in 0..2 {
        let folder = abandoned_with_checksums();
        let journal = folder.path().join("a.sion.journal");
        let mut bytes = fs::read(&journal).unwrap();
        bytes[16 * task] ^= 1;
        fs::write(&journal, bytes).unwrap();
        assert!(!repair(&disk(&folder)).contains(&Doubt::Checksum));
        let reader = Reader::open(&disk(&folder), Path::new(NAME)).unwrap();
        assert_eq!([0, 1].map(|task| reader.verify(task)), [Ok(true); 2], "{task}");
        assert_eq!(read_all(&disk(&folder), 0), [1; 700]);
        assert_eq!(read_all(&disk(&folder), 1), [2; 100]);
    }
}

/// A set that is created anew without a journal would else keep one of nobody's.
#[test]
fn creating_a_file_removes_the_journal_of_an_earlier_one() {
    let folder = TempDir::new().unwrap();
    let journal = folder.path().join("a.sion.journal");
    fs::write(&journal, "stale").unwrap();
    let options = Options { journal: false, ..options() };
    let tasks = NewTask::in_one_file(&[512]);
    drop(Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options).unwrap());
    assert!(!journal.exists());
}

/// A file that the storage refuses now may be whole: nothing is written over it.
#[test]
fn what_cannot_be_read_is_told_and_not_taken_for_missing() {
    let folder = TempDir::new().unwrap();
    let tasks = NewTask::in_one_file(&[512; 2]);
    let create = || Writer::create(&disk(&folder), Path::new(NAME), &tasks, &options()).unwrap();
    let mut writer = create();
    writer.task(0).unwrap().write(&[1; 700]).unwrap();
    writer.close().unwrap();
    let table = Reader::open(&disk(&folder), Path::new(NAME)).unwrap().table(0).unwrap();
    for bad_at in [table.at, table.slot_at(1, 1), 1076 + 16 * 2] {
        let storage = Failing::unreadable_at(folder.path().to_owned(), bad_at);
        let found = Repair::examine(&storage, Path::new(NAME)).err();
        assert!(matches!(found, Some(Error::Io { os: 5, .. })), "{found:?}");
    }
    let mut writer = create();
    writer.task(0).unwrap().write(&[1; 700]).unwrap();
    drop(writer);
    let journal = folder.path().join("a.sion.journal");
    fs::remove_file(&journal).unwrap();
    std::os::unix::fs::symlink(&journal, &journal).unwrap();
    let found = Repair::examine(&disk(&folder), Path::new(NAME)).err();
    assert!(matches!(found, Some(Error::Io { os: 40, .. })), "{found:?}");
}
