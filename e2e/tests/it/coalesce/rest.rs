//! Files at rest, which programs read without a request.

use rustix::process::{Pid, kill_process};

use super::*;
use crate::{
    harness::started_by,
    suites::{NOBODY, is_nobody_let_in},
    views::with_device,
};

const COUNT: usize = 2_000;

/// Has files made that [`bundled`](super::bundles) makes.
fn make(folder: &Folder) {
    let mut command = coalescing(folder);
    command.arg(program("bundled")).arg("make").arg(local(folder));
    succeed(command.args(["0".to_owned(), COUNT.to_string()]), LONG);
}

/// Requests of a run on this multifile, by kind.
fn requests(folder: &Folder, file: &Path, arguments: &[&str]) -> (String, BTreeMap<String, u64>) {
    let flag = format!("{}={}", local(folder).display(), file.display());
    let said = folder.join("stats");
    fs::remove_file(&said).ok();
    let stats_flag = said.to_str().expect("UTF-8");
    let mut command = kakehi_run(folder, &["--coalesce", &flag, "--stats", stats_flag]);
    let output = succeed(command.args(arguments), LONG);
    let found = stats(&said)[0]["requests"].clone();
    let counts = serde_json::from_value::<BTreeMap<String, u64>>(found).expect("by kind");
    (output, counts.into_iter().filter(|(_, count)| *count > 0).collect())
}

/// A page of names is as long as a program's room for it, and no file is asked about.
#[test]
fn folder_is_listed_with_the_status_of_all_by_few_requests() {
    crate::views::needs_view!();
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("system calls of a listing", "strace is missing");
    }
    let folder = Folder::new();
    make(&folder);
    let counted = folder.join("counts").display().to_string();
    let path = local(&folder).display().to_string();
    let list = ["strace", "-f", "-c", "-o", &counted, "ls", "-l", &path];
    let (output, counts) = requests(&folder, &kept(&folder), &list);
    assert_eq!(output.lines().count(), COUNT + 1);
    assert!(counts.values().sum::<u64>() <= 20, "{counts:?}");
    let calls = fs::read_to_string(counted).expect("counted");
    let pages = calls.lines().find(|line| line.trim_end().ends_with(" getdents64"));
    let pages = pages.and_then(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok());
    // Kernels before 6.16 ask for 4 KiB at a time, which is a hundred names.
    assert!(pages.is_some_and(|pages| pages <= COUNT / 50), "{pages:?}");
}

#[test]
fn small_files_are_read_back_with_a_request_in_a_hundred() {
    let folder = Folder::new();
    make(&folder);
    let bundled = program("bundled").display().to_string();
    let path = local(&folder).display().to_string();
    let check = [&bundled[..], "check", &path, "2000"];
    let (output, counts) = requests(&folder, &kept(&folder), &check);
    let count: u64 = counts.values().sum();
    assert!(output.is_empty() && count <= COUNT as u64 / 100, "{counts:?}");
    // After a compaction, too.
    let dense = folder.join("dense.sion");
    succeed(multifile(&["defrag"], &kept(&folder)).arg(&dense), LONG);
    let (output, counts) = requests(&folder, &dense, &check);
    assert!(output.is_empty() && counts.values().sum::<u64>() <= 20, "{counts:?}");
    // Those that the same job has made.
    let both = format!(
        "rm {path}/*; {bundled} make {path} 0 2000 >/dev/null; \
        echo; {bundled} check {path} 2000"
    );
    let (output, counts) = requests(&folder, &kept(&folder), &["sh", "-c", &both]);
    assert_eq!(output, "\n");
    let asked = counts.iter().filter(|(kind, _)| *kind != "unlink");
    assert!(asked.map(|(_, count)| count).sum::<u64>() <= 100, "{counts:?}");
}

#[test]
fn status_of_all_files_needs_few_requests() {
    crate::views::needs_view!();
    let folder = Folder::new();
    make(&folder);
    let script = "for i in \"$0\"/f.*; do test -r \"$i\" && test -s \"$i\" || exit 1; done";
    let path = local(&folder).display().to_string();
    let (_, counts) = requests(&folder, &kept(&folder), &["sh", "-c", script, &path]);
    let asked = |kind: &str| counts.get(kind).copied().unwrap_or(0);
    assert!(asked("stat") + asked("access") < 20, "{counts:?}");
}

