//! Data guarded by a lock on another file: the process that gets the lock finds all of it, by
//! whichever call the lock was given up, and nothing that was read ahead before.

use std::fs;

use crate::{
    calls::Calls,
    harness::{Daemon, Folder, program},
    remote::{
        local,
        server::{Scheme, Server},
    },
    visibility::Pair,
};

const ROUNDS: u32 = 10;
/// Locks: kind, and call.
const LOCKS: [(&str, &str); 5] =
    [("file", "flock"), ("file", "posix"), ("file", "ofd"), ("file", "lockf"), ("folder", "flock")];
/// Calls that give up the lock of number `LOCK`, of a program that has `DATA` open, too.
const WAYS: [&[&str]; 5] = [
    &["unlock LOCK KIND"],
    &["close LOCK"],
    &["dup2 DATA LOCK"],
    &["closerange LOCK"],
    &["dup2 LOCK 70", "close LOCK", "close 70"],
];

/// A name is a lock, too, for programs that make it where there is none: how one makes it and gives
/// it up, and the other makes it. `NODE` is a name that is no server's.
const NAMES: [(&str, &str, &str); 7] = [
    ("open LOCK wcx", "unlink LOCK", "open LOCK wcx"),
    ("mkdir LOCK", "rmdir LOCK", "mkdir LOCK"),
    ("symlink x LOCK", "unlink LOCK", "symlink x LOCK"),
    ("link DATA LOCK", "unlink LOCK", "link DATA LOCK"),
    ("fifo NODE", "unlink NODE", "fifo NODE"),
    ("open LOCK wcx", "rename LOCK LOCK.old", "open LOCK wcx"),
    ("open LOCK wcx", "rename LOCK LOCK.free", "rename LOCK.free LOCK"),
];

/// Two processes, and the path of a file they share.
struct Ends<'a> {
    path: &'a str,
    one: &'a mut Calls,
    other: &'a mut Calls,
}

impl<'a> From<&'a mut Pair> for Ends<'a> {
    fn from(pair: &'a mut Pair) -> Self {
        Self { path: &pair.path, one: &mut pair.one, other: &mut pair.other }
    }
}

/// A file that two processes have had open, and have read, since before it was written.
struct Shared {
    numbers: [u64; 2],
    text: String,
}

impl Shared {
    #[track_caller]
    fn open(ends: &mut Ends<'_>, text: String) -> Self {
        let path = format!("{}.{text}", ends.path);
        let one = ends.one.get(&format!("open {path} +c"));
        ends.one.get(&format!("write {one} before"));
        ends.one.get(&format!("fsync {one}"));
        let other = ends.other.get(&format!("open {path} r"));
        assert_eq!(ends.other.ask(&format!("pread {other} 0 99")), "[before]");
        Self { numbers: [one, other], text }
    }

    #[track_caller]
    fn write(&self, ends: &mut Ends<'_>) {
        ends.one.get(&format!("pwrite {} 0 {}", self.numbers[0], self.text));
    }

    /// Asserts that the other process finds what one has written.
    #[track_caller]
    fn find(self, ends: &mut Ends<'_>, after: &str) {
        let [one, other] = self.numbers;
        let found = ends.other.ask(&format!("pread {other} 0 99"));
        assert_eq!(found, format!("[{}]", self.text), "{after}");
        ends.one.get(&format!("close {one}"));
        ends.other.get(&format!("close {other}"));
    }
}

/// Has one process write under a lock and give it up, and another take it, `ROUNDS` times.
#[track_caller]
fn pass(ends: &mut Ends<'_>, open: &str, kind: &str, ways: (&[&str], &str)) {
    let (give_up, take) = ways;
    let after = format!("{open} {kind}: {give_up:?}");
    for round in 0..ROUNDS {
        let data = Shared::open(ends, format!("round{round}"));
        let (lock, theirs) = (ends.one.get(open), ends.other.get(open));
        ends.one.get(&format!("lock {lock} {kind}"));
        data.write(ends);
        for call in give_up {
            let call = call.replace("LOCK", &lock.to_string()).replace("KIND", kind);
            ends.one.get(&call.replace("DATA", &data.numbers[0].to_string()));
        }
        ends.other.get(&format!("{take} {theirs} {kind}"));
        data.find(ends, &after);
        // It may be closed by now.
        ends.one.ask(&format!("close {lock}"));
        ends.other.get(&format!("close {theirs}"));
        ends.one.get(&format!("unlink {}.round{round}", ends.path));
    }
}

