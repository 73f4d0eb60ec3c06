//! A root that somebody renames or removes while it is served.

use std::fs;

use crate::{
    harness::{Folder, run, succeed, text},
    remote::{
        LONG, local,
        server::{Scheme, Server},
    },
};

#[test]
fn a_root_that_was_renamed_is_served_to_new_jobs_too() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    fs::rename(folder.join("root"), folder.join("moved")).expect("renamed");
    let mut command = server.run(&folder);
    succeed(command.args(["sh", "-c", "echo hello >\"$0/file\""]).arg(local(&folder)), LONG);
    assert_eq!(fs::read(folder.join("moved/job/file")).expect("there"), b"hello\n");
    server.end();
}

#[test]
fn a_root_that_was_removed_is_told_of_once() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    fs::remove_dir_all(folder.join("root")).expect("removed");
    let mut command = server.run(&folder);
    let output = run(command.env("KAKEHI_REMOTE_TIMEOUT", "2s").arg("true"), LONG);
    assert!(!output.status.success(), "{}", text(&output.stderr));
    let said = server.said();
    assert_eq!(said.matches("a client is turned away").count(), 1, "{said}");
    server.end();
}
