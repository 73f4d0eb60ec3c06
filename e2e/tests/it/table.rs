//! Descriptor tables: a daemon's that is short for all its processes, a program's that is full.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::{
    harness::{Daemon, Folder, Running, SOON, kakehi, kakehi_run, program, succeed},
    preload::{compile, same_in_every_way},
    remote::server::{Scheme, Server},
};

/// Long for a thousand processes on a busy machine.
const TIME: Duration = Duration::from_secs(300);

#[test]
fn library_takes_no_number_of_a_program() {
    same_in_every_way(&compile("scanned.c", "cc", &[]));
}

#[test]
fn program_that_uses_up_its_numbers_is_answered_in_its_own_folder_as_natively() {
    same_in_every_way(&compile("filled.c", "cc", &[]));
}

#[test]
fn program_that_uses_up_its_numbers_is_answered_in_mapped_folders_as_natively() {
    let folder = Folder::new();
    let [native, local] = ["native", "local"].map(|name| folder.join(name));
    for place in [&native, &local] {
        fs::create_dir(place).expect("a folder");
    }
    let expected = succeed(Command::new(program("filled")).current_dir(&native), SOON);

    let map = format!("{}={}", local.display(), folder.join("kept.sion").display());
    let mut command = kakehi_run(&folder, &["--coalesce", &map]);
    assert_eq!(succeed(command.arg(program("filled")).current_dir(&local), SOON), expected);

    let server = Server::start(&folder, Scheme::Tcp);
    fs::create_dir(server.job()).expect("a folder");
    let mut command = server.run(&folder);
    assert_eq!(succeed(command.arg(program("filled")).current_dir(&local), SOON), expected);
    server.end();
}

#[test]
fn three_hundred_processes_are_served_at_a_limit_of_4096_descriptors() {
    serve(300, 4096);
}

#[test]
#[ignore = "a minute: for `make soak`"]
fn thousand_processes_are_served_at_a_limit_of_4096_descriptors() {
    serve(1000, 4096);
}

fn serve(processes: usize, descriptors: u32) {
    let folder = Folder::alone();
    let out = folder.join("out");
    fs::create_dir(&out).expect("a folder");
    let socket = folder.join("job");
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={descriptors}:{descriptors}")).arg(kakehi());
    command.args(["serve", "--socket"]).arg(&socket);
    let daemon = Daemon::start_by(&folder, socket, &mut command);
    let mut many = daemon.wrap(program("many"));
    many.arg(processes.to_string()).arg(&out).stdin(Stdio::piped()).stdout(Stdio::piped());
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
    assert!(served >= processes as u64, "{served} sessions");
    drop(running.child.stdin.take());
    let ended = running.wait(TIME);
    assert!(ended.success(), "{ended}");
    let summary = daemon.status()["summary"].clone();
    assert_eq!(summary["bytes_undelegated"].get("credit"), None, "{summary:#}");
    daemon.end();
    for number in 0..processes {
        let found = fs::read_to_string(out.join(number.to_string())).expect("a file");
        assert!(found == format!("process {number}\n").repeat(128), "{number}");
    }
}
