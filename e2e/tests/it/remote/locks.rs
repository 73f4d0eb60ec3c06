//! Locks of files that another node has: between processes of one node, of two, and with programs
//! on the server's own.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    process::Signal,
};

use super::{LONG, local};
use crate::{
    harness::{Folder, Running, SOON, pause, processes_of, program, run, skip, succeed, text},
    remote::server::{Scheme, Server},
};

const KINDS: [&str; 4] = ["posix", "ofd", "flock", "lockf"];
const ROUNDS: u32 = 40;

fn locks(command: &mut Command, what: &str, file: &Path, more: &[&str]) {
    command.arg(program("locks")).arg(what).arg(file).args(more);
}

#[test]
fn locks_mean_what_they_mean_natively() {
    for scheme in [Scheme::Tcp, Scheme::Ucx] {
        if !scheme.is_here("locks over UCX") {
            continue;
        }
        let folder = Folder::new();
        let server = Server::start(&folder, scheme);
        let mut native = Command::new(program("locks"));
        let expected = succeed(native.arg("rules").arg(folder.join("native")), SOON);
        let mut command = server.run(&folder);
        locks(&mut command, "rules", &local(&folder).join("remote"), &[]);
        assert_eq!(succeed(&mut command, LONG), expected);
        server.end();
    }
}

#[test]
fn counts_under_every_kind_of_lock_are_exact_on_one_node_and_on_two() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    for kind in KINDS {
        let file = local(&folder).join(kind);
        let nodes = [0, 1].map(|_| {
            let mut command = server.run(&folder);
            let script = "for i in 1 2 3; do \"$0\" \"$@\" & pids=\"$pids $!\"; done; \
                for pid in $pids; do wait $pid || exit 1; done";
            command.args(["bash", "-c", script]);
            locks(&mut command, "count", &file, &[&ROUNDS.to_string(), kind]);
            thread::spawn(move || run(&mut command, LONG))
        });
        for node in nodes {
            let output = node.join().expect("no deadline was missed");
            assert!(output.status.success(), "{kind}: {}", text(&output.stderr));
        }
        let count = fs::read_to_string(server.job().join(kind)).expect("counted");
        assert_eq!(count, (6 * ROUNDS).to_string(), "{kind}");
    }
    server.end();
}

const SQL: &str = "
import sqlite3, sys
table = sqlite3.connect(sys.argv[1], timeout=300, isolation_level=None)
for turn in range(int(sys.argv[2])):
    table.execute('begin immediate')
    table.execute('create table if not exists t (n integer)')
    table.execute('insert into t select 0 where not exists (select * from t)')
    table.execute('update t set n = n + 1')
    table.execute('commit')
";

#[test]
fn sqlite_counts_exactly_on_one_node_and_on_two() {
    let query = "import sqlite3, sys; table = sqlite3.connect(sys.argv[1]); \
        print(table.execute('pragma integrity_check').fetchone()[0], \
        table.execute('select n from t').fetchone()[0])";
    let mut probe = Command::new("python3");
    let python = probe.args(["-c", "import sqlite3, sys; print(sys.executable)"]);
    let Ok(found) = python.output() else { return skip("sqlite", "no python3") };
    if !found.status.success() {
        return skip("sqlite", "python3 has no sqlite3");
    }
    let python = text(&found.stdout).trim().to_owned();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let file = local(&folder).join("table");
    let nodes = [0, 1].map(|_| {
        let mut command = server.run(&folder);
        let script = "\"$@\" & first=$!; \"$@\" || exit 1; wait $first";
        command.args(["bash", "-c", script, "two", &python, "-c", SQL]).arg(&file).arg("15");
        thread::spawn(move || run(&mut command, LONG))
    });
    for node in nodes {
        let output = node.join().expect("no deadline was missed");
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let mut command = Command::new(&python);
    let counted = succeed(command.args(["-c", query]).arg(server.job().join("table")), SOON);
    assert_eq!(counted.trim(), "ok 60");
    server.end();
}

#[test]
fn flock_of_the_shell_excludes_whoever_else_asks() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let script = "cd \"$0\"; flock -n lock true || exit 1; exec 9>lock; flock 9 || exit 2; \
        flock -n lock true && exit 3; (flock -n lock true && exit 1; exit 0) || exit 4; \
        sleep 300 9>&9 & exec 9>&-; flock -n lock true && exit 5; \
        kill $!; wait $!; flock lock true || exit 6; \
        ( flock 9; flock -n lock true && exit 1; exit 0 ) 9>lock || exit 7; \
        flock lock true || exit 8; \
        exec 8<lock; flock 8 || exit 9; exit 42";
    let output = run(server.run(&folder).args(["bash", "-c", script]).arg(local(&folder)), LONG);
    assert_eq!(output.status.code(), Some(42), "{}", text(&output.stderr));
    server.end();
}

