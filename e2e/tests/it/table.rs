//! Descriptor tables: a daemon's that is short for all its processes, a program's that is full.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::{
    harness::{Daemon, Folder, Running, kakehi, program},
    preload::{compile, same_in_every_way},
};

const PROCESSES: usize = 1000;
/// Long for a thousand processes on a busy machine.
const TIME: Duration = Duration::from_secs(300);

#[test]
fn library_takes_no_number_of_a_program() {
    same_in_every_way(&compile("scanned.c", "cc", &[]));
}

#[test]
fn thousand_processes_are_served_at_a_limit_of_4096_descriptors() {
    let folder = Folder::alone();
    let out = folder.join("out");
    fs::create_dir(&out).expect("a folder");
    let socket = folder.join("job");
    let mut command = Command::new("prlimit");
    command.arg("--nofile=4096:4096").arg(kakehi()).args(["serve", "--socket"]).arg(&socket);
    let daemon = Daemon::start_by(&folder, socket, &mut command);
    let mut many = daemon.wrap(program("many"));
    many.arg(PROCESSES.to_string()).arg(&out).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running::start(&mut many);
    let mut line = String::new();
    let stdout = running.child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let sessions = |status: &Value| {
        let cores = status["cores"].as_array().expect("cores");
        cores.iter().filter_map(|core| core["sessions"].as_u64()).sum::<u64>()
    };
    let served = sessions(&daemon.status());
    assert!(served >= PROCESSES as u64, "{served} sessions");
    drop(running.child.stdin.take());
    let ended = running.wait(TIME);
    assert!(ended.success(), "{ended}");
    let summary = daemon.status()["summary"].clone();
    assert_eq!(summary["bytes_undelegated"].get("credit"), None, "{summary:#}");
    daemon.end();
    for number in 0..PROCESSES {
        let found = fs::read_to_string(out.join(number.to_string())).expect("a file");
        assert!(found == format!("process {number}\n").repeat(128), "{number}");
    }
}
