//! Clients and daemons in processes of their own, killed.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use daemon::Config;
use rustix::io::{FdFlags, fcntl_setfd};
use wire::FileFlags;

use crate::{
    client::Client,
    support::{DEADLINE, Daemon, until},
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
    let mut child = Command::new("sleep").arg("100").stdout(Stdio::null()).spawn().expect("sleep");
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
    daemon::serve(Config::new(PathBuf::from(folder)), || println!("ready")).expect("no error");
}

#[test]
fn terminated_daemon_drains_and_leaves_in_order() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let mut process = start(dir.path(), "kill::daemon_process");
    let mut output = BufReader::new(process.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        assert!(output.read_line(&mut line).expect("text") > 0, "the daemon has ended early");
    }
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

fn start(folder: &Path, program: &str) -> std::process::Child {
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
fn descriptors_and_maps_return_when_sessions_end() {
    let daemon = Daemon::start();
    let held = || {
        let maps = fs::read_to_string("/proc/self/maps").expect("our own");
        maps.lines().filter(|line| line.contains("memfd:kakehi")).count()
    };
    let path = daemon.folder().join("file");
    let round = || {
        let file = File::create(&path).expect("a file");
        let mut client = Client::connect(daemon.folder());
        (0..8).for_each(|slot| {
            let log = (u64::from(slot) * 4096, 4096);
            client.register(slot, &file, FileFlags::WRITABLE, log);
            client.stage(slot, 0, b"x");
        });
    };
    let start = std::time::Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).for_each(|_| round()));
        }
    });
    assert!(start.elapsed() < DEADLINE);
    until("every session has ended", || daemon.status()["sessions"] == 0);
    let links: Vec<_> = fs::read_dir("/proc/self/fd").expect("our own").flatten().collect();
    let open = links.iter().filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == path));
    assert_eq!(open.count(), 0);
    // Other tests of this process have daemons too; what 80 sessions would leave stands out.
    assert!(held() < 40, "{} maps", held());
    daemon.stop();
}
