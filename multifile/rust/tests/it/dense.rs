//! Dense files: small streams next to each other, each in a chunk of its own length.

use std::{fs, io::Read, ops::Range, path::Path};

use fastrand::Rng;
use multifile::{
    Disk, Error, Growing, NewFile, NewTask, Options, Reader, Repair, Storage, Style, Writer,
    catalogue::{Catalogue, Node},
    journal::{SLOT_LEN, Slot, SlotKey},
    name,
    storage::File,
};
use tempfile::TempDir;

use crate::failing::Failing;

const NAME: &str = "a.sion";
const TASKS: u32 = 20;
const UNIT: u32 = 16;
/// As the one that has names: its blocks follow each other.
const FIRST: NewFile = NewFile { task_count: 1, chunk_len: 64, fs_block_len: None };
const DENSE: NewFile = NewFile { task_count: TASKS, chunk_len: 0, fs_block_len: Some(UNIT) };

fn options() -> Options {
    let name = Some(NAME.into());
    Options { fs_block_len: Some(64), name, hints: false, ..Options::default() }
}

fn some(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.u8(1..)).collect()
}

/// A writer of batches, in the order that a crash may interrupt.
struct Dense<S: Storage> {
    growing: Growing<S>,
    file: u32,
}

impl<S: Storage> Dense<S> {
    fn create(storage: &S) -> Result<Self, Error> {
        let mut growing = Growing::create(storage, Path::new(NAME), FIRST, &options())?;
        growing.add(DENSE, false)?;
        Ok(Self { growing, file: 1 })
    }

    /// Opens what is there, to be written on.
    fn open(storage: &S) -> (Self, Vec<u64>, bool) {
        let (mut growing, held) = Growing::open(storage, Path::new(NAME), &options()).unwrap();
        growing.begin(&held.lens).unwrap();
        let file = growing.file_count() - 1;
        (Self { growing, file }, held.lens, held.was_unclosed)
    }

    /// Places the streams, and returns the first one's task.
    fn place(&mut self, batch: &[Vec<u8>]) -> Result<u32, Error> {
        if TASKS - self.growing.placed_count(self.file) < u32::try_from(batch.len()).unwrap() {
            self.growing.add(DENSE, false)?;
            self.file += 1;
        }
        let lens: Vec<u64> = batch.iter().map(|bytes| bytes.len() as u64).collect();
        self.growing.place_next(self.file, &lens)
    }

    /// Writes a batch, and returns which tasks of the set have it.
    fn write(&mut self, batch: &[Vec<u8>]) -> Result<Range<usize>, Error> {
        let placed = self.place(batch)?;
        let physical = self.growing.file(self.file).unwrap();
        let io = |error: std::io::Error| Error::io(self.file, &error);
        for (task, bytes) in (placed..).zip(batch) {
            let at = self.growing.place(self.file, task).unwrap().start_at;
            all(&**physical, bytes, at).map_err(io)?;
        }
        let untold = self.growing.untold(self.file).unwrap();
        all(&**physical, &untold.bytes, untold.at).map_err(io)?;
        let first = self.growing.key(self.file, placed).unwrap();
        let slots = (placed..).zip(batch).map(|(task, bytes)| {
            Slot::of(bytes.len() as u64, None).encode(&SlotKey { task, ..first })
        });
        let slots: Vec<_> = slots.collect();
        let journal = self.growing.journal(self.file).unwrap();
        all(&**journal, &slots.concat(), first.at().unwrap()).map_err(io)?;
        self.growing.told(self.file, untold.count);
        let before: u32 = (0..self.file).map(|file| self.growing.task_count(file)).sum();
        let first = usize::try_from(before + placed).unwrap();
        Ok(first..first + batch.len())
    }
}

fn all<F: File>(file: &F, bytes: &[u8], at: u64) -> std::io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += file.write_at(&bytes[done..], at + done as u64)?;
    }
    Ok(())
}

fn repair_without_journals(disk: &Disk, folder: &Path) {
    for number in 0..2 {
        let journal = name::journal(&disk.physical_name(Path::new(NAME), number));
        fs::remove_file(folder.join(journal)).unwrap();
    }
    let repair = Repair::examine(disk, Path::new(NAME)).unwrap();
    assert!(repair.needed());
    repair.apply().unwrap();
}

