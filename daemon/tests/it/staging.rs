//! The way of staged writes.

use std::{fs::File, path::PathBuf, time::Instant};

use shm::staging::APPEND;
use wire::{FileFlags, Request};

use crate::{
    client::{Client, contents},
    support::{Daemon, until},
};

const LOG: (u64, u64) = (0, 64 << 10);

fn create(daemon: &Daemon, name: &str) -> (PathBuf, File) {
    let path = daemon.folder().join(name);
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    (path, file.expect("a file"))
}

fn pattern(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

#[test]
fn staged_bytes_are_visible_soon_without_being_asked_for() {
    let daemon = Daemon::start();
    let (path, file) = create(&daemon, "soon");
    let mut client = Client::connect(daemon.folder());
    client.register(3, &file, FileFlags::WRITABLE, LOG);
    let start = Instant::now();
    assert_eq!(client.stage(3, 0, b"hello"), 5);
    until("the bytes arrive", || contents(&path).is_ok_and(|bytes| bytes == b"hello"));
    println!("visible after {:?}", start.elapsed());
    daemon.stop();
}

#[test]
fn closed_file_has_every_byte() {
    let daemon = Daemon::start();
    let (path, file) = create(&daemon, "large");
    let mut client = Client::connect(daemon.folder());
    client.register(0, &file, FileFlags::WRITABLE, LOG);
    let bytes = pattern(1 << 20);
    client.stage_all(0, 0, &bytes);
    assert_eq!(client.ask(Request::Close { file: 0 }), Ok(0));
    assert!(contents(&path).expect("a file") == bytes);
    assert_eq!(client.ask(Request::Sync { file: 0 }), Err(9), "the slot is free");
    let status = daemon.status();
    assert_eq!((&status["files"], &status["sessions"]), (&0.into(), &1.into()));
    let summary = daemon.stop();
    assert_eq!(summary.requests["close"], 1);
}

/// A client with a file that begins with `begin `, open to append to as 1, and the file's path.
fn appends_to_begun(daemon: &Daemon) -> (Client, PathBuf) {
    let path = daemon.folder().join("appended");
    std::fs::write(&path, "begin ").expect("a file");
    let file = File::options().append(true).open(&path).expect("a file");
    let mut client = Client::connect(daemon.folder());
    client.register(1, &file, FileFlags::WRITABLE.with(FileFlags::APPEND), LOG);
    (client, path)
}

#[test]
fn appends_arrive_once_and_in_order() {
    let daemon = Daemon::start();
    let (mut client, path) = appends_to_begun(&daemon);
    for word in ["one ", "two ", "three"] {
        client.stage_all(1, APPEND, word.as_bytes());
    }
    client.flush(1);
    assert_eq!(contents(&path).expect("a file"), b"begin one two three");
    daemon.stop();
}

/// By it whoever takes over from a dead daemon finds how much of an append has arrived.
#[test]
fn size_before_an_append_is_on_record() {
    let daemon = Daemon::start();
    let (mut client, _) = appends_to_begun(&daemon);
    for (position, size) in [(0, 6), (4, 10)] {
        client.stage_all(1, APPEND, b"word");
        client.flush(1);
        assert_eq!(client.slot(1).last_write(), Some((position, size, 4)));
    }
    daemon.stop();
}

#[test]
fn client_that_dies_leaves_every_published_byte() {
    let daemon = Daemon::start();
    let (path, file) = create(&daemon, "left");
    let mut client = Client::connect(daemon.folder());
    client.register(9, &file, FileFlags::WRITABLE, LOG);
    assert_eq!(client.stage(9, 100, b"last words"), 10);
    drop(client);
    until("the session ends", || daemon.status()["sessions"] == 0);
    assert_eq!(contents(&path).expect("a file")[100..], *b"last words");
    daemon.stop();
}
