//! Small files that programs make without a request.

use std::time::Instant;

use rustix::{
    process::{Pid, kill_process},
    time::{ClockId, clock_gettime},
};

use super::*;
use crate::{harness::note, limits::Disk};

/// What may be missing of what was closed before everything was killed, on a machine that has other
/// work: 10 ms, and for as long as a daemon may have waited for its core.
const LOSS_MAX: Duration = Duration::from_millis(200);
const COUNT: usize = 2_000;
/// Kills of a kind.
const ROUNDS: usize = 10;

#[test]
fn small_files_need_a_request_in_a_hundred() {
    let folder = Folder::new();
    let flag = format!("{}={}", local(&folder).display(), kept(&folder).display());
    let said = folder.join("stats");
    let said_flag = said.to_str().expect("UTF-8");
    let mut command = kakehi_run(&folder, &["--coalesce", &flag, "--stats", said_flag]);
    command.arg(program("bundled")).arg("make").arg(local(&folder)).args(["0", "2000"]);
    succeed(&mut command, LONG);
    let stats = &stats(&said)[0];
    assert_eq!((&stats["files"], &stats["drain_errors"]), (&2000.into(), &0.into()));
    let requests = stats["requests"].as_object().expect("by kind");
    let count: u64 = requests.values().filter_map(Value::as_u64).sum();
    assert!(requests["lease"] == 1 && count <= COUNT as u64 / 100 + 20, "{requests:?}");
    assert_eq!(missing(&folder, COUNT), Vec::<usize>::new());
    is_closed(&kept(&folder));
}

/// The daemon takes the numbers that it gave a folder last, by whatever path.
#[test]
fn small_files_made_by_two_paths_of_a_folder_are_all_there() {
    let folder = Folder::new();
    let mut command = coalescing(&folder);
    let made = "mkdir \"$1\"/d && ln -s d \"$1\"/l && \"$0\" paths \"$1\"/d \"$1\"/l 2000";
    command.args(["sh", "-c", made]).arg(program("bundled")).arg(local(&folder));
    succeed(&mut command, LONG);
    let mut command = coalescing(&folder);
    command.arg(program("bundled")).arg("check").arg(local(&folder).join("d"));
    assert_eq!(succeed(command.arg("2000"), LONG), "");
}

/// Two system calls a file: its number comes, and goes.
#[test]
fn small_files_need_two_system_calls_of_their_program() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("system calls of small files", "strace is missing");
    }
    let folder = Folder::new();
    let mut command = coalescing(&folder);
    // Of the program alone, without what it says of each file.
    command.args(["strace", "-f", "-c", "-o"]).arg(folder.join("counts"));
    command.arg(program("bundled")).arg("make").arg(local(&folder)).args(["0", "2000"]);
    succeed(&mut command, LONG);
    let counts = fs::read_to_string(folder.join("counts")).expect("counted");
    let total = counts.lines().find_map(|line| line.trim_end().strip_suffix("total"));
    let total = total.and_then(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok());
    let total = total.expect("a sum");
    assert!(total < 3 * COUNT + 700, "{total} calls:\n{counts}");
    // Numbers are duplicates of one.
    let opens = counts.lines().find(|line| line.trim_end().ends_with(" openat"));
    let opens = opens.and_then(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok());
    assert!(opens.is_none_or(|opens| opens < COUNT / 10), "{opens:?} opened:\n{counts}");
}

