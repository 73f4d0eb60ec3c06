//! Clients and daemons killed at any moment: what was accepted is in the file.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Signal, kill_process},
    time::{ClockId, clock_gettime},
};

use crate::{
    calls::Calls,
    harness::{
        Daemon, Folder, SOON, kakehi, kept_in_one_of, note, pause, program, random, skip, wait_for,
    },
    records::{KINDS, Kind, Writer},
    strace::Trace,
};

const HYBRID: &str = "/**=hybrid";
const DELEGATE: &str = "/**=delegate";
/// Clients of a daemon at a time.
const CLIENTS: usize = 4;
/// Daemons at a time.
const CROWDS: usize = 4;
/// Age of the data that may be lost when both processes are killed at once.
const LOSS_MAX: Duration = Duration::from_millis(10);
/// One kill in so many may lose more, in one try of so many, where the machine has other work and
/// the daemon has to wait for its core. A daemon that drains too late by itself does so at every
/// other kill.
const ELSEWHERE: (usize, u32) = (4, 4);
/// The same on a machine that has nothing else to do.
const HERE: (usize, u32) = (50, 1);

#[test]
fn killed_clients_lose_nothing_that_was_accepted() {
    kill_clients(200, HYBRID);
}

#[test]
fn killed_clients_lose_nothing_under_delegate() {
    kill_clients(60, DELEGATE);
}

#[test]
fn clients_of_a_killed_daemon_lose_nothing_and_go_on() {
    kill_daemons(100, HYBRID);
}

#[test]
fn clients_of_a_killed_daemon_lose_nothing_under_delegate() {
    kill_daemons(50, DELEGATE);
}

/// To move on from where an append ended is what finds out that the daemon is gone.
#[test]
fn position_that_a_killed_daemon_was_to_tell_is_moved() {
    let folder = Folder::new();
    let mut daemon = Daemon::start(&folder, "job", &[]);
    let mut calls = Calls::wrapped(&daemon);
    let file = calls.get(&format!("open {} +ca", folder.join("out").display()));
    assert_eq!(calls.get(&format!("write {file} 01234")), 5);
    // So that this one stays staged.
    daemon.running.signal(Signal::STOP);
    assert_eq!(calls.get(&format!("write {file} 56789")), 5);
    daemon.kill();
    assert_eq!(calls.get(&format!("seek {file} -3")), 7);
    assert_eq!(calls.ask(&format!("read {file} 9")), "[789]");
    calls.end();
}

/// Nothing is staged for it that would have to be taken over.
#[test]
fn file_that_a_killed_daemon_had_open_is_the_kernels_whatever_is_asked_first() {
    let folder = Folder::new();
    let mut daemon = Daemon::start(&folder, "job", &[]);
    daemon.set("KAKEHI_RULES", DELEGATE);
    let asked = ["truncate FD 5", "seekend FD -2", "allocate FD 9", "read FD 9"];
    let mut programs: Vec<_> = asked.map(|_| Calls::wrapped(&daemon)).into();
    let path = folder.join("out").display().to_string();
    fs::write(&path, "0123456").expect("the file");
    let fds: Vec<_> = programs.iter_mut().map(|p| p.get(&format!("open {path} +"))).collect();
    daemon.kill();
    let answers = ["0", "3", "0", "[01234"];
    for (((program, fd), call), answer) in programs.iter_mut().zip(fds).zip(asked).zip(answers) {
        assert!(program.ask(&call.replace("FD", &fd.to_string())).starts_with(answer), "{call}");
        program.end();
    }
    assert_eq!(fs::read(&path).expect("the file"), b"01234\0\0\0\0");
}

