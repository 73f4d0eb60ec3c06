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
