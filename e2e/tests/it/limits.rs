//! A machine that gives less: full disks, few descriptors, short files, no locked memory,
//! no io_uring.

use std::{
    fs,
    io::{self, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    calls::Calls,
    harness::{
        Daemon, Folder, SOON, kakehi, kakehi_run, pause, program, run, skip, stats, succeed, sum,
        text, wait_for,
    },
    records::{KINDS, Writer},
    remote::{
        finish_rounds,
        server::{Scheme, Server},
        start_rounds,
    },
};

/// Size of the file system that gets full.
const DISK_LEN: u64 = 512 << 10;

/// A small file system of its own, unmounted when this goes.
pub(crate) struct Disk(pub(crate) PathBuf);

impl Disk {
    /// `None`, loudly, when this user may not mount.
    pub(crate) fn mount(folder: &Folder, name: &str) -> Option<Self> {
        let path = folder.join(name);
        fs::create_dir(&path).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={DISK_LEN}"), "none"]).arg(&path);
        let output = mount.output();
        if output.is_ok_and(|output| output.status.success()) {
            return Some(Self(path));
        }
        skip("full disk", "this user cannot mount a small file system");
        None
    }

    /// Leaves no room, by a file.
    pub(crate) fn fill(&self, name: &str) {
        let mut file = fs::File::create(self.0.join(name)).expect("a file");
        while file.write(&[0; 4096]).is_ok() {}
    }

    /// Makes so much room, by the same file.
    pub(crate) fn shrink(&self, name: &str, by: u64) {
        let file = fs::File::options().write(true).open(self.0.join(name)).expect("a file");
        let len = file.metadata().expect("it is there").len();
        file.set_len(len - by).expect("it is longer");
    }

    pub(crate) fn free(&self, name: &str) {
        fs::remove_file(self.0.join(name)).expect("a file");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a test that failed may have left a process in it.
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

#[test]
fn a_full_disk_is_reported_by_write_fsync_or_close() {
    full_disk("full", &[]);
}

#[test]
fn a_drain_tells_what_a_full_disk_has_refused() {
    let folder = Folder::new();
    let Some(disk) = Disk::mount(&folder, "disk") else { return };
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut calls = Calls::wrapped(&daemon);
    let fd = calls.get(&format!("open {} wct", disk.0.join("file").display()));
    (0..2 * DISK_LEN / 4096).for_each(|_| drop(calls.ask(&format!("fill {fd} 4096"))));
    let mut drain = Command::new(kakehi());
    let output = run(drain.args(["drain", "--socket"]).arg(&daemon.socket), SOON);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("staged write"), "{said}");
    calls.end();
    daemon.end_by(1);
}

#[test]
fn a_full_disk_is_reported_under_delegate() {
    full_disk("full, delegated", &[("KAKEHI_RULES", "/**=delegate")]);
}

/// Standard output is a pipe there, and whoever writes little has ended when it cannot be written.
#[test]
fn a_full_disk_of_a_server_is_reported_by_the_exit_code() {
    let folder = Folder::new();
    let Some(_disk) = Disk::mount(&folder, "root") else { return };
    let server = Server::start(&folder, Scheme::Tcp);
    // Nobody is left who could be told.
    let writer = "import os, sys\n\
        for name, len in ('fill', 1000000), ('little', 7):\n\
        \x20   name = sys.argv[1] + '/' + name\n\
        \x20   try: os.write(os.open(name, os.O_WRONLY | os.O_CREAT), b'x' * len)\n\
        \x20   except OSError: pass\n\
        os.kill(os.getpid(), 9)";
    let mut command = server.run(&folder);
    command.args(["sh", "-c", "python3 -c \"$1\" \"$0\"; exit 0"]).arg(folder.join("local"));
    let output = run(command.arg(writer), SOON);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    let told = said.lines().filter(|line| line.contains("staged write")).count();
    assert_eq!(told, 1, "{said}");
    server.end();
}

/// One whose jobs come when it is full already.
#[test]
fn a_full_disk_of_a_server_can_be_cleaned() {
    let folder = Folder::new();
    let Some(disk) = Disk::mount(&folder, "root") else { return };
    let mut server = Server::start(&folder, Scheme::Tcp);
    fs::create_dir(server.job()).expect("a folder");
    for name in ["first", "second"] {
        fs::write(server.job().join(name), "x".repeat(8 << 10)).expect("a small file");
    }
    let much = vec![b'x'; 1 << 20]; // More than there is room for.
    let filled = fs::write(disk.0.join("fill"), &much);
    assert_eq!(filled.expect_err("it is full").kind(), io::ErrorKind::StorageFull);
    let remove = |server: &Server, name| {
        let local = folder.join("local").join(name);
        succeed(server.run(&folder).arg("rm").arg(local), SOON);
        assert!(!server.job().join(name).exists());
    };
    remove(&server, "first");
    // What became free is used up again, and the next server finds nothing but a full disk.
    fs::write(disk.0.join("more"), &much).expect_err("it is full");
    server.kill_and_restart();
    remove(&server, "second");
    server.end();
}

/// As a file system that the kernel gave up writing to. Nobody could be served.
#[test]
fn a_server_of_a_read_only_root_does_not_start() {
    let folder = Folder::new();
    let Some(disk) = Disk::mount(&folder, "root") else { return };
    Server::start(&folder, Scheme::Tcp).end();
    let mut remount = Command::new("mount");
    succeed(remount.args(["-o", "remount,ro"]).arg(&disk.0), SOON);
    let mut serve = Command::new(kakehi());
    serve.env("XDG_RUNTIME_DIR", folder.path()).current_dir(folder.path());
    serve.args(["serve", "--listen", "tcp://127.0.0.1:0", "--root", "root", "--key", "key"]);
    let output = run(&mut serve, SOON);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("/root: Read-only file system") && said.contains("--root"), "{said}");
}

#[test]
fn a_server_whose_disk_is_full_from_the_start_says_so() {
    let folder = Folder::new();
    let Some(disk) = Disk::mount(&folder, "root") else { return };
    fs::write(disk.0.join("fill"), vec![b'x'; 1 << 20]).expect_err("it is full");
    let server = Server::start(&folder, Scheme::Tcp);
    assert!(server.said().contains("no room"), "{}", server.said());
    server.end();
}

fn full_disk(what: &str, settings: &[(&str, &str)]) {
    let folder = Folder::new();
    let Some(disk) = Disk::mount(&folder, "disk") else { return };
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut calls = Calls::start(daemon.wrap(program("calls")).envs(settings.iter().copied()));
    let file = disk.0.join("file").display().to_string();
    let full = |answer: &str| answer == "ENOSPC";
    let len = 2 * DISK_LEN;

    // All of it in one call, which may be accepted: then close says it.
    let fd = calls.get(&format!("open {file} wct"));
    let said = [calls.ask(&format!("fill {fd} {len}")), calls.ask(&format!("close {fd}"))];
    // The kernel may also write the part that fits, and say so.
    let is_short = said[0].parse().is_ok_and(|wrote: u64| wrote < len);
    assert!(is_short || said.iter().any(|answer| full(answer)), "{what}, close: {said:?}");
    disk.free("file");

    // The same with fsync, which takes the error from close.
    let fd = calls.get(&format!("open {file} wct"));
    let wrote = calls.ask(&format!("fill {fd} {len}"));
    let synced = calls.ask(&format!("fsync {fd}"));
    let is_short = wrote.parse().is_ok_and(|wrote: u64| wrote < len);
    assert!(is_short || full(&wrote) || full(&synced), "{what}, fsync: {wrote} {synced}");
    calls.ask(&format!("close {fd}"));
    disk.free("file");

    // Block by block: some later call says it, and what was written before it is there.
    let fd = calls.get(&format!("open {file} wct"));
    let mut said: Vec<_> = (0..len / 4096).map(|_| calls.ask(&format!("fill {fd} 4096"))).collect();
    said.push(calls.ask(&format!("close {fd}")));
    assert!(said.iter().any(|answer| full(answer)), "{what}, blocks: {said:?}");
    let found = fs::read(&file).expect("the file");
    assert!(found.len() as u64 >= DISK_LEN / 2, "{what}: {} bytes", found.len());
    assert!(found.iter().all(|byte| *byte == b'x'), "{what}: wrong bytes");
    disk.free("file");

    // Through a stream.
    let stream = calls.get(&format!("fopen {file} w"));
    let said = [calls.ask(&format!("pad {stream} {len}")), calls.ask(&format!("fclose {stream}"))];
    assert!(said.iter().any(|answer| full(answer)), "{what}, stream: {said:?}");
    disk.free("file");

    // With room again, everything works again.
    let fd = calls.get(&format!("open {file} wct"));
    calls.get(&format!("fill {fd} 5000"));
    calls.get(&format!("close {fd}"));
    assert_eq!(fs::metadata(&file).expect("the file").len(), 5000);
    calls.end();
    let said = daemon.end_by(1);
    assert!(said.contains("FAILED"), "{said}");
}

#[test]
fn more_files_than_the_daemon_takes_are_left_to_the_kernel() {
    const COUNT: u64 = 3000;
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut command = Command::new("prlimit");
    command.arg("--nofile=4096:4096").arg(program("calls"));
    command.envs(daemon.wrap("").get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut calls = Calls::start(&mut command);
    let prefix = folder.join("file").display().to_string();
    assert_eq!(calls.get(&format!("many {prefix} {COUNT}")), COUNT);
    assert_eq!(calls.get("closemany"), COUNT);
    for index in 0..COUNT {
        let found = fs::read_to_string(format!("{prefix}.{index}")).expect("the file");
        assert_eq!(found, index.to_string());
    }
    // And again, with the credit that came back.
    assert_eq!(calls.get(&format!("many {prefix} 100")), 100);
    assert_eq!(calls.get("closemany"), 100);
    calls.end();
    let summary = daemon.status()["summary"].clone();
    let number = |name: &str| summary.pointer(name).and_then(serde_json::Value::as_u64);
    assert!(number("/bytes_undelegated/credit").is_some_and(|bytes| bytes > 5000), "{summary:#}");
    assert!(number("/bytes_staged").is_some_and(|bytes| bytes > 500), "{summary:#}");
    daemon.end();
}

#[test]
fn a_program_that_finds_no_memory_says_so_and_does_not_count_as_one_that_lost_its_daemon() {
    let folder = Folder::new();
    let socket = folder.join("job");
    let mut command = Command::new(kakehi());
    command.env("KAKEHI_MEMORY", "256KiB").args(["serve", "--socket"]).arg(&socket);
    let daemon = Daemon::start_by(&folder, socket, &mut command);
    // Has the only session there is memory for.
    let mut calls = Calls::start(&mut daemon.wrap(program("calls")));
    let fd = calls.get(&format!("open {} wc", folder.join("first").display()));
    calls.get(&format!("write {fd} hello"));

    let second = folder.join("second");
    let mut command = daemon.wrap("sh");
    command.args(["-c", "echo hello | tee \"$0\""]).arg(&second);
    let output = run(&mut command, SOON);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("KAKEHI_MEMORY") && said.contains("undelegated"), "{said}");
    assert_eq!(fs::read(&second).expect("the file"), b"hello\n");

    calls.get(&format!("close {fd}"));
    calls.end();
    let summary = daemon.status()["summary"].clone();
    assert_eq!(summary["bytes_undelegated"], serde_json::json!({ "credit": 6 }), "{summary:#}");
    daemon.end();
}

/// A log grows, or it stays: one that is replaced by its like is drained for nothing.
#[test]
fn files_that_share_little_memory_keep_their_logs() {
    let folder = Folder::new();
    let stats_file = folder.join("stats");
    let mut command = kakehi_run(&folder, &["--stats", stats_file.to_str().expect("UTF-8")]);
    let script = "cd \"$0\"; head -c 33554432 /dev/zero | tee 1 2 3 4 5 6 7 >8";
    command.env("KAKEHI_STAGING", "1MiB").args(["bash", "-c", script]).arg(folder.path());
    succeed(&mut command, SOON);
    let attached = sum(&stats(&stats_file), "/requests/attach");
    assert!(attached <= 8, "{attached} logs attached by 7 files that may have grown once each");
}

#[test]
fn a_file_that_becomes_standard_output_is_told_from_one_handed_over() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let to = format!("of={}", folder.join("file").display());
    let mut dd = daemon.wrap("dd");
    succeed(dd.args(["if=/dev/zero", &to, "bs=4096", "count=4"]), SOON);
    let summary = daemon.status()["summary"].clone();
    let expected = serde_json::json!({ "standard_stream": 16384 });
    assert_eq!(summary["bytes_undelegated"], expected, "{summary:#}");
    daemon.end();
}