/// And moves the position, which is the kernel's from then on.
#[test]
fn read_that_finds_the_daemon_killed_goes_on_where_the_last_one_ended() {
    let folder = Folder::new();
    let mut daemon = Daemon::start(&folder, "job", &[]);
    daemon.set("KAKEHI_RULES", DELEGATE);
    let mut calls = Calls::wrapped(&daemon);
    let path = folder.join("out").display().to_string();
    // So long that what was read ahead has not all of it.
    let lines: String = (0..1 << 20).map(|line| format!("{line:08}")).collect();
    fs::write(&path, lines).expect("the file");
    let fd = calls.get(&format!("open {path} +"));
    assert_eq!(calls.ask(&format!("read {fd} 8")), "[00000000]");
    assert_eq!(calls.get(&format!("seek {fd} 4194304")), 4_194_312);
    daemon.kill();
    assert_eq!(calls.ask(&format!("read {fd} 8")), "[00524289]");
    assert_eq!(calls.ask(&format!("read {fd} 8")), "[00524290]");
    assert_eq!(calls.get(&format!("write {fd} new")), 3);
    assert_eq!(calls.get(&format!("seek {fd} 0")), 4_194_331);
    calls.end();
}

#[test]
fn file_that_is_opened_again_has_what_was_staged_for_a_killed_daemon() {
    for (rules, flags, found) in
        [(HYBRID, "r", "01256789"), (DELEGATE, "r", "01256789"), (HYBRID, "+t", "")]
    {
        let folder = Folder::new();
        let mut daemon = Daemon::start(&folder, "job", &[]);
        daemon.set("KAKEHI_RULES", rules);
        let mut calls = Calls::wrapped(&daemon);
        let path = folder.join("out").display().to_string();
        let fd = calls.get(&format!("open {path} +c"));
        assert_eq!(calls.ask(&format!("write {fd} 01234")), "5");
        // So that this one stays staged.
        daemon.running.signal(Signal::STOP);
        assert_eq!(calls.ask(&format!("pwrite {fd} 3 56789")), "5");
        daemon.kill();
        let again = calls.get(&format!("open {path} {flags}"));
        assert_eq!(calls.ask(&format!("read {again} 9")), format!("[{found}]"), "{rules}");
        calls.end();
        assert_eq!(fs::read_to_string(&path).expect("the file"), found, "{rules} {flags}");
    }
}

/// The kernel, asked again, would say that it cannot be done.
#[test]
fn name_that_a_daemon_has_changed_before_it_was_killed_is_not_changed_again() {
    if !Trace::is_possible() {
        return skip("a daemon that is killed before it answers", "no strace");
    }
    for (call, made, gone) in [
        ("unlink FILE", "", "file"),
        ("rmdir FOLDER", "", "folder"),
        ("rename FILE NEW", "new", "file"),
        ("link FILE NEW", "new", ""),
    ] {
        let (folder, names) = (Folder::new(), tempfile::tempdir().expect("folder"));
        let socket = folder.join("job");
        let mut strace = Command::new("strace");
        strace.args(["-D", "-f", "-qq", "-o", "/dev/null"]);
        // For a second: what is done is seen, and the daemon killed, before it can say so.
        strace.args(["-e", "inject=unlinkat,renameat,renameat2,linkat:delay_exit=1000000"]);
        strace.arg(kakehi()).args(["serve", "--engine", "threads", "--socket"]).arg(&socket);
        let mut daemon = Daemon::start_by(&folder, socket, &mut strace);
        daemon.set("KAKEHI_RULES", DELEGATE);
        let mut calls = Calls::wrapped(&daemon);
        let name = |name: &str| names.path().join(name);
        fs::write(name("file"), "").expect("a file");
        fs::create_dir(name("folder")).expect("a folder");

        let words = call.split(' ').map(|word| match word.to_lowercase() {
            lower if lower == word => lower,
            lower => name(&lower).display().to_string(),
        });
        calls.begin(&words.collect::<Vec<_>>().join(" "));
        let is_done = || {
            (made.is_empty() || name(made).exists()) && (gone.is_empty() || !name(gone).exists())
        };
        assert!(wait_for(SOON, is_done), "{call}: it is not done");
        daemon.kill();
        assert_eq!(calls.answer(), "0", "{call}");
        calls.end();
    }
}

