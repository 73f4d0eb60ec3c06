//! Repair of closed files never harms, whatever was damaged in them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use fastrand::Rng;
use multifile::{
    Error, NewTask, Options, Part, Reader, Repair, Style, Writer, header::Keyval, keyval::Records,
};

use crate::{
    golden::{Golden, list, text},
    memory::Memory,
    model::with_seeds,
};

const NAME: &str = "a.sion";

/// A closed set, and where its data is in each file.
#[derive(Clone, Debug)]
struct Closed {
    files: Vec<(PathBuf, Vec<u8>)>,
    streams: Vec<Vec<u8>>,
    data: Vec<(usize, usize)>,
    /// Fields of each file: offset and length.
    fields: Vec<Vec<(usize, usize)>>,
}

fn memory(files: &[(PathBuf, Vec<u8>)]) -> Memory {
    let memory = Memory::default();
    files.iter().for_each(|(path, bytes)| memory.put(path, bytes.clone()));
    memory
}

impl Closed {
    fn of(files: Vec<(PathBuf, Vec<u8>)>) -> Option<Self> {
        let reader = Reader::open(&memory(&files), &files[0].0).ok()?;
        let streams = (0..reader.task_count()).map(|task| stream(&reader, task)).collect();
        let (mut data, mut fields) = (Vec::new(), Vec::new());
        for (number, (_, bytes)) in files.iter().enumerate() {
            let (layout, table) = (reader.layout(number)?, reader.table(number)?);
            let at = |at: u64| usize::try_from(at).unwrap();
            let (start, end, tasks) = (at(layout.data_at()), at(table.at), layout.chunks().len());
            data.push((start, end));
            // Fixed fields but the name, tables, commit fields, and what is behind the data.
            let mut own: Vec<_> = (0..9).map(|field| (4 * field, 4)).collect();
            own.extend([(36, 8), (44, 8), (1076 + 16 * tasks, 4), (1080 + 16 * tasks, 8)]);
            own.extend((0..2 * tasks).map(|entry| (1076 + 8 * entry, 8)));
            own.extend((end..bytes.len() - 3).step_by(4).map(|at| (at, 4)));
            fields.push(own);
        }
        Some(Self { files, streams, data, fields })
    }

    /// Damages one field of one file; headers and commit fields as often as tables.
    fn damage(&self, rng: &mut Rng, files: &mut [(PathBuf, Vec<u8>)]) {
        let number = rng.usize(0..files.len());
        let fields = &self.fields[number];
        let few = if rng.bool() { fields.len().min(13) } else { fields.len() };
        let (at, len) = fields[rng.usize(0..few)];
        let field = &mut files[number].1[at..at + len];
        match rng.u8(0..6) {
            0 => field.fill(0),
            1 => field.fill(0xff),
            2 => rng.fill(field),
            3 => field[0] = field[0].wrapping_add(1),
            _ => field[rng.usize(0..len)] ^= 1 << rng.u8(0..8),
        }
    }
}

fn stream(reader: &Reader<crate::memory::MemoryFile>, task: usize) -> Vec<u8> {
    reader.stream(task).and_then(|mut stream| stream.read_rest()).unwrap_or_default()
}

/// Verifies as `kakehi multifile verify` does.
fn verified(memory: &Memory, path: &Path) -> Result<(), Error> {
    let reader = Reader::open(memory, path)?;
    reader.check()?;
    let header = reader.header(0).unwrap();
    for task in 0..reader.task_count() {
        reader.verify(task)?;
        let mut stream = reader.stream(task)?;
        if header.keyval == Keyval::Inline {
            Records::scan(stream.clone(), header.order)?;
        }
        stream.read_rest()?;
    }
    Ok(())
}

