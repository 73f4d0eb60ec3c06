//! Programs that wait for their daemon, or for a server, for as long as it takes.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{LONG, local};
use crate::{
    calls::Calls,
    harness::{Folder, Running, collect, pause, processes_of, program, python, text},
    remote::server::{Scheme, Server},
};

/// The program, between two of its steps.
struct Patient {
    running: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Patient {
    fn start(server: &Server, folder: &Folder, files: u32) -> Option<Self> {
        Self::start_by(server.run(folder), folder, files)
    }

    fn start_by(mut command: Command, folder: &Folder, files: u32) -> Option<Self> {
        let program = python("programs that wait", "patient")?;
        command.args(program).arg(local(folder)).arg(files.to_string());
        command.env("KAKEHI_FENCE_TIMEOUT", "1s").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = Running::start(&mut command);
        let input = running.child.stdin.take().expect("piped");
        let output = BufReader::new(running.child.stdout.take().expect("piped"));
        Some(Self { running, input, output })
    }

    fn reach(&mut self, step: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a pipe");
        assert_eq!(line.trim_end(), step);
    }

    fn go_on(&mut self) {
        self.input.write_all(b"\n").expect("it waits");
    }

    /// Returns the results of the last steps.
    fn end(mut self) -> String {
        let status = self.running.wait(LONG);
        let mut said = String::new();
        self.output.read_to_string(&mut said).expect("a pipe");
        format!("{said}{:?}", status.code())
    }
}

/// The job's daemon, to which the program belongs.
fn daemon(folder: &Folder) -> Pid {
    let found = processes_of(folder.path());
    let is_daemon = |(_, arguments): &&(i32, String)| arguments.contains("kakehi serve --socket");
    let (pid, _) = found.iter().find(is_daemon).unwrap_or_else(|| panic!("{found:?}"));
    Pid::from_raw(*pid).expect("a pid")
}

/// There are fewer lanes than threads, and every lane's thread wants to know whether the daemon
/// lives.
#[test]
fn more_threads_than_lanes_wait_for_a_server_and_go_on() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let Some(mut patient) = Patient::start(&server, &folder, 80) else { return server.end() };
    patient.reach("begun");
    patient.go_on();
    patient.reach("staged");
    server.running.signal(Signal::STOP);
    patient.go_on();
    // Longer than the time after which a daemon is asked whether it is there.
    pause(Duration::from_secs(3));
    server.running.signal(Signal::CONT);
    let said = patient.end();
    let mut lines = said.lines();
    assert!(["ok", "ok", "ok"].into_iter().eq(lines.by_ref().take(3)), "{said}");
    let cpu_ms: u32 = lines.next().and_then(|line| line.parse().ok()).expect("milliseconds");
    assert!(cpu_ms < 1000, "{cpu_ms} ms of looking for three seconds");
    assert_eq!(lines.next(), Some("Some(0)"), "{said}");
    for number in 0..80 {
        let found = fs::read(server.job().join(number.to_string())).expect("written");
        assert_eq!(found, b"first secondthird", "file {number}");
    }
    server.end();
}

/// Others have made the file again by then.
#[test]
fn what_has_failed_while_the_server_stood_still_does_not_happen_later() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    fs::create_dir_all(server.job()).expect("the server's folder");
    let victim = server.job().join("victim");
    fs::write(&victim, "old").expect("the server's folder");
    let mut command = server.run(&folder);
    let command = command.env("KAKEHI_REMOTE_TIMEOUT", "1s").arg(program("calls"));
    let mut calls = Calls::start(command);
    let at = local(&folder).join("victim").display().to_string();
    assert_eq!(calls.ask(&format!("stat {at}")), "3");
    server.running.signal(Signal::STOP);
    assert_eq!(calls.ask(&format!("unlink {at}")), "EIO");
    calls.end();
    fs::write(&victim, "new").expect("the server's folder");
    server.running.signal(Signal::CONT);
    pause(Duration::from_secs(1));
    assert_eq!(fs::read_to_string(&victim).expect("made again"), "new");
    server.end();
}

/// Nobody but the daemon knew the server: what was accepted and not sent is lost, and said so.
#[test]
fn what_was_staged_for_a_server_is_an_error_when_the_daemon_is_killed() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let Some(mut patient) = Patient::start(&server, &folder, 3) else { return server.end() };
    patient.reach("begun");
    let daemon = daemon(&folder);
    kill_process(daemon, Signal::STOP).expect("it lives");
    patient.go_on();
    patient.reach("staged");
    kill_process(daemon, Signal::KILL).expect("it lives");
    patient.go_on();
    let said = patient.end();
    assert!(said.starts_with("EIO\nEIO\nok\n") && said.ends_with("\nSome(125)"), "{said}");
    server.end();
}

/// It is not the file system that refused what was staged.
#[test]
fn what_was_staged_for_a_server_that_is_lost_is_told_as_such() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let mut server = Server::start(&folder, Scheme::Tcp);
    let mut command = server.run(&folder);
    command.env("KAKEHI_REMOTE_TIMEOUT", "1s").stderr(Stdio::piped());
    let Some(mut patient) = Patient::start_by(command, &folder, 3) else { return server.end() };
    let told = collect(patient.running.child.stderr.take().expect("piped"));
    patient.reach("begun");
    server.kill();
    patient.go_on();
    patient.reach("staged");
    patient.go_on();
    let said = patient.end();
    assert!(said.starts_with("EIO\n") && said.ends_with("\nSome(125)"), "{said}");
    let told = text(&told.join().expect("reader"));
    assert!(told.contains("FAILED: ") && told.contains(" server was lost"), "{told}");
    assert!(!told.contains("file system"), "{told}");
    server.restart();
    server.end();
}
