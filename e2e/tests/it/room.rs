//! More files than a process has room for to stage and to read ahead.

use std::fs;

use crate::{
    calls::Calls,
    harness::{Folder, SOON, kakehi_run, program, succeed},
};

/// Open at a time; the least staging memory has room for three.
const FILES: usize = 12;

/// Writes, reads, and appends to all of them in turn; returns their paths.
fn use_many(folder: &Folder, flags: [&str; 2]) -> Vec<String> {
    fs::create_dir(folder.join("files")).expect("a folder");
    let mut command = kakehi_run(folder, &flags);
    let mut calls = Calls::start(command.env("KAKEHI_STAGING", "256KiB").arg(program("calls")));
    let path = |file| folder.join("files").join(format!("f{file}")).display().to_string();
    let paths: Vec<_> = (0..FILES).map(path).collect();
    let fds: Vec<_> = paths.iter().map(|path| calls.get(&format!("open {path} +c"))).collect();
    for (file, fd) in fds.iter().enumerate() {
        assert_eq!(calls.get(&format!("write {fd} {file:05}")), 5);
        assert_eq!(calls.get(&format!("fill {fd} 100000")), 100_000);
    }
    for (file, fd) in fds.iter().enumerate() {
        assert_eq!(calls.ask(&format!("pread {fd} 0 7")), format!("[{file:05}xx]"));
        assert_eq!(calls.get(&format!("pwrite {fd} 5 ab")), 2);
        assert_eq!(calls.ask(&format!("pread {fd} 3 5")), format!("[{:02}abx]", file % 100));
        assert_eq!(calls.get(&format!("seek {fd} 0")), 100_005, "the position");
        assert_eq!(calls.get(&format!("write {fd} end")), 3);
    }
    let appended: Vec<_> = paths.iter().map(|p| calls.get(&format!("open {p} wa"))).collect();
    for fd in appended {
        assert_eq!(calls.get(&format!("write {fd} more")), 4);
    }
    for fd in &fds {
        assert_eq!(calls.ask(&format!("pread {fd} 100003 20")), "[xxendmore]");
    }
    calls.end();
    paths
}

fn content(file: usize) -> String {
    format!("{file:05}ab{}endmore", "x".repeat(99_998))
}

#[test]
fn files_beyond_the_room_for_them_are_delegated_all_the_same() {
    let folder = Folder::new();
    for (file, path) in use_many(&folder, ["--rule", "/**=delegate"]).iter().enumerate() {
        assert!(fs::read_to_string(path).expect("it is there") == content(file), "{path}");
    }
}

#[test]
fn files_beyond_the_room_for_them_are_coalesced_all_the_same() {
    let folder = Folder::new();
    let map = format!("{}={}", folder.join("files").display(), folder.join("kept").display());
    let flags = ["--coalesce", &map];
    for (file, path) in use_many(&folder, flags).iter().enumerate() {
        let found = succeed(kakehi_run(&folder, &flags).arg("cat").arg(path), SOON);
        assert!(found == content(file), "{path}");
    }
}
