//! The known faults of the original, each with the behaviour that is right. Those that show only
//! between ranks are in `parallel`, those of damaged files in `hostile` and `repair`.

use std::{fs, io::Read, path::Path, sync::atomic::Ordering};

use multifile::{
    Argument, Disk, Error, NewTask, Options, Part, Reader, TaskReader, Writer, codec::Order,
    keyval::Records,
};
use tempfile::TempDir;

use crate::{
    failing::Failing,
    memory::{Memory, MemoryFile},
};

const NAME: &str = "a.sion";

fn options() -> Options {
    Options { fs_block_len: Some(512), order: Order::Little, ..Options::default() }
}

fn create(memory: &Memory, requests: &[u64], options: &Options) -> Writer<Memory> {
    let tasks = NewTask::in_one_file(requests);
    Writer::create(memory, Path::new(NAME), &tasks, options).unwrap()
}

fn open(memory: &Memory) -> Reader<MemoryFile> {
    Reader::open(memory, Path::new(NAME)).unwrap()
}

fn stream(memory: &Memory, task: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    open(memory).stream(task).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn records(memory: &Memory, task: usize) -> Records<MemoryFile> {
    Records::scan(open(memory).stream(task).unwrap(), Order::Little).unwrap()
}

/// Format rule 3.1; E1: requests cross chunks in both directions, and are short only at the end.
#[test]
fn requests_of_any_size_cross_chunks() {
    let memory = Memory::default();
    let mut writer = create(&memory, &[512, 512], &options());
    let data: Vec<u8> = (0..5000u32).map(|at| u8::try_from(at % 253).unwrap()).collect();
    writer.task(1).unwrap().write(&data).unwrap();
    writer.close().unwrap();
    let mut task = open(&memory).stream(1).unwrap();
    let mut buf = vec![0; 4999];
    assert_eq!(task.read(&mut buf), Ok(4999));
    assert_eq!(buf, data[..4999]);
    assert_eq!(task.read(&mut buf), Ok(1));
    assert_eq!(task.read(&mut buf), Ok(0));
}

/// E2: a serial writer may use more than 100 blocks for a task.
#[test]
fn a_task_may_have_thousands_of_blocks() {
    let memory = Memory::default();
    let mut writer = create(&memory, &[1, 1], &Options { fs_block_len: Some(1), ..options() });
    writer.task(0).unwrap().write(&[7; 3333]).unwrap();
    writer.close().unwrap();
    assert_eq!(stream(&memory, 0), [7; 3333]);
    assert_eq!(open(&memory).block_count(), 3333);
}

/// E3: opening one task reads that task's own number of blocks.
#[test]
fn one_task_is_opened_with_its_own_blocks() {
    let memory = Memory::default();
    let mut writer = create(&memory, &[512, 512], &options());
    writer.task(0).unwrap().write(&[1; 512]).unwrap();
    writer.task(1).unwrap().write(&[2; 1536]).unwrap();
    writer.close().unwrap();
    let (mut task, ..) = TaskReader::open(&memory, Path::new(NAME), 1).unwrap();
    let mut bytes = Vec::new();
    task.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [2; 1536]);
}

/// Format rule 7.2: opening one task takes as many reads in a file of 64 tasks as in one of 65,536.
#[test]
fn one_task_is_opened_in_constant_time() {
    let reads = |count: usize| {
        let memory = Memory::default();
        let options = Options { fs_block_len: Some(1), ..options() };
        let mut writer = create(&memory, &vec![100; count], &options);
        writer.task(count - 1).unwrap().write(&[1; 50]).unwrap();
        writer.close().unwrap();
        memory.reads();
        let last = u32::try_from(count - 1).unwrap();
        let (task, ..) = TaskReader::open(&memory, Path::new(NAME), last).unwrap();
        assert_eq!(task.cursor().total(), 50);
        memory.reads()
    };
    assert_eq!(reads(64), reads(65_536));
}

