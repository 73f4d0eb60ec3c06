//! Reads return what is in the file: all of it, once, and as it is by now.

use std::{fs, os::unix::fs::FileExt as _, process::Command, time::Duration};

use crate::{
    calls::Calls,
    harness::{Daemon, Folder, SOON, kakehi_run, pause, program, succeed},
    remote::{
        local,
        server::{Scheme, Server},
    },
};

/// Every file of a job.
const DELEGATED: &[&str] = &["--rule", "/**=delegate"];

fn read_by(command: &mut Command, how: &[&str]) {
    succeed(command.arg(program("reads")).args(how), SOON);
}

#[test]
fn delegated_read_returns_all_bytes_when_its_thread_is_stopped() {
    let folder = Folder::new();
    let file = folder.join("file").display().to_string();
    read_by(&mut kakehi_run(&folder, DELEGATED), &["stopped", &file, "5"]);
}

#[test]
fn remote_read_returns_all_bytes_when_its_thread_is_stopped() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let file = local(&folder).join("file").display().to_string();
    read_by(&mut server.run(&folder), &["stopped", &file, "5"]);
    server.end();
}

#[test]
fn threads_that_read_at_one_position_get_each_record_once() {
    for flags in [&[][..], DELEGATED] {
        let folder = Folder::new();
        let file = folder.join("file").display().to_string();
        for _ in 0..5 {
            read_by(&mut kakehi_run(&folder, flags), &["threads", &file]);
        }
    }
}

/// The writer tells the reader once it has written: nothing older counts from then on.
#[test]
fn delegated_reader_sees_what_an_unwrapped_writer_has_told_it_of() {
    const ROUNDS: u64 = 50;
    let folder = Folder::new();
    let mut daemon = Daemon::start(&folder, "job", &[]);
    daemon.set("KAKEHI_RULES", "/**=delegate");
    let mut reader = Calls::wrapped(&daemon);
    let path = folder.join("file");
    fs::write(&path, vec![b'-'; 100_000]).expect("a file");
    let writer = fs::File::options().write(true).open(&path).expect("the file");
    for round in 10..10 + ROUNDS {
        // A file that has just been changed is not read ahead.
        pause(Duration::from_millis(10));
        let fd = reader.get(&format!("open {} r", path.display()));
        for _ in 0..2 {
            assert_eq!(reader.ask(&format!("read {fd} 2")), "[--]");
        }
        writer.write_all_at(round.to_string().as_bytes(), 4).expect("written");
        assert_eq!(reader.ask(&format!("read {fd} 2")), format!("[{round}]"));
        reader.get(&format!("close {fd}"));
    }
    reader.end();
    let asked = daemon.status()["summary"]["requests"]["read"].as_u64();
    assert!(asked < Some(3 * ROUNDS), "nothing was read ahead: {asked:?} requests");
    daemon.end();
}
