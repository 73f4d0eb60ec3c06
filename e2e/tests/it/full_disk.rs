//! A program that is told of a full disk waits for room and writes again, as POSIX allows: what was
//! accepted before and what it writes again are in the file once.

use std::fs;

use crate::{
    calls::Calls,
    harness::{Folder, SOON, kakehi_run, program, succeed},
    limits::Disk,
};

fn waits_for_room(flags: &[&str]) {
    for more in [&[][..], &["append"]] {
        let folder = Folder::new();
        let Some(disk) = Disk::mount(&folder, "disk") else { return };
        let mut command = kakehi_run(&folder, flags);
        command.arg(program("full")).arg(disk.0.join("file")).arg(disk.0.join("filler"));
        succeed(command.args(more), SOON);
    }
}

#[test]
fn program_that_waits_for_room_loses_nothing_it_wrote_before() {
    waits_for_room(&[]);
}

#[test]
fn program_that_waits_for_room_loses_nothing_under_delegate() {
    waits_for_room(&["--rule", "/**=delegate"]);
}

/// A small coalesced file for which there is no room, and of which something is asked that only the
/// daemon knows.
fn asks_on_a_full_disk(folder: &Folder, disk: &Disk, is_freed: bool) -> (Calls, u64) {
    let flag = format!("{0}={0}.sion", disk.0.join("files").display());
    fs::create_dir(disk.0.join("files")).expect("a folder");
    let mut command = kakehi_run(folder, &["--coalesce", &flag]);
    let mut calls = Calls::start(command.arg(program("calls")));
    // Once the multifile is made.
    calls.get("open /dev/null r");
    disk.fill("filler");
    let fd = calls.get(&format!("open {} +c", disk.0.join("files/small").display()));
    assert_eq!(calls.get(&format!("fill {fd} 40000")), 40_000);
    assert_eq!(calls.ask(&format!("seekend {fd} 0")), "ENOSPC");
    if is_freed {
        disk.free("filler");
    }
    (calls, fd)
}

#[test]
fn small_coalesced_file_that_waits_for_room_is_there() {
    let folder = Folder::new();
    let Some(disk) = Disk::mount(&folder, "disk") else { return };
    let (mut calls, fd) = asks_on_a_full_disk(&folder, &disk, true);
    assert_eq!(calls.get(&format!("seekend {fd} 0")), 40_000);
    assert_eq!(calls.get(&format!("write {fd} more")), 4);
    assert_eq!(calls.ask(&format!("close {fd}")), "0");
    calls.end();
}

#[test]
fn small_coalesced_file_without_room_is_told_when_it_is_closed() {
    let folder = Folder::new();
    let Some(disk) = Disk::mount(&folder, "disk") else { return };
    let (mut calls, fd) = asks_on_a_full_disk(&folder, &disk, false);
    assert_eq!(calls.ask(&format!("close {fd}")), "ENOSPC");
    assert_eq!(calls.exit_code(), Some(125));
}
