//! A root that somebody renames, removes, or replaces while it is served.

use std::{fs, thread};

use crate::{
    harness::{Folder, SOON, run, succeed, text, wait_for},
    remote::{
        LONG, local,
        server::{Scheme, Server},
    },
};

#[test]
fn a_root_that_was_renamed_is_served_to_new_jobs_too() {
    crate::views::needs_view!();
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

/// Writes there would be lost, and removals would hit another job's files.
#[test]
fn a_job_does_not_go_on_in_another_root() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let mut server = Server::start(&folder, Scheme::Tcp);
    let script = "cd \"$0\"; echo one >first; touch \"$1/begun\"; \
        until test -e \"$1/go\"; do sleep 0.05; done; echo two >second; rm kept";
    let mut command = server.run(&folder);
    command.args(["sh", "-c", script]).arg(local(&folder)).arg(folder.path());
    let job = thread::spawn(move || run(&mut command, LONG));
    assert!(wait_for(SOON, || folder.join("begun").exists()));
    server.kill();
    fs::rename(folder.join("root"), folder.join("moved")).expect("renamed");
    fs::create_dir_all(server.job()).expect("another root");
    fs::write(server.job().join("kept"), "").expect("file");
    server.restart();
    fs::write(folder.join("go"), "").expect("file");
    let output = job.join().expect("no deadline was missed");
    let said = text(&output.stderr);
    let told = said.lines().filter(|line| line.contains("has another root")).count();
    assert!(!output.status.success() && told == 1, "{said}");
    assert!(said.contains("Input/output error"), "{said}");
    let found = ["kept", "second"].map(|name| server.job().join(name).exists());
    assert_eq!(found, [true, false]);
    assert_eq!(fs::read(folder.join("moved/job/first")).expect("there"), b"one\n");
    server.end();
}