/// Once, whether the daemon was killed before it or over it.
#[test]
fn append_without_a_log_is_there_once_when_its_daemon_is_killed() {
    if !Trace::is_possible() {
        return skip("a daemon that is killed in an append", "no strace");
    }
    for is_asked_first in [true, false] {
        let folder = Folder::new();
        let (file, socket) = (folder.join("file").display().to_string(), folder.join("job"));
        let mut strace = Command::new("strace");
        strace.args(["-D", "-f", "-qq", "-o", "/dev/null", "-P", &file]);
        strace.args(["-e", "inject=pwrite64,pwritev,pwritev2:delay_exit=1000000:when=2+"]);
        strace.arg(kakehi()).args(["serve", "--engine", "threads", "--socket"]).arg(&socket);
        // Room for three logs.
        strace.env("KAKEHI_STAGING", "256KiB");
        let mut daemon = Daemon::start_by(&folder, socket, &mut strace);
        daemon.set("KAKEHI_RULES", DELEGATE);
        let mut calls = Calls::wrapped(&daemon);
        for number in 0..8 {
            let fd = calls.get(&format!("open {file}.{number} wca"));
            assert_eq!(calls.get(&format!("fill {fd} 9")), 9);
        }
        let fd = calls.get(&format!("open {file} wca"));
        assert_eq!(calls.get(&format!("write {fd} 01234")), 5);
        if is_asked_first {
            calls.begin(&format!("write {fd} 56789"));
            let is_there = || fs::metadata(&file).is_ok_and(|found| found.len() == 10);
            assert!(wait_for(SOON, is_there), "it is not appended");
            daemon.kill();
            assert_eq!(calls.answer(), "5");
        } else {
            daemon.kill();
            assert_eq!(calls.ask(&format!("write {fd} 56789")), "5");
        }
        assert_eq!(calls.get(&format!("seek {fd} 0")), 10);
        assert_eq!(calls.get(&format!("write {fd} end")), 3);
        calls.end();
        assert_eq!(fs::read_to_string(&file).expect("the file"), "0123456789end");
    }
}

/// A client that continues an append examines the daemon's part and closes the file: so the daemon
/// does not append to a locked one.
#[test]
fn record_locks_outlive_a_daemon_that_is_killed_as_soon_as_it_appends() {
    if !Trace::is_possible() {
        return skip("a daemon that is killed in an append", "no strace");
    }
    let folder = Folder::new();
    let (file, socket) = (folder.join("file").display().to_string(), folder.join("job"));
    let mut strace = Command::new("strace");
    strace.args(["-D", "-f", "-qq", "-o", "/dev/null", "-P", &file]);
    strace.args(["-e", "inject=pwrite64:signal=KILL:when=1"]);
    strace.arg(kakehi()).args(["serve", "--engine", "threads", "--socket"]).arg(&socket);
    let mut daemon = Daemon::start_by(&folder, socket, &mut strace);
    let mut calls = Calls::wrapped(&daemon);
    let fd = calls.get(&format!("open {file} wca"));
    assert_eq!(calls.ask(&format!("lock {fd} posix")), "0");
    let mut other = Calls::start(&mut Command::new(program("calls")));
    let theirs = other.get(&format!("open {file} +"));

    assert_eq!(calls.ask(&format!("write {fd} 01234")), "5");
    daemon.kill();
    assert_eq!(calls.ask(&format!("write {fd} 56789")), "5");

    assert_eq!(other.ask(&format!("trylock {theirs} posix")), "EAGAIN");
    assert_eq!(other.ask(&format!("read {theirs} 99")), "[0123456789]");
    calls.end();
    assert_eq!(other.ask(&format!("trylock {theirs} posix")), "0");
    other.end();
}

#[test]
fn both_killed_at_once_lose_only_what_is_young() {
    kill_both(60, 1, ELSEWHERE);
}

#[test]
fn all_killed_at_once_on_a_full_machine_lose_only_what_is_young() {
    kill_both(20, CLIENTS, ELSEWHERE);
}

/// A client that only writes spends much of its time in drains of its own log: a hundred of them.
#[test]
fn drains_that_killed_clients_had_begun_are_completed_once() {
    let folder = Folder::new();
    let mut rng = random("killed in a drain");
    let daemon = Daemon::start(&folder, "job", &[]);
    let hits = || daemon.status()["summary"]["drains_taken_over"].as_u64().expect("a count");
    let mut round = 0;
    while round < 400 || round < 4_000 && hits() < 100 {
        let kind = if round % 2 == 0 { Kind::Blocks } else { Kind::Append };
        let mut writer = Writer::start(&daemon, kind, folder.join("out"), 0, 4 << 10);
        assert!(writer.reaches(200, SOON), "nothing is accepted");
        pause(Duration::from_micros(rng.u64(..3_000)));
        writer.running.signal(Signal::KILL);
        writer.running.wait(SOON);
        let accepted = writer.accepted();
        let mut missing = Vec::new();
        let complete = wait_for(SOON, || {
            missing = writer.missing(&accepted);
            missing.is_empty()
        });
        assert!(complete, "{kind:?}: {} of {}: {missing:?}", missing.len(), accepted.len());
        writer.clear();
        round += 1;
    }
    note(format_args!("{} of {round} kills hit a drain", hits()));
    assert!(hits() >= 100, "{:#}", daemon.status());
    daemon.end();
}

