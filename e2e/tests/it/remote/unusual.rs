//! Programs in a remote folder that end in part, or come past the library.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use super::local;
use crate::{
    calls::Calls,
    harness::{Folder, SOON, program, run, succeed, text},
    remote::server::{Scheme, Server},
};

/// `/proc/self` of such a process is empty, and paths and descriptors are looked up there.
#[test]
fn a_program_whose_first_thread_has_ended_writes_its_files() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let script = "cd \"$0\" && exec \"$1\" file";
    let mut command = server.run(&folder);
    command.args(["sh", "-c", script]).arg(local(&folder)).arg(program("leaderless"));
    succeed(&mut command, SOON);
    assert_eq!(fs::read_to_string(server.job().join("file")).expect("written"), "alive\n");
    server.end();
}

#[test]
fn a_program_that_is_given_an_environment_of_its_own_is_served() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let script = "cd \"$0\" && env -i A=1 /bin/sh -c 'echo $A >seen; env -i /bin/cat seen'";
    let mut command = server.run(&folder);
    let said = succeed(command.args(["sh", "-c", script]).arg(local(&folder)), SOON);
    assert_eq!(said, "1\n");
    assert_eq!(fs::read_to_string(server.job().join("seen")).expect("written"), "1\n");
    server.end();
}

/// A process that was handed an open file writes to a pipe, and has no session.
#[test]
fn a_file_is_written_by_who_was_handed_it_after_its_opener_has_ended() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let script = "cd \"$0\"; exec 3>file; \
        (exec <&- >&- 2>&-; sleep 0.5; echo late >&3) & exit 0";
    succeed(server.run(&folder).args(["sh", "-c", script]).arg(local(&folder)), SOON);
    assert_eq!(fs::read_to_string(server.job().join("file")).expect("written"), "late\n");
    server.end();
}

#[test]
fn a_folder_that_is_made_by_a_pattern_is_the_servers() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let script = "cd \"$0\" && echo mkdtemp ./made-XXXXXX | \"$1\"";
    let mut command = server.run(&folder);
    command.args(["sh", "-c", script]).arg(local(&folder)).arg(program("calls"));
    assert_eq!(succeed(&mut command, SOON), "13\n");
    let made = fs::read_dir(server.job()).expect("made").next().expect("a folder").expect("read");
    let mode = made.metadata().expect("asked").permissions().mode();
    assert_eq!((made.file_name().len(), mode & 0o7777), (11, 0o700));
    server.end();
}

#[test]
fn what_is_written_when_all_else_has_ended_is_the_servers() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let script = "cd \"$0\" && exec \"$1\"";
    let mut command = server.run(&folder);
    command.args(["sh", "-c", script]).arg(local(&folder)).arg(program("late"));
    let output = run(&mut command, SOON);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    for (name, content) in [
        ("written", "early late"),
        ("fresh", "late"),
        ("closed", "early late"),
        ("held", "held"),
        ("new", "LATE and later"),
        ("open", "not closed"),
        ("buffered", "buffered"),
    ] {
        let found = fs::read_to_string(server.job().join(name));
        assert_eq!(found.ok().as_deref(), Some(content), "{name}");
    }
    server.end();
}

/// By its number, as libc opens it then: the file is the view's by that time.
#[test]
fn streams_that_are_opened_once_more_without_a_name_are_as_native_ones() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    for standard in [None, Some("standard")] {
        for mode in ["r", "r+", "w", "w+", "a", "a+"] {
            let native = folder.join(mode);
            let mut command = Command::new(program("reopened"));
            let expected = succeed(command.arg(&native).arg(mode).args(standard), SOON);
            let mut command = server.run(&folder);
            command.arg(program("reopened")).arg(local(&folder).join(mode)).arg(mode);
            assert_eq!(succeed(command.args(standard), SOON), expected, "{mode} {standard:?}");
            let found = fs::read_to_string(server.job().join(mode));
            assert_eq!(found.ok(), fs::read_to_string(&native).ok(), "{mode} {standard:?}");
        }
    }
    server.end();
}

/// Programs count on it: they close standard input, and open another.
#[test]
fn a_remote_file_gets_the_lowest_number_that_is_free() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let mut calls = Calls::start(server.run(&folder).arg(program("calls")));
    let here = folder.join("here").display().to_string();
    let there = local(&folder).join("there").display().to_string();
    let lowest = calls.get(&format!("open {here} wc"));
    calls.get(&format!("close {lowest}"));
    for free in lowest..lowest + 3 {
        assert_eq!(calls.get(&format!("open {there} +c")), free);
    }
    calls.get(&format!("close {}", lowest + 1));
    assert_eq!(calls.get(&format!("open {there} r")), lowest + 1);
    calls.end();
    server.end();
}