/// As `user`, if any: whatever happens to an open file is what happens to one of the kernel's.
fn calls(folder: &Folder, user: &[&str]) {
    crate::views::needs_view!();
    let native = folder.join("native");
    fs::create_dir(&native).expect("folder");
    let program = program("at_rest");
    let as_user = |mut command: Command| {
        command.args(user).arg(&program).arg("calls");
        command
    };
    if !user.is_empty() {
        fs::create_dir_all(local(folder)).expect("folder");
        for path in [folder.path(), &native, &local(folder)] {
            succeed(Command::new("chown").arg("65534").arg(path), SOON);
        }
    }
    let mut alone = as_user(Command::new("env"));
    let expected = succeed(alone.arg(&native), LONG);
    let mut command = coalescing(folder);
    command.arg(&program).arg("calls").arg(local(folder));
    let found = if user.is_empty() {
        succeed(&mut command, LONG)
    } else {
        let mut launcher = Command::new(user[0]);
        launcher.args(&user[1..]);
        succeed(&mut with_device(folder, started_by(launcher, &command)), LONG)
    };
    assert!(expected.lines().count() > 40, "{expected}");
    assert_eq!(found, expected);
}

#[test]
fn open_files_at_rest_follow_every_change_as_the_kernels_do() {
    calls(&Folder::new(), &[]);
}

#[test]
fn files_at_rest_are_read_by_whom_their_mode_lets() {
    let folder = Folder::new();
    if !is_nobody_let_in(&folder) {
        return skip("modes of files at rest", "nobody may not run what is built here");
    }
    calls(&folder, &NOBODY);
}

#[test]
fn reader_beside_a_rewriter_sees_whole_files_in_order() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let program = program("at_rest").display().to_string();
    let path = local(&folder).display().to_string();
    let script = format!(
        "{program} watch {path} 1500 & a=$!; {program} watch {path} 1500 & b=$!; \
         {program} replace {path} 1500 && wait $a && wait $b"
    );
    let said = succeed(coalescing(&folder).args(["bash", "-c", &script]), LONG);
    assert_eq!(said.lines().count(), 2, "{said}");
    is_closed(&kept(&folder));
}

/// The daemon is killed while its files are read: readers see what was written, and then an error.
#[test]
fn reader_of_a_killed_daemon_is_told_and_reads_nothing_else() {
    crate::views::needs_view!();
    let folder = Folder::new();
    make(&folder);
    let mut rng = random("a killed daemon whose files are read");
    for _ in 0..5 {
        let said = folder.join("said");
        let mut command = coalescing(&folder);
        command.arg(program("at_rest")).arg("read").arg(local(&folder)).arg(COUNT.to_string());
        command.stdin(Stdio::null()).stdout(fs::File::create(&said).expect("a file"));
        let mut running = Running::start(&mut command);
        let text = || fs::read_to_string(&said).unwrap_or_default();
        assert!(wait_for(LONG, || text().contains("reads")), "{}", text());
        pause(Duration::from_millis(rng.u64(1..30)));
        let all = processes_of(folder.path());
        let daemon = all.iter().find(|(_, arguments)| arguments.contains(" serve "));
        let daemon = Pid::from_raw(daemon.expect("a daemon").0).expect("a process");
        kill_process(daemon, Signal::KILL).expect("it runs");
        running.wait(LONG);
        assert!(text().ends_with("EIO\n"), "{}", text());
    }
    let mut command = coalescing(&folder);
    command.arg(program("bundled")).arg("check").arg(local(&folder)).arg(COUNT.to_string());
    assert_eq!(succeed(&mut command, LONG), "");
}

#[test]
fn handler_opens_a_file_at_rest_while_its_thread_opens_one() {
    // One that had to wake the daemon may be beneath the handler, in one run of two.
    for _ in 0..3 {
        let folder = Folder::new();
        let said = succeed(coalescing(&folder).arg(program("reentered")).arg(local(&folder)), SOON);
        assert_eq!(said, "refused: 0, Success\n");
    }
}