/// E4: closing hands over what still waits in the buffer, before it counts it.
#[test]
fn closing_keeps_what_waits_in_the_buffer() {
    let memory = Memory::default();
    let mut writer = create(&memory, &[4096], &Options { buffer_len: 100_000, ..options() });
    writer.task(0).unwrap().write(&[3; 3000]).unwrap();
    writer.close().unwrap();
    assert_eq!(stream(&memory, 0), [3; 3000]);
}

/// E8: a block size of zero is refused, and no file is touched.
#[test]
fn a_block_size_of_zero_is_refused() {
    let memory = Memory::default();
    memory.put(Path::new(NAME), b"precious".to_vec());
    for fs_block_len in [0, u32::MAX - 1] {
        let options = Options { fs_block_len: Some(fs_block_len), ..options() };
        let tasks = NewTask::in_one_file(&[1]);
        let refused = Writer::create(&memory, Path::new(NAME), &tasks, &options).err();
        assert_eq!(refused, Some(Argument::FsBlockLen.into()));
    }
    assert_eq!(memory.bytes(NAME), b"precious");
}

/// E9: records for a task without a chunk are refused at once; empty records are records.
#[test]
fn records_need_a_chunk() {
    let memory = Memory::default();
    let mut writer = create(&memory, &[0, 10], &Options { keyval: true, ..options() });
    let refused = writer.task(0).unwrap().write_record(1, b"x");
    assert_eq!(refused, Err(Argument::ChunkEmpty.into()));
    writer.task(1).unwrap().write_record(1, b"").unwrap();
    writer.close().unwrap();
    assert_eq!(records(&memory, 1).records().len(), 1);
}

/// Format rule 5.3; E10: a zero-length last record is found.
#[test]
fn an_empty_last_record_is_found() {
    let memory = Memory::default();
    let mut writer = create(&memory, &[100], &Options { keyval: true, ..options() });
    let mut task = writer.task(0).unwrap();
    task.write_record(5, b"abc").unwrap();
    task.write_record(6, b"").unwrap();
    writer.close().unwrap();
    let mut records = records(&memory, 0);
    assert_eq!(records.keys(), [5, 6]);
    assert_eq!(records.stat(6).map(|stat| (stat.record_count, stat.len)), Some((1, 0)));
    assert_eq!(records.read(6, &mut [0; 4]), Ok(0));
}

