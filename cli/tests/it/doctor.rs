//! `kakehi doctor`: finds what is there, and fails only when delegation cannot work.

use std::fs;

use serde_json::Value;
use tempfile::tempdir;

use crate::{json, kakehi, output};

fn finding<'a>(document: &'a Value, name: &str) -> &'a Value {
    let list = document["findings"].as_array().expect("a list");
    list.iter().find(|row| row["name"] == name).expect("the finding")
}

#[test]
fn every_finding_has_a_state_and_a_meaning() {
    let folder = tempdir().expect("temporary folder");
    let found = json(kakehi(folder.path()).args(["doctor", "--json"]));
    let list = found["findings"].as_array().expect("a list");
    for row in list {
        assert!(["ok", "note", "problem"].contains(&row["state"].as_str().expect("a state")));
        assert!(row["found"].is_string() && row["meaning"].is_string(), "{row}");
    }
    let (code, text, _) = output(kakehi(folder.path()).arg("doctor"));
    // And a verdict; a bad one is an error.
    assert_eq!(text.lines().count(), list.len() + usize::from(code == 0), "{text}");
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing is left");
}

#[test]
fn what_every_linux_of_today_has_is_found() {
    let folder = tempdir().expect("temporary folder");
    let found = json(kakehi(folder.path()).args(["doctor", "--json"]));
    for name in ["memfd", "pidfd", "libc"] {
        assert_eq!(finding(&found, name)["state"], "ok", "{name}");
    }
}

#[test]
fn a_library_the_loader_refuses_is_a_problem() {
    let folder = tempdir().expect("temporary folder");
    let library = folder.path().join("broken.so");
    fs::write(&library, "no ELF").expect("file");
    let mut command = kakehi(folder.path());
    command.args(["doctor", "--json"]).env("KAKEHI_PRELOAD", &library);
    let found = json(&mut command);
    assert_eq!(found["delegation"], false);
    let preload = finding(&found, "preload");
    assert_eq!(preload["state"], "problem");
    assert!(preload["found"].as_str().expect("text").contains("broken.so"), "{preload}");

    let (code, text, line) = output(command.env("KAKEHI_PRELOAD", "/nowhere.so"));
    assert_eq!(code, 1, "{text}");
    assert!(line.contains("\"object\":\"doctor\"") && line.contains("preload"), "{line}");
}

#[test]
fn a_low_limit_on_descriptors_is_noted_with_what_to_ask_for() {
    let folder = tempdir().expect("temporary folder");
    let mut command = std::process::Command::new("/bin/sh");
    let script = "ulimit -n 256 && exec \"$0\" doctor --json";
    command.args(["-c", script, env!("CARGO_BIN_EXE_kakehi")]).current_dir(folder.path());
    let found = json(&mut command);
    let open_files = finding(&found, "open files");
    assert_eq!(open_files["state"], "note");
    assert_eq!(open_files["found"], "256");
    assert!(open_files["advice"].as_str().expect("advice").contains("ulimit -Hn"));
}

#[test]
fn an_empty_path_finds_no_launcher_and_is_no_problem() {
    let folder = tempdir().expect("temporary folder");
    let found = json(kakehi(folder.path()).args(["doctor", "--json"]).env("PATH", ""));
    assert_eq!(finding(&found, "MPI")["state"], "note");
}

/// Each has ended a run with 125 while doctor found nothing.
#[test]
fn doctor_finds_what_a_run_fails_of() {
    let folder = tempdir().expect("temporary folder");
    for limit in ["ulimit -n 16", "ulimit -f 8"] {
        let mut command = std::process::Command::new("/bin/sh");
        let script = format!("{limit} && exec \"$0\" doctor --json");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_kakehi")]).current_dir(folder.path());
        let found = json(&mut command);
        assert_eq!(found["delegation"], false, "{limit}: {found}");
        assert_eq!(finding(&found, "run")["state"], "problem", "{limit}: {found}");
    }
}
