//! Programs written for the original that depend on what it does at the edges of its interface.

use tempfile::TempDir;

use crate::harness::{Build, check, program};

/// Runs one function of `dropin.c`.
fn run(name: &str) {
    let folder = TempDir::new().unwrap();
    check(program("dropin", Build::Sanitized, &folder).arg(name));
}

#[test]
fn key_seek_with_current_record_and_position_keeps_both() {
    run("current_record");
}

#[test]
fn key_seek_after_a_finished_record_selects_the_next() {
    run("next_record");
}

#[test]
fn mapped_open_allocates_the_arrays_that_are_null() {
    run("null_arrays");
}

#[test]
fn seek_from_the_end_stands_at_the_next_block_on_a_border() {
    run("from_the_end");
}

#[test]
fn current_locations_are_offsets_in_the_file() {
    run("offsets");
}

#[test]
fn file_number_is_the_one_the_header_says() {
    run("file_numbers");
}

#[test]
fn debug_statements_compile_to_nothing() {
    for build in [Build::Sanitized, Build::Cxx] {
        let folder = TempDir::new().unwrap();
        check(program("dropin", build, &folder).arg("debugging"));
    }
}

#[test]
fn printed_errors_carry_the_rank_they_happened_on() {
    let folder = TempDir::new().unwrap();
    let mut command = program("dropin", Build::Shared, &folder);
    let run = check(command.arg("ranks_of_errors").env("SION_COMPAT", "1"));
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    let lines = |rank: i32| said.matches(&format!("on rank {rank}, rc=-1: ")).count();
    // Two ranks alone, one of them on a duplicate, then all about one of them, then no rank.
    assert_eq!((lines(2), lines(3), lines(1), lines(-1)), (1, 1, 4, 1), "{said}");
    assert_eq!(said.lines().count(), 7, "{said}");
}