/// Does so with each way to lock and to give up.
#[track_caller]
fn pass_in_all_ways(ends: &mut Ends<'_>, locks: &[(&str, &str)]) {
    let path = ends.path.to_owned();
    for (locked, kind) in locks {
        let open = if *locked == "file" {
            format!("open {path}.lock +c")
        } else {
            format!("open {path}.folder r")
        };
        for give_up in WAYS {
            pass(ends, &open, kind, (give_up, "trylock"));
        }
        if *kind != "lockf" {
            pass(ends, &open, kind, (&["share LOCK KIND"], "share"));
        }
    }
}

/// Has one process write while it has a name, and another make that once it is gone.
#[track_caller]
fn pass_names(ends: &mut Ends<'_>) {
    let path = ends.path.to_owned();
    let node = Folder::new();
    let name = node.join("lock").display().to_string();
    for (make, give_up, make_theirs) in NAMES {
        for round in 0..ROUNDS {
            let data = Shared::open(ends, format!("round{round}"));
            let (lock, file) = (format!("{path}.lock"), format!("{path}.round{round}"));
            let call = |text: &str| {
                text.replace("LOCK", &lock).replace("DATA", &file).replace("NODE", &name)
            };
            ends.one.get(&call(make));
            data.write(ends);
            ends.one.get(&call(give_up));
            ends.other.get(&call(make_theirs));
            data.find(ends, &format!("{give_up}, {make_theirs}"));
            ends.other.get(&call(give_up));
            for file in ["old", "free"] {
                ends.other.ask(&format!("unlink {lock}.{file}"));
            }
            ends.one.get(&format!("unlink {file}"));
        }
    }
}

#[test]
fn whoever_gets_a_lock_finds_what_was_written_under_it_in_other_files() {
    let mut pair = Pair::new();
    pair.one.get(&format!("mkdir {}.folder", pair.path));
    pass_in_all_ways(&mut Ends::from(&mut pair), &LOCKS);
    let open = format!("folder {}.folder", pair.path);
    pass(&mut Ends::from(&mut pair), &open, "flock", (&["closefolder"], "trylock"));
    pair.end(6 * 30 * u64::from(ROUNDS));
}

#[test]
fn whoever_finds_a_name_gone_finds_what_was_written_before_that() {
    let mut pair = Pair::new();
    pass_names(&mut Ends::from(&mut pair));
    pair.end(7 * 6 * u64::from(ROUNDS));
}

/// Has two processes of two jobs do something with a server's files.
#[track_caller]
fn on_two_nodes(act: impl FnOnce(&mut Ends<'_>)) {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let [mut one, mut other] =
        [0, 1].map(|_| Calls::start(server.run(&folder).arg(program("calls"))));
    let path = local(&folder).join("file").display().to_string();
    act(&mut Ends { path: &path, one: &mut one, other: &mut other });
    one.end();
    other.end();
    assert!(fs::exists(server.job().join("file.lock")).expect("a folder"), "all was elsewhere");
    server.end();
}

#[test]
fn whoever_gets_a_lock_on_another_node_finds_what_was_written_under_it_in_other_files() {
    // Folders are each node's own.
    on_two_nodes(|ends| pass_in_all_ways(ends, &LOCKS[..4]));
}

#[test]
fn whoever_finds_a_name_gone_on_another_node_finds_what_was_written_before_that() {
    on_two_nodes(|ends| {
        pass_names(ends);
        ends.one.get(&format!("open {}.lock wc", ends.path));
    });
}

/// Only a number of what was locked may give up a lock: nothing waits for the close of another.
#[test]
fn closing_what_was_never_locked_drains_no_other_file() {
    const CLOSES: u64 = 100;
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut calls = Calls::wrapped(&daemon);
    let [lock, data, third] =
        ["lock", "data", "third"].map(|name| folder.join(name).display().to_string());
    let lock = calls.get(&format!("open {lock} +c"));
    calls.get(&format!("lock {lock} posix"));
    let data = calls.get(&format!("open {data} wc"));
    for _ in 0..CLOSES {
        calls.get(&format!("write {data} text"));
        let third = calls.get(&format!("open {third} wc"));
        calls.get(&format!("close {third}"));
    }
    calls.end();
    let summary = daemon.status()["summary"].clone();
    assert!(summary["bytes_staged"].as_u64() >= Some(4 * CLOSES), "{summary:#}");
    let requests = summary["requests"].as_object().expect("a number for each kind");
    let count: u64 = requests.values().filter_map(serde_json::Value::as_u64).sum();
    assert!((1..CLOSES / 2).contains(&count), "{summary:#}");
    daemon.end();
}