/// How many system calls the daemon makes while files come: each look takes in all there is by a
/// few, and else only bytes count.
#[test]
fn small_files_need_few_system_calls_of_the_daemon() {
    /// Calls of a look and of the sleep behind it, and those of the start and of the end.
    const OF_A_LOOK: u64 = 16;
    const OF_A_RUN: u64 = 1000;
    const PROCESSES: usize = 4;
    const FILES: usize = 10_000;
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("system calls of the daemon", "strace is missing");
    }
    // Where a call of the daemon does not wait for a device.
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return skip("system calls of the daemon", "/dev/shm is missing");
    };
    let folder = Folder::new();
    let files = memory.path().join("files");
    let script = "echo > \"$1/first\"; read -r _; for from in $(seq 0 \"$2\" \"$3\"); do \
        \"$0\" make \"$1\" \"$from\" \"$2\" >/dev/null & done; wait";
    let flag = format!("{}={}", files.display(), memory.path().join("kept.sion").display());
    let mut command = kakehi_run(&folder, &["--coalesce", &flag]);
    command.args(["sh", "-c", script]).arg(program("bundled")).arg(&files);
    let all = PROCESSES * FILES;
    command.args([FILES.to_string(), (all - 1).to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut run = command.spawn().expect("kakehi");
    let daemon = || {
        let all = processes_of(folder.path());
        all.into_iter().find(|(_, arguments)| arguments.contains(" serve ")).map(|(pid, _)| pid)
    };
    assert!(wait_for(LONG, || daemon().is_some()), "no daemon");
    let counts = folder.join("counts");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-q", "-c", "-o"]).arg(&counts);
    strace.args(["-p", &daemon().expect("a daemon").to_string()]).stderr(Stdio::null());
    let mut strace = strace.spawn().expect("strace");
    pause(Duration::from_millis(500));
    let began = Instant::now();
    drop(run.stdin.take());
    assert!(run.wait().expect("waited for").success());
    let took = began.elapsed();
    strace.wait().expect("waited for");
    let counts = fs::read_to_string(counts).unwrap_or_default();
    let count = |call: &str| {
        let line = counts.lines().find_map(|line| line.trim_end().strip_suffix(call))?;
        line.split_whitespace().nth(3)?.parse::<u64>().ok()
    };
    let Some(total) = count(" total") else {
        return skip("system calls of the daemon", "strace may not attach to it");
    };
    // As the program says.
    let len = |number: usize| 100 + number as u64 * 37 % 9000;
    let mib = (0..all).map(len).sum::<u64>() >> 20;
    let looks = u64::try_from(took.as_millis()).expect("soon") / 4;
    let most = 4 * mib + OF_A_LOOK * looks + OF_A_RUN;
    note(format_args!("{total} calls of {most} that there may be, for {mib} MiB"));
    assert!(total <= most, "{total} for {mib} MiB in {took:?}, not {most}:\n{counts}");
}

/// Each begins as the maker of the file, or as one that opens it while another makes it.
#[test]
fn lines_that_several_append_to_new_files_are_all_there() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let script = "for file in $(seq 30); do \
        for writer in 1 2 3 4; do \"$1\" \"$0/$file\" 20 >/dev/null & done; wait; done; \
        cd \"$0\"; wc -c *";
    let mut command = coalescing(&folder);
    command.args(["bash", "-c", script]).arg(local(&folder)).arg(program("append"));
    let counts = succeed(&mut command, LONG);
    let is_whole = |line: &&str| line.split_whitespace().next() == Some("560");
    assert_eq!(counts.lines().filter(is_whole).count(), 30, "{counts}");
}

/// The program is killed: all that it has closed is there.
#[test]
fn small_files_outlive_their_program() {
    let folder = Folder::new();
    let mut rng = random("a killed program that makes small files");
    let mut first = 0;
    for _ in 0..ROUNDS {
        let (mut running, log) = making(&folder, first);
        pause(Duration::from_millis(rng.u64(1..60)));
        for (pid, _) in programs(&folder) {
            kill_process(pid, Signal::KILL).ok(); // It may be gone.
        }
        running.wait(LONG);
        let closed = closed(&log);
        let gone = missing(&folder, first + closed.len());
        assert!(gone.is_empty(), "{gone:?} of {}", closed.len());
        // One that was not closed may be there, too.
        first += closed.len() + 1;
        make_one(&folder, first - 1);
    }
    is_closed(&kept(&folder));
}