#[test]
fn what_the_kernel_makes_up_is_told_from_what_a_rule_leaves_to_it() {
    let folder = Folder::new();
    let stats_file = folder.join("stats");
    let script = "cat /proc/version; cat /proc/uptime; echo >file; cat file";
    let stats_name = stats_file.display().to_string();
    let mut command = kakehi_run(&folder, &["--rule", "file=pass", "--stats", &stats_name]);
    succeed(command.args(["sh", "-c", script]).current_dir(folder.path()), SOON);
    let left = &stats(&stats_file)[0]["fallbacks"];
    assert_eq!((&left["pseudo"], &left["rule"]), (&2.into(), &2.into()), "{left:#}");
}

#[test]
fn a_client_with_few_descriptors_is_served() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut command = Command::new("prlimit");
    command.arg("--nofile=16:16").arg(program("calls"));
    command.envs(daemon.wrap("").get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut calls = Calls::start(&mut command);
    let path = folder.join("file").display().to_string();
    let fd = calls.get(&format!("open {path} wc"));
    calls.get(&format!("write {fd} hello"));
    // Runs out as it would by itself, or one sooner: the client keeps one.
    let answer = calls.ask(&format!("many {path} 100"));
    assert_eq!(answer, "EMFILE");
    calls.get(&format!("close {fd}"));
    assert_eq!(fs::read(&path).expect("the file"), b"hello");
    calls.end();
    assert_eq!(daemon.status()["summary"]["bytes_undelegated"], serde_json::json!({}));
    daemon.end();
}