#[test]
#[ignore = "half an hour: for `make soak`"]
fn thousands_of_kills_lose_nothing() {
    for rules in [HYBRID, DELEGATE] {
        kill_clients(5_000, rules);
        kill_daemons(3_000, rules);
    }
    kill_both(500, 1, HERE);
    kill_both(200, CLIENTS, HERE);
}

fn kill_clients(kills: usize, rules: &str) {
    let folder = Folder::new();
    let mut rng = random("killed clients");
    let mut daemon = Daemon::start(&folder, "job", &[]);
    daemon.set("KAKEHI_RULES", rules);
    let mut baseline = None;
    let (mut records, mut slowest) = (0, Duration::ZERO);
    for round in 0..kills.div_ceil(CLIENTS) {
        let mut writers = start(&folder, &daemon, &mut rng, round, (CLIENTS, 0));
        for writer in &mut writers {
            pause(Duration::from_micros(rng.u64(..5_000)));
            writer.running.signal(Signal::KILL);
            writer.running.wait(SOON);
        }
        for writer in &mut writers {
            let accepted = writer.accepted();
            records += accepted.len();
            let start = Instant::now();
            let mut missing = Vec::new();
            let complete = wait_for(SOON, || {
                missing = writer.missing(&accepted);
                missing.is_empty()
            });
            slowest = slowest.max(start.elapsed());
            assert!(complete, "{} of {} missing: {missing:?}", missing.len(), accepted.len());
            writer.clear();
        }
        // After some rounds the daemon has what it needs for as many clients at a time.
        if round == 4 {
            baseline = Some(held_by_idle(&daemon));
        }
    }
    note(format_args!("{kills} clients killed, {records} records; complete after {slowest:?}"));
    if let Some(baseline) = baseline {
        // The last question's connection may not have gone yet.
        let mut held = baseline;
        let is_back = wait_for(SOON, || {
            held = held_by_idle(&daemon);
            // Each executor opens /proc/loadavg when it first polls, which may be after that.
            held.0 <= baseline.0 + 2 && held.1 <= baseline.1
        });
        assert!(is_back, "{held:?} descriptors and segments of the daemon, before {baseline:?}");
    }
    let staged = daemon.status()["summary"]["bytes_staged"].as_u64();
    assert!(staged.is_some_and(|bytes| bytes > 64 * records as u64), "{:#}", daemon.status());
    daemon.end();
}

/// Descriptors and segments of a daemon that has no clients left.
fn held_by_idle(daemon: &Daemon) -> (usize, usize) {
    let gone = wait_for(SOON, || daemon.status()["sessions"] == 0);
    assert!(gone, "{:#}", daemon.status());
    daemon.held()
}

fn kill_daemons(kills: usize, rules: &str) {
    let folder = Folder::new();
    let mut rng = random("killed daemons");
    // Most of a round is waiting.
    thread::scope(|scope| {
        for part in 0..CROWDS {
            let (folder, mut rng) = (&folder, rng.fork());
            scope.spawn(move || {
                let rounds = (part..kills).step_by(CROWDS);
                let records: usize =
                    rounds.map(|round| kill_daemon(folder, &mut rng, round, rules)).sum();
                note(format_args!("{} daemons killed, {records} records", kills / CROWDS));
            });
        }
    });
    assert_eq!(shared_memory_of(folder.path()), Vec::<String>::new());
}