/// A program that does something for each line that it is told, and says what.
struct Talker {
    running: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Talker {
    #[track_caller]
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut running = Running::start(command);
        let input = running.child.stdin.take().expect("piped");
        let output = BufReader::new(running.child.stdout.take().expect("piped"));
        Self { running, input, output }
    }

    fn tell(&mut self) {
        self.input.write_all(b"\n").expect("it lives");
    }

    /// The next line; whoever says none until the test's end is killed with it.
    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a pipe");
        line
    }

    /// Ends it by telling it nothing any more.
    #[track_caller]
    fn end(mut self) {
        drop(self.input);
        self.running.wait(SOON);
    }
}

/// A program that holds a lock until it is told a line.
struct Keeper(Talker);

impl Keeper {
    #[track_caller]
    fn start(server: &Server, folder: &Folder, name: &str, kind: &str) -> Self {
        let mut command = server.run(folder);
        locks(&mut command, "keep", &local(folder).join(name), &[kind]);
        let mut talker = Talker::start(&mut command);
        assert_eq!(talker.line(), "locked\n");
        Self(talker)
    }

    /// Returns the results of a write and an unlock.
    #[track_caller]
    fn end(mut self) -> [String; 2] {
        self.0.tell();
        let said = [self.0.line(), self.0.line()];
        self.0.end();
        said
    }
}

#[test]
fn locks_of_a_program_that_has_ended_are_free_on_other_nodes() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    for kind in KINDS {
        let file = local(&folder).join(kind);
        let mut command = server.run(&folder);
        command.args(["bash", "-c", "while read line; do \"$0\" \"$@\" && echo left; done"]);
        locks(&mut command, "leave", &file, &[kind]);
        let mut here = Talker::start(&mut command);
        let mut command = server.run(&folder);
        locks(&mut command, "try", &file, &[kind]);
        let mut there = Talker::start(&mut command);
        for round in 0..10 {
            here.tell();
            assert_eq!(here.line(), "left\n");
            there.tell();
            assert_eq!(there.line(), "free\n", "{kind}, round {round}");
        }
        here.end();
        there.end();
    }
    server.end();
}

fn native(server: &Server, name: &str) -> fs::File {
    let mut options = fs::File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(server.job().join(name)).expect("the server's file")
}

#[test]
fn programs_of_the_servers_node_and_remote_ones_exclude_each_other() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let keeper = Keeper::start(&server, &folder, "file", "flock");
    let file = native(&server, "file");
    assert_eq!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN));
    assert_eq!(keeper.end(), ["write: done\n", "unlock: done\n"]);
    flock(&file, FlockOperation::NonBlockingLockExclusive).expect("unlocked");
    let lock = local(&folder).join("file");
    let refused = run(server.run(&folder).args(["flock", "-n"]).arg(&lock).arg("true"), SOON);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    let mut command = server.run(&folder);
    command.arg("flock").arg(&lock).arg("true");
    let waiting = thread::spawn(move || run(&mut command, SOON));
    pause(Duration::from_millis(300));
    assert!(!waiting.is_finished());
    flock(&file, FlockOperation::Unlock).expect("unlocked");
    assert!(waiting.join().expect("no deadline was missed").status.success());
    server.end();
}