#[test]
fn a_program_with_few_numbers_gets_the_lowest_ones() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, "job", &[]);
    let mut limited = daemon.wrap("sh");
    limited.args(["-c", "ulimit -n 256; exec \"$0\""]).arg(program("calls"));
    let mut calls = Calls::start(&mut limited);
    let file = folder.join("file").display().to_string();
    let lowest = calls.get(&format!("open {file} wc"));
    // Connects.
    calls.get(&format!("write {lowest} x"));
    for free in lowest + 1..lowest + 4 {
        assert_eq!(calls.get(&format!("open {file} r")), free);
    }
    calls.end();
    daemon.end();
}

#[test]
fn a_daemon_works_where_limits_are_tight() {
    let limits = [
        ("locked memory of 8 MiB", vec!["prlimit".into(), "--memlock=8388608:8388608".into()]),
        ("locked memory of 0", vec!["prlimit".into(), "--memlock=0:0".into()]),
        ("files of 1 MB", vec!["prlimit".into(), "--fsize=1000000:unlimited".into()]),
        ("256 descriptors", vec!["prlimit".into(), "--nofile=256:256".into()]),
        ("no io_uring", vec![program("forbid").display().to_string(), "EPERM".into()]),
        ("old kernel", vec![program("forbid").display().to_string(), "ENOSYS".into()]),
    ];
    let folder = Folder::new();
    for (what, words) in limits {
        let socket = folder.join(what.replace(' ', "-"));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(kakehi()).args(["serve", "--socket"]).arg(&socket);
        let daemon = Daemon::start_by(&folder, socket, &mut command);
        write_and_verify(&daemon, &folder.join(what), what);
        daemon.end();
    }
}

