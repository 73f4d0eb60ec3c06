//! The built command `kakehi`, as a user starts it: what it prints, its exit codes, its one line
//! when something is wrong.
#![expect(clippy::indexing_slicing, reason = "a failing test shows where")]

mod check;
mod config;
mod doctor;
mod failures;
mod golden;
mod job;
mod multifile;
mod original;
mod original_dump;
mod packaging;
mod run;
mod serve;
mod sets;
mod terminal;
mod voice;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// `kakehi` in `folder`, with nothing of this process's environment but `PATH`.
fn kakehi(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kakehi"));
    let path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
    command.env_clear().env("PATH", path).env("HOME", folder).current_dir(folder);
    command
}

fn output(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("kakehi starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

/// Asserts that `command` prints nothing but one line on standard error, which has every one of
/// `parts`, and ends with `code`.
#[track_caller]
fn fails(command: &mut Command, code: i32, parts: &[&str]) {
    let (found, stdout, stderr) = output(command);
    assert_eq!(found, code, "{stderr}");
    assert_eq!(stdout, "");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("kakehi: ") && stderr.contains("; "), "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "'{part}' is not in: {stderr}");
    }
}

fn json(command: &mut Command) -> serde_json::Value {
    let (_, stdout, stderr) = output(command);
    serde_json::from_str(&stdout).unwrap_or_else(|why| panic!("{why}: {stdout}{stderr}"))
}

/// A library that the loader would accept. None of ours: nobody loads it from here.
fn library(folder: &Path) -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("own mappings");
    let mut mapped = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let some = mapped.find(|path| path.contains("/libgcc_s.so")).expect("what unwinds panics");
    let library = folder.join("libkakehi_preload.so");
    fs::copy(some, &library).expect("copied");
    library
}