#[test]
fn killed_holder_frees_its_locks() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    for kind in KINDS {
        let mut keeper = Keeper::start(&server, &folder, kind, kind);
        let file = local(&folder).join(kind);
        let mut command = server.run(&folder);
        locks(&mut command, "count", &file, &["1", kind]);
        let waiting = thread::spawn(move || run(&mut command, SOON));
        pause(Duration::from_millis(200));
        assert!(!waiting.is_finished(), "{kind}");
        for (pid, arguments) in processes_of(&file) {
            if arguments.contains("/locks keep ") && !arguments.contains("kakehi run") {
                let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
                rustix::process::kill_process(pid, Signal::KILL).expect("it waits for a line");
            }
        }
        keeper.0.running.wait(SOON);
        let output = waiting.join().expect("no deadline was missed");
        assert!(output.status.success(), "{kind}: {}", text(&output.stderr));
    }
    server.end();
}

#[test]
fn programs_that_are_killed_while_they_ask_leave_the_lock_free_and_let_the_job_end() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let script = "\"$0\" hold \"$@\" & for i in 1 2 3; do \"$0\" ask \"$@\" & done; sleep 0.5; \
        kill -9 $(jobs -p); wait; \"$0\" again \"$@\"";
    for kind in KINDS {
        let mut command = server.run(&folder);
        command.args(["bash", "-c", script]).arg(program("locks"));
        let output = run(command.arg(local(&folder).join(kind)).arg(kind), SOON);
        assert!(output.status.success(), "{kind}: {}", text(&output.stderr));
    }
    server.end();
}

// ---- a server that is killed

#[test]
fn locks_outlive_the_server() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, Scheme::Tcp);
    let keepers = KINDS.map(|kind| Keeper::start(&server, &folder, kind, kind));
    let waiting = KINDS.map(|kind| {
        let mut command = server.run(&folder);
        locks(&mut command, "count", &local(&folder).join(kind), &["1", kind]);
        thread::spawn(move || run(&mut command, LONG))
    });
    for _ in 0..3 {
        pause(Duration::from_millis(300));
        server.kill_and_restart();
    }
    pause(Duration::from_millis(500));
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "{}", server.said());
    for keeper in keepers {
        assert_eq!(keeper.end(), ["write: done\n", "unlock: done\n"]);
    }
    for waiting in waiting {
        let output = waiting.join().expect("no deadline was missed");
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    server.end();
}

#[test]
fn counts_are_exact_though_the_server_is_killed() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, Scheme::Tcp);
    let file: PathBuf = local(&folder).join("posix");
    let nodes = [0, 1, 2].map(|_| {
        let mut command = server.run(&folder);
        locks(&mut command, "count", &file, &["200", "posix"]);
        thread::spawn(move || run(&mut command, LONG))
    });
    for _ in 0..5 {
        pause(Duration::from_millis(150));
        server.kill_and_restart();
    }
    for node in nodes {
        let output = node.join().expect("no deadline was missed");
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let count = fs::read_to_string(server.job().join("posix")).expect("counted");
    assert_eq!(count, "600", "{}", server.said());
    server.end();
}

#[test]
fn lock_that_somebody_took_meanwhile_is_an_error() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, Scheme::Tcp);
    let keeper = Keeper::start(&server, &folder, "file", "flock");
    let file = native(&server, "file");
    server.kill();
    flock(&file, FlockOperation::NonBlockingLockExclusive).expect("the server's is gone");
    server.restart();
    assert_eq!(keeper.end(), ["write: Input/output error\n", "unlock: Input/output error\n"]);
    assert_eq!(fs::read(server.job().join("file")).expect("there"), b"", "nothing was written");
    server.end();
}

#[test]
fn record_lock_of_a_view_that_somebody_took_meanwhile_is_an_error() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let mut server = Server::start(&folder, Scheme::Tcp);
    let mut command = server.run(&folder);
    command.args(["env", "LD_PRELOAD="]);
    locks(&mut command, "keep", &local(&folder).join("file"), &["posix"]);
    let mut talker = Talker::start(&mut command);
    assert_eq!(talker.line(), "locked\n");
    let file = native(&server, "file");
    server.kill();
    let lock = FlockOperation::NonBlockingLockExclusive;
    rustix::fs::fcntl_lock(&file, lock).expect("the server's is gone");
    server.restart();
    assert_eq!(Keeper(talker).end()[0], "write: Input/output error\n");
    assert_eq!(fs::read(server.job().join("file")).expect("there"), b"", "nothing was written");
    server.end();
}