#[test]
fn a_server_without_descriptors_says_so_once_and_serves_when_it_has_them() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let few = ["prlimit", "--nofile=64:64"].map(Path::new);
    let server = Server::start_under(&few, &folder, Scheme::Tcp);
    let guests: Vec<_> =
        (0..100).map(|_| TcpStream::connect(("127.0.0.1", server.port)).expect("room")).collect();
    let complaints = || server.said().matches("could not be accepted").count();
    assert!(wait_for(SOON, || complaints() > 0), "it has accepted all: {}", server.said());
    pause(Duration::from_millis(500));
    assert_eq!(complaints(), 1, "{}", server.said());
    drop(guests);
    let command = ["sh", "-c", "echo hello >\"$0\""];
    succeed(server.run(&folder).args(command).arg(folder.join("local/file")), SOON);
    assert_eq!(fs::read_to_string(server.job().join("file")).expect("there"), "hello\n");
    server.end();
}

/// There is no segment for a session then.
#[test]
fn a_daemon_that_may_not_make_a_file_longer_lives_on() {
    let (folder, wanted) = (Folder::new(), "x".repeat(2_000_000));
    let socket = folder.join("job");
    let mut command = Command::new("prlimit");
    command.arg("--fsize=20000000:20000000").arg(kakehi()).args(["serve", "--socket"]).arg(&socket);
    let daemon = Daemon::start_by(&folder, socket, &mut command);
    let mut shell = daemon.wrap("sh");
    shell.args(["-c", "head -c 2000000 /dev/zero | tr '\\0' x | tee \"$0\""]);
    let said = succeed(shell.arg(folder.join("file")), SOON);
    assert!(said == wanted, "{} bytes came through", said.len());
    assert!(fs::read_to_string(folder.join("file")).expect("the file") == wanted);
    assert!(daemon.status()["summary"].is_object());
    daemon.end();
}

