//! The job's name and folder, as `kakehi env` prints them and `kakehi doctor` creates them.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::{self, Command},
};

use tempfile::tempdir;

use crate::{fails, json, kakehi, library, output};

/// `kakehi env` with this runtime folder.
fn env(folder: &Path) -> Command {
    let mut command = kakehi(folder);
    command.arg("env").env("KAKEHI_PRELOAD", library(folder)).env("XDG_RUNTIME_DIR", folder);
    command
}

#[test]
fn the_first_of_kakehi_slurm_pmix_pmi_and_pid_names_the_job() {
    let folder = tempdir().expect("temporary folder");
    let name = |command: &mut Command| {
        let found = json(command.arg("--json"));
        let name = found["KAKEHI_JOB"].as_str().expect("a name").to_owned();
        let socket = folder.path().join("kakehi").join(&name);
        assert_eq!(found["KAKEHI_SOCKET"], socket.display().to_string());
        name
    };
    let mut command = env(folder.path());
    // In a container its number follows.
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    assert!(is_number(&name(&mut command)));
    // Ranks that one process has started, as MPICH's launcher does, are of one job.
    for rank in ["0", "1"] {
        let found = name(env(folder.path()).env("PMI_RANK", rank));
        let rest = found.strip_prefix(&format!("pmi-{}", process::id()));
        assert!(rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-')), "{found}");
    }
    assert_eq!(name(env(folder.path()).env("PMIX_NAMESPACE", "prte-n1-7@1")), "prte-n1-7@1");
    let mut both = env(folder.path());
    both.env("PMIX_NAMESPACE", "7@1").env("SLURM_JOB_ID", "42").env("PMI_RANK", "0");
    assert_eq!(name(&mut both), "42");
    let mut all = env(folder.path());
    all.env("SLURM_JOB_ID", "42").env("KAKEHI_JOB", "mine");
    assert_eq!(name(&mut all), "mine");
}

#[test]
fn a_runtime_folder_that_is_missing_gives_way_to_tmp() {
    let folder = tempdir().expect("temporary folder");
    let mut command = env(folder.path());
    command.env("XDG_RUNTIME_DIR", "/nowhere").env("KAKEHI_JOB", "j").arg("--json");
    let socket = json(&mut command)["KAKEHI_SOCKET"].as_str().expect("a path").to_owned();
    assert!(socket.starts_with("/tmp/kakehi-") && socket.ends_with("/j"), "{socket}");
}

#[test]
fn names_that_are_no_folder_are_refused() {
    let folder = tempdir().expect("temporary folder");
    let long = "x".repeat(65);
    fails(env(folder.path()).env("KAKEHI_JOB", &long), 2, &["KAKEHI_JOB", "folder"]);
    // Nobody has chosen that.
    let mut scheduled = env(folder.path());
    let document = json(scheduled.env("SLURM_JOB_ID", &long).arg("--json"));
    assert!(document["KAKEHI_JOB"].as_str().is_some_and(|name| name.len() < long.len()));
    for name in ["../x", ".", "..", "a/b", "a b", "ä"] {
        fails(env(folder.path()).env("KAKEHI_JOB", name), 2, &["KAKEHI_JOB", "folder"]);
        fails(env(folder.path()).env("SLURM_JOB_ID", name), 2, &["SLURM_JOB_ID", "KAKEHI_JOB"]);
    }
}

#[test]
fn a_socket_path_too_long_for_the_kernel_is_refused() {
    let folder = tempdir().expect("temporary folder");
    let long = format!("/{}", "x".repeat(100));
    fails(env(folder.path()).args(["--socket", &long]), 2, &["107 bytes", "--socket"]);
}

#[test]
fn what_env_prints_gives_a_shell_the_same_settings_again() {
    let folder = tempdir().expect("temporary folder");
    let rule = "it's a $(dir)/*=pass";
    let (code, script, _) = output(env(folder.path()).args(["--rule", rule, "--cores", "1"]));
    assert_eq!(code, 0);
    let shell = "eval \"$1\" && env -u LD_PRELOAD \"$0\" config --json";
    let program = env!("CARGO_BIN_EXE_kakehi");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", shell, program, &script]).env_clear().env("PATH", "/usr/bin:/bin");
    let found = json(command.current_dir("/"));
    let value = |name: &str| {
        let list = found["settings"].as_array().expect("a list");
        let row = list.iter().find(|row| row["name"] == name).expect("the setting");
        (row["value"].as_str().expect("set").to_owned(), row["origin"].clone())
    };
    let absolute = folder.path().join("it's a $(dir)/*=pass").display().to_string();
    assert_eq!(value("rules"), (absolute, "variable KAKEHI_RULES".into()));
    assert_eq!(value("cores"), ("1".to_owned(), "variable KAKEHI_CORES".into()));
    assert_eq!(value("socket").1, "variable KAKEHI_SOCKET");
}

#[test]
fn the_library_is_added_once_behind_what_is_preloaded() {
    let folder = tempdir().expect("temporary folder");
    let library = folder.path().join("libkakehi_preload.so").display().to_string();
    let preload = |present: &str| {
        let found = json(env(folder.path()).arg("--json").env("LD_PRELOAD", present));
        found["LD_PRELOAD"].as_str().expect("a list").to_owned()
    };
    let other = "/usr/lib/x86_64-linux-gnu/libm.so.6";
    assert_eq!(preload(""), library);
    assert_eq!(preload(other), format!("{other}:{library}"));
}

#[test]
fn a_missing_library_or_one_the_loader_cannot_name_is_reported() {
    let folder = tempdir().expect("temporary folder");
    let mut missing = env(folder.path());
    fails(missing.env("KAKEHI_PRELOAD", "/nowhere.so"), 1, &["/nowhere.so", "KAKEHI_PRELOAD"]);
    let spaced = folder.path().join("a b.so");
    fs::rename(library(folder.path()), &spaced).expect("renamed");
    fails(env(folder.path()).env("KAKEHI_PRELOAD", spaced), 1, &["space or a colon"]);
}

#[test]
fn no_daemon_is_told_apart_from_other_failures() {
    let folder = tempdir().expect("temporary folder");
    for name in ["status", "drain"] {
        let mut command = kakehi(folder.path());
        command.args([name, "--socket", "job"]);
        fails(&mut command, 3, &["no daemon", "job/socket", "kakehi run"]);
    }
    fs::create_dir(folder.path().join("job")).expect("folder");
    let mut command = kakehi(folder.path());
    fails(command.args(["status", "--socket", "job"]), 1, &["its mode is 0755", "0700"]);
    fs::set_permissions(folder.path().join("job"), fs::Permissions::from_mode(0o700))
        .expect("mode");
    let mut command = kakehi(folder.path());
    fails(command.args(["status", "--socket", "job"]), 3, &["no daemon", "No such file"]);
}

#[test]
fn a_folder_that_is_a_link_or_open_to_others_is_refused() {
    let folder = tempdir().expect("temporary folder");
    let real = folder.path().join("real");
    fs::create_dir(&real).expect("folder");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).expect("mode");
    symlink(&real, folder.path().join("link")).expect("link");
    for link in ["link", "link/"] {
        let mut command = kakehi(folder.path());
        fails(command.args(["status", "--socket", link]), 1, &["socket folder", "link"]);
    }

    let finding = |socket: &Path| {
        let mut command = kakehi(folder.path());
        let found = json(command.args(["doctor", "--json", "--socket"]).arg(socket));
        let list = found["findings"].as_array().expect("a list");
        list.iter().find(|row| row["name"] == "socket folder").expect("finding").clone()
    };
    assert_eq!(finding(&real)["state"], "ok");
    assert!(real.is_dir(), "a folder that was there stays");
    let new = folder.path().join("new");
    assert_eq!(finding(&new)["state"], "ok");
    assert!(!new.exists(), "a folder that doctor made is gone");
    assert_eq!(finding(&folder.path().join("link"))["state"], "problem");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o750)).expect("mode");
    assert_eq!(finding(&real)["state"], "problem");
    // Everybody may enter /proc/self, and as nobody's but its owner's folder it cannot be ours.
    assert_eq!(finding(Path::new("/proc"))["state"], "problem");
}
