//! Requests on files: reads, writes, positions, second openers, errors.

use std::{
    fs::{self, File},
    os::fd::OwnedFd,
    process::Command,
};

use daemon::{Choice, Idle};
use wire::{Entry, FileFlags, Kind, Request};

use crate::{
    client::{Client, contents},
    support::{Daemon, until},
};

const LOG: (u64, u64) = (0, 64 << 10);
const SCRATCH_AT: u64 = 128 << 10;

fn file_of(daemon: &Daemon, name: &str, bytes: &[u8]) -> File {
    let path = daemon.folder().join(name);
    fs::write(&path, bytes).expect("a file");
    File::options().read(true).write(true).open(path).expect("a file")
}

#[test]
fn reads_and_writes_pass_through_the_arena_after_what_is_staged() {
    for engine in [Choice::Auto, Choice::Threads] {
        let daemon = Daemon::with(|config| config.engine = engine);
        let file = file_of(&daemon, "file", &[b'x'; 600_000]);
        let mut client = Client::connect(daemon.folder());
        client.register(1, &file, FileFlags::WRITABLE.with(FileFlags::READABLE), LOG);
        client.stage(1, 10, b"staged");
        let read = Request::Read { file: 1, at: 0, len: 500_000, arena_at: SCRATCH_AT };
        assert_eq!(client.ask(read), Ok(500_000));
        assert_eq!(client.arena(SCRATCH_AT, 20), *b"xxxxxxxxxxstagedxxxx");
        let write = Request::Write { file: 1, at: 599_990, len: 20, arena_at: SCRATCH_AT };
        assert_eq!(client.ask(write), Ok(20));
        let tail = Request::Read { file: 1, at: 600_000, len: 4096, arena_at: 0 };
        assert_eq!(client.ask(tail), Ok(10), "short at the end of the file");
        assert_eq!(client.ask(Request::Fetch { file: 1, at: 0, len: 65536 }), Ok(65536));
        assert_eq!(client.ask(Request::Fetch { file: 1, at: 65536, len: 65536 }), Ok(65536));
        assert_eq!(client.ask(Request::Sync { file: 1 }), Ok(0));
        assert_eq!(client.ask(Request::Datasync { file: 1 }), Ok(0));
        assert_eq!(client.ask(Request::Close { file: 1 }), Ok(0));
        let summary = daemon.stop();
        assert_eq!((summary.bytes_delegated, summary.drain_errors), (20, 0));
    }
}

#[test]
fn every_request_of_the_table_is_served_but_what_is_a_servers() {
    let daemon = Daemon::start();
    let file = file_of(&daemon, "file", b"0123456789");
    let mut client = Client::connect(daemon.folder());
    client.register(0, &file, FileFlags::WRITABLE.with(FileFlags::READABLE), LOG);
    let ends = |kind: &Kind| *kind == Kind::Close;
    let (last, first): (Vec<_>, Vec<_>) = Kind::ALL.into_iter().partition(ends);
    for kind in first.into_iter().chain(last) {
        let request = Request::decode(&Entry([u64::from(kind as u8) << 32, 0, 0, 0, 0, 0, 0, 0]));
        let request = request.expect("a kind");
        let is_refused = client.ask(request) == Err(38);
        // Programs lock files of their own node themselves.
        let is_servers = matches!(kind, Kind::Lock | Kind::FindLock | Kind::Reclaimed);
        assert_eq!(is_refused, is_servers, "{kind:?}");
    }
    daemon.stop();
}

#[test]
fn a_write_is_not_overtaken_by_what_was_staged_before_it() {
    let daemon = Daemon::start();
    let file = file_of(&daemon, "file", b"");
    let mut client = Client::connect(daemon.folder());
    client.register(1, &file, FileFlags::WRITABLE, LOG);
    // The arena has zeros where the request takes its bytes from.
    for at in 0..20 {
        client.stage(1, at, b"staged");
        assert_eq!(client.ask(Request::Write { file: 1, at, len: 6, arena_at: SCRATCH_AT }), Ok(6));
    }
    assert_eq!(client.ask(Request::Close { file: 1 }), Ok(0));
    assert_eq!(contents(&daemon.folder().join("file")).expect("a file"), [0; 25]);
    daemon.stop();
}

#[test]
fn positions_see_what_is_staged() {
    let daemon = Daemon::start();
    let file = file_of(&daemon, "file", b"0123456789");
    let mut client = Client::connect(daemon.folder());
    client.register(1, &file, FileFlags::WRITABLE, LOG);
    client.stage(1, 10, b"ab");
    assert_eq!(client.ask(Request::FindEnd { file: 1 }), Ok(12));
    assert_eq!(client.ask(Request::SetPosition { file: 1, at: 5 }), Ok(5));
    assert_eq!(client.ask(Request::SetPosition { file: 1, at: 1 << 63 }), Err(22));
    assert_eq!(client.ask(Request::FindData { file: 1, at: 3 }), Ok(3));
    assert_eq!(client.ask(Request::FindHole { file: 1, at: 3 }), Ok(12), "the hole at the end");
    assert_eq!(client.ask(Request::FindData { file: 1, at: 12 }), Err(6));
    client.stage(1, 12, b"c");
    assert_eq!(client.ask(Request::Truncate { file: 1, path_len: 0, len: 4 }), Ok(0));
    assert_eq!(contents(&daemon.folder().join("file")).expect("a file"), b"0123");
    daemon.stop();
}

