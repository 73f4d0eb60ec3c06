//! Whole programs in C and C++, and their files read back by the Rust library.

use std::{io::Read, path::Path};

use multifile::{Disk, Reader};
use tempfile::TempDir;

use crate::harness::{Build, check, compile, program};

const BUILDS: [Build; 4] = [Build::Shared, Build::Sanitized, Build::Static, Build::Cxx];

/// The bytes that programs write: they tell task and position.
pub(crate) fn pattern(task: usize, from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| u8::try_from((task * 37 + at % 251) % 256).unwrap()).collect()
}

pub(crate) fn stream(folder: &TempDir, name: &str, task: usize) -> Vec<u8> {
    let reader = Reader::open(&Disk::in_folder(folder.path()), Path::new(name)).unwrap();
    let mut bytes = Vec::new();
    reader.stream(task).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn one_process_reads_and_writes_in_every_pattern() {
    for build in BUILDS {
        let folder = TempDir::new().unwrap();
        check(&mut program("serial", build, &folder));
        for task in 0..3 {
            assert_eq!(stream(&folder, "stdio.sion", task), pattern(task, 0, 2100));
        }
        assert_eq!(stream(&folder, "second.sion", 0), b"first second third");
    }
}

/// A stream, or a descriptor, that the library and its program both use.
#[test]
fn what_a_program_is_lent_goes_on_where_the_library_stopped() {
    for lent in ["second", "files", "descriptor", "duplicate", "failed"] {
        let folder = TempDir::new().unwrap();
        check(program("lent", Build::Sanitized, &folder).arg(lent));
    }
}

#[test]
fn the_interface_is_that_of_the_original() {
    for build in [Build::Shared, Build::Sanitized, Build::Static] {
        let folder = TempDir::new().unwrap();
        check(&mut program("interface", build, &folder));
        assert_eq!(stream(&folder, "names.sion", 0), b"abc");
    }
}

#[test]
fn ranks_read_and_write_in_every_pattern() {
    for build in BUILDS {
        let folder = TempDir::new().unwrap();
        check(&mut program("parallel", build, &folder));
        for task in 0..4 {
            assert_eq!(stream(&folder, "fig3.sion", task), pattern(task, 0, 2500));
        }
        for task in 0..7 {
            assert_eq!(stream(&folder, "set.sion", task), pattern(task, 0, 25_000));
        }
        for task in 0..6 {
            assert_eq!(stream(&folder, "mapped.sion", task), pattern(task, 0, 2500));
        }
        merged_in_rank_order(&folder);
    }
}

/// Ranks 0 and 1 share a file, 2 to 4 the other; rank 1 brought nothing.
fn merged_in_rank_order(folder: &TempDir) {
    let calls = |ranks: &[usize]| -> Vec<u8> {
        let call = |call: usize| ranks.iter().flat_map(move |rank| pattern(*rank, call * 400, 400));
        (0..3).flat_map(call).collect()
    };
    let whole: Vec<u8> = (0..5).flat_map(|task| stream(folder, "merged.sion", task)).collect();
    assert_eq!(whole.len(), 4 * 1200);
    // Groups follow bytes, so a file has one or several collectors; each keeps the order.
    for ranks in [&[0][..], &[2, 3, 4]] {
        let together = calls(ranks);
        let apart: Vec<u8> = ranks.iter().flat_map(|rank| calls(&[*rank])).collect();
        let holds = |part: &[u8]| whole.windows(part.len()).any(|window| window == part);
        assert!(holds(&together) || holds(&apart), "ranks {ranks:?}");
    }
}

/// As OTF2 uses the library.
#[test]
fn a_trace_is_written_and_read_by_key() {
    for build in BUILDS {
        let folder = TempDir::new().unwrap();
        check(&mut program("trace", build, &folder));
    }
}

/// The same as a C program for MPI, with processes.
#[test]
fn a_group_in_c_opens_and_closes() {
    for build in [Build::Shared, Build::Sanitized, Build::Cxx] {
        let folder = TempDir::new().unwrap();
        check(&mut program("processes", build, &folder));
        for task in 0..5 {
            assert_eq!(stream(&folder, "processes.sion", task), pattern(task, 0, 3000));
        }
    }
}

/// Random calls, through the library and through stdio; a failure names its seed.
#[test]
fn random_calls_do_what_a_program_expects() {
    let folder = TempDir::new().unwrap();
    for seed in 0..100 {
        check(program("model", Build::Sanitized, &folder).arg(seed.to_string()));
    }
}

#[test]
fn the_class_writes_and_reads() {
    let folder = TempDir::new().unwrap();
    check(&mut program("classes", Build::Cxx, &folder));
    assert_eq!(stream(&folder, "classes.sion", 1)[12..], [b'b'; 700]);
}

/// `kakehi run` interposes on libc's functions; everything has to go through them.
#[test]
fn all_file_calls_go_through_libc() {
    let folder = TempDir::new().unwrap();
    let mut command = program("serial", Build::Shared, &folder);
    let run = check(command.env("LD_PRELOAD", compile("spy", Build::Preload)));
    let counts = crate::faults::counts(&run);
    assert!(counts["opens"] >= 10, "{counts:?}");
    assert!(counts["writes"] >= 10, "{counts:?}");
    assert!(counts["reads"] >= 20, "{counts:?}");
    assert!(counts["resizes"] >= 3, "{counts:?}");
    assert!(counts["streams"] >= 5, "{counts:?}");
}
