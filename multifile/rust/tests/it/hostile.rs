//! Files that lie: cut at every byte, or mutated at random. Opening, reading, and repairing them
//! may fail, but not panic, hang, or take memory that the file's own size does not explain.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use fastrand::Rng;
use multifile::{Reader, Repair, TaskReader, Writer, header::Keyval, keyval::Records};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    allocations::peak_during,
    golden::{Golden, list, text},
    memory::Memory,
    model::with_seeds,
};

const TIME_MAX: Duration = Duration::from_secs(1);
const MEMORY_MAX: usize = 64 << 20;

/// E19: the original crashed on a third of 300 such files. `ROUNDS=1000000` for a long run.
#[test]
fn mutated_files_neither_panic_nor_hang_nor_take_memory() {
    let sets = small_sets();
    let (opened, all) = (Cell::new(0), Cell::new(0));
    let worst = Cell::new(Cost::default());
    with_seeds(20_000, |rng| {
        let mut set = rng.choice(&sets).unwrap().clone();
        for _ in 0..rng.usize(1..5) {
            let index = rng.usize(0..set.len());
            mutate(rng, &mut set[index].1);
        }
        all.set(all.get() + 1);
        let (cost, is_opened) = use_bounded(&set);
        opened.set(opened.get() + u32::from(is_opened));
        worst.set(worst.get().max(cost));
    });
    println!("{} of {} opened; at worst {:?}", opened.get(), all.get(), worst.get());
    // Files that are refused at once would prove little.
    assert!(opened.get() > all.get() / 5, "only {} of {} opened", opened.get(), all.get());
}

/// E18: what is missing is an error or absent, never garbage.
#[test]
fn a_file_cut_at_any_byte_is_an_error_or_reads_as_before() {
    let golden = Golden::unpack();
    for name in ["ser_n1_tiny.sion", "be_n3.sion", "be_n2_kv.sion", "mpi_n3_250blocks.sion"] {
        let whole = fs::read(golden.folder.path().join(name)).unwrap();
        let before = streams(&[(name.into(), whole.clone())]).unwrap();
        for len in 0..whole.len() {
            let set = [(PathBuf::from(name), whole[..len].to_vec())];
            match streams(&set) {
                Some(after) => assert_eq!(after, before, "{name} cut at {len}"),
                None => assert!(!use_bounded(&set).1),
            }
        }
    }
}

fn streams(set: &[(PathBuf, Vec<u8>)]) -> Option<Vec<Vec<u8>>> {
    let reader = Reader::open(&memory(set), &set[0].0).ok()?;
    let read = |task| {
        let mut stream = reader.stream(task).ok()?;
        let mut bytes = vec![0; usize::try_from(stream.cursor().total()).unwrap()];
        stream.read(&mut bytes).ok().map(|_| bytes)
    };
    (0..reader.task_count()).map(read).collect()
}

type Set = Vec<(PathBuf, Vec<u8>)>;

fn memory(set: &[(PathBuf, Vec<u8>)]) -> Memory {
    let memory = Memory::default();
    set.iter().for_each(|(path, bytes)| memory.put(path, bytes.clone()));
    memory
}

/// The golden sets of small files, original and buddy.
fn small_sets() -> Vec<Set> {
    let golden = Golden::unpack();
    let mut sets = Vec::new();
    for case in &golden.cases {
        let names = list(&case["files"], |file| text(&file["name"]).to_owned());
        let set: Set = names
            .into_iter()
            .map(|name| (name.clone().into(), fs::read(golden.folder.path().join(name)).unwrap()))
            .collect();
        if set.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() < 50_000 {
            sets.push(set);
        }
    }
    assert!(sets.len() > 20);
    sets
}

/// Changes one field to a value that is likely to hurt, or anything else anywhere.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    if bytes.len() < 1100 {
        return;
    }
    let tasks = bytes.get(24).map_or(0, |low| usize::from(*low));
    let at = match rng.u8(0..10) {
        0..3 => rng.usize(1..13) * 4,
        3 => 1076 + 8 * rng.usize(0..2 * tasks + 1),
        4 => 1076 + 16 * tasks + rng.usize(0..12),
        5 => bytes.len() - rng.usize(1..bytes.len().min(200)),
        6 => {
            bytes.truncate(rng.usize(0..bytes.len()));
            return;
        }
        _ => rng.usize(0..bytes.len()),
    };
    let value = match rng.u8(0..6) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX >> 1,
        3 => u64::from(u32::MAX >> 1),
        4 => rng.u64(0..300),
        _ => rng.u64(..),
    };
    let value = if rng.bool() { value.to_le_bytes() } else { value.to_be_bytes() };
    let len = *rng.choice(&[1, 4, 8]).unwrap();
    for (slot, byte) in bytes.iter_mut().skip(at).zip(&value[..len]) {
        *slot = *byte;
    }
}

/// Cost of using a file.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Of the processor: no other time passes while others have it.
    time: Duration,
    /// Most bytes allocated at once.
    peak: usize,
}

impl Cost {
    fn max(self, other: Self) -> Self {
        Self { time: self.time.max(other.time), peak: self.peak.max(other.peak) }
    }
}

/// Opens, reads, verifies, writes on, and repairs; watches the time and the memory. True if the
/// file could be opened.
fn use_bounded(set: &[(PathBuf, Vec<u8>)]) -> (Cost, bool) {
    let memory = memory(set);
    let path = set[0].0.as_path();
    let start = processor_time();
    let (peak, opened) = peak_during(|| use_all(&memory, path));
    let time = processor_time() - start;
    assert!(time < TIME_MAX, "took {time:?}");
    assert!(peak < MEMORY_MAX, "took {peak} bytes");
    (Cost { time, peak }, opened)
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap()
}

fn use_all(memory: &Memory, path: &Path) -> bool {
    let opened = Reader::open(memory, path);
    if let Ok(reader) = &opened {
        let header = reader.header(0).unwrap();
        let (keyval, order) = (header.keyval == Keyval::Inline, header.order);
        let mut buf = vec![0; 1 << 14];
        for task in 0..reader.task_count().min(40) {
            let Ok(mut stream) = reader.stream(task) else { continue };
            if keyval {
                drop(Records::scan(stream.clone(), order));
            }
            while stream.read(&mut buf).is_ok_and(|n| n > 0) {}
            reader.verify(task).ok();
        }
    }
    for task in [0, 1, u32::MAX] {
        drop(TaskReader::open(memory, path, task));
    }
    drop(Reader::open_with_buddies(memory, path, 1));
    if let Ok(mut writer) = Writer::append(memory, path, &multifile::Options::default()) {
        if let Ok(mut task) = writer.task(0) {
            task.write(&[1; 100]).ok();
        }
    }
    if let Ok(repair) = Repair::examine(memory, path) {
        repair.apply().ok();
    }
    opened.is_ok()
}