/// On two executors: the second opener's registration, and `Settle`, cross between them.
#[test]
fn second_opener_finds_everything_drained() {
    let daemon = Daemon::with(|config| config.cores = vec![0, 0]);
    let file = file_of(&daemon, "shared", b"");
    let (mut first, mut second) =
        (Client::connect(daemon.folder()), Client::connect(daemon.folder()));
    assert_ne!(first.welcome.executor, second.welcome.executor);
    first.register(1, &file, FileFlags::WRITABLE, LOG);
    first.stage(1, 0, b"first");
    assert!(!first.slot(1).is_synchronous());
    let stat = rustix::fs::fstat(&file).expect("open");
    first.job.shared().inodes.add(stat.st_dev, stat.st_ino);
    let (device, inode) = (stat.st_dev, stat.st_ino);
    // What a client asks that has found another file of this hash.
    assert_eq!(second.ask(Request::Settle { device, inode, demote: false }), Ok(0));
    assert_eq!(contents(&daemon.folder().join("shared")).expect("a file"), b"first");
    assert!(!first.slot(1).is_synchronous(), "it is the only one");
    assert_eq!(second.ask(Request::Settle { device, inode, demote: true }), Ok(0));
    assert!(first.slot(1).is_synchronous());
    second.register(7, &file, FileFlags::READABLE, (0, 0));
    until("both are demoted", || second.slot(7).is_synchronous());
    daemon.stop();
}

/// On two executors: the request crosses between them.
#[test]
fn flush_of_the_job_drains_what_another_session_staged() {
    let daemon = Daemon::with(|config| config.cores = vec![0, 0]);
    let file = file_of(&daemon, "others", b"");
    let (mut first, mut second) =
        (Client::connect(daemon.folder()), Client::connect(daemon.folder()));
    assert_ne!(first.welcome.executor, second.welcome.executor);
    first.register(1, &file, FileFlags::WRITABLE, LOG);
    first.stage(1, 0, b"first");
    assert_eq!(second.ask(Request::FlushAll { of_job: true }), Ok(0));
    assert_eq!(contents(&daemon.folder().join("others")).expect("a file"), b"first");
    assert!(!first.slot(1).is_synchronous(), "it stages on");
    daemon.stop();
}

#[test]
fn every_idle_policy_serves() {
    for idle in [Idle::Interrupt, Idle::Park, Idle::Spin] {
        let daemon = Daemon::with(|config| config.idle = idle);
        let mut client = Client::connect(daemon.folder());
        for _ in 0..100 {
            assert_eq!(client.ask(Request::Nothing), Ok(0));
        }
        assert_eq!(daemon.stop().requests["nothing"], 100);
    }
}

/// A small file system that is full; `None` where none can be mounted.
fn full_disk() -> Option<tempfile::TempDir> {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(dir.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return None;
    }
    fs::write(dir.path().join("filler"), [1; 60 << 10]).expect("room");
    Some(dir)
}

fn unmount(dir: &tempfile::TempDir) {
    let unmounted = Command::new("umount").arg(dir.path()).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
}

#[test]
fn refused_bytes_stay_staged_until_there_is_room() {
    let Some(dir) = full_disk() else {
        return println!("SKIPPED: a small tmpfs cannot be mounted");
    };
    let daemon = Daemon::start();
    let path = dir.path().join("full");
    let file = File::create(&path).expect("a file");
    let mut client = Client::connect(daemon.folder());
    client.register(1, &file, FileFlags::WRITABLE, LOG);
    client.stage_all(1, 0, &[5; 32 << 10]);
    for _ in 0..2 {
        client.flush(1);
        assert_eq!(client.slot(1).take_error(), Some(28), "told each time it is tried");
        assert_eq!(client.slot(1).take_error(), None);
    }
    assert_eq!(client.ask(Request::Sync { file: 1 }), Err(28));
    assert_eq!(client.slot(1).take_error(), None, "told by the request");
    client.stage_all(1, 32 << 10, b"behind");
    fs::remove_file(dir.path().join("filler")).expect("removed");
    client.flush(1);
    assert_eq!(client.slot(1).take_error(), None);
    let found = contents(&path).expect("a file");
    assert!(found[..32 << 10] == [5; 32 << 10] && found[32 << 10..] == *b"behind");
    assert_eq!(client.ask(Request::Close { file: 1 }), Ok(0));
    assert_eq!(daemon.stop().drain_errors, 0, "nothing was lost");
    drop(OwnedFd::from(file));
    unmount(&dir);
}

#[test]
fn refused_bytes_are_given_up_by_a_close_that_says_so() {
    let Some(dir) = full_disk() else {
        return println!("SKIPPED: a small tmpfs cannot be mounted");
    };
    let daemon = Daemon::start();
    let file = File::create(dir.path().join("full")).expect("a file");
    let mut client = Client::connect(daemon.folder());
    client.register(1, &file, FileFlags::WRITABLE, LOG);
    client.stage_all(1, 0, &[5; 32 << 10]);
    assert_eq!(client.ask(Request::Close { file: 1 }), Ok(0));
    assert_eq!(client.slot(1).take_error(), Some(28));
    assert_eq!(daemon.stop().drain_errors, 1);
    drop(OwnedFd::from(file));
    unmount(&dir);
}

#[test]
fn sessions_that_find_no_memory_are_refused() {
    use wire::{Greeting, Refusal, Role};
    let daemon = Daemon::with(|config| config.memory = 512 << 10);
    let (first, _second) = (Client::connect(daemon.folder()), Client::connect(daemon.folder()));
    let greet = || {
        let socket = crate::client::dial(daemon.folder());
        crate::client::greet(&socket, Greeting::new(Role::Client)).0.session
    };
    assert_eq!(greet(), Err(Refusal::Full));
    drop(first);
    until("there is room again", || greet().is_ok());
    daemon.stop();
}
