//! The format document and the tests belong together; and rules no other test shows.

use std::{collections::BTreeSet, fs, path::Path};

use multifile::{
    Doubt, Error, NewTask, Options, Part, Reader, Repair, TaskReader, Writer,
    keyval::{Records, encode_header},
};

use crate::{
    golden::{Golden, text},
    memory::Memory,
};

/// Every rule has a test that says so, and no test cites a rule that is not there.
#[test]
fn every_rule_of_the_format_is_cited_by_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("../../docs/reference/format.md")).unwrap();
    let rules: BTreeSet<String> = document
        .split("- **")
        .skip(1)
        .map(|rest| rest.split_once("**").unwrap().0.to_owned())
        .collect();
    let mut cited = BTreeSet::new();
    for folder in ["src", "src/catalogue", "src/parallel", "tests/it"] {
        for file in fs::read_dir(root.join(folder)).unwrap() {
            let Ok(source) = fs::read_to_string(file.unwrap().path()) else { continue };
            let lines = source.lines().map(str::trim_start);
            for line in lines.filter(|line| line.starts_with("/// Format rule")) {
                let words = line.split([' ', ',', ':', ';']).map(|word| word.trim_end_matches('.'));
                let is_rule = |word: &&str| {
                    word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit())
                };
                cited.extend(words.filter(is_rule).map(str::to_owned));
            }
        }
    }
    assert!(rules.len() > 30);
    assert_eq!(rules, cited);
}

/// Format rule 3.2.
#[test]
fn what_stands_in_unused_space_is_no_data() {
    let (memory, path) = (Memory::default(), Path::new("a.sion"));
    let options = Options { fs_block_len: Some(512), ..Options::default() };
    let tasks = NewTask::in_one_file(&[512, 512]);
    let mut writer = Writer::create(&memory, path, &tasks, &options).unwrap();
    writer.task(0).unwrap().write(&[1; 100]).unwrap();
    writer.close().unwrap();
    let mut bytes = memory.bytes("a.sion");
    bytes[1536 + 100..1536 + 1024].fill(0xff);
    memory.put(path, bytes);
    let reader = Reader::open(&memory, path).unwrap();
    let mut buf = [0; 600];
    assert_eq!(reader.stream(0).unwrap().read(&mut buf), Ok(100));
    assert_eq!(reader.stream(1).unwrap().read(&mut buf), Ok(0));
}

/// Format rules 4.2 and 4.3: slots behind the table belong to nobody, whoever asks, and what reads
/// as zeros is no table.
#[test]
fn a_task_with_no_block_or_more_than_there_are_is_damaged_and_has_its_data() {
    let (memory, path) = (Memory::default(), Path::new("a.sion"));
    let options = Options { fs_block_len: Some(512), ..Options::default() };
    let tasks = NewTask::in_one_file(&[512, 512]);
    let mut writer = Writer::create(&memory, path, &tasks, &options).unwrap();
    writer.task(0).unwrap().write(&[1; 100]).unwrap();
    writer.close().unwrap();
    let table = Reader::open(&memory, path).unwrap().table(0).unwrap();
    let whole = memory.bytes("a.sion");
    for count in [0, 2] {
        let mut bytes = whole.clone();
        bytes[usize::try_from(table.count_at(0)).unwrap()] = count;
        bytes.extend([0; 64]);
        memory.put(path, bytes);
        let damaged = Some(Error::Damaged { part: Part::Blocks, file: 0 });
        assert_eq!(Reader::open(&memory, path).err(), damaged);
        assert_eq!(TaskReader::open(&memory, path, 0).err(), damaged);
        let found = Repair::examine(&memory, path).unwrap();
        let doubts: Vec<_> = found.tasks().iter().map(|found| found.doubt).collect();
        assert_eq!(doubts, [Doubt::Contradiction, Doubt::None]);
        assert!(found.is_in_doubt());
        found.salvage().unwrap();
        assert_eq!(Reader::open(&memory, path).unwrap().block_lens(0).unwrap(), [100]);
    }
}

