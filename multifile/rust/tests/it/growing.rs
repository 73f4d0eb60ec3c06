//! Multifiles that grow while they are written, at any place of any stream.

use std::{fs, io::Read, os::unix::fs::FileExt, path::Path};

use fastrand::Rng;
use multifile::{
    Disk, Growing, NewFile, NewTask, Options, Reader, Repair, Writer,
    journal::{Slot, SlotKey},
};
use tempfile::TempDir;

const NAME: &str = "a.sion";
const TASKS: u32 = 3;
const FILE: NewFile = NewFile { task_count: TASKS, chunk_len: 64, fs_block_len: None };

fn options() -> Options {
    Options { fs_block_len: Some(64), ..Options::default() }
}

/// A multifile, and its expected content.
struct Grown {
    disk: Disk,
    growing: Growing<Disk>,
    streams: Vec<Vec<u8>>,
}

impl Grown {
    fn create(folder: &TempDir) -> Self {
        let disk = Disk::in_folder(folder.path());
        let growing = Growing::create(&disk, Path::new(NAME), FILE, &options());
        Self { disk, growing: growing.unwrap(), streams: vec![Vec::new(); TASKS as usize] }
    }

    /// Opens what is there; it has to hold `streams`.
    fn open(folder: &TempDir, streams: Vec<Vec<u8>>, was_unclosed: bool) -> Self {
        let disk = Disk::in_folder(folder.path());
        let (mut growing, held) = Growing::open(&disk, Path::new(NAME), &options()).unwrap();
        assert_eq!(held.was_unclosed, was_unclosed);
        let lens: Vec<u64> = streams.iter().map(|stream| stream.len() as u64).collect();
        assert_eq!(held.lens, lens);
        growing.begin(&held.lens).unwrap();
        Self { disk, growing, streams }
    }

    fn add(&mut self) {
        self.growing.add(FILE, false).unwrap();
        self.streams.resize(self.streams.len() + TASKS as usize, Vec::new());
    }

    /// Writes as who uses it has to: bytes, zeros before them, and what the journal is to say.
    fn write(&mut self, task: usize, at: usize, bytes: &[u8]) {
        let number = u32::try_from(task).unwrap();
        let (file, local) = (number / TASKS, number % TASKS);
        let stream = &mut self.streams[task];
        let before = stream.len();
        stream.resize(before.max(at + bytes.len()), 0);
        stream[at..at + bytes.len()].copy_from_slice(bytes);
        let place = self.growing.place(file, local).unwrap();
        let physical = self.growing.file(file).unwrap();
        let blocks = (stream.len() as u64).div_ceil(place.chunk_len);
        let end = self.growing.end_of(file, blocks).unwrap();
        if fs::File::metadata(physical).unwrap().len() < end {
            physical.set_len(end).unwrap();
        }
        for block in 0..blocks {
            let chunk_len = usize::try_from(place.chunk_len).unwrap();
            let from = usize::try_from(block).unwrap() * chunk_len;
            let used = &stream[from..stream.len().min(from + chunk_len)];
            let place_at = place.start_at + block * place.skip;
            physical.write_all_at(used, place_at).unwrap();
            let key = SlotKey { block, ..self.growing.key(file, local).unwrap() };
            let slot = Slot::of(used.len() as u64, None).encode(&key);
            self.growing.journal(file).unwrap().write_all_at(&slot, key.at().unwrap()).unwrap();
        }
    }

    fn close(self) -> Vec<Vec<u8>> {
        let lens: Vec<u64> = self.streams.iter().map(|stream| stream.len() as u64).collect();
        self.growing.close(&lens, lens.len() % 2 == 0).unwrap();
        assert_eq!(streams(&self.disk), self.streams);
        self.streams
    }
}

fn streams(disk: &Disk) -> Vec<Vec<u8>> {
    let reader = Reader::open(disk, Path::new(NAME)).unwrap();
    let read = |task| {
        let mut bytes = Vec::new();
        reader.stream(task).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    (0..reader.task_count()).map(read).collect()
}

fn some(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.u8(..)).collect()
}

#[test]
fn streams_are_read_as_they_were_written_whatever_grew_when() {
    for seed in 0..50 {
        let mut rng = Rng::with_seed(seed);
        let folder = TempDir::new().unwrap();
        let mut grown = Grown::create(&folder);
        for _ in 0..rng.usize(..60) {
            match rng.u8(..20) {
                0 => {
                    let held = grown.close();
                    grown = Grown::open(&folder, held, false);
                }
                // Its writer dies.
                1 => grown = Grown::open(&folder, grown.streams, true),
                2 => grown.add(),
                _ => {
                    let task = rng.usize(..grown.streams.len());
                    let (at, len) = (rng.usize(..300), rng.usize(1..200));
                    let bytes = some(&mut rng, len);
                    grown.write(task, at, &bytes);
                }
            }
        }
        grown.close();
        let mut left = fs::read_dir(&folder).unwrap().flatten();
        let is_journal = |name: &str| name.ends_with(".journal");
        assert!(!left.any(|entry| is_journal(&entry.file_name().to_string_lossy())), "{seed}");
    }
}

