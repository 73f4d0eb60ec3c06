//! Calls of the daemon that are interrupted, as a network file system or one in user space may do
//! it to any: programs, which no signal has come to, do not see it. And calls of the client that a
//! program's handler interrupts, which nobody sees but by what the handler has written.

use std::{fs, process::Command};

use rustix::process::Signal;

use crate::{
    calls::Calls,
    harness::{Daemon, Folder, SOON, kakehi, kakehi_run, program, skip, succeed},
    remote::server::{Scheme, Server},
    strace::Trace,
};

#[test]
fn calls_that_are_interrupted_in_the_daemon_are_made_again() {
    if !Trace::is_possible() {
        return skip("interrupted calls", "no strace");
    }
    let folder = Folder::new();
    let (file, socket) = (folder.join("file").display().to_string(), folder.join("job"));
    let mut strace = Command::new("strace");
    // The first calls of each thread on the file; of `openat` the second, which opens to write.
    strace.args(["-D", "-f", "-qq", "-o"]).arg(folder.join("trace")).args(["-P", &file]);
    strace.args(["-e", "inject=pwrite64,fsync,ftruncate:error=EINTR:when=1"]);
    strace.args(["-e", "inject=openat:error=EINTR:when=2"]);
    strace.arg(kakehi()).args(["serve", "--engine", "threads", "--socket"]).arg(&socket);
    let daemon = Daemon::start_by(&folder, socket, &mut strace);
    let mut calls = daemon.wrap(program("calls"));
    let mut calls = Calls::start(calls.env("KAKEHI_RULES", "/**=delegate"));

    let fd = calls.get(&format!("open {file} wct"));

    assert_eq!(calls.ask(&format!("write {fd} abc")), "3");
    assert_eq!(calls.ask(&format!("fsync {fd}")), "0");
    assert_eq!(calls.ask(&format!("truncate {fd} 2")), "0");
    assert_eq!(calls.ask(&format!("close {fd}")), "0");
    calls.end();
    daemon.end();
    let trace = fs::read_to_string(folder.join("trace")).expect("a trace");
    for call in ["openat", "pwrite64", "fsync", "ftruncate"] {
        let is_it = |line: &str| line.contains(call) && line.contains("EINTR");
        assert!(trace.lines().any(is_it), "{call} was not interrupted: {trace}");
    }
}

/// The drains, and what tells the kernel the position, take some time; no more than the kernel's
/// writes to a fast file system, or the daemon drains.
#[test]
fn ioctl_of_another_thread_sends_no_drain_to_another_place() {
    if !Trace::is_possible() {
        return skip("delayed drains", "no strace");
    }
    let folder = Folder::new();
    for _ in 0..4 {
        let mut strace = kakehi_run(&folder, &[]);
        strace.args(["strace", "-f", "-qq", "--seccomp-bpf", "-o"]).arg(folder.join("trace"));
        strace.args(["-e", "trace=writev,lseek", "-e", "inject=writev,lseek:delay_enter=300"]);
        let said = succeed(strace.arg(program("asking")).arg(folder.join("file")), SOON);
        assert_eq!(said, "0 wrong, at 40960000\n");
        let trace = fs::read_to_string(folder.join("trace")).expect("a trace");
        assert!(trace.contains("writev"), "nothing was drained by the program");
    }
}

#[test]
fn handler_finds_the_file_whose_write_it_interrupts_before_that_write_or_behind_it() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    for what in ["over", "cut", "append", "read", "end", "rotate", "fork", "exec", "cross"] {
        let mut within = daemon.wrap(program("within"));
        let said = succeed(within.arg(folder.path()).arg(what), SOON);
        assert_eq!(said, "0 wrong\n", "{what}");
    }
    daemon.end();
}

#[test]
fn handlers_that_wait_for_the_end_of_a_call_keep_what_they_are_promised() {
    let folder = Folder::new();
    let native = succeed(Command::new(program("handlers")).arg(folder.join("native")), SOON);
    assert!(!native.is_empty() && native.lines().all(|line| line.ends_with(": holds")), "{native}");
    for policy in ["hybrid", "delegate"] {
        let mut run = kakehi_run(&folder, &["--rule", &format!("/**={policy}")]);
        run.arg(program("handlers")).arg(folder.join(policy));
        assert_eq!(succeed(&mut run, SOON), native, "{policy}");
    }
}

#[test]
fn handler_that_interrupts_a_write_to_a_remote_file_writes_behind_it() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let mut refused = server.run(&folder);
    let said = succeed(refused.arg(program("refused")).arg(folder.join("local/file")), SOON);
    assert_eq!(said, "0 refused, 0 holes\n");
    server.end();
}

#[test]
fn handler_comes_into_a_call_that_waits_for_a_server_and_is_refused_its_file() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let mut command = server.run(&folder);
    let command = command.arg(program("refused")).arg(folder.join("local/file")).arg("long");
    let mut calls = Calls::start(command);
    assert_eq!(calls.answer(), "begun");
    server.running.signal(Signal::STOP);
    assert_eq!(calls.ask("go on"), "Resource temporarily unavailable");
    server.running.signal(Signal::CONT);
    assert_eq!(calls.exit_code(), Some(0));
    server.end();
}

#[test]
fn a_handler_that_interrupts_a_write_to_another_coalesced_file_is_served() {
    let folder = Folder::new();
    let local = folder.join("local");
    fs::create_dir(&local).expect("a folder");
    let map = format!("{}={}", local.display(), folder.join("kept.sion").display());
    let mut beside = kakehi_run(&folder, &["--coalesce", &map]);
    beside.arg(program("beside")).args(["fd", "other"].map(|name| local.join(name)));
    assert_eq!(succeed(&mut beside, SOON), "0 refused, 0 missing\n");
}

#[test]
fn a_thread_that_waits_to_open_a_pipe_can_be_cancelled() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut cancelled = daemon.wrap(program("cancelled"));
    assert_eq!(succeed(cancelled.arg(folder.join("pipe")), SOON), "cancelled\n");
    daemon.end();
}

#[test]
fn a_thread_that_a_handler_stops_in_a_call_keeps_nobody_from_an_end_or_a_fork() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    for how in ["_exit", "exit", "fork"] {
        let mut parked = daemon.wrap(program("parked"));
        succeed(parked.arg(folder.join("file")).arg(how), SOON);
        assert!(fs::read(folder.join("file")).expect("the file").iter().all(|byte| *byte == b'x'));
    }
    daemon.end();
}

#[test]
fn thread_that_leaves_a_write_by_a_jump_keeps_nobody_from_other_files() {
    for policy in ["hybrid", "delegate"] {
        let folder = Folder::new();
        let mut left = kakehi_run(&folder, &["--rule", &format!("/**={policy}")]);
        let said = succeed(left.arg(program("left")).arg(folder.path()), SOON);
        assert_eq!(said, "done\n", "{policy}");
        let found = fs::read(folder.join("left0")).expect("the file");
        assert!(found.chunks(4).all(|part| b"abcd".starts_with(part)), "{policy}");
    }
}

#[test]
fn calls_need_little_stack() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    for rule in ["/**=hybrid", "/**=delegate"] {
        let mut stacks = daemon.wrap(program("stacks"));
        stacks.env("KAKEHI_RULES", rule).current_dir(folder.path());
        assert_eq!(succeed(&mut stacks, SOON), "", "{rule}");
    }
    daemon.end();
}