fn streams(disk: &Disk) -> Vec<Vec<u8>> {
    let reader = Reader::open(disk, Path::new(NAME)).unwrap();
    reader.check().unwrap();
    let read = |task| {
        let mut bytes = Vec::new();
        reader.stream(task).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    (0..reader.task_count()).map(read).collect()
}

/// Streams as lengths, with that of no task forgotten.
fn lens(written: &[Vec<u8>], task_count: usize) -> Vec<u64> {
    let lens = written.iter().map(|bytes| bytes.len() as u64);
    lens.chain(std::iter::repeat(0)).take(task_count).collect()
}

/// Format rules 2.9, 8.1, and 8.3.
#[test]
fn batches_are_read_as_they_were_written_whoever_ends_or_dies() {
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let folder = TempDir::new().unwrap();
        let disk = Disk::in_folder(folder.path());
        let (mut dense, mut written) = (Dense::create(&disk).unwrap(), vec![Vec::new()]);
        for _ in 0..rng.usize(1..12) {
            let mut batch = vec![Vec::new(); rng.usize(1..9)];
            batch.fill_with(|| {
                let len = rng.usize(1..200);
                some(&mut rng, len)
            });
            let tasks = dense.write(&batch).unwrap();
            written.resize(tasks.end, Vec::new());
            written[tasks].clone_from_slice(&batch);
            let count = 1 + TASKS as usize * usize::try_from(dense.file).unwrap();
            let (lens, dies) = (lens(&written, count), rng.bool());
            if rng.u8(..3) > 0 {
                continue;
            }
            if !dies {
                dense.growing.close(&lens, false).unwrap();
            }
            let (opened, held, was_unclosed) = Dense::open(&disk);
            assert_eq!((held, was_unclosed), (lens, dies), "{seed}");
            dense = opened;
        }
        let count = 1 + TASKS as usize * usize::try_from(dense.file).unwrap();
        dense.growing.close(&lens(&written, count), false).unwrap();
        written.resize(count, Vec::new());
        assert_eq!(streams(&disk), written, "{seed}");
    }
}

/// A writer of SIONlib's that asks for chunks of just these lengths makes the same bytes.
#[test]
fn a_dense_set_is_what_a_writer_of_its_chunks_makes() {
    let mut rng = Rng::with_seed(7);
    let [grown, written] = [(); 2].map(|()| TempDir::new().unwrap());
    let mut dense = Dense::create(&Disk::in_folder(grown.path())).unwrap();
    let batch: Vec<_> = [5, 16, 100, 1].into_iter().map(|len| some(&mut rng, len)).collect();
    for part in [&batch[..1], &batch[1..]] {
        dense.write(part).unwrap();
    }
    let mut all = vec![Vec::new()];
    all.extend(batch);
    dense.growing.close(&lens(&all, 1 + TASKS as usize), false).unwrap();

    let task = |(index, len): (u32, u64)| NewTask {
        file: u32::from(index > 0),
        local_rank: index.saturating_sub(1),
        global_rank: index.into(),
        chunk_len: len,
    };
    let lens = lens(&all, 1 + TASKS as usize);
    let tasks: Vec<_> = (0..).zip(lens).map(task).collect();
    let options = Options { fs_block_len: Some(UNIT), style: Style::Parallel, ..options() };
    let disk = Disk::in_folder(written.path());
    let mut writer = Writer::create(&disk, Path::new(NAME), &tasks, &options).unwrap();
    for (task, bytes) in all.iter().enumerate().skip(1) {
        writer.task(task).unwrap().write(bytes).unwrap();
    }
    writer.close().unwrap();
    let name = "a.sion.000001";
    let [ours, theirs] = [&grown, &written].map(|at| fs::read(at.path().join(name)).unwrap());
    assert!(ours == theirs);
    // 16 bytes a task in front, 16 behind; file 0 has 8 more.
    let data: u64 = [16, 16, 112, 16].into_iter().sum();
    let front = (1088 + 16 * u64::from(TASKS)).next_multiple_of(UNIT.into());
    assert_eq!(ours.len() as u64, front + data + 16 * u64::from(TASKS));
}

/// A batch, and nothing else, is there once its write has returned.
#[test]
fn a_batch_survives_a_crash_at_any_byte_of_the_next_one() {
    let mut completed_batches = 0;
    for room in (0..).step_by(3) {
        let mut rng = Rng::with_seed(room);
        let folder = TempDir::new().unwrap();
        let storage = Failing::torn_after(folder.path().to_owned(), room);
        let Ok(mut dense) = Dense::create(&storage) else { continue };
        let mut written = vec![Vec::new()];
        let mut is_whole = true;
        for _ in 0..4 {
            let batch: Vec<_> = [3, 70, 33].into_iter().map(|len| some(&mut rng, len)).collect();
            let Ok(tasks) = dense.write(&batch) else {
                is_whole = false;
                break;
            };
            assert_eq!(tasks.start, written.len());
            written.extend(batch);
            completed_batches += 1;
        }
        drop(dense);
        let disk = Disk::in_folder(folder.path());
        assert!(Repair::examine(&disk, Path::new(NAME)).unwrap().needed());
        let (mut dense, held, was_unclosed) = Dense::open(&disk);
        assert!(was_unclosed);
        let expected = lens(&written, written.len());
        assert_eq!(held[..written.len()], expected, "{room}");
        // Of the one that was begun each stream is there, or is not; the next ones do not mind.
        let next = vec![some(&mut rng, 40), some(&mut rng, 1)];
        let tasks = dense.write(&next).unwrap();
        let mut lens = held;
        lens[tasks.clone()].copy_from_slice(&[40, 1]);
        dense.growing.close(&lens, false).unwrap();
        let found = streams(&disk);
        assert!(found[..written.len()] == written, "{room}");
        assert!(found[tasks] == next, "{room}");
        if is_whole {
            break;
        }
    }
    assert!(completed_batches > 100);
}

