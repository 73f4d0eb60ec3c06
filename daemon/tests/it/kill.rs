//! Clients and daemons in processes of their own, killed.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use daemon::{Config, caller};
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Resource, Rlimit, setrlimit},
};
use wire::{FileFlags, Request};

use crate::{
    client::Client,
    support::{Daemon, until},
};

const LOG: (u64, u64) = (0, 64 << 10);
const FOLDER: &str = "KAKEHI_TEST_FOLDER";
const RECORD: [u8; 8] = *b"accepted";

/// The program of the client processes; as a test of its own it does nothing.
#[test]
fn client_process() {
    #[expect(clippy::disallowed_methods, reason = "set by the tests that start this process")]
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = PathBuf::from(folder);
    let file = File::create(folder.join("file")).expect("a file");
    let mut client = Client::connect(&folder);
    client.register(1, &file, FileFlags::WRITABLE, LOG);
    // What a forked child does that outlives its parent: keeps the control socket open.
    fcntl_setfd(&client.socket, FdFlags::empty()).expect("our own");
    let mut child = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().expect("sleep");
    println!("child {}", child.id());
    for count in 1.. {
        client.stage_all(1, (count - 1) * 8, &RECORD);
        println!("accepted {count}");
    }
    child.wait().expect("never reached");
}

/// The program of a daemon that can be sent signals; as a test of its own it does nothing.
#[test]
fn daemon_process() {
    #[expect(clippy::disallowed_methods, reason = "set by the tests that start this process")]
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    // So few that a session gets fewer files than it has slots for.
    let few = Rlimit { current: Some(1024), maximum: Some(1024) };
    setrlimit(Resource::Nofile, few).expect("no more than there were");
    daemon::serve(Config::new(PathBuf::from(folder)), None, |_| println!("ready"))
        .map(drop)
        .expect("no error");
}

/// Starts [`daemon_process`]; returns when it serves, with the rest of what it will say.
fn start_daemon(folder: &Path) -> (Child, impl BufRead) {
    let mut process = start(folder, "kill::daemon_process");
    let mut output = BufReader::new(process.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        assert!(output.read_line(&mut line).expect("text") > 0, "the daemon has ended early");
    }
    (process, output)
}

#[test]
fn terminated_daemon_drains_and_leaves_in_order() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let (mut process, _output) = start_daemon(dir.path());
    let path = dir.path().join("file");
    let file = File::create(&path).expect("a file");
    let mut client = Client::connect(dir.path());
    client.register(1, &file, FileFlags::WRITABLE, LOG);
    client.stage(1, 0, &RECORD);
    let id = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it runs");
    client.expect_end();
    assert!(process.wait().expect("our child").success());
    assert_eq!(fs::read(&path).expect("a file"), RECORD);
    assert!(!dir.path().join("socket").exists());
}

fn start(folder: &Path, program: &str) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args([program, "--exact", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test again")
}

#[test]
fn killed_client_leaves_every_accepted_byte_while_its_child_lives() {
    for after in [1, 7, 300, 5_000] {
        let daemon = Daemon::start();
        let mut process = start(daemon.folder(), "kill::client_process");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let (mut accepted, mut child) = (0, None);
        for line in output.lines() {
            let line = line.expect("text");
            if let Some(id) = line.split("child ").nth(1) {
                child = id.parse().ok().and_then(rustix::process::Pid::from_raw);
            }
            // A line that the kill has cut off says nothing.
            if let Some(count) = line.strip_prefix("accepted ").and_then(|n| n.parse().ok()) {
                accepted = accepted.max(count);
            }
            if accepted == after {
                process.kill().expect("it runs");
            }
            if accepted > after + 100_000 {
                break;
            }
        }
        process.wait().expect("killed");
        until("the session ends", || daemon.status()["sessions"] == 0);
        let bytes = fs::read(daemon.folder().join("file")).expect("a file");
        let complete = bytes.chunks_exact(8).take_while(|record| **record == RECORD).count();
        assert!(complete * 8 == bytes.len(), "nothing else is in the file");
        assert!(complete >= accepted, "{complete} of {accepted} records");
        let child = child.expect("it was named");
        rustix::process::kill_process(child, rustix::process::Signal::KILL).expect("it sleeps");
        daemon.stop();
    }
}

#[test]
fn more_files_than_were_granted_end_the_session() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let (mut process, _output) = start_daemon(dir.path());
    let file = File::create(dir.path().join("file")).expect("a file");
    let mut client = Client::connect(dir.path());
    let granted = client.welcome.file_credit;
    assert!(granted < 256);
    (0..granted).for_each(|slot| client.register(slot, &file, FileFlags::WRITABLE, (0, 0)));
    assert_eq!(client.ask(Request::Sync { file: granted - 1 }), Ok(0));
    client.register(granted, &file, FileFlags::WRITABLE, (0, 0));
    client.expect_end();
    process.kill().expect("it runs");
    process.wait().expect("our child");
}

/// In a process of its own: other tests of this one have daemons too.
#[test]
fn descriptors_and_maps_return_when_sessions_end() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let (mut process, _output) = start_daemon(dir.path());
    let proc = PathBuf::from(format!("/proc/{}", process.id()));
    let held = || {
        let maps = fs::read_to_string(proc.join("maps")).expect("our child");
        let segments = maps.lines().filter(|line| line.contains("memfd:kakehi")).count();
        (fs::read_dir(proc.join("fd")).expect("our child").count(), segments)
    };
    let round = &|name: &str| {
        let file = File::create(dir.path().join(name)).expect("a file");
        let mut client = Client::connect(dir.path());
        (0..8).for_each(|slot| {
            let log = (u64::from(slot) * 4096, 4096);
            client.register(slot, &file, FileFlags::WRITABLE, log);
            client.stage(slot, 0, b"x");
        });
    };
    let session_count = || {
        let answer = caller::ask(dir.path(), caller::Control::Status).expect("it serves");
        serde_json::from_str::<serde_json::Value>(&answer).expect("JSON")["sessions"].clone()
    };
    let before = held();
    thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            scope.spawn(move || (0..20).for_each(|_| round(name)));
        }
    });
    until("every session has ended", || session_count() == 0);
    // Threads that were started keep what they need; 80 sessions with 8 files each would stand out.
    let after = || (held().0.saturating_sub(before.0), held().1.saturating_sub(before.1));
    until("descriptors and segments are given back", || after().0 < 20 && after().1 < 20);
    process.kill().expect("it runs");
    process.wait().expect("our child");
}