/// Everything is killed at once: what was closed 10 ms before is there, and what is there is whole.
#[test]
fn small_files_are_whole_whatever_is_killed() {
    let folder = Folder::new();
    let mut rng = random("a killed job that makes small files");
    for round in 0..ROUNDS {
        fs::remove_dir_all(local(&folder)).ok();
        for entry in fs::read_dir(folder.path()).expect("there").flatten() {
            if entry.file_name().to_string_lossy().starts_with("kept.sion") {
                fs::remove_file(entry.path()).expect("its own");
            }
        }
        let (mut running, log) = making(&folder, 0);
        pause(Duration::from_millis(rng.u64(1..60)));
        let before = now();
        if round % 2 == 0 {
            kill_all(&folder);
            drop(running);
        } else {
            // The daemon alone: its program is told, and so is who waits for the command.
            let all = processes_of(folder.path());
            let daemon = all.iter().find(|(_, arguments)| arguments.contains(" serve "));
            let (daemon, _) = daemon.expect("a daemon");
            let daemon = Pid::from_raw(*daemon).expect("a process");
            kill_process(daemon, Signal::KILL).expect("it runs");
            assert!(!running.wait(LONG).success());
        }
        let closed = closed(&log);
        let old = closed.iter().filter(|time| **time + LOSS_MAX < before).count();
        let gone = missing(&folder, closed.len());
        assert!(gone.iter().all(|number| *number >= old), "{gone:?}, {old} of {}", closed.len());
    }
}

/// Opens a file, and writes others as fast as they go for as long as it lives.
const STREAMS: &str = "
import os, sys, time
made = os.O_WRONLY | os.O_CREAT
make = lambda name: os.open(f'{sys.argv[1]}/{name}', made, 0o644)
empty, piece, begun, number = make('empty'), bytes(200_000), time.monotonic(), 0
while True:
    file = make(number)
    os.write(file, piece)
    os.close(file)
    number += 1
    if begun and time.monotonic() - begun > 0.5:
        open(sys.argv[2], 'w').close()
        begun = None
";

/// A file that stays open without a byte is made while its program fills the log with others.
#[test]
fn empty_file_is_made_while_others_stream() {
    let folder = Folder::new();
    let streamed = folder.join("streamed");
    let mut command = coalescing(&folder);
    command.args(["python3", "-c", STREAMS]).arg(local(&folder)).arg(&streamed);
    let running = Running::start(&mut command);
    assert!(wait_for(LONG, || streamed.exists()));
    kill_all(&folder);
    drop(running);
    let mut command = coalescing(&folder);
    let names = succeed(command.arg("ls").arg(local(&folder)), LONG);
    assert!(names.lines().count() > 100, "{names}");
    assert!(names.lines().any(|name| name == "empty"), "{} others", names.lines().count());
}

/// Result of a program that makes files on a disk that gets full.
struct Filled {
    /// What it was told by which call, and of which file that was.
    told: Vec<(usize, String)>,
    /// Files that are missing, or not whole, as there is room again.
    lost: Vec<usize>,
}

/// Has a program make files on a disk that gets full.
fn fill(how: &str, count: usize) -> Option<Filled> {
    let folder = Folder::new();
    let disk = Disk::mount(&folder, "disk")?;
    let file = disk.0.join("kept.sion");
    let flag = format!("{}={}", local(&folder).display(), file.display());
    let bundled = program("bundled");
    let mut command = kakehi_run(&folder, &["--coalesce", &flag]);
    command.args(["sh", "-c", "\"$@\"; head -c 100000 /dev/zero >\"$0\"; true"]);
    command.arg(disk.0.join("more")).arg(&bundled).arg(how).arg(local(&folder));
    let output = run(command.arg(count.to_string()), LONG);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("No space left") || said.contains("staged write"), "{said}");
    disk.free("more");
    let mut remount = Command::new("mount");
    succeed(remount.args(["-o", "remount,size=64m"]).arg(&disk.0), SOON);
    let mut command = kakehi_run(&folder, &["--coalesce", &flag]);
    command.arg(&bundled).arg("lost").arg(local(&folder)).arg(count.to_string());
    let lost = succeed(&mut command, LONG);
    let lost = lost.lines().map(|line| line.parse().expect("a number")).collect();
    let told = text(&output.stdout);
    let told = told.lines().filter_map(|line| line.split_once(' '));
    let told = told.map(|(number, what)| (number.parse().expect("a number"), what.to_owned()));
    Some(Filled { told: told.collect(), lost })
}

