//! A daemon that stands still: clients wait for it, or fence it; it and they never both write.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    iter, mem,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
    process::Signal,
};

use crate::{
    harness::{
        Daemon, Folder, Running, SOON, kakehi, note, pause, program, run, succeed, text, wait_for,
    },
    records::{KINDS, LOG_LEN, Writer},
};

const RECORD_LEN: usize = 1024;
/// Records that show that a writer goes on.
const MORE: u64 = 1000;
/// How long clients wait for a silent daemon before they fence it, unless they are told.
const FENCE_TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn clients_wait_for_a_daemon_that_was_stopped_and_go_on() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut writers = start(&folder, &daemon);
    daemon.running.signal(Signal::STOP);
    let counts = || writers.iter().map(Writer::count).collect::<Vec<_>>();
    let mut before = counts();
    let waits = wait_for(FENCE_TIMEOUT * 2 / 3, || {
        pause(Duration::from_secs(2));
        let earlier = mem::replace(&mut before, counts());
        before == earlier
    });
    assert!(waits, "they go on: {before:?}");
    daemon.running.signal(Signal::CONT);
    finish(&mut writers);
    let summary = daemon.status()["summary"].clone();
    assert_eq!(
        summary["bytes_undelegated"],
        serde_json::json!({}),
        "{summary:#} {}",
        daemon.said()
    );
    daemon.end();
}

/// Nobody waits for it without end, nor for others that wait for it.
#[test]
fn whoever_asks_a_daemon_that_stands_still_or_comes_to_it_is_told() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    daemon.running.signal(Signal::STOP);
    // As one that stands still just before it releases the lock of its start.
    let lock = File::open(daemon.socket.join("lock")).expect("the daemon has made it");
    flock(&lock, FlockOperation::LockExclusive).expect("a lock");
    let is_told = |said: &str| {
        let process = format!("(process {})", daemon.running.child.id());
        assert!(said.contains(&process) && said.contains("no answer"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    for name in ["status", "drain"] {
        let mut command = Command::new(kakehi());
        let output = run(command.args([name, "--socket"]).arg(&daemon.socket), SOON);
        is_told(&text(&output.stderr));
        assert_eq!(output.status.code(), Some(3));
    }
    let begun = Instant::now();
    let come = |_| {
        let mut command = Command::new(kakehi());
        command.args(["run", "--socket"]).arg(&daemon.socket).arg("true");
        thread::spawn(move || run(&mut command, SOON * 2))
    };
    for run in (0..4).map(come).collect::<Vec<_>>() {
        let output = run.join().expect("in time");
        is_told(&text(&output.stderr));
        assert_eq!(output.status.code(), Some(125));
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "one after the other");
    daemon.running.signal(Signal::CONT);
    drop(lock);
    daemon.end();
}

#[test]
fn a_daemon_that_stands_still_does_not_hide_another() {
    let folder = Folder::new();
    let base = folder.join("kakehi");
    fs::create_dir(&base).expect("a folder");
    fs::set_permissions(&base, fs::Permissions::from_mode(0o700)).expect("mode");
    let [still, other] = ["kakehi/a", "kakehi/b"].map(|name| Daemon::start(&folder, name, &[]));
    still.running.signal(Signal::STOP);
    let mut status = Command::new(kakehi());
    status.arg("status").env("XDG_RUNTIME_DIR", folder.path());
    let output = run(status.env_remove("KAKEHI_JOB"), SOON);
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("kakehi/a") && said.contains("no answer"), "{said}");
    // Below /tmp this user may have more.
    let is_shown = printed.contains(&format!("daemon {}, ", other.running.child.id()));
    assert!(is_shown || said.contains("several jobs"), "{printed}{said}");
    still.running.signal(Signal::CONT);
    still.end();
    other.end();
}

/// A lock's descriptor would have to be closed once the file is detached.
#[test]
fn record_lock_that_is_taken_while_another_thread_opens_the_file_is_kept() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut command = daemon.wrap(program("raced"));
    command.env("KAKEHI_RULES", "/**=delegate").arg(folder.join("file"));
    let said = succeed(command.arg(daemon.running.child.id().to_string()), SOON);
    assert_eq!(said, "held\n");
    daemon.end();
}

/// The daemon's copy of a descriptor would hold the lock until it notices that the owner is dead.
#[test]
fn lock_of_a_dead_process_is_free_at_once() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut command = daemon.wrap(program("outlived"));
    assert_eq!(succeed(command.arg(folder.join("file")), SOON), "0\n", "taken by the dead");
    daemon.end();
}

/// The kernel syncs a file that the daemon has released by then.
#[test]
fn file_that_another_thread_maps_meanwhile_is_synced_all_the_same() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut command = daemon.wrap(program("synced"));
    command.env("KAKEHI_RULES", "/**=delegate").arg(folder.join("file"));
    let said = succeed(command.arg(daemon.running.child.id().to_string()), SOON);
    assert_eq!(said, "synced\n");
    daemon.end();
}