/// E12: writing never makes anything durable by itself, whatever the size of the writes.
#[test]
fn writes_do_not_sync() {
    let memory = Memory::default();
    let mut writer = create(&memory, &[4096], &Options { buffer_len: 0, ..options() });
    for _ in 0..100 {
        writer.task(0).unwrap().write(&[1; 100]).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    assert_eq!(memory.counts.syncs.load(Ordering::Relaxed), 0);
}

/// E13: closing a set closes all of its files.
#[test]
fn closing_a_set_keeps_no_descriptor() {
    let folder = TempDir::new().unwrap();
    let disk = Disk::in_folder(folder.path());
    let tasks = NewTask::in_files(&[10; 4], 4);
    let writer = Writer::create(&disk, Path::new(NAME), &tasks, &options()).unwrap();
    writer.close().unwrap();
    let open_here = || {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let targets = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
        targets.filter(|target| target.starts_with(folder.path())).count()
    };
    let reader = Reader::open(&disk, Path::new(NAME)).unwrap();
    assert_eq!(open_here(), 4);
    drop(reader);
    assert_eq!(open_here(), 0);
}

/// Format rule 5.2; E17: any position of any record can be reached, also behind the border of a
/// chunk.
#[test]
fn records_are_reached_at_every_byte() {
    let memory = Memory::default();
    let mut writer =
        create(&memory, &[64, 64], &Options { keyval: true, fs_block_len: Some(64), ..options() });
    let data = |record: u8| -> Vec<u8> { (0..150).map(|at| at ^ record).collect() };
    for record in 0..4 {
        writer.task(1).unwrap().write_record(7, &data(record)).unwrap();
        writer.task(1).unwrap().write_record(u64::MAX, &[record]).unwrap();
    }
    writer.close().unwrap();
    let mut records = records(&memory, 1);
    for at in 0..600usize {
        let expected = data(u8::try_from(at / 150).unwrap())[at % 150];
        let mut byte = [0];
        records.seek(7, at / 150, u64::try_from(at % 150).unwrap()).unwrap();
        assert_eq!((records.read(7, &mut byte), byte), (Ok(1), [expected]));
        records.seek_absolute(7, u64::try_from(at).unwrap()).unwrap();
        assert_eq!((records.read(7, &mut byte), byte), (Ok(1), [expected]));
    }
    // Behind a record begins the next one, and behind the last there is nothing.
    for (at, position) in [(150, (1, 0)), (450, (3, 0)), (600, (3, 150))] {
        records.seek_absolute(7, at).unwrap();
        assert_eq!(records.position(7), Some(position));
    }
    assert_eq!(records.seek(7, 4, 0), Err(Argument::Record.into()));
    assert_eq!(records.seek_absolute(7, 601), Err(Argument::Record.into()));
    assert_eq!(records.seek(8, 0, 0), Err(Argument::Record.into()));
}

/// E18: data that the file should hold and does not is an error.
#[test]
fn a_short_read_is_an_error() {
    let memory = Memory::default();
    let mut writer = create(&memory, &[4096], &options());
    writer.task(0).unwrap().write(&[1; 4000]).unwrap();
    writer.close().unwrap();
    let mut task = open(&memory).stream(0).unwrap();
    multifile::storage::File::resize(&**task.file(), 3000).unwrap();
    let truncated = Error::Damaged { part: Part::Truncated, file: 0 };
    assert_eq!(task.read(&mut [0; 4000]), Err(truncated));
}

/// Format rule 4.6; E27: nothing of an earlier, longer file is left.
#[test]
fn an_existing_file_is_replaced() {
    let (memory, fresh) = (Memory::default(), Memory::default());
    memory.put(Path::new(NAME), vec![0xee; 100_000]);
    for memory in [&memory, &fresh] {
        let mut writer = create(memory, &[100], &options());
        writer.task(0).unwrap().write(&[1; 50]).unwrap();
        writer.close().unwrap();
    }
    assert_eq!(memory.bytes(NAME), fresh.bytes(NAME));
}

/// E28: flush hands over, sync makes durable, and a durable close does both.
#[test]
fn flush_hands_over_and_sync_makes_durable() {
    let memory = Memory::default();
    let mut writer = create(&memory, &[4096], &Options { durable: true, ..options() });
    writer.task(0).unwrap().write(b"accepted").unwrap();
    assert!(!memory.bytes(NAME).ends_with(b"accepted"));
    writer.task(0).unwrap().flush().unwrap();
    assert!(memory.bytes(NAME).ends_with(b"accepted"));
    assert_eq!(memory.counts.syncs.load(Ordering::Relaxed), 0);
    writer.task(0).unwrap().sync().unwrap();
    assert!(memory.counts.syncs.swap(0, Ordering::Relaxed) > 0);
    writer.close().unwrap();
    assert!(memory.counts.syncs.load(Ordering::Relaxed) > 1);
}

/// E29: a task at its end stays there while others are read.
#[test]
fn a_finished_task_does_not_start_again() {
    let memory = Memory::default();
    let mut writer = create(&memory, &[100, 100], &options());
    writer.task(0).unwrap().write(&[1; 60]).unwrap();
    writer.task(1).unwrap().write(&[2; 60]).unwrap();
    writer.close().unwrap();
    let reader = open(&memory);
    let (mut first, mut second) = (reader.stream(0).unwrap(), reader.stream(1).unwrap());
    let mut buf = [0; 100];
    assert_eq!(first.read(&mut buf), Ok(60));
    assert_eq!(second.read(&mut buf), Ok(60));
    assert_eq!(first.read(&mut buf), Ok(0));
    assert!(!first.next_block());
}

#[test]
fn chunks_that_no_file_can_hold_leave_an_existing_one_alone() {
    let memory = Memory::default();
    create(&memory, &[10], &options()).close().unwrap();
    let before = memory.bytes(NAME);
    let max = i64::MAX.unsigned_abs();
    for requests in [&[max][..], &[max / 2, max / 2], &[max, max]] {
        let tasks = NewTask::in_one_file(requests);
        let refused = Writer::create(&memory, Path::new(NAME), &tasks, &options());
        assert_eq!(refused.err(), Some(Error::TooLarge));
        assert_eq!(memory.bytes(NAME), before);
    }
}

/// After a failed write nothing more is accepted, and closing does not pretend.
#[test]
fn a_failed_write_poisons_the_file() {
    let folder = TempDir::new().unwrap();
    let storage = Failing::after(folder.path().to_owned(), 2000);
    let tasks = NewTask::in_one_file(&[5000]);
    let options = Options { buffer_len: 0, ..options() };
    let mut writer = Writer::create(&storage, Path::new(NAME), &tasks, &options).unwrap();
    let full = writer.task(0).unwrap().write(&[1; 3000]);
    assert!(matches!(full, Err(Error::Io { os: 28, .. })));
    assert_eq!(writer.task(0).unwrap().write(&[1]), Err(Error::Poisoned));
    assert_eq!(writer.close(), Err(Error::Poisoned));
    let disk = Disk::in_folder(folder.path());
    assert!(matches!(Reader::open(&disk, Path::new(NAME)), Err(Error::Unclosed { .. })));
}

/// A writer dropped by mistake hands over what it accepted, so that repair finds it.
#[test]
fn a_dropped_writer_leaves_what_it_accepted_to_repair() {
    let memory = Memory::default();
    let mut writer = create(&memory, &[4096], &options());
    writer.task(0).unwrap().write(&[4; 1000]).unwrap();
    drop(writer);
    let found = multifile::Repair::examine(&memory, Path::new(NAME)).unwrap();
    assert_eq!(found.tasks()[0].len, 1000);
    found.apply().unwrap();
    assert_eq!(stream(&memory, 0), [4; 1000]);
}

/// Bytes before a fault are no short read: that would be the end of the stream.
#[test]
fn a_read_that_fails_after_some_bytes_is_an_error() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(NAME);
    let tasks = NewTask::in_one_file(&[512]);
    let mut writer = Writer::create(&Disk::new(), &path, &tasks, &options()).unwrap();
    writer.task(0).unwrap().write(&[1; 700]).unwrap();
    writer.close().unwrap();
    let data_at = Reader::open(&Disk::new(), &path).unwrap().layout(0).unwrap().data_at();
    // In the middle of the first block, and at the start of the second.
    for bad_at in [data_at + 100, data_at + 512] {
        let storage = Failing::unreadable_at(folder.path().to_owned(), bad_at);
        let mut stream = Reader::open(&storage, Path::new(NAME)).unwrap().stream(0).unwrap();
        let error = stream.read(&mut [0; 700]).err();
        assert!(matches!(error, Some(Error::Io { os: 5, .. })), "{error:?}");
    }
}

/// Bytes written by other means come behind those that wait: those go first.
#[test]
fn counting_bytes_written_by_other_means_hands_over_what_waits() {
    let memory = Memory::default();
    let mut writer = create(&memory, &[512], &Options { buffer_len: 4096, ..options() });
    let mut task = writer.task(0).unwrap();
    task.write(&[3; 5]).unwrap();
    let at = usize::try_from(task.fill().file_at().unwrap()).unwrap();
    task.advance(3).unwrap();
    assert_eq!(memory.bytes(NAME)[at - 5..at], [3; 5]);
}
