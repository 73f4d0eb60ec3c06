//! A program that is told of a full disk waits for room and writes again, as POSIX allows: what was
//! accepted before and what it writes again are in the file once.

use crate::{
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

/// Runs program `cramped` under both policies, opening its file with the flags of each of `opens`.
fn while_bytes_are_refused(how: &str, opens: &[&[&str]]) {
    for (flags, more) in [&[][..], &["--rule", "/**=delegate"]]
        .into_iter()
        .flat_map(|flags| opens.iter().map(move |more| (flags, more)))
    {
        let folder = Folder::new();
        let Some(disk) = Disk::mount(&folder, "disk") else { return };
        let mut command = kakehi_run(&folder, flags);
        command.arg(program("cramped")).arg(disk.0.join("file")).arg(disk.0.join("filler"));
        succeed(command.arg(how).args(*more), SOON);
    }
}

#[test]
fn truncation_cuts_off_refused_bytes_and_makes_room() {
    for how in ["ftruncate", "truncate"] {
        while_bytes_are_refused(how, &[&[], &["append"]]);
    }
}

#[test]
fn hole_drops_refused_bytes_and_keeps_the_size() {
    while_bytes_are_refused("punch", &[&[]]);
}

#[test]
fn read_of_refused_bytes_fails_and_size_counts_them() {
    while_bytes_are_refused("read", &[&[]]);
}

#[test]
fn error_is_forgotten_once_untold_bytes_have_landed() {
    while_bytes_are_refused("land", &[&[], &["append"]]);
}
