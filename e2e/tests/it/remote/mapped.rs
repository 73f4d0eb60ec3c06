//! What `--map` and a job's daemon make of a name: the server's file, or a line that says why not.

use std::fs;

use rustix::process::Signal;

use crate::{
    harness::{Folder, SOON, run, text},
    remote::server::{Scheme, Server},
};

/// Without room for its records no client can be served.
#[test]
fn a_server_that_can_keep_no_records_says_so() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, Scheme::Tcp);
    fs::remove_dir_all(folder.join("root/.kakehi")).expect("its own");
    let mut command = server.run(&folder);
    let output = run(command.env("KAKEHI_REMOTE_TIMEOUT", "1s").arg("true"), SOON);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("what it said"), "{}", text(&output.stderr));
    server.running.signal(Signal::TERM);
    server.running.wait(SOON);
    assert!(server.said().contains("records"), "{}", server.said());
}
