//! Servers that cannot be had: every reason has a line of its own, and the program does not run.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use wire::{Challenge, Frame, Hello, NONCE_LEN, SESSION_LEN, TAG_LEN, VERSION};

use super::local;
use crate::{
    harness::{
        Daemon, Folder, Running, SOON, heeded, kakehi, kakehi_run, processes_of, run, succeed,
        text, wait_for,
    },
    remote::server::{Scheme, Server, reserve_port},
};

/// Greeting of another kind of server.
const SSH: &[u8] = b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n";

/// Returns the greeting of a server of another build.
fn other_version() -> Vec<u8> {
    let (nonce, tag) = ([0; NONCE_LEN], [0; TAG_LEN]);
    Frame::Challenge(Challenge { version: VERSION + 1, nonce, tag }).head().bytes().to_vec()
}

/// A listener that says `greeting` to whoever comes, until the test ends.
fn stranger(greeting: impl Into<Vec<u8>>) -> String {
    let greeting = greeting.into();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("tcp://{}", listener.local_addr().expect("bound"));
    thread::spawn(move || {
        let mut guests = Vec::new();
        for mut guest in listener.incoming().flatten() {
            // It may have gone already.
            guest.write_all(&greeting).ok();
            guests.push(guest);
        }
    });
    url
}

/// Writes a key that no server has.
fn write_key(path: &Path) {
    fs::write(path, "0".repeat(64)).expect("key");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("mode");
}

/// And what is certain is not waited for: an hour is longer than the deadline.
#[test]
fn every_reason_for_having_no_server_is_one_line_of_its_own() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    fs::write(folder.join("root/file"), "").expect("file");
    write_key(&folder.join("other"));
    let there = Scheme::Tcp.url("127.0.0.1", server.port);
    let (closed, _reserved) = reserve_port();
    let closed = Scheme::Tcp.url("127.0.0.1", closed);
    let (silent, talkative, newer) = (stranger(*b""), stranger(SSH), stranger(other_version()));
    let unknown = "tcp://no..host:7777";
    // Longer than until it is told, after the first connection, that a server is waited for.
    let (long, short) = ("1h", "2s");
    for (url, key, remote, timeout, what, advice) in [
        (&*there, "other", "/job", long, "another key", "the same key file"),
        (&*there, "key", "/file", long, "/file: Not a directory", "--map"),
        (&*there, "key", "/file/x", long, "/file/x: Not a directory", "--map"),
        (unknown, "key", "/job", long, "lookup", "a host that this node knows"),
        (&*closed, "key", "/job", short, "Connection refused", "`kakehi serve` runs there"),
        (&*silent, "key", "/job", short, "does not answer", "`kakehi serve` runs there"),
        (&*newer, "key", "/job", long, "another version", "the same `kakehi` on both nodes"),
        (&*talkative, "key", "/job", long, "no server of this version", "`kakehi serve`"),
    ] {
        let key = folder.join(key).display().to_string();
        let map = format!("{}={remote}", local(&folder).display());
        let flags = ["--remote", url, "--key", &key, "--map", &map];
        let mut command = kakehi_run(&folder, &flags);
        command.env("KAKEHI_REMOTE_TIMEOUT", timeout).arg("echo").arg("ran");
        let output = run(&mut command, SOON);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), &*output.stdout), (Some(125), &b""[..]), "{url}: {said}");
        assert!(said.contains(what) && said.contains(advice), "{url} {key} {remote}: {said}");
        // And one on the way, where it is waited for.
        let is_waited_for = timeout == short;
        assert_eq!(
            said.contains("waiting up to 2s for the server"),
            is_waited_for,
            "{url}: {said}"
        );
        assert_eq!(said.lines().count(), 1 + usize::from(is_waited_for), "{url}: {said}");
    }
    server.end();
}

/// A program that starts finds it away, and it goes away under one that runs.
#[test]
fn server_that_is_away_is_told_of_within_seconds_and_again_when_it_is_back() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, Scheme::Tcp);
    server.kill();
    let (map, key) = (format!("{}=/job", local(&folder).display()), folder.join("key"));
    let url = Scheme::Tcp.url("127.0.0.1", server.port);
    let key = key.to_str().expect("UTF-8");
    let mut command = kakehi_run(&folder, &["--remote", &url, "--key", key, "--map", &map]);
    command.env("KAKEHI_REMOTE_TIMEOUT", "1h").stdin(Stdio::piped());
    command.stderr(fs::File::create(folder.join("said")).expect("log"));
    let script = "for i in 1 2 3; do echo $i >>\"$0/file\"; read line; done; true";
    let mut program = Running::start(command.args(["sh", "-c", script]).arg(local(&folder)));
    let started = Instant::now();
    let told = |what: &str| {
        let said = fs::read_to_string(folder.join("said")).expect("log");
        said.lines().filter(|line| line.contains(what)).count()
    };
    let is_away = format!("waiting up to 3600s for the server at {url}");
    let is_back = format!("the server at {url} is back");
    for round in 1..=2 {
        assert!(wait_for(SOON, || told(&is_away) == round), "round {round}: it waits in silence");
        // Not of a server that is there a moment later.
        assert!(started.elapsed() >= Duration::from_secs(1), "round {round}: told at once");
        assert_eq!(told(&is_back), round - 1);
        server.restart();
        assert!(wait_for(SOON, || told(&is_back) == round), "round {round}: its return is untold");
        let lines = || fs::read_to_string(server.job().join("file")).map_or(0, |text| text.len());
        assert!(wait_for(SOON, || lines() == 2 * round), "round {round}: nothing is written");
        server.kill();
        let mut stdin = program.child.stdin.as_ref().expect("piped");
        stdin.write_all(b"\n").expect("it reads");
    }
    server.restart();
    drop(program.child.stdin.take());
    assert!(program.wait(SOON).success());
    server.end();
}