/// The daemon may be stopped in the middle of a write. Killed while it is stopped, it never ends
/// that write; the client's own comes after it is gone, so a newer byte is never written over.
#[test]
fn clients_fence_a_daemon_that_stays_stopped() {
    let folder = Folder::new();
    for round in 0..4 {
        let mut daemon = Daemon::start(&folder, &format!("job{round}"), &[]);
        daemon.set("KAKEHI_FENCE_TIMEOUT", "1s");
        let mut writers = start(&folder, &daemon);
        pause(Duration::from_millis(7 * round));
        daemon.running.signal(Signal::STOP);
        let stopped = Instant::now();
        let dead = wait_for(SOON, || daemon.running.child.try_wait().expect("child").is_some());
        assert!(dead, "nobody has fenced the daemon");
        note(format_args!("fenced after {:?}", stopped.elapsed()));
        // Somebody may have waited for a while when it was stopped.
        assert!(stopped.elapsed() >= Duration::from_millis(500), "fenced too early");
        // One that has waited for nothing looks at the daemon every 10 ms.
        pause(Duration::from_millis(100));
        finish(&mut writers);
        fs::remove_dir_all(&daemon.socket).expect("what a killed daemon leaves");
    }
}

#[test]
fn a_client_that_is_interrupted_goes_on_waiting_for_its_welcome() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let out = folder.join("out");
    daemon.running.signal(Signal::STOP);
    let mut command = daemon.wrap("bash");
    // The first thing that takes it to the daemon.
    command.env("KAKEHI_RULES", format!("{}=delegate", out.display()));
    command.args(["-c", "trap : USR1; echo ready; echo x >\"$0\""]).arg(&out);
    let mut program = Running::start(command.stdin(Stdio::null()).stdout(Stdio::piped()));
    let mut line = String::new();
    let output = program.child.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("a pipe");
    assert_eq!(line, "ready\n");
    for _ in 0..100 {
        program.signal(Signal::USR1);
        pause(Duration::from_millis(2));
    }
    daemon.running.signal(Signal::CONT);
    assert!(program.wait(SOON).success());
    assert_eq!(fs::read(out).expect("there"), b"x\n");
    let summary = daemon.status()["summary"].clone();
    assert_eq!(summary["sessions"], 1, "{summary:#}");
    daemon.end();
}

#[test]
fn a_client_that_is_not_even_let_knock_goes_on_without_the_daemon() {
    let folder = Folder::new();
    let mut daemon = Daemon::start(&folder, "job", &[]);
    daemon.set("KAKEHI_FENCE_TIMEOUT", "1s");
    daemon.running.signal(Signal::STOP);
    let address = SocketAddrUnix::new(daemon.socket.join("socket")).expect("a short path");
    let knock = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.expect("a socket");
        connect(&socket, &address).map(|()| socket)
    };
    let guests: Vec<_> = iter::from_fn(|| knock().ok()).collect();
    assert!(!guests.is_empty(), "nobody comes in");
    let out = folder.join("out");
    succeed(daemon.wrap("bash").args(["-c", "seq 1000 | tee \"$0\""]).arg(&out), SOON);
    assert_eq!(fs::read_to_string(out).expect("written").lines().count(), 1000);
    daemon.running.signal(Signal::CONT);
    drop(guests);
    daemon.end();
}

fn start(folder: &Folder, daemon: &Daemon) -> Vec<Writer> {
    let start = |(index, kind)| {
        let path = folder.join(format!("out{index}"));
        Writer::start(daemon, kind, path, 0, RECORD_LEN)
    };
    let writers: Vec<_> = KINDS.into_iter().enumerate().map(start).collect();
    for writer in &writers {
        assert!(writer.reaches(1, SOON), "nothing is accepted");
    }
    writers
}

/// Every writer goes on, and what it was told is accepted is in its file.
fn finish(writers: &mut [Writer]) {
    for writer in &mut *writers {
        assert!(writer.reaches(writer.count() + MORE, SOON), "it does not go on");
        writer.running.signal(Signal::KILL);
        writer.running.wait(SOON);
    }
    for writer in writers {
        let accepted = writer.accepted();
        // Once its log is full it makes no call by which it could see that it has to drain.
        if accepted.len() as u64 == LOG_LEN {
            note("a writer has filled its log");
            writer.clear();
            continue;
        }
        let mut missing = Vec::new();
        let complete = wait_for(SOON, || {
            missing = writer.missing(&accepted);
            missing.is_empty()
        });
        assert!(complete, "{} records of {}: {missing:?}", missing.len(), accepted.len());
        writer.clear();
    }
}
