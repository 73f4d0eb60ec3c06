//! Comparison with SIONlib: this crate writes the same bytes.

use std::{fs, path::Path};

use multifile::{
    Disk, NewTask, Options, Packing, Reader, Style, Writer,
    codec::Order,
    header::{Header, Keyval},
};
use serde_json::Value;
use tempfile::TempDir;

use crate::golden::{Golden, list, text};

/// `flag2` of the header: zero in SIONlib's files, our hint in ours.
const FLAG2: std::ops::Range<usize> = 44..52;

/// Format rules 4.1, 4.2, 6.2 and 6.3. Without hints the files are identical; with them only
/// `flag2` differs.
#[test]
fn every_golden_case_is_written_byte_for_byte() {
    let golden = Golden::unpack();
    let mut compared = 0;
    for case in golden.cases.iter().filter(|case| case["closed"] == true) {
        if case["files"][0]["header"]["version"] != 5 {
            continue; // Older versions are read only.
        }
        for set in sets(case) {
            for hints in [false, true] {
                let written = TempDir::new().unwrap();
                rewrite(&golden, case, &set[0], written.path(), hints);
                for name in &set {
                    let ours = fs::read(written.path().join(name)).unwrap();
                    let theirs = fs::read(golden.folder.path().join(name)).unwrap();
                    compare(name, ours, theirs, hints);
                    compared += 1;
                }
                assert_eq!(fs::read_dir(written.path()).unwrap().count(), set.len());
            }
        }
    }
    assert_eq!(compared, 94);
}

/// A writer that dies leaves what SIONlib leaves, but for the mark that points to the journal.
#[test]
fn unclosed_files_differ_in_flag2_only() {
    let golden = Golden::unpack();
    for (name, style) in [("ser_n3_unclosed", Style::Serial), ("mpi_n3_unclosed", Style::Parallel)]
    {
        let case = golden.case(name);
        let theirs = fs::read(golden.path(&case["file"])).unwrap();
        let folder = TempDir::new().unwrap();
        let options = Options { fs_block_len: Some(512), style, ..Options::default() };
        let tasks = NewTask::in_one_file(&[4096; 3]);
        let path = Path::new(text(&case["file"]));
        let disk = Disk::in_folder(folder.path());
        let mut writer = Writer::create(&disk, path, &tasks, &options).unwrap();
        for task in 0..3 {
            let at = 1536 + 4096 * task;
            writer.task(task).unwrap().write(&theirs[at..at + 700]).unwrap();
        }
        writer.flush().unwrap();
        drop(writer);
        compare(name, fs::read(folder.path().join(path)).unwrap(), theirs, true);
    }
}

fn compare(name: &str, mut ours: Vec<u8>, theirs: Vec<u8>, flag2_may_differ: bool) {
    if flag2_may_differ {
        ours[FLAG2].fill(0);
    }
    assert_eq!(ours.len(), theirs.len(), "{name}");
    let differs = ours.iter().zip(&theirs).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{name}: first difference");
}

/// The names of the physical files of every set of a case: one, or a buddy set more.
fn sets(case: &Value) -> Vec<Vec<String>> {
    let names = list(&case["files"], |file| text(&file["name"]).to_owned());
    let (buddies, own): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| name.contains("_BUDDY_"));
    [own, buddies].into_iter().filter(|set| !set.is_empty()).collect()
}

/// Writes the tasks of a golden set again: same requests, same bytes, same block borders.
fn rewrite(golden: &Golden, case: &Value, set: &str, folder: &Path, hints: bool) {
    let reader = Reader::open(&Disk::in_folder(golden.folder.path()), Path::new(set)).unwrap();
    let header = reader.header(0).unwrap();
    let options = Options { hints, ..options(case, header, reader.task_count()) };
    let mut tasks = Vec::new();
    if set.contains("_BUDDY_") {
        // The holders of the copies come first, without data of their own.
        for (file, local_rank, global_rank) in [(0, 0, -2), (0, 1, -4), (1, 0, -1), (1, 1, -3)] {
            tasks.push(NewTask { file, local_rank, global_rank, chunk_len: 0 });
        }
    }
    let holders = tasks.len();
    for index in 0..reader.task_count() {
        let task = reader.task(index).unwrap();
        tasks.push(NewTask {
            file: task.file,
            local_rank: task.local_rank,
            global_rank: task.global_rank,
            chunk_len: case["chunksize_requested"][index].as_u64().unwrap(),
        });
    }
    let disk = Disk::in_folder(folder);
    let mut writer = Writer::create(&disk, Path::new(set), &tasks, &options).unwrap();
    for index in 0..reader.task_count() {
        let mut stream = reader.stream(index).unwrap();
        let mut task = writer.task(holders + index).unwrap();
        for (block, len) in reader.block_lens(index).unwrap().iter().enumerate() {
            if block > 0 {
                task.next_block().unwrap();
            }
            let mut bytes = vec![0; usize::try_from(*len).unwrap()];
            assert_eq!(stream.read(&mut bytes), Ok(bytes.len()));
            task.write(&bytes).unwrap();
        }
    }
    writer.close().unwrap();
}

fn options(case: &Value, header: &Header, tasks: usize) -> Options {
    let mode = text(&case["file_mode"]);
    let size = mode.split(',').find_map(|part| part.strip_prefix("collsize="));
    let size = size.map(|size| size.parse().unwrap());
    let packing = if mode.contains("cmerge") {
        Packing::Merge { size }
    } else if mode.contains("buddy") {
        Packing::Collective { size: Some(u32::try_from(tasks).unwrap()) }
    } else if mode.contains("collective") {
        Packing::Collective { size }
    } else {
        Packing::Aligned
    };
    let api = text(&case["api"]);
    Options {
        fs_block_len: Some(header.fs_block_len),
        order: if api.contains("s390x") { Order::Big } else { Order::Little },
        data_order: header.data_order,
        keyval: header.keyval == Keyval::Inline,
        packing,
        style: match api {
            "mpi" => Style::Parallel,
            "mpi-mapped" => Style::Mapped,
            _ => Style::Serial,
        },
        name: Some(header.prefix.clone()),
        ..Options::default()
    }
}