/// A full disk takes nothing from a program that is not told: by a call that follows, and by the
/// exit code.
#[test]
fn full_disk_is_told_by_a_call_behind_small_files() {
    // More than its log holds: it is at it when the daemon finds the disk full.
    let Some(Filled { told, lost }) = fill("fill", 4_000) else { return };
    let calls = told.iter().all(|(_, what)| what.ends_with(" ENOSPC"));
    assert!(calls && !told.is_empty(), "{told:?}");
    let (first, (last, _)) = (lost.first().expect("it is full"), told.last().expect("told"));
    assert!(first <= last, "nothing is told from {first} on: {told:?}");
}

/// Files that are synced are there, or their own calls say that they are not.
#[test]
fn full_disk_is_told_by_the_calls_of_synced_small_files() {
    let Some(Filled { told, lost }) = fill("sync", 600) else { return };
    let refused: Vec<usize> = told.iter().map(|(number, _)| *number).collect();
    assert!(!lost.is_empty() && lost.iter().all(|number| refused.contains(number)), "{told:?}");
}

/// A run that makes files from this one on, and where it says which.
fn making(folder: &Folder, first: usize) -> (Running, PathBuf) {
    let log = folder.join(format!("log.{first}"));
    let mut command = coalescing(folder);
    command.arg(program("bundled")).arg("make").arg(local(folder));
    command.args([first.to_string(), "1000000".to_owned()]);
    command.stdin(Stdio::null()).stdout(fs::File::create(&log).expect("log"));
    let running = Running::start(&mut command);
    let began = Instant::now();
    assert!(wait_for(LONG, || !closed(&log).is_empty()), "{:?}", began.elapsed());
    (running, log)
}

fn make_one(folder: &Folder, number: usize) {
    let mut command = coalescing(folder);
    let path = local(folder).join(format!("f.{number:06}"));
    command.args(["rm", "-f"]).arg(path);
    succeed(&mut command, LONG);
    let mut command = coalescing(folder);
    command.arg(program("bundled")).arg("make").arg(local(folder));
    succeed(command.args([number.to_string(), "1".to_owned()]), LONG);
}

/// When each file was closed.
fn closed(log: &Path) -> Vec<Duration> {
    let text = fs::read_to_string(log).expect("log");
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter_map(|(_, time)| Some(Duration::from_nanos(time.parse().ok()?))).collect()
}

/// Which of so many files are not there; the others are whole.
#[track_caller]
fn missing(folder: &Folder, count: usize) -> Vec<usize> {
    let mut command = coalescing(folder);
    command.arg(program("bundled")).arg("check").arg(local(folder)).arg(count.to_string());
    let found = succeed(&mut command, LONG);
    found.lines().map(|line| line.parse().expect("a number")).collect()
}

/// The programs of a job that make files.
fn programs(folder: &Folder) -> Vec<(Pid, String)> {
    let all = processes_of(folder.path()).into_iter();
    let makes = |arguments: &String| arguments.contains("bundled") && !arguments.contains(" run ");
    all.filter(|(_, arguments)| makes(arguments))
        .filter_map(|(pid, arguments)| Some((Pid::from_raw(pid)?, arguments)))
        .collect()
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
