//! Daemons that nobody asks for anything: they sleep, and nothing wakes them.

use std::{fs, time::Duration};

use super::local;
use crate::{
    harness::{Daemon, Folder, SOON, pause, succeed},
    idle::run_time,
    remote::server::{Scheme, Server},
};

/// So long no thread of theirs runs, in a row.
const SECONDS: usize = 5;
/// Seconds within which that has to be.
const SECONDS_MAX: usize = 120;

pub(super) fn daemons_that_nobody_asks_sleep(scheme: Scheme) {
    let folder = Folder::new();
    let server = Server::start(&folder, scheme);
    let flags = server.flags(&local(&folder));
    let mut daemon = Daemon::start(&folder, "near", &flags.each_ref().map(String::as_str));
    daemon.set("KAKEHI_RULES", &format!("{}/**=remote", local(&folder).display()));
    fs::create_dir_all(server.job()).expect("folder");
    let mut copy = daemon.wrap("cp");
    succeed(copy.arg("/etc/passwd").arg(local(&folder).join("copy")), SOON);
    assert!(server.job().join("copy").is_file(), "the daemons did not meet");

    let pids = [server.running.child.id(), daemon.running.child.id()];
    let (mut before, mut quiet) = (Duration::ZERO, 0);
    for _ in 0..SECONDS_MAX {
        pause(Duration::from_secs(1));
        let now = pids.into_iter().map(run_time).sum();
        quiet = if now == before { quiet + 1 } else { 0 };
        if quiet == SECONDS {
            return server.end();
        }
        before = now;
    }
    panic!("in {SECONDS_MAX} s they never slept for {SECONDS} s");
}
