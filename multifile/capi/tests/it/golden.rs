//! Files of the original, read and written again through the C interface.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use multifile::{Disk, Reader};
use tempfile::TempDir;

use crate::harness::{Build, check, program};

/// `flag2` of the header: zero in SIONlib's files, a hint in ours.
const FLAG2: std::ops::Range<usize> = 44..52;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../rust/tests/golden")
}

/// Names of the files that are stored as they are, in order.
fn names() -> Vec<String> {
    let entries = fs::read_dir(folder()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".sion"));
    names.sort();
    names
}

fn streams(path: &Path) -> Option<Vec<Vec<u8>>> {
    let reader = Reader::open(&Disk::new(), path).ok()?;
    let stream = |task| {
        let mut bytes = Vec::new();
        reader.stream(task).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    Some((0..reader.task_count()).map(stream).collect())
}

#[test]
fn every_golden_file_is_read_in_three_ways() {
    let mut read = 0;
    for name in names() {
        let path = folder().join(&name);
        let Some(expected) = streams(&path) else {
            assert!(name.contains("unclosed"), "{name}");
            continue;
        };
        for how in ["fread", "stdio", "rank"] {
            let out = TempDir::new().unwrap();
            check(program("unpack", Build::Shared, &out).arg(&path).arg(how));
            for (task, expected) in expected.iter().enumerate() {
                let found = fs::read(out.path().join(task.to_string())).unwrap();
                assert_eq!(&found, expected, "{name}, task {task}, {how}");
            }
            read += 1;
        }
    }
    assert_eq!(read, 3 * 32);
}

#[test]
fn serial_golden_files_are_written_byte_for_byte() {
    let mut compared = 0;
    for name in names().iter().filter(|name| name.starts_with("ser_")) {
        if name.contains("unclosed") {
            continue;
        }
        let theirs = fs::read(folder().join(name)).unwrap();
        let out = TempDir::new().unwrap();
        let big = if theirs[5] == 1 { ",endianness=big" } else { "" };
        let keyval = if name.contains("_kv") { ",keyval=inline" } else { "" };
        let mut command = program("rewrite", Build::Shared, &out);
        check(command.arg(folder().join(name)).arg(name).arg(format!("bw{big}{keyval}")));
        let mut ours = fs::read(out.path().join(name)).unwrap();
        ours[FLAG2].fill(0);
        assert!(ours == theirs, "{name}");
        compared += 1;
    }
    assert_eq!(compared, 14);
}

/// Packed layouts follow what was asked for, which the files do not tell; they are compared by
/// `multifile`'s own tests.
#[test]
fn parallel_golden_files_are_written_byte_for_byte() {
    let mut compared = 0;
    for name in names() {
        let written = ["mpi_", "map_"].iter().any(|prefix| name.starts_with(prefix));
        let packed = ["coll", "cmerge", "buddy"].iter().any(|part| name.contains(part));
        if !written || packed || name.contains("unclosed") {
            continue;
        }
        let out = TempDir::new().unwrap();
        let mode = match &name[..4] {
            "map_" => "mapped",
            _ if name.contains("_kv") => "bw,keyval=inline",
            _ => "bw",
        };
        let mut command = program("together", Build::Shared, &out);
        check(command.arg(folder().join(&name)).arg(&name).arg(mode));
        for entry in fs::read_dir(out.path()).unwrap() {
            let file = entry.unwrap().file_name();
            let mut ours = fs::read(out.path().join(&file)).unwrap();
            ours[FLAG2].fill(0);
            assert!(ours == fs::read(folder().join(&file)).unwrap(), "{}", file.to_string_lossy());
            compared += 1;
        }
    }
    assert_eq!(compared, 19);
}