/// Kills one daemon; returns how many records its clients wrote.
fn kill_daemon(folder: &Folder, rng: &mut fastrand::Rng, round: usize, rules: &str) -> usize {
    let mut daemon = Daemon::start(folder, &format!("job{round}"), &[]);
    daemon.set("KAKEHI_RULES", rules);
    let count = 64 * rng.u64(4..40);
    let mut writers = start(folder, &daemon, rng, round, (CLIENTS, count));
    pause(Duration::from_micros(rng.u64(..3_000)));
    daemon.kill();
    let mut records = 0;
    for writer in &mut writers {
        let status = writer.running.wait(SOON);
        let accepted = writer.accepted();
        records += accepted.len();
        // No error, and nothing left out.
        assert!(status.success(), "{status}: {:?}: {}", writer.kind, writer.said());
        assert_eq!(accepted.len() as u64, count);
        let missing = writer.missing(&accepted);
        assert!(missing.is_empty(), "{} of {}: {missing:?}", missing.len(), accepted.len());
        writer.clear();
    }
    fs::remove_dir_all(&daemon.socket).expect("what a killed daemon leaves");
    records
}

/// Kills daemons and their clients together; one kill in so many, in one of so many tries, may
/// have lost more than it should.
fn kill_both(kills: usize, clients: usize, (one_in, tries): (usize, u32)) {
    let folder = Folder::alone();
    let mut rng = random("killed together");
    kept_in_one_of(tries, || {
        let ages = ages_of_loss(&folder, &mut rng, kills, clients);
        let (median, worst) = (ages[ages.len() / 2].0, ages[ages.len() - 1].0);
        let old: Vec<_> = ages.iter().filter(|(age, _)| *age > LOSS_MAX).collect();
        note(format_args!(
            "{clients} clients and their daemon, {kills} times: oldest loss {median:?} in the \
             median, {worst:?} at worst; of {} beyond {LOSS_MAX:?}: {old:?}",
            ages.len()
        ));
        old.len() * one_in <= ages.len()
    });
}

/// The age of the oldest loss of each client, in order.
fn ages_of_loss(
    folder: &Folder,
    rng: &mut fastrand::Rng,
    kills: usize,
    clients: usize,
) -> Vec<(Duration, Kind)> {
    let mut ages = Vec::new();
    for round in 0..kills {
        let mut daemon = Daemon::start(folder, &format!("job{round}"), &[]);
        let mut writers = start(folder, &daemon, rng, round, (clients, 0));
        pause(Duration::from_micros(rng.u64(20_000..60_000)));
        let killed = now();
        let mut pids: Vec<_> = writers.iter().map(|writer| writer.running.pid()).collect();
        pids.insert(rng.usize(..=pids.len()), daemon.pid());
        for pid in pids {
            kill_process(pid, Signal::KILL).expect("running");
        }
        daemon.running.wait(SOON);
        for writer in &mut writers {
            writer.running.wait(SOON);
            let missing = writer.missing(&writer.accepted());
            let oldest = missing.iter().map(|one| killed.saturating_sub(one.at)).max();
            ages.push((Duration::from_nanos(oldest.unwrap_or(0)), writer.kind));
            writer.clear();
        }
        fs::remove_dir_all(&daemon.socket).expect("what a killed daemon leaves");
    }
    ages.sort();
    ages
}

/// Starts so many clients, of every kind in turn, that write `count` records each, and waits until
/// all of them have had something accepted.
fn start(
    folder: &Folder,
    daemon: &Daemon,
    rng: &mut fastrand::Rng,
    round: usize,
    (clients, count): (usize, u64),
) -> Vec<Writer> {
    let writers: Vec<_> = (0..clients)
        .map(|index| {
            let kind = KINDS[(round + index) % KINDS.len()];
            let record_len = match kind {
                Kind::Blocks | Kind::Spread => 4096,
                _ => 8 * rng.usize(2..64),
            };
            let path = folder.join(format!("out{round}-{index}"));
            Writer::start(daemon, kind, path, count, record_len)
        })
        .collect();
    for writer in &writers {
        assert!(writer.reaches(1, SOON), "nothing is accepted");
    }
    writers
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Files of the shared memory file system that bear our name.
fn shared_memory_of(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let own = folder.file_name().expect("a name").to_string_lossy();
    names.filter(|name| name.starts_with("kakehi") || name.contains(&*own)).collect()
}