#[test]
fn io_uring_asked_for_and_forbidden_is_told_and_done_without() {
    let folder = Folder::new();
    let socket = folder.join("job");
    let mut command = Command::new(program("forbid"));
    command.arg("EPERM").arg(kakehi()).args(["serve", "--engine", "uring", "--socket"]);
    let daemon = Daemon::start_by(&folder, socket.clone(), command.arg(&socket));
    let engine = daemon.status()["cores"][0]["engine"].as_str().expect("text").to_owned();
    assert!(engine.contains("io_uring is unavailable"), "{engine}");
    let said = daemon.said();
    assert_eq!(said.lines().filter(|line| line.contains("io_uring")).count(), 1, "{said}");
    write_and_verify(&daemon, &folder.join("file"), "io_uring asked for");
    daemon.end();
}

/// As in containers, and where `kernel.io_uring_disabled` is 2: sockets need no ring.
#[test]
fn remote_files_are_served_where_io_uring_is_forbidden() {
    crate::views::needs_view!();
    let forbid = program("forbid");
    for scheme in [Scheme::Tcp, Scheme::Ucx] {
        if !scheme.is_here("a server without io_uring") {
            return;
        }
        let folder = Folder::new();
        let server = Server::start_under(&[&forbid, Path::new("EPERM")], &folder, scheme);
        let plain = server.run(&folder);
        let mut command = Command::new(&forbid);
        command.arg("EPERM").arg(plain.get_program()).args(plain.get_args());
        command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
        let mut program = start_rounds(&folder, &mut command, 40);
        finish_rounds(&folder, &server, &mut program, 40);
        server.end();
    }
}

/// One writer of every kind, under this daemon and nobody else.
fn write_and_verify(daemon: &Daemon, path: &Path, what: &str) {
    const COUNT: u64 = 512;
    let start = |(index, kind)| {
        let path = PathBuf::from(format!("{}-{index}", path.display()));
        Writer::start(daemon, kind, path, COUNT, 4096)
    };
    let mut writers: Vec<_> = KINDS.into_iter().enumerate().map(start).collect();
    for writer in &mut writers {
        let status = writer.running.wait(SOON);
        assert!(status.success(), "{what}: {status}");
        let accepted = writer.accepted();
        assert_eq!(accepted.len() as u64, COUNT, "{what}");
        assert!(writer.missing(&accepted).is_empty(), "{what}");
        writer.clear();
    }
    let staged = daemon.status()["summary"]["bytes_staged"].as_u64();
    assert!(staged.is_some_and(|bytes| bytes > COUNT * 4096), "{what}: {:#}", daemon.status());
}

#[test]
fn doctor_says_when_io_uring_is_forbidden() {
    let folder = Folder::new();
    let doctor = |mut command: Command| {
        command.env("XDG_RUNTIME_DIR", folder.path()).arg("doctor");
        command
    };
    let mut forbidden = Command::new(program("forbid"));
    forbidden.arg("EPERM").arg(kakehi());
    let output = run(&mut doctor(forbidden), SOON);
    let said = text(&output.stdout);
    assert!(said.contains("io_uring"), "{said}");
    let plain = succeed(&mut doctor(Command::new(kakehi())), SOON);
    assert_ne!(said, plain);
}