/// Golden sets, and ours with all that they lack: checksums, marks, and records.
fn closed_sets() -> Vec<Closed> {
    let golden = Golden::unpack();
    let mut sets = Vec::new();
    for case in &golden.cases {
        let names = list(&case["files"], |file| text(&file["name"]).to_owned());
        let files = names.into_iter().map(|name| {
            let bytes = fs::read(golden.folder.path().join(&name)).unwrap();
            (PathBuf::from(name), bytes)
        });
        let files: Vec<_> =
            files.filter(|(name, _)| !name.to_string_lossy().contains("BUDDY")).collect();
        if files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() < 50_000 {
            sets.extend(Closed::of(files));
        }
    }
    for (count, keyval, checksums) in
        [(1, false, true), (2, false, true), (1, true, false), (3, true, true), (2, false, false)]
    {
        let memory = Memory::default();
        let options = Options {
            fs_block_len: Some(512),
            keyval,
            checksums,
            hints: true,
            style: Style::Parallel,
            ..Options::default()
        };
        let tasks = NewTask::in_files(&[600; 6], count);
        let mut writer = Writer::create(&memory, Path::new(NAME), &tasks, &options).unwrap();
        for task in 0..6u8 {
            let data = vec![task + 1; 700 * usize::from(task)];
            let mut writer = writer.task(task.into()).unwrap();
            if keyval {
                writer.write_record(7, &data).unwrap()
            } else {
                writer.write(&data).unwrap()
            }
        }
        writer.close().unwrap();
        let names = (0..count).map(|number| match number {
            0 => NAME.to_owned(),
            _ => format!("{NAME}.{number:06}"),
        });
        let files = names.map(|name| (PathBuf::from(&name), memory.bytes(&name))).collect();
        sets.push(Closed::of(files).unwrap());
    }
    assert!(sets.len() > 25);
    sets
}

/// One or two faults in a closed set: repair changes no byte of data, cuts nothing, leaves alone
/// what is whole or in doubt, and what it does change reads back as it was written.
#[test]
fn repair_of_a_damaged_closed_file_loses_no_data() {
    let sets = closed_sets();
    let (mut repaired, mut refused) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    with_seeds(5_000, |rng| {
        let set = rng.choice(&sets).unwrap();
        let mut files = set.files.clone();
        for _ in 0..rng.usize(1..=2) {
            set.damage(rng, &mut files);
        }
        let (memory, path) = (memory(&files), files[0].0.as_path());
        let was_whole = verified(&memory, path).is_ok();
        let now = || -> Vec<_> {
            files.iter().map(|(name, _)| memory.bytes(&name.to_string_lossy())).collect()
        };
        let before = now();
        let outcome = Repair::examine(&memory, path).map(|found| {
            assert!(!was_whole || !found.needed(), "what is whole needs no repair");
            let needed = found.needed();
            (needed, found.apply())
        });
        match outcome {
            Ok((true, Ok(()))) => {
                repaired.set(repaired.get() + 1);
                let reader = Reader::open(&memory, path).unwrap();
                reader.check().unwrap();
                for (task, written) in set.streams.iter().enumerate() {
                    let read = stream(&reader, task);
                    assert!(
                        read == *written || is_undetectable(set, &files),
                        "task {task}: {} bytes instead of {}",
                        read.len(),
                        written.len()
                    );
                }
            }
            Ok((false, applied)) => {
                applied.unwrap();
                assert!(now() == before, "what needs no repair is left alone");
            }
            Ok((true, Err(why))) | Err(why) => {
                refused.set(refused.get() + 1);
                assert!(now() == before, "{path:?}: in doubt is left alone: {why:?}");
            }
        }
        for ((was, is), (start, end)) in set.files.iter().zip(now()).zip(&set.data) {
            assert!(is.len() >= was.1.len(), "a file is never cut");
            assert!(is[*start..*end] == was.1[*start..*end], "data stays where it is");
        }
    });
    println!("{} repaired, {} refused", repaired.get_mut(), refused.get_mut());
    assert!(repaired.get() > 200 && refused.get() > 200, "{repaired:?} {refused:?}");
}

/// True if a length in a block table was damaged and is still possible: only checksums tell.
fn is_undetectable(set: &Closed, files: &[(PathBuf, Vec<u8>)]) -> bool {
    let mut faults = set.files.iter().zip(files).zip(&set.data);
    faults.any(|((was, is), (_, end))| was.1[*end..] != is.1[*end..])
}

/// Parts that contradict each other are told, and which tasks are in doubt.
#[test]
fn contradiction_between_header_and_table_is_told_and_left_alone() {
    let set = closed_sets().pop().unwrap();
    let mut files = set.files.clone();
    // The chunk size of the second task.
    files[0].1[1076 + 8 * 3 + 8] ^= 4;
    let memory = memory(&files);
    assert!(matches!(
        verified(&memory, Path::new(NAME)),
        Err(Error::Damaged { part: Part::Blocks | Part::Checksum, file: 0 })
    ));
    let found = Repair::examine(&memory, Path::new(NAME)).unwrap();
    assert!(found.is_in_doubt());
    let doubts: Vec<_> = found.tasks().iter().map(|found| found.doubt).collect();
    assert_eq!(doubts[..3], [multifile::Doubt::Contradiction; 3]);
    assert_eq!(doubts[3..], [multifile::Doubt::None; 3]);
    assert!(found.apply().is_err());
}
