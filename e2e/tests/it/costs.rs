//! Costs of calls on each file system: learned as programs run, shown, and decided by.

use std::{fs, path::Path, process::Command, time::Duration};

use serde_json::Value;

use crate::{
    harness::{Daemon, Folder, kakehi, kakehi_run, program, run, succeed, text},
    rigs::{Rig, requests},
};

const TIME_MAX: Duration = Duration::from_secs(120);
/// So many that each kind of call is timed more than four times.
const FILES: &str = "600";

/// Has a program of the daemon's job make files in a folder, or look at them.
#[track_caller]
fn metadata(daemon: &Daemon, folder: &Path, deed: &str) {
    let mut command = daemon.wrap(program("metadata"));
    // As users have it: files are examined when something depends on them.
    command.env_remove("KAKEHI_STAGE_AFTER");
    succeed(command.arg(folder).args([FILES, deed]), TIME_MAX);
}

#[test]
fn costs_of_a_slow_file_system_are_learned_and_shown() {
    let folder = Folder::new();
    let slow = "--metadata 200us --data 50us --servers 8 --keep 0us";
    let Some(rig) = Rig::start(&folder, "slowfs", slow) else { return };
    let daemon = Daemon::start(&folder, "job", &[]);
    ["make", "look"].iter().for_each(|deed| metadata(&daemon, &rig.mount(), deed));

    let status = daemon.status();

    let mount = rig.mount().display().to_string();
    let systems = status["file_systems"].as_array().expect("learned");
    let system = systems.iter().find(|system| system["mount"] == mount.as_str());
    let system = system.unwrap_or_else(|| panic!("{status}"));
    let metadata = ["open", "create", "close", "stat"].map(|kind| (kind, 200));
    let data = ["write", "read", "sync"].map(|kind| (kind, 50));
    for (kind, least_us) in metadata.into_iter().chain(data) {
        let us = system[format!("{kind}_call_ns")].as_u64().unwrap_or(0) / 1000;
        // The latency at least; how much more depends on what else the machine does.
        assert!((least_us..100_000).contains(&us), "{kind}: {system}");
    }
    for kind in ["open", "create"] {
        let files = system[format!("{kind}_calls")].as_u64().unwrap_or(0);
        // The first few and those since the last that was timed are not known.
        assert!((400..=600).contains(&files), "{kind}: {system}");
    }
    let mut shown = Command::new(kakehi());
    let shown = succeed(shown.args(["status", "--socket"]).arg(&daemon.socket), TIME_MAX);
    let line = shown.lines().find(|line| line.contains(&mount)).expect("a line");
    assert!(line.starts_with("costs     on ") && line.contains(" us"), "{line}");
    daemon.end();
    rig.stop();
}

/// The daemon's descriptor is closed, too: where that asks a server, a few writes do not repay it.
#[test]
fn files_of_few_writes_are_handed_over_only_where_a_close_costs_little() {
    let few = ["600", "5", "100"];
    let Some([native, wrapped]) = requests("--metadata 2ms", &few, &[]) else { return };
    assert!(wrapped["close"] < native["close"] + 300, "{native:?} {wrapped:?}");

    let Some([native, wrapped]) = requests("--data 200us", &few, &[]) else { return };
    assert!(wrapped["write"] * 5 < native["write"] * 3, "{native:?} {wrapped:?}");
}

#[test]
fn summary_names_the_flag_where_files_are_dear_to_make() {
    let folder = Folder::new();
    let local = folder.join("local");
    fs::create_dir(&local).expect("a folder");
    let Some(rig) = Rig::start(&folder, "slowfs", "--metadata 2ms") else { return };
    let said = |place: &Path| {
        let stats = folder.join("stats");
        let mut command = kakehi_run(&folder, &["--stats", &stats.display().to_string()]);
        command.env_remove("KAKEHI_STAGE_AFTER");
        command.arg(program("metadata")).arg(place).args([FILES, "make"]);
        let output = run(&mut command, TIME_MAX);
        assert!(output.status.success(), "{output:?}");
        let line = fs::read_to_string(&stats).expect("statistics");
        let line: Value = serde_json::from_str(line.lines().last().expect("a line")).expect("JSON");
        (text(&output.stderr), line)
    };
    let (dear, line) = said(&rig.mount());
    let place = rig.mount().display().to_string();
    assert!(dear.contains("kakehi: making ") && dear.contains("--coalesce DIR=FILE"), "{dear}");
    assert!(dear.contains(&place) && line["file_systems"].to_string().contains(&place), "{line}");
    let (cheap, _) = said(&local);
    assert!(!cheap.contains("--coalesce"), "{cheap}");
    rig.stop();
}

/// Each request is a round trip: where a multifile begins and ends it asks for what it needs, once.
#[test]
fn multifile_takes_few_requests_where_it_begins_and_ends() {
    let folder = Folder::new();
    let Some(rig) = Rig::start(&folder, "slowfs", "") else { return };
    let (files, multifile) = (rig.mount().join("files"), rig.mount().join("files.sion"));
    let coalesced = format!("{}={}", files.display(), multifile.display());
    let mut command = kakehi_run(&folder, &["--coalesce", &coalesced]);
    succeed(command.arg(program("pattern")).arg(&files).args(["200", "1", "4096"]), TIME_MAX);
    let found = rig.stop();
    let sum: u64 =
        ["lookup", "attributes", "open", "close", "change"].map(|kind| found[kind]).iter().sum();
    assert!(found["lookup"] <= 20 && sum <= 65, "{found:?}");
}