#[test]
fn a_multifile_that_another_writer_made_grows_on() {
    let folder = TempDir::new().unwrap();
    let disk = Disk::in_folder(folder.path());
    let tasks = NewTask::in_one_file(&[64; TASKS as usize]);
    let mut writer = Writer::create(&disk, Path::new(NAME), &tasks, &options()).unwrap();
    writer.task(1).unwrap().write(&[7; 100]).unwrap();
    writer.close().unwrap();
    let mut grown = Grown::open(&folder, vec![vec![], vec![7; 100], vec![]], false);
    grown.add();
    grown.write(1, 90, &[8; 50]);
    grown.write(4, 0, b"new");
    grown.close();
}

#[test]
fn a_writer_that_dies_while_a_third_file_comes_leaves_a_set_that_opens() {
    let folder = TempDir::new().unwrap();
    let mut grown = Grown::create(&folder);
    grown.add();
    grown.write(4, 0, b"kept");
    grown.add();
    // File 0 says it first.
    let second = fs::OpenOptions::new().write(true).open(folder.path().join("a.sion.000001"));
    second.unwrap().write_all_at(&2u32.to_le_bytes(), 28).unwrap();
    Grown::open(&folder, grown.streams, true).close();
}

/// The others may say on the disk what file 0 does not.
#[test]
fn a_file_that_file_0_lost_with_the_node_is_left_out() {
    let folder = TempDir::new().unwrap();
    let mut grown = Grown::create(&folder);
    grown.add();
    grown.write(4, 0, b"kept");
    grown.add();
    let first = fs::OpenOptions::new().write(true).open(folder.path().join(NAME));
    first.unwrap().write_all_at(&2u32.to_le_bytes(), 28).unwrap();
    fs::remove_file(folder.path().join("a.sion.000002")).unwrap();
    grown.streams.truncate(2 * TASKS as usize);
    Grown::open(&folder, grown.streams, true).close();
}

/// A block that was left before it was full has no place that follows from the stream's length.
#[test]
fn a_stream_with_a_block_that_is_not_full_is_refused() {
    let folder = TempDir::new().unwrap();
    let disk = Disk::in_folder(folder.path());
    let tasks = NewTask::in_one_file(&[64]);
    let mut writer = Writer::create(&disk, Path::new(NAME), &tasks, &options()).unwrap();
    writer.task(0).unwrap().write(&[1; 10]).unwrap();
    writer.task(0).unwrap().next_block().unwrap();
    writer.task(0).unwrap().write(&[2; 10]).unwrap();
    writer.close().unwrap();
    let opened = Growing::open(&disk, Path::new(NAME), &options());
    assert!(opened.is_err());
}

#[test]
fn who_only_looks_leaves_a_multifile_as_it_was() {
    let folder = TempDir::new().unwrap();
    let mut grown = Grown::create(&folder);
    grown.write(2, 0, b"kept");
    grown.close();
    let path = folder.path().join(NAME);
    let before = fs::read(&path).unwrap();
    let disk = Disk::in_folder(folder.path());
    let (_, held) = Growing::open(&disk, Path::new(NAME), &options()).unwrap();
    let (read, seen) = Growing::open_to_read(&disk, Path::new(NAME), &options()).unwrap();
    assert_eq!(seen, held);
    assert!(read.file(0).unwrap().write_at(b"no", 0).is_err());
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(!Repair::examine(&disk, Path::new(NAME)).unwrap().needed());
}

/// Format rules 8.8 and 11.6: the journal lost the length of one block, and all that is known
/// without it of the others is kept.
#[test]
fn a_gap_in_a_journal_ends_one_stream_and_is_told() {
    let folder = TempDir::new().unwrap();
    let mut grown = Grown::create(&folder);
    (0..3).for_each(|task| grown.write(task, 0, &[7; 200]));
    let key = SlotKey { block: 1, ..grown.growing.key(0, 1).unwrap() };
    grown.growing.journal(0).unwrap().write_all_at(&[0; 16], key.at().unwrap()).unwrap();
    let disk = grown.disk.clone();
    drop(grown);
    let found = Repair::examine(&disk, Path::new(NAME)).unwrap();
    assert!(found.tasks()[1].len == 64 + 64 + 8, "nothing says that its blocks are full");
    let (mut growing, held) = Growing::open(&disk, Path::new(NAME), &options()).unwrap();
    assert_eq!((&held.lens[..], &held.damaged[..]), (&[200, 64, 200][..], &[1][..]));
    growing.begin(&held.lens).unwrap();
    growing.close(&held.lens, false).unwrap();
    let lens: Vec<_> = streams(&disk).iter().map(Vec::len).collect();
    assert_eq!(lens, [200, 64, 200]);
}

