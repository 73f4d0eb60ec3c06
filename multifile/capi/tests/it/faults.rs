//! The known faults of the original as a program meets them, each with the behaviour that is right.

use std::{
    collections::HashMap,
    io::Read,
    path::Path,
    process::{Command, Output},
};

use multifile::{Disk, Reader, Repair};
use tempfile::TempDir;

use crate::harness::{Build, check, compile, program};

/// Runs one function of `faults.c`, which checks what its name promises.
fn fault(name: &str) {
    let folder = TempDir::new().unwrap();
    check(program("faults", Build::Sanitized, &folder).arg(name));
}

/// Returns the counts of the spy.
pub(crate) fn counts(run: &Output) -> HashMap<String, u64> {
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    let pairs = said.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.map(|(name, count)| (name.to_owned(), count.parse().unwrap())).collect()
}

macro_rules! faults {
    ($($(#[$meta:meta])* $test:ident: $name:literal;)*) => {$(
        $(#[$meta])*
        #[test]
        fn $test() {
            fault($name);
        }
    )*};
}

faults! {
    /// E1.
    requests_cross_chunks_and_are_short_only_at_the_end: "e1";
    /// E2.
    a_task_may_have_thousands_of_blocks: "e2";
    /// E3.
    one_task_is_opened_with_its_own_blocks: "e3";
    /// E4.
    closing_keeps_what_waits_in_the_buffer: "e4";
    /// E5.
    what_fails_on_one_rank_fails_on_all: "e5";
    /// E6.
    any_number_of_ranks_reads: "e6";
    /// E7.
    a_large_request_in_a_merged_write_is_written: "e7";
    /// E8.
    odd_block_sizes_are_refused_before_a_file_is_touched: "e8";
    /// E9.
    records_need_a_chunk_and_items_may_be_empty: "e9";
    /// E10.
    an_empty_last_record_is_found: "e10";
    /// E13.
    closing_a_set_leaves_no_descriptor_and_no_handle: "e13";
    /// E14.
    invalid_handles_are_errors: "e14";
    /// E15.
    cmerge_alone_merges: "e15";
    /// E16.
    keyval_means_what_it_is_set_to: "e16";
    /// E17.
    every_byte_of_a_record_can_be_reached: "e17";
    /// E18.
    a_short_read_is_an_error: "e18";
    /// E20.
    placing_anew_keeps_rounded_limits_and_starts_from_nothing: "e20";
    /// E21.
    merged_writes_return_items: "e21";
    /// E22.
    a_rank_without_tasks_opens_and_closes: "e22";
    /// E23.
    teams_that_open_at_the_same_time_do_not_meet: "e23";
    /// E24.
    long_names_are_refused: "e24";
    /// E27.
    nothing_of_an_earlier_file_is_left_in_any_mode: "e27";
    /// E28.
    flush_hands_over: "e28";
    /// E29.
    a_finished_task_does_not_start_again: "e29";
}

/// E9: lengths of records are longer than an int.
#[test]
fn a_record_of_more_than_2_gib_is_read_whole() {
    let folder = TempDir::new().unwrap();
    check(&mut program("large", Build::Shared, &folder));
}

/// E12: in mode posix with a stream asked for, a thousand small writes make nothing durable, but
/// each reaches the operating system.
#[test]
fn posix_mode_hands_over_every_write_and_does_not_sync() {
    let folder = TempDir::new().unwrap();
    let mut command = program("faults", Build::Shared, &folder);
    let run = check(command.arg("e12").env("LD_PRELOAD", compile("spy", Build::Preload)));
    let counts = counts(&run);
    assert_eq!(counts["syncs"], 0, "{counts:?}");
    // One for the data, one for the journal that tells repair how long it is.
    assert!((2000..2020).contains(&counts["writes"]), "{counts:?}");
    let mut command = program("faults", Build::Shared, &folder);
    command.arg("e12").env("LD_PRELOAD", compile("spy", Build::Preload));
    let counts = self::counts(&check(command.env("SION_BUFFERSIZE", "4096")));
    assert!(counts["writes"] < 20, "{counts:?}");
}

/// A program is killed without a call of `sion_flush`.
#[test]
fn killed_program_loses_no_write_in_posix_mode() {
    let left = |how: &str| {
        let folder = TempDir::new().unwrap();
        let killed = program("ends", Build::Shared, &folder).arg(how).output().unwrap();
        assert!(!killed.status.success(), "{killed:?}");
        let disk = Disk::in_folder(folder.path());
        Repair::examine(&disk, Path::new("a.sion")).unwrap().tasks()[0].len
    };
    assert_eq!(left("killed_posix"), 700);
    assert_eq!(left("killed_flushed"), 400);
}

/// A program that ends without closing loses nothing that repair could not find.
#[test]
fn a_program_that_ends_hands_over_what_it_wrote() {
    let folder = TempDir::new().unwrap();
    check(program("ends", Build::Shared, &folder).arg("unclosed"));
    let disk = Disk::in_folder(folder.path());
    let found = Repair::examine(&disk, Path::new("a.sion")).unwrap();
    assert_eq!(found.tasks()[1].len, 713);
    found.apply().unwrap();
    let reader = Reader::open(&disk, Path::new("a.sion")).unwrap();
    let mut bytes = Vec::new();
    reader.stream(1).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes[700..], *b"through stdio");
}

/// A file size limit stands for a full disk.
fn full(name: &str) {
    let folder = TempDir::new().unwrap();
    let program = compile("ends", Build::Sanitized);
    let script = format!("trap '' XFSZ; ulimit -f 100; exec timeout 300 \"$0\" {name}");
    let mut shell = Command::new("sh");
    check(shell.args(["-c", &script]).arg(program).current_dir(folder.path()));
}

#[test]
fn a_full_disk_is_told_and_leaves_the_file_unclosed() {
    full("full");
}

#[test]
fn a_full_disk_under_one_ranks_stream_is_told_to_all() {
    full("full_stream");
}
