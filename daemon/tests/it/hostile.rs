//! Clients that are wrong or mean it: they lose their session, and nobody else loses anything.

use std::{
    fs::{self, File},
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt as _, fs::PermissionsExt},
    },
    thread,
};

use fastrand::Rng;
use wire::{FileFlags, MESSAGE_LEN, Message, Refusal, Registration, Request, Welcome};

use crate::{
    client::{Client, contents, dial, receive, send},
    support::{Daemon, until},
};

const LOG: (u64, u64) = (0, 64 << 10);

/// Checks that an honest client is served as if nothing had happened.
fn expect_service(daemon: &Daemon) {
    let path = daemon.folder().join("honest");
    let file = File::create(&path).expect("a file");
    let mut client = Client::connect(daemon.folder());
    client.register(0, &file, FileFlags::WRITABLE, LOG);
    client.stage_all(0, 0, b"served");
    assert_eq!(client.ask(Request::Close { file: 0 }), Ok(0));
    assert_eq!(contents(&path).expect("a file"), b"served");
    drop(client);
    until("every session has ended", || daemon.status()["sessions"] == 0);
    assert_eq!(daemon.status()["files"], 0);
}

fn register(slot: u32, log_at: u64, log_len: u64) -> Vec<u8> {
    let flags = FileFlags::WRITABLE;
    Message::Register(Registration { file: slot, flags, log_at, log_len }).encode().to_vec()
}

#[test]
fn forged_registrations_end_the_session() {
    let daemon = Daemon::start();
    let file = File::create(daemon.folder().join("file")).expect("a file");
    let folder = File::open(daemon.folder()).expect("a folder");
    let (good, other) = (register(1, 0, 4096), register(2, 2048, 4096));
    let cases: [(&str, Vec<Vec<u8>>, bool); 7] = [
        ("no such slot", vec![register(256, 0, 4096)], true),
        ("a slot twice", vec![good.clone(), good.clone()], true),
        ("logs that overlap", vec![good.clone(), other], true),
        ("a log beyond the arena", vec![register(1, u64::MAX - 100, 4096)], true),
        ("a log of odd length", vec![register(1, 0, 4097)], true),
        ("not a message", vec![vec![9; MESSAGE_LEN]], true),
        ("no descriptor", vec![good], false),
    ];
    for (case, messages, with_file) in cases {
        println!("{case}");
        let client = Client::connect(daemon.folder());
        for message in messages {
            let fds = if with_file { vec![file.as_fd()] } else { Vec::new() };
            send(&client.socket, &message, &fds);
        }
        client.expect_end();
    }
    let client = Client::connect(daemon.folder());
    send(&client.socket, &register(1, 0, 0), &[folder.as_fd()]);
    client.expect_end();
    expect_service(&daemon);
    daemon.stop();
}

#[test]
fn shortest_logs_are_drained() {
    let daemon = Daemon::start();
    for len in [1, 2, 4] {
        let path = daemon.folder().join(format!("{len}"));
        let file = File::create(&path).expect("a file");
        let mut client = Client::connect(daemon.folder());
        client.register(0, &file, FileFlags::WRITABLE, (0, len));
        client.stage_all(0, 0, b"a few bytes");
        assert_eq!(client.ask(Request::Close { file: 0 }), Ok(0));
        assert_eq!(contents(&path).expect("a file"), b"a few bytes");
    }
    expect_service(&daemon);
    daemon.stop();
}

#[test]
fn more_descriptors_than_a_message_may_bring_end_the_session() {
    let daemon = Daemon::start();
    let file = File::create(daemon.folder().join("file")).expect("a file");
    let client = Client::connect(daemon.folder());
    send(&client.socket, &register(1, 0, 4096), &[file.as_fd(); 8]);
    client.expect_end();
    expect_service(&daemon);
    daemon.stop();
}