#[test]
fn server_that_cannot_start_leaves_no_key_and_no_folder() {
    let folder = Folder::new();
    fs::create_dir(folder.join("root")).expect("folder");
    fs::write(folder.join("text"), "something else").expect("file");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("bound").to_string();
    let there = || {
        let entries = fs::read_dir(folder.path()).expect("there").flatten();
        let below = fs::read_dir(folder.join("root")).expect("there").flatten();
        let mut names: Vec<_> = entries.chain(below).map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    let before = there();
    let (any, at_taken) = ("tcp://127.0.0.1:0", format!("tcp://{taken}"));
    for (url, root, more) in [
        (any, "nowhere", &[][..]),
        (any, "text", &[]),
        (&*at_taken, "root", &[]),
        ("tcp://192.0.2.1:7777", "root", &[]),
        ("unix://none/socket", "root", &[]),
        (any, "root", &["--address-file", "none"]),
        (any, "root", &["--metrics-listen", &taken]),
        (any, "root", &["--coalesce", "root/job=none/x.sion"]),
        (any, "root", &["--coalesce", "root/job=text"]),
    ] {
        let mut serve = Command::new(kakehi());
        serve.args(["serve", "--listen", url, "--root", root, "--key", "key"]).args(more);
        serve.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
        let output = run(serve.current_dir(folder.path()), SOON);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.lines().count() == 1, "{url} {root}: {said}");
        assert_eq!(there(), before, "{url} {root} {more:?} leaves something: {said}");
    }
}

#[test]
fn client_of_another_version_hears_which_one_is_served_and_nothing_else() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("listens");
    let (version, session, nonce) = (VERSION + 1, [0; SESSION_LEN], [0; NONCE_LEN]);
    let hello = Frame::Hello(Hello { version, session, nonce });
    stream.write_all(hello.head().bytes()).expect("taken");
    let mut said = Vec::new();
    stream.set_read_timeout(Some(SOON)).expect("timeout");
    stream.read_to_end(&mut said).expect("it closes the connection");
    let Ok(Some((Frame::Challenge(challenge), len))) = Frame::parse(&said) else {
        panic!("no challenge: {said:?}");
    };
    assert_eq!((challenge.version, len), (VERSION, said.len()));
    server.end();
}

#[test]
fn daemon_that_waits_for_a_server_ends_with_who_has_started_it() {
    let folder = Folder::new();
    let (key, map) = (folder.join("key"), format!("{}=/job", local(&folder).display()));
    write_key(&key);
    let silent = stranger(*b"");
    let flags = ["--remote", &silent, "--key", key.to_str().expect("UTF-8"), "--map", &map];
    let is_daemon = |(_, arguments): &(i32, String)| arguments.contains(" serve ");
    let daemons = || processes_of(folder.path()).iter().filter(|found| is_daemon(found)).count();
    // Which is gone first, the killed one's lock or its end of the pipe, is up to the kernel.
    let signals = [Signal::KILL, Signal::INT, Signal::TERM, Signal::KILL, Signal::TERM];
    for signal in heeded(signals) {
        let mut command = kakehi_run(&folder, &flags);
        command.env("KAKEHI_REMOTE_TIMEOUT", "1h").arg("true");
        let mut run = Running::start(&mut command);
        assert!(wait_for(SOON, || daemons() == 1), "no daemon was started");
        run.signal(signal);
        run.wait(SOON);
        assert!(wait_for(SOON, || daemons() == 0), "it waits for ever");
        assert!(!folder.join("kakehi").exists(), "a job's folder is left behind");
    }
}

/// As where a job of one name runs two programs, or a run within a run has a folder of its own.
#[test]
fn a_daemon_that_was_started_without_a_map_is_not_used_for_it() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let daemon = Daemon::start(&folder, "job", &[]);
    let file = local(&folder).join("file");
    let mut command = server.run(&folder);
    command.env("KAKEHI_SOCKET", &daemon.socket).arg("touch").arg(&file);
    let output = run(&mut command, SOON);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("--map") && said.contains("--socket"), "{said}");
    assert!(!file.exists());
    daemon.end();

    let mut within = server.run(&folder);
    within.arg(kakehi()).args(["run", "--", "touch"]).arg(&file);
    succeed(&mut within, SOON);
    assert!(server.job().join("file").exists());
    server.end();
}