#[test]
fn a_multifile_that_was_renamed_is_closed_where_it_is() {
    let folder = TempDir::new().unwrap();
    let mut grown = Grown::create(&folder);
    grown.write(1, 0, b"kept");
    let (at, moved) = (folder.path().join(NAME), folder.path().join("b.sion"));
    fs::rename(&at, &moved).unwrap();
    fs::write(&at, "somebody else's").unwrap();
    grown.growing.close(&[0, 4, 0], false).unwrap();
    assert_eq!(fs::read(&at).unwrap(), b"somebody else's");
    let reader = Reader::open(&grown.disk, Path::new("b.sion")).unwrap();
    assert_eq!(reader.block_lens(1).unwrap(), [4]);
}

/// As after the loss of a node that had written only some headers.
#[test]
fn set_is_as_many_files_as_its_first_one_says_whatever_the_others_say() {
    for counts in [[1, 2, 3], [2, 2, 4], [4, 3, 3]] {
        let folder = TempDir::new().unwrap();
        let mut grown = Grown::create(&folder);
        for _ in 0..3 {
            grown.add();
        }
        grown.write(10, 0, b"last");
        for (file, count) in (1..).zip(counts) {
            let physical = grown.growing.file(file).unwrap();
            physical.write_all_at(&u32::to_le_bytes(file.max(count - 1) + 1), 28).unwrap();
        }
        let grown = Grown::open(&folder, grown.streams, true);
        grown.close();
    }
}

#[test]
fn stream_ends_where_the_file_does_if_its_journal_says_more() {
    let folder = TempDir::new().unwrap();
    let mut grown = Grown::create(&folder);
    grown.write(2, 0, &[7; 10]);
    let (place, key) = (grown.growing.place(0, 2).unwrap(), grown.growing.key(0, 2).unwrap());
    grown.growing.file(0).unwrap().set_len(place.start_at + 10).unwrap();
    let slot = Slot::of(60, None).encode(&key);
    grown.growing.journal(0).unwrap().write_all_at(&slot, key.at().unwrap()).unwrap();
    let (_, held) = Growing::open(&grown.disk, Path::new(NAME), &options()).unwrap();
    assert_eq!((held.lens, held.damaged), (vec![0, 0, 10], vec![2]));
}

/// Somebody has named a multifile as a further physical file of another one would be.
#[test]
fn multifile_with_the_name_of_a_further_physical_file_is_not_replaced() {
    let folder = TempDir::new().unwrap();
    let (disk, other) = (Disk::in_folder(folder.path()), Path::new("a.sion.000001"));
    let mut growing = Growing::create(&disk, Path::new(NAME), FILE, &options()).unwrap();
    let tasks = NewTask::in_one_file(&[64]);
    let mut writer = Writer::create(&disk, other, &tasks, &options()).unwrap();
    writer.task(0).unwrap().write(&[7; 10]).unwrap();
    writer.close().unwrap();
    let before = fs::read(folder.path().join(other)).unwrap();
    growing.add(FILE, false).unwrap_err();
    let tasks = [0, 1].map(|file| NewTask { file, ..tasks[0] });
    Writer::create(&disk, Path::new("a.sion"), &tasks, &options()).unwrap_err();
    assert_eq!(fs::read(folder.path().join(other)).unwrap(), before);
    // One of its own set is replaced, and so is what is no multifile.
    fs::remove_file(folder.path().join(other)).unwrap();
    for _ in 0..2 {
        Writer::create(&disk, Path::new("a.sion"), &tasks, &options()).unwrap().close().unwrap();
    }
    fs::write(folder.path().join(other), "no multifile").unwrap();
    Writer::create(&disk, Path::new("a.sion"), &tasks, &options()).unwrap().close().unwrap();
}

/// A file with a hole of terabytes has a slot for each of its blocks.
#[test]
fn unclosed_multifile_with_a_long_sparse_stream_is_opened_at_once() {
    const BLOCKS: u64 = 300_000;
    let folder = TempDir::new().unwrap();
    let disk = Disk::in_folder(folder.path());
    let new = NewFile { task_count: 4, chunk_len: 64, fs_block_len: None };
    let growing = Growing::create(&disk, Path::new(NAME), new, &options()).unwrap();
    let key = growing.key(0, 1).unwrap();
    let mut slots = vec![0; usize::try_from(BLOCKS * 64).unwrap()];
    for (block, row) in (0..BLOCKS).zip(slots.chunks_mut(64)) {
        row[16..32].copy_from_slice(&Slot::of(64, None).encode(&SlotKey { block, ..key }));
    }
    growing.journal(0).unwrap().write_all_at(&slots, 0).unwrap();
    growing.file(0).unwrap().set_len(growing.end_of(0, BLOCKS).unwrap()).unwrap();
    drop(growing);
    let begun_at = std::time::Instant::now();
    let (_, held) = Growing::open(&disk, Path::new(NAME), &options()).unwrap();
    assert_eq!(held.lens, [0, BLOCKS * 64, 0, 0]);
    // Some twenty seconds if what it takes grew with the square of the blocks.
    assert!(begun_at.elapsed().as_secs() < 5, "{:?}", begun_at.elapsed());
}