/// Format rule 1.4, in a file that says that all chunks are equal: nobody adds them up.
#[test]
fn equal_chunks_that_are_too_large_together_are_damage() {
    let (memory, path) = (Memory::default(), Path::new("a.sion"));
    let options = Options { fs_block_len: Some(512), ..Options::default() };
    let tasks = NewTask::in_one_file(&[512; 4]);
    Writer::create(&memory, path, &tasks, &options).unwrap().close().unwrap();
    let mut bytes = memory.bytes("a.sion");
    // Four of 2^62 are nothing at all in 64 bits.
    let chunks_at = 1076 + 8 * 4;
    bytes[chunks_at + 7..].iter_mut().step_by(8).take(4).for_each(|high| *high = 1 << 6);
    memory.put(path, bytes);
    let damaged = Some(Error::Damaged { part: Part::ChunkLen, file: 0 });
    assert_eq!(Reader::open(&memory, path).err(), damaged);
    assert_eq!(TaskReader::open(&memory, path, 0).err(), damaged);
}

/// Format rules 5.1 and 8.4.
#[test]
fn a_record_that_reaches_beyond_its_stream_is_damage_that_repair_leaves_out() {
    let options =
        Options { fs_block_len: Some(512), keyval: true, journal: false, ..Options::default() };
    for len in [9, u64::MAX] {
        for closes in [true, false] {
            let (memory, path) = (Memory::default(), Path::new("a.sion"));
            let tasks = NewTask::in_one_file(&[512]);
            let mut writer = Writer::create(&memory, path, &tasks, &options).unwrap();
            let mut task = writer.task(0).unwrap();
            task.write_record(1, b"whole").unwrap();
            task.write(&encode_header(2, len, options.order)).unwrap();
            task.write(&[7; 8]).unwrap();
            if closes {
                writer.close().unwrap();
            } else {
                drop(writer);
                Repair::examine(&memory, path).unwrap().apply().unwrap();
            }
            let stream = Reader::open(&memory, path).unwrap().stream(0).unwrap();
            let found = Records::scan(stream, options.order).map(|records| records.records().len());
            let damaged = Error::Damaged { part: Part::Record, file: 0 };
            assert_eq!(found, if closes { Err(damaged) } else { Ok(1) });
        }
    }
}

/// Format rule 6.5.
#[test]
fn files_that_do_not_belong_together_are_no_set() {
    let golden = Golden::unpack();
    let case = golden.case("mpi_n7_f3");
    let open = |change: &dyn Fn(usize, &mut Vec<u8>)| {
        let memory = Memory::default();
        for (index, file) in case["files"].as_array().unwrap().iter().enumerate() {
            let mut bytes = fs::read(golden.path(&file["name"])).unwrap();
            change(index, &mut bytes);
            memory.put(Path::new(text(&file["name"])), bytes);
        }
        Reader::open(&memory, Path::new(text(&case["file"]))).map(|_| ()).err()
    };
    let damaged = |part, file| Some(Error::Damaged { part, file });
    assert_eq!(open(&|_, _| ()), None);
    let number = |index, bytes: &mut Vec<u8>| {
        if index == 2 {
            bytes[32] = 1
        }
    };
    assert_eq!(open(&number), damaged(Part::Set, 2));
    let keyval = |index, bytes: &mut Vec<u8>| {
        if index == 1 {
            bytes[40] = 51
        }
    };
    assert_eq!(open(&keyval), damaged(Part::Set, 1));
    let end = |bytes: &Vec<u8>| bytes.len();
    let twice = |index, bytes: &mut Vec<u8>| {
        if index == 0 {
            let (last, len) = (end(bytes) - 8, end(bytes));
            bytes.copy_within(len - 16..last, last);
        }
    };
    assert_eq!(open(&twice), damaged(Part::Mapping, 0));
}