#[test]
fn requests_beyond_the_record_are_refused() {
    let daemon = Daemon::start();
    let file = File::create(daemon.folder().join("file")).expect("a file");
    let mut client = Client::connect(daemon.folder());
    client.register(4, &file, FileFlags::WRITABLE, LOG);
    let arena = client.welcome.arena_len;
    let (ebadf, einval, enametoolong, enosys) = (9, 22, 36, 38);
    let cases = [
        (Request::Close { file: 5 }, ebadf),
        (Request::Sync { file: u32::MAX }, ebadf),
        (Request::Flush { file: 4, upto: 1 }, einval),
        (Request::Read { file: 4, at: 0, len: 2, arena_at: arena - 1 }, einval),
        (Request::Read { file: 4, at: 0, len: 1, arena_at: u64::MAX }, einval),
        (Request::Write { file: 4, at: u64::MAX, len: 1, arena_at: 0 }, einval),
        (Request::Write { file: 4, at: 1 << 63, len: 1, arena_at: 0 }, einval),
        (Request::Attach { file: 4, arena_at: arena, len: 4096 }, einval),
        (Request::Attach { file: 4, arena_at: 0, len: 3 }, einval),
        (Request::Fetch { file: 4, at: u64::MAX, len: 1 }, einval),
        (Request::SetPosition { file: 4, at: u64::MAX }, einval),
        (Request::Reclaimed, enosys),
        (Request::Truncate { file: 4, path_len: 0, len: u64::MAX }, einval),
        (Request::Unlink { path_len: u32::MAX }, enametoolong),
        (Request::Open { file: 4, flags: 0, mode: 0, path_len: 1, inode: 0 }, ebadf),
        (Request::Open { file: 256, flags: 0, mode: 0, path_len: 1, inode: 0 }, ebadf),
    ];
    for (request, errno) in cases {
        assert_eq!(client.ask(request), Err(errno), "{request:?}");
    }
    assert_eq!(client.ask(Request::Nothing), Ok(0));
    daemon.stop();
}

#[test]
fn file_that_is_closed_by_several_requests_at_once_is_closed_once() {
    let daemon = Daemon::start();
    let path = daemon.folder().join("file");
    File::create(&path).expect("a file");
    let path = path.as_os_str().as_bytes();
    let path_len = u32::try_from(path.len()).expect("short");
    let mut client = Client::connect(daemon.folder());
    for _ in 0..100 {
        client.put(0, path);
        client
            .ask(Request::Open { file: 1, flags: 0, mode: 0, path_len, inode: 0 })
            .expect("opened");
        let closes = [(); 8].map(|()| client.submit(0, Request::Close { file: 1 }));
        let closed = closes.map(|seq| client.wait(0, seq));
        assert_eq!(closed.iter().filter(|answer| **answer == Ok(0)).count(), 1, "{closed:?}");
        assert!(client.job.shared().inodes.is_empty());
    }
    daemon.stop();
}

#[test]
fn forged_logs_end_the_session_and_valid_bytes_arrive() {
    let daemon = Daemon::start();
    let path = daemon.folder().join("file");
    let other = File::create(&path).expect("a file");
    let mut client = Client::connect(daemon.folder());
    client.register(1, &other, FileFlags::WRITABLE, (0, 4096));
    client.register(2, &other, FileFlags::WRITABLE, (4096, 4096));
    client.stage(1, 0, b"valid");
    // A client that believes its log to be longer than it is publishes more than fits.
    client.pretend_log(2, 4096, 64 << 10);
    client.stage(2, 100, &[7; 20_000]);
    client.expect_end();
    assert_eq!(contents(&path).expect("a file")[..5], *b"valid");
    expect_service(&daemon);
    daemon.stop();
}

/// Random words in random lanes, with a log under way: the daemon outlives all of it.
#[test]
fn random_entries_hurt_nobody_else() {
    let daemon = Daemon::start();
    for seed in 0..30 {
        let mut rng = Rng::with_seed(seed);
        let file = File::create(daemon.folder().join("file")).expect("a file");
        let mut client = Client::connect(daemon.folder());
        client.register(1, &file, FileFlags::WRITABLE, LOG);
        for _ in 0..200 {
            let (lane, mut words) = (rng.usize(0..3), [0; 8]);
            words.iter_mut().for_each(|word| *word = rng.u64(..) >> rng.u32(0..64));
            words[0] = u64::from(rng.u8(0..26)) << 32;
            words[1] &= 0xff_ffff_0000_0003;
            // Names stay in the lane's empty buffer, so nothing on this machine is touched.
            if client.try_publish(lane, &words).is_none() {
                break;
            }
            client.stage(1, rng.u64(0..9000), &[1; 100]);
        }
    }
    expect_service(&daemon);
    daemon.stop();
}

#[test]
fn connections_that_say_nothing_or_nonsense_are_dropped() {
    let daemon = Daemon::start();
    let silent: Vec<_> = (0..20).map(|_| dial(daemon.folder())).collect();
    let loud = dial(daemon.folder());
    send(&loud, &[1; 10], &[]);
    expect_service(&daemon);
    drop(silent);
    daemon.stop();
}

#[test]
fn other_users_are_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can connect as somebody else");
        return;
    }
    let daemon = Daemon::start();
    for path in [daemon.folder().to_owned(), daemon.folder().join("socket")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("our own");
    }
    let path = daemon.folder().to_owned();
    let stranger = thread::spawn(move || {
        // Of this thread alone, for the rest of its life.
        let nobody = rustix::process::Uid::from_raw(65534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        let (bytes, fds) = receive(&dial(&path));
        assert!(fds.is_empty());
        Welcome::decode(&bytes).expect("a welcome").session
    });
    assert_eq!(stranger.join().expect("no panic"), Err(Refusal::User));
    daemon.stop();
}
