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

/// A program whose small files are coalesced on a disk that has just got full.
struct Coalescing {
    disk: Disk,
    calls: Calls,
    _folder: Folder,
}

impl Coalescing {
    /// `None`, loudly, when this user may not mount.
    fn start() -> Option<Self> {
        let folder = Folder::new();
        let disk = Disk::mount(&folder, "disk")?;
        let flag = format!("{0}={0}.sion", disk.0.join("files").display());
        fs::create_dir(disk.0.join("files")).expect("a folder");
        let mut command = kakehi_run(&folder, &["--coalesce", &flag]);
        let mut calls = Calls::start(command.arg(program("calls")));
        // Once the multifile is made.
        calls.get("open /dev/null r");
        disk.fill("filler");
        Some(Self { disk, calls, _folder: folder })
    }

    fn open(&mut self, name: &str, flags: &str) -> u64 {
        let path = self.disk.0.join("files").join(name);
        self.calls.get(&format!("open {} {flags}", path.display()))
    }

    /// Writes so much to a file, of which something is asked then that only the daemon knows.
    fn fill(&mut self, fd: u64, len: u64) {
        assert_eq!(self.calls.get(&format!("fill {fd} {len}")), len);
        assert_eq!(self.calls.ask(&format!("seekend {fd} 0")), "ENOSPC");
    }

    fn close(&mut self, fd: u64) -> String {
        self.calls.ask(&format!("close {fd}"))
    }

    fn len(&mut self, name: &str) -> u64 {
        let fd = self.open(name, "r");
        self.calls.get(&format!("seekend {fd} 0"))
    }
}

#[test]
fn small_coalesced_file_that_waits_for_room_is_there_once() {
    for flags in ["+c", "wca"] {
        let Some(mut program) = Coalescing::start() else { return };
        let fd = program.open("small", flags);
        program.fill(fd, 40_000);
        // Some of it finds room, and then all.
        program.disk.shrink("filler", 28 << 10);
        assert_eq!(program.calls.ask(&format!("seekend {fd} 0")), "ENOSPC");
        program.disk.free("filler");
        assert_eq!(program.calls.get(&format!("seekend {fd} 0")), 40_000, "{flags}");
        assert_eq!(program.calls.get(&format!("write {fd} more")), 4);
        assert_eq!(program.close(fd), "0");
        assert_eq!(program.len("small"), 40_004);
        program.calls.end();
    }
}

#[test]
fn small_coalesced_file_without_room_is_told_when_it_is_closed() {
    let Some(mut program) = Coalescing::start() else { return };
    let fd = program.open("small", "+c");
    program.fill(fd, 40_000);
    assert_eq!(program.close(fd), "ENOSPC");
    assert_eq!(program.calls.exit_code(), Some(125));
}

/// Files that wait for room leave room in the log: others are coalesced all the same.
#[test]
fn small_coalesced_files_beyond_the_log_are_told_and_keep_no_others() {
    let Some(mut program) = Coalescing::start() else { return };
    let fds = ["a", "b", "c"].map(|name| {
        let fd = program.open(name, "+c");
        program.fill(fd, 250_000);
        fd
    });
    for fd in fds {
        assert_eq!(program.calls.ask(&format!("seekend {fd} 0")), "ENOSPC");
        assert_eq!(program.close(fd), "ENOSPC");
    }
    program.disk.free("filler");
    let fd = program.open("d", "+c");
    assert_eq!(program.calls.get(&format!("fill {fd} 100000")), 100_000);
    assert_eq!(program.close(fd), "0");
    assert_eq!(program.len("d"), 100_000);
    assert_eq!(program.calls.exit_code(), Some(125));
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

#[test]
fn read_before_refused_bytes_ends_where_they_begin() {
    let folder = Folder::new();
    let Some(disk) = Disk::mount(&folder, "disk") else { return };
    let mut command = kakehi_run(&folder, &[]);
    let mut calls = Calls::start(command.env("KAKEHI_STAGE_AFTER", "0us").arg(program("calls")));
    let fd = calls.get(&format!("open {} +c", disk.0.join("file").display()));
    assert_eq!(calls.get(&format!("fill {fd} 102400")), 102_400);
    assert_eq!(calls.ask(&format!("fsync {fd}")), "0");
    let gapped = calls.get(&format!("open {} +c", disk.0.join("gapped").display()));
    disk.fill("filler");
    assert_eq!(calls.get(&format!("write {fd} more")), 4);
    // The bytes before it are a gap, and no end.
    assert_eq!(calls.get(&format!("pwrite {gapped} 200000 more")), 4);
    assert_eq!(calls.ask(&format!("pread {gapped} 100000 4")), "ENOSPC");
    assert_eq!(calls.ask(&format!("pread {fd} 102400 4")), "ENOSPC");
    assert_eq!(calls.ask(&format!("pread {fd} 0 5")), "[xxxxx]");
    assert_eq!(calls.ask(&format!("pread {fd} 102398 5")), "[xx]");
    disk.free("filler");
    assert_eq!(calls.ask(&format!("pread {fd} 102398 9")), "[xxmore]");
    assert_eq!(calls.get(&format!("seekend {gapped} 0")), 200_004);
    assert_eq!(calls.ask(&format!("close {fd}")), "0");
    calls.end();
}

/// A checkpoint is written beside the last good one and takes its name.
#[test]
fn file_with_refused_bytes_takes_no_good_files_name() {
    for flags in [&[][..], &["--rule", "/**=delegate"]] {
        let folder = Folder::new();
        let Some(disk) = Disk::mount(&folder, "disk") else { return };
        let (good, new) = (disk.0.join("good"), disk.0.join("new"));
        fs::write(&good, "good").expect("a good file");
        let mut command = kakehi_run(&folder, flags);
        let command = command.env("KAKEHI_STAGE_AFTER", "0us").arg(program("calls"));
        let mut calls = Calls::start(command);
        let fd = calls.get(&format!("open {} +c", new.display()));
        disk.fill("filler");
        assert_eq!(calls.get(&format!("fill {fd} 40000")), 40_000);
        let rename = format!("rename {} {}", new.display(), good.display());
        assert_eq!(calls.ask(&rename), "ENOSPC");
        assert_eq!(fs::read_to_string(&good).expect("the good file"), "good");
        disk.free("filler");
        assert_eq!(calls.ask(&rename), "0");
        assert_eq!(calls.ask(&format!("close {fd}")), "0");
        assert_eq!(fs::metadata(&good).expect("the new file").len(), 40_000);
        calls.end();
    }
}
