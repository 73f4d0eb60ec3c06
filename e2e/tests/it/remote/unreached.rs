//! Servers that cannot be had: every reason has a line of its own, and the program does not run.

use std::{
    fs, io::Write as _, net::TcpListener, os::unix::fs::PermissionsExt as _, path::Path, thread,
};

use rustix::process::Signal;

use super::local;
use crate::{
    harness::{Folder, Running, SOON, kakehi_run, processes_of, run, text, wait_for},
    remote::server::{Scheme, Server, reserve_port},
};

/// What a server of something else says to whoever comes.
const SSH: &[u8] = b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n";

/// A listener that says `greeting` to whoever comes, until the test ends.
fn stranger(greeting: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("tcp://{}", listener.local_addr().expect("bound"));
    thread::spawn(move || {
        let mut guests = Vec::new();
        for mut guest in listener.incoming().flatten() {
            // It may have gone already.
            guest.write_all(greeting).ok();
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
    let (silent, talkative) = (stranger(b""), stranger(SSH));
    let unknown = "tcp://no..host:7777";
    let (long, short) = ("1h", "1s");
    for (url, key, remote, timeout, what, advice) in [
        (&*there, "other", "/job", long, "another key", "the same key file"),
        (&*there, "key", "/file", long, "/file: Not a directory", "--map"),
        (&*there, "key", "/file/x", long, "/file/x: Not a directory", "--map"),
        (unknown, "key", "/job", long, "lookup", "a host that this node knows"),
        (&*closed, "key", "/job", short, "Connection refused", "`kakehi serve` runs there"),
        (&*silent, "key", "/job", short, "does not answer", "`kakehi serve` runs there"),
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
        assert_eq!(said.lines().count(), 1, "{url}: {said}");
    }
    server.end();
}

#[test]
fn daemon_that_waits_for_a_server_ends_with_who_has_started_it() {
    let folder = Folder::new();
    let (key, map) = (folder.join("key"), format!("{}=/job", local(&folder).display()));
    write_key(&key);
    let silent = stranger(b"");
    let flags = ["--remote", &silent, "--key", key.to_str().expect("UTF-8"), "--map", &map];
    let is_daemon = |(_, arguments): &(i32, String)| arguments.contains(" serve ");
    let daemons = || processes_of(folder.path()).iter().filter(|found| is_daemon(found)).count();
    // Which is gone first, the killed one's lock or its end of the pipe, is up to the kernel.
    for signal in [Signal::KILL, Signal::INT, Signal::TERM, Signal::KILL, Signal::TERM] {
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
