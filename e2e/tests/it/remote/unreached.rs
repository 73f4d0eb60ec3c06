//! Servers that cannot be had: every reason has a line of its own, and the program does not run.

use std::{fs, io::Write as _, net::TcpListener, os::unix::fs::PermissionsExt as _, thread};

use super::local;
use crate::{
    harness::{Folder, SOON, kakehi_run, run, text},
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

#[test]
fn every_reason_for_having_no_server_is_one_line_of_its_own() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    fs::write(folder.join("root/file"), "").expect("file");
    fs::write(folder.join("other"), "0".repeat(64)).expect("key");
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(folder.join("other"), private).expect("mode");
    let there = Scheme::Tcp.url("127.0.0.1", server.port);
    let (closed, _reserved) = reserve_port();
    let closed = Scheme::Tcp.url("127.0.0.1", closed);
    let (silent, talkative) = (stranger(b""), stranger(SSH));
    let unknown = "tcp://no..host:7777";
    // Where it is certain it is said at once, however long that takes a busy machine.
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
fn what_is_certain_is_not_waited_for() {
    let folder = Folder::new();
    fs::write(folder.join("key"), "0".repeat(64)).expect("key");
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(folder.join("key"), private).expect("mode");
    let (key, map) = (folder.join("key"), format!("{}=/job", local(&folder).display()));
    for url in ["tcp://no..host:7777", &*stranger(SSH)] {
        let flags = ["--remote", url, "--key", key.to_str().expect("UTF-8"), "--map", &map];
        let mut command = kakehi_run(&folder, &flags);
        // Longer than the deadline.
        command.env("KAKEHI_REMOTE_TIMEOUT", "1h").arg("true");
        assert_eq!(run(&mut command, SOON).status.code(), Some(125), "{url}");
    }
}
