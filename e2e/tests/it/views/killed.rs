//! Daemons and servers that are killed while their views are used.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{by_hand, can_mount, coalescing, is_mounted, mapping, strange};
use crate::{
    coalesce::kill_all,
    harness::{
        Folder, Running, SOON, kakehi, kakehi_run, note, pause, processes_of, random, run, skip,
        started_by, succeed, text, wait_for,
    },
    remote::{
        LONG, local,
        server::{Scheme, Server},
    },
};

/// Within which a program that uses a view learns that its daemon is gone.
const AT_ONCE: Duration = Duration::from_secs(5);
/// Uses a view in three ways until each fails, and says why: by calls on an open file, by names,
/// and by a program of the library's that is in the folder.
const USERS: &str = "
import errno, os, sys, threading, time
os.chdir(sys.argv[1])
def calls():
    file = os.open('f', os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    while True:
        os.write(file, b'x' * 5000)
        os.pread(file, 5000, 0)
def names():
    for name in os.listdir('.'):
        if name != 'f':
            os.rmdir(name)
    while True:
        os.mkdir('d')
        os.rename('d', 'e')
        os.rmdir('e')
        os.listdir('.')
said = []
def use(calls):
    try:
        calls()
    except OSError as why:
        said.append(errno.errorcode[why.errno])
users = [threading.Thread(target=use, args=[calls]) for calls in (calls, names)]
for user in users: user.start()
open(sys.argv[2], 'w').close()
for user in users: user.join()
print(*sorted(said))
";

fn kill_daemon(folder: &Folder) {
    signal_daemon(folder, Signal::KILL);
}

fn signal_daemon(folder: &Folder, signal: Signal) {
    let processes = processes_of(folder.path());
    let daemon = processes.iter().find(|(_, said)| said.contains(" serve ")).expect("a daemon");
    kill_process(Pid::from_raw(daemon.0).expect("a process"), signal).expect("it runs");
    if signal == Signal::KILL {
        // It holds the lock of its folder until then.
        let place = format!("/proc/{}/exe", daemon.0);
        assert!(wait_for(SOON, || fs::read_link(&place).is_err()), "it does not end");
    }
}

/// Kills daemons of views that are in use, in a random moment of that.
fn kill_daemons(rounds: u32) {
    if !can_mount("killed views") {
        return;
    }
    let folder = Folder::new();
    let begun = folder.join("begun");
    let mut rng = random("killed views");
    let mut slowest = Duration::ZERO;
    for round in 0..rounds {
        fs::remove_file(&begun).ok();
        let mut command = coalescing(&folder, "always");
        if round % 2 == 0 {
            strange(&mut command);
        }
        command.args(["python3", "-c", USERS]).arg(local(&folder)).arg(&begun);
        let mut running = Running::start(&mut command);
        assert!(wait_for(SOON, || begun.exists()), "round {round}");
        assert!(is_mounted(&local(&folder)));
        pause(Duration::from_micros(rng.u64(0..20_000)));
        kill_daemon(&folder);
        let killed = Instant::now();
        let code = running.wait(SOON).code();
        slowest = slowest.max(killed.elapsed());
        assert_eq!(code, Some(125), "round {round}");
        assert!(!is_mounted(&local(&folder)), "round {round}");
        let mut command = coalescing(&folder, "always");
        assert_eq!(succeed(command.args(["echo", "again"]), SOON), "again\n", "round {round}");
    }
    note(format_args!("programs ended {slowest:.1?} after the daemon of their view"));
    assert!(slowest < AT_ONCE, "{slowest:?}");
    assert!(!is_mounted(&local(&folder)));
}

#[test]
fn view_of_a_killed_daemon_fails_at_once_and_is_gone_after_the_run() {
    kill_daemons(10);
}

/// A parent that ignores its ended children leaves that to the commands that it starts.
#[test]
fn view_of_a_killed_job_is_gone_where_ended_children_are_ignored() {
    if !can_mount("killed views where ended children are ignored") {
        return;
    }
    let folder = Folder::new();
    let mut command = coalescing(&folder, "always");
    let running = Running::start(command.args(["sleep", "300"]));
    assert!(wait_for(SOON, || is_mounted(&local(&folder))));
    kill_all(&folder);
    drop(running);
    assert!(is_mounted(&local(&folder)), "nobody has left a view");
    let mut again = coalescing(&folder, "always");
    again.args(["sh", "-c", "echo again >\"$0\"; cat \"$0\""]).arg(local(&folder).join("file"));
    let mut launcher = Command::new("env");
    launcher.arg("--ignore-signal=CHLD");
    assert_eq!(succeed(&mut started_by(launcher, &again), SOON), "again\n");
    assert!(!is_mounted(&local(&folder)));
}

#[test]
#[ignore = "minutes: for `make soak`"]
fn hundred_killed_daemons_leave_no_view() {
    kill_daemons(100);
}

/// Uses a view until each of three fails: a static program that writes, git, and a shared mapping.
const PROGRAMS: &str = r#"cd "$0" || exit 1
(while busybox dd if=/dev/zero of=s bs=64k count=16 2>/dev/null; do :; done) &
(rm -rf r; git init -q r && cd r && git config user.name a && git config user.email b &&
    while date +%N >f && git add f && git commit -q -m x; do :; done) >/dev/null 2>&1 &
python3 -c 'if 1:
    import mmap, os
    fd = os.open("m", os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, 1 << 20)
    mapped = mmap.mmap(fd, 0)
    while True:
        for at in range(0, 1 << 20, 4096):
            mapped[at] = 1
        mapped.flush()' 2>/dev/null &
: >"$1"
wait"#;

#[test]
#[ignore = "5 minutes: for `make soak`"]
fn static_programs_git_and_mappings_learn_at_once_that_their_daemon_is_gone() {
    const FOR: Duration = Duration::from_secs(300);
    if !can_mount("killed views under other programs") {
        return;
    }
    let folder = Folder::new();
    let begun = folder.join("begun");
    let mut rng = random("killed views under other programs");
    let (from, mut rounds, mut slowest) = (Instant::now(), 0, Duration::ZERO);
    while from.elapsed() < FOR {
        fs::remove_file(&begun).ok();
        let mut command = coalescing(&folder, "always");
        strange(&mut command).args(["sh", "-c", PROGRAMS]).arg(local(&folder)).arg(&begun);
        let mut running = Running::start(&mut command);
        assert!(wait_for(SOON, || begun.exists()), "round {rounds}");
        pause(Duration::from_millis(rng.u64(0..500)));
        kill_daemon(&folder);
        let killed = Instant::now();
        assert_eq!(running.wait(SOON).code(), Some(125), "round {rounds}");
        slowest = slowest.max(killed.elapsed());
        let mut command = coalescing(&folder, "always");
        assert_eq!(succeed(command.args(["echo", "again"]), SOON), "again\n", "round {rounds}");
        assert!(!is_mounted(&local(&folder)), "round {rounds}");
        let left = processes_of(folder.path());
        assert!(left.is_empty(), "round {rounds}: {left:?}");
        rounds += 1;
    }
    note(format_args!("{rounds} rounds; programs ended {slowest:.1?} after their daemon at most"));
    assert!(slowest < AT_ONCE, "{slowest:?}");
}

#[test]
fn view_that_a_killed_job_has_left_is_taken_away_by_the_next_run() {
    if !can_mount("a view that was left") {
        return;
    }
    let folder = Folder::new();
    let mut command = coalescing(&folder, "always");
    let mut running = Running::start(command.args(["sleep", "60"]));
    assert!(wait_for(SOON, || is_mounted(&local(&folder))));
    kill_all(&folder);
    running.wait(SOON);
    assert!(is_mounted(&local(&folder)), "nobody was left to take it away");
    let mut command = coalescing(&folder, "always");
    strange(&mut command).args(["sh", "-c", "echo 1 >\"$0/f\"; cat \"$0/f\""]).arg(local(&folder));
    assert_eq!(succeed(&mut command, SOON), "1\n");
    assert!(!is_mounted(&local(&folder)));
}

/// Somebody is in the folder, and has a file of it open, when its daemon is killed and another one
/// is started.
#[test]
fn daemon_is_started_again_under_a_view_that_is_in_use() {
    if !can_mount("a view that is mounted again") {
        return;
    }
    let folder = Folder::new();
    let (kept, at) = (folder.join("kept.sion"), folder.join("at"));
    let kakehi = |words: &[&str], paths: &[&Path]| by_hand(&folder, words, paths);
    kakehi(&["mount"], &[&kept, &at]);
    for round in 0..3 {
        let begun = folder.join("begun");
        fs::remove_file(&begun).ok();
        let mut user = Command::new("python3");
        user.args(["-c", USERS]).arg(&at).arg(&begun);
        user.stdout(Stdio::null());
        let mut user = Running::start(&mut user);
        assert!(wait_for(SOON, || begun.exists()), "round {round}");
        kill_daemon(&folder);
        kakehi(&["mount"], &[&kept, &at]);
        user.wait(SOON);
        fs::write(at.join(format!("round{round}")), "mounted again").expect("served");
    }
    kakehi(&["umount"], &[&at]);
    assert!(!is_mounted(&at));
    succeed(Command::new(self::kakehi()).args(["multifile", "verify"]).arg(&kept), SOON);
}

/// The daemon of a view stands still: no command waits for what that would answer.
#[test]
fn stopped_daemon_of_a_view_holds_no_command_that_names_its_folder() {
    if !can_mount("a view whose daemon is stopped") {
        return;
    }
    let folder = Folder::new();
    let (kept, at) = (folder.join("kept.sion"), folder.join("at"));
    by_hand(&folder, &["mount"], &[&kept, &at]);
    signal_daemon(&folder, Signal::STOP);
    let flag = format!("{}={}", at.display(), folder.join("other.sion").display());
    let mut other = kakehi_run(&folder, &["--view", "always", "--coalesce", &flag]);
    let said = text(&run(other.arg("true"), SOON).stderr);
    let mut unmount = Command::new(kakehi());
    unmount.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
    let unmounted = run(unmount.arg("umount").arg(&at), SOON);
    signal_daemon(&folder, Signal::CONT);
    assert!(!said.contains("panic"), "{said}");
    let told = text(&unmounted.stderr);
    assert!(!unmounted.status.success() && told.contains("no answer"), "{told}");
    by_hand(&folder, &["umount"], &[&at]);
    assert!(!is_mounted(&at));
}

/// The server of a view is killed and started again: its users wait, and nothing is lost.
#[test]
fn users_of_a_view_outlive_its_server() {
    if !can_mount("the server of a view") {
        return;
    }
    let folder = Folder::new();
    let mut server = Server::start(&folder, Scheme::Tcp);
    let script = "cd \"$0\"; for i in $(seq 300); do echo $i >>log; cat log >copy; done";
    let mut command = mapping(&folder, &server);
    strange(&mut command).args(["sh", "-c", script]).arg(local(&folder));
    let mut running = Running::start(&mut command);
    let log = server.job().join("log");
    for lines in [20, 120] {
        let has = || fs::read(&log).is_ok_and(|log| log.len() > lines);
        assert!(wait_for(LONG, has));
        server.kill_and_restart();
    }
    assert!(running.wait(LONG).success());
    let expected: String = (1..=300).map(|i| format!("{i}\n")).collect();
    for name in ["log", "copy"] {
        assert_eq!(fs::read_to_string(server.job().join(name)).expect("there"), expected);
    }
    server.end();
}

/// A device number is used again as soon as it is free; others mount views, too, and may have it.
#[test]
fn end_of_a_view_that_is_gone_leaves_that_of_another_job() {
    if !rustix::process::geteuid().is_root() || !can_mount("views that end") {
        return skip("views that end", "only root unmounts others' views");
    }
    let folder = Folder::new();
    let (one, other) = (folder.join("one"), folder.join("other"));
    let job = |name: &str, at: &Path| {
        let flag = format!("{}={}", at.display(), folder.join(name).display());
        let mut command = kakehi_run(&folder, &["--view", "always", "--coalesce", &flag]);
        let running = Running::start(command.args(["sleep", "100"]));
        assert!(wait_for(SOON, || is_mounted(at)));
        running
    };
    let end = |mut job: Running| {
        job.signal(Signal::TERM);
        job.wait(SOON);
    };
    let number = |at: &Path| fs::metadata(at).expect("a view").dev();
    let is_left = || {
        let ends = job("one.sion", &one);
        let (before, unmounted) = (number(&one), run(Command::new("umount").arg(&one), SOON));
        assert!(unmounted.status.success(), "{unmounted:?}");
        let stays = job("other.sion", &other);
        let is_same = number(&other) == before;
        end(ends);
        assert!(is_mounted(&other), "another job's view was unmounted");
        end(stays);
        is_same
    };
    if !(0..20).any(|_| is_left()) {
        skip("views that end", "others had each device number that was free");
    }
}