/// Bytes behind the chunks in the header do not become part of a stream, also without journals.
#[test]
fn repair_without_journals_ignores_bytes_behind_all_chunks() {
    let folder = TempDir::new().unwrap();
    let disk = Disk::in_folder(folder.path());
    let mut dense = Dense::create(&disk).unwrap();
    let names = Catalogue::new(7, Node { mode: 0o040_755, ..Node::default() }).write();
    let at = dense.growing.place(0, 0).unwrap().start_at;
    all(&**dense.growing.file(0).unwrap(), &names, at).unwrap();
    let tasks = dense.write(&[vec![7; 30], vec![8; 64]]).unwrap();
    let next = dense.place(&[vec![9; 50]]).unwrap();
    let at = dense.growing.place(1, next).unwrap().start_at;
    all(&**dense.growing.file(1).unwrap(), &[9; 50], at).unwrap();
    drop(dense);
    repair_without_journals(&disk, folder.path());
    assert_eq!(streams(&disk)[tasks], [vec![7; 30], vec![8; 64]]);
}

/// A wide file whose chunks are packed keeps its second blocks.
#[test]
fn repair_without_journals_keeps_second_blocks_of_packed_files() {
    let folder = TempDir::new().unwrap();
    let disk = Disk::in_folder(folder.path());
    let mut growing = Growing::create(&disk, Path::new(NAME), FIRST, &options()).unwrap();
    let packed = NewFile { task_count: 2, chunk_len: 64, fs_block_len: Some(1) };
    growing.add(packed, false).unwrap();
    let names = Catalogue::new(7, Node { mode: 0o040_755, ..Node::default() }).write();
    all(&**growing.file(0).unwrap(), &names, growing.place(0, 0).unwrap().start_at).unwrap();
    let place = growing.place(1, 0).unwrap();
    all(&**growing.file(1).unwrap(), &[7; 64], place.start_at).unwrap();
    all(&**growing.file(1).unwrap(), &[8; 36], place.start_at + place.skip).unwrap();
    drop(growing);
    repair_without_journals(&disk, folder.path());
    assert_eq!(streams(&disk)[1], [[7; 64].as_slice(), &[8; 36]].concat());
}

/// The header then says what is placed, whatever a write of it left that failed.
#[test]
fn a_file_whose_header_could_not_be_written_is_closed_as_it_is() {
    let folder = TempDir::new().unwrap();
    let disk = Disk::in_folder(folder.path());
    let mut dense = Dense::create(&disk).unwrap();
    dense.write(&[vec![7; 30]]).unwrap();
    dense.place(&[vec![8; 50], vec![8; 60]]).unwrap();
    let lost = dense.growing.untold(1).unwrap();
    assert_eq!((lost.count, lost.bytes.len()), (2, 16));
    all(&**dense.growing.file(1).unwrap(), &[9; 8], lost.at + 4).unwrap();
    let lens = lens(&[vec![], vec![7; 30]], 1 + TASKS as usize);
    dense.growing.close(&lens, false).unwrap();
    assert_eq!(streams(&disk)[1], [7; 30]);
    let (dense, held, _) = Dense::open(&disk);
    assert_eq!((held, dense.growing.placed_count(1)), (lens, 3));
}

#[test]
fn tasks_that_are_not_there_get_no_chunks() {
    let folder = TempDir::new().unwrap();
    let mut dense = Dense::create(&Disk::in_folder(folder.path())).unwrap();
    dense.growing.place_next(1, &[1; TASKS as usize - 1]).unwrap();
    for lens in [&[1; 2][..], &[0], &[u64::MAX]] {
        assert!(dense.growing.place_next(1, lens).is_err(), "{lens:?}");
    }
    assert!(dense.growing.place_next(0, &[1]).is_err());
    assert_eq!(dense.growing.place_next(1, &[1]), Ok(TASKS - 1));
    assert_eq!(SLOT_LEN, 16);
}
