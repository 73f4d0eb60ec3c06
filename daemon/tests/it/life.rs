//! Greetings, attachment, and the end.

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use daemon::{Error, caller};
use wire::{FileFlags, Greeting, Refusal, Request, Role, Welcome};

use crate::{
    client::{Client, dial, greet, receive, send},
    support::{Daemon, until},
};

#[test]
fn other_versions_are_refused_by_name() {
    let daemon = Daemon::start();
    let greeting = Greeting { version: 99, ..Greeting::new(Role::Client) };
    let (welcome, fds) = greet(&dial(daemon.folder()), greeting);
    assert_eq!((welcome.session, welcome.version), (Err(Refusal::Version), wire::VERSION));
    assert!(fds.is_empty());
    daemon.stop();
}

#[test]
fn daemon_ends_after_the_last_run_has_left() {
    let (starter, output) = rustix::pipe::pipe().expect("a pipe");
    let daemon = Daemon::with(|config| config.starter = Some(Arc::new(output)));
    let first = caller::attach(daemon.folder()).expect("it serves");
    let second = caller::attach(daemon.folder()).expect("it serves");
    drop(first);
    assert_eq!(daemon.status()["sessions"], 0);
    drop(second);
    daemon.end();
    drop(starter);
}

#[test]
fn daemon_outlives_the_run_that_has_started_it_while_another_is_attached() {
    let start = || {
        let (run, connection) = caller::attached().expect("sockets");
        let (_, output) = rustix::pipe::pipe().expect("a pipe");
        let change = |config: &mut daemon::Config| config.starter = Some(Arc::new(output));
        (run, Daemon::of(Some(connection), change))
    };
    let (run, daemon) = start();
    drop(run);
    daemon.end();

    let (run, daemon) = start();
    let attached = caller::attach(daemon.folder()).expect("it serves");
    drop(run);
    assert_eq!(daemon.status()["sessions"], 0);
    assert!(caller::attach(daemon.folder()).is_ok());
    drop(attached);
    daemon.end();
}

/// As where the kernel has no memory to watch it: the daemon would stay for ever.
#[test]
fn daemon_ends_with_a_run_that_cannot_be_watched() {
    let (_, output) = rustix::pipe::pipe().expect("a pipe");
    let change = |config: &mut daemon::Config| config.starter = Some(Arc::new(output));
    let run = File::open("/dev/null").expect("there").into();
    Daemon::of(Some(run), change).end();
}

#[test]
fn ended_daemon_leaves_nothing_behind() {
    let daemon = Daemon::start();
    let folder = daemon.folder().to_owned();
    assert!(folder.join("job").symlink_metadata().is_ok());
    let client = Client::connect(&folder);
    caller::ask(&folder, caller::Control::Stop).expect("it serves");
    client.expect_end();
    until("the folder is empty", || {
        std::fs::read_dir(&folder).is_ok_and(|mut d| d.next().is_none())
    });
    let asked = caller::ask(&folder, caller::Control::Status);
    assert!(matches!(asked, Err(Error::Unreachable { .. })), "{asked:?}");
    daemon.end();
}

/// As ranks that start together may come: before any of them is heard, all have connected.
#[test]
fn more_than_may_greet_at_a_time_wait_and_are_let_in() {
    let daemon = Daemon::start();
    let sockets: Vec<_> = (0..300).map(|_| dial(daemon.folder())).collect();
    for socket in sockets.iter().rev() {
        send(socket, &Greeting::new(Role::Run).encode(), &[]);
    }
    for (index, socket) in sockets.iter().enumerate() {
        let welcome = Welcome::decode(&receive(socket).0).expect("a welcome");
        assert_eq!(welcome.session, Ok(0), "{index}");
    }
    drop(sockets);
    daemon.stop();
}

#[test]
fn more_cores_than_a_daemon_serves_on_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = daemon::Config::new(folder.path().to_owned());
    config.cores = vec![0; daemon::CORES_MAX + 1];
    let why = daemon::serve(config, None, |_| panic!("it serves")).map(drop).expect_err("too many");
    assert!(why.to_string().contains("64 cores at most"), "{why}");
}

#[test]
fn second_daemon_in_a_folder_is_turned_away() {
    let daemon = Daemon::start();
    let second = daemon::serve(daemon::Config::new(daemon.folder().to_owned()), None, |_| {});
    let second = second.map(drop);
    assert!(matches!(second, Err(Error::Occupied { .. })), "{second:?}");
    daemon.stop();
}

#[test]
fn session_that_ends_while_the_daemon_is_asked_counts_once() {
    const SESSIONS: u64 = 1000;
    let daemon = Daemon::with(|config| config.cores = vec![0; 2]);
    let file = File::create(daemon.folder().join("file")).expect("a file");
    let begun = AtomicU64::new(0);
    thread::scope(|scope| {
        let sessions = scope.spawn(|| {
            for _ in 0..SESSIONS {
                let mut client = Client::connect(daemon.folder());
                client.register(1, &file, FileFlags::WRITABLE, (0, 64 << 10));
                begun.fetch_add(1, Ordering::SeqCst);
                let write = Request::Write { file: 1, at: 0, len: 1, arena_at: 128 << 10 };
                assert_eq!(client.ask(write), Ok(1));
            }
        });
        while !sessions.is_finished() {
            let told = daemon.status()["summary"]["bytes_delegated"].as_u64().expect("bytes");
            let begun = begun.load(Ordering::SeqCst);
            assert!(told <= begun, "{told} bytes of {begun}");
        }
    });
    assert_eq!(daemon.stop().bytes_delegated, SESSIONS);
}
