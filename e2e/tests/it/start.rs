//! How a daemon comes to be: in the background, for ranks that are bound to cores, and found again
//! from another kind of shell.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{CpuSet, sched_getaffinity},
};
use serde_json::Value;

use crate::{
    harness::{
        Daemon, EAGER, Folder, Running, SOON, kakehi, kakehi_run, kept_in_one_of, note,
        processes_of, program, run, skip, stats, succeed, text, variables, wait_for,
    },
    jobs::ready,
};

/// Ended when dropped.
struct Background(Pid);

impl Background {
    /// The daemon that answers in `socket`.
    fn of(socket: &Path) -> Self {
        let mut status = Command::new(kakehi());
        status.args(["status", "--json", "--socket"]).arg(socket);
        let answer: Value = serde_json::from_str(&succeed(&mut status, SOON)).expect("JSON");
        let pid = answer["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        Self(pid.and_then(Pid::from_raw).expect("a pid"))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        kill_process(self.0, Signal::TERM).ok(); // A test that failed may have ended it.
    }
}

fn background(folder: &Folder) -> Command {
    let mut serve = Command::new(kakehi());
    serve.args(["serve", "--background", "--socket"]).arg(folder.join("job"));
    serve.current_dir(folder.path());
    serve
}

/// As a prolog or `ssh` sees it: what it reads to its end, ends.
#[test]
fn a_daemon_in_the_background_serves_once_its_starter_has_ended() {
    let folder = Folder::new();
    let started = run(&mut background(&folder), SOON);
    let said = (text(&started.stdout), text(&started.stderr));
    assert_eq!((started.status.code(), said), (Some(0), (String::new(), String::new())));
    let daemon = Background::of(&folder.join("job"));
    let mut wrapped = Command::new(program("writer"));
    wrapped.envs(variables(&folder.join("job")));
    succeed(wrapped.arg("blocks").arg(folder.join("out")).args(["100", "4096"]), SOON);
    assert_eq!(fs::metadata(folder.join("out")).expect("a file").len(), 409_600);
    let mut status = Command::new(kakehi());
    let printed = succeed(status.args(["status", "--socket"]).arg(folder.join("job")), SOON);
    assert!(printed.contains(&format!("daemon {}, ", daemon.0.as_raw_pid())), "{printed}");

    drop(daemon);
    assert!(wait_for(SOON, || !folder.join("job").exists()), "it has not ended");
}

#[test]
fn a_daemon_that_cannot_serve_says_so_in_the_foreground() {
    let folder = Folder::new();
    let mut serve = background(&folder);
    serve.args(["--listen", "tcp://127.0.0.1:0", "--root", "nowhere", "--key", "key"]);
    let started = run(&mut serve, SOON);
    let said = text(&started.stderr);
    assert_eq!(started.status.code(), Some(1), "{said}");
    assert!(said.contains("nowhere") && said.lines().count() == 1, "{said}");
    assert!(!folder.join("job").exists(), "its folder is left behind");
}

/// The first rank starts the daemon, on a core of its own that the daemon would share with it.
#[test]
fn a_daemon_runs_on_the_cores_of_all_its_ranks() {
    let Some([one, other]) = two_cores() else {
        return skip("cores of bound ranks", "one core");
    };
    let folder = Folder::new();
    let second = format!("taskset -c {other} {} run -- cat", kakehi().display());
    let mut first = Command::new("taskset");
    first.args(["-c", &one]).arg(kakehi()).args(["run", "--", "sh", "-c", &second]);
    first.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
    first.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut first = Running::start(&mut first);
    let daemon = || daemon_in(&folder);
    let all_have_both = || {
        let threads = daemon().and_then(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
        let mut threads = threads.into_iter().flatten().flatten().peekable();
        let id = |name: &str| name.parse().expect("a number");
        threads.peek().is_some()
            && threads.all(|thread| cores_of(id(&thread.file_name().to_string_lossy())) == 2)
    };
    assert!(wait_for(SOON, all_have_both), "it runs on {:?} alone", daemon());
    drop(first.child.stdin.take());
    assert!(first.wait(SOON).success());
}

/// An administrator's shell is bound to no cores, or to those of another job.
#[test]
fn a_daemon_does_not_run_on_the_cores_of_who_asks_how_it_is() {
    let Some([one, _]) = two_cores() else {
        return skip("cores of who asks", "one core");
    };
    let folder = Folder::new();
    let mut bound = Command::new("taskset");
    bound.args(["-c", &one]).arg(kakehi()).args(["run", "--socket"]).arg(folder.join("job"));
    bound.args(["--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bound = Running::start(&mut bound);
    assert!(wait_for(SOON, || folder.join("job/job").is_symlink()), "no daemon");
    let mut status = Command::new(kakehi());
    succeed(status.args(["status", "--socket"]).arg(folder.join("job")), SOON);
    assert_eq!(daemon_in(&folder).map(cores_of), Some(1));
    drop(bound.child.stdin.take());
    assert!(bound.wait(SOON).success());
}

/// A user who keeps I/O off the computing cores binds the daemon, not the programs.
#[test]
fn a_daemon_that_was_started_by_hand_stays_on_the_cores_it_was_given() {
    let Some([one, _]) = two_cores() else {
        return skip("cores of a daemon started by hand", "one core");
    };
    let folder = Folder::new();
    let serve = background(&folder);
    let mut bound = Command::new("taskset");
    bound.args(["-c", &one]).arg(serve.get_program()).args(serve.get_args());
    succeed(bound.current_dir(folder.path()), SOON);
    let daemon = Background::of(&folder.join("job"));
    let mut wrapped = Command::new(program("writer"));
    wrapped.envs(variables(&folder.join("job")));
    succeed(wrapped.arg("blocks").arg(folder.join("out")).args(["100", "4096"]), SOON);
    assert_eq!(cores_of(daemon.0.as_raw_pid()), 1);
}

/// Most programs end before they need one.
#[test]
fn daemon_starts_once_somebody_asks_for_it() {
    let folder = Folder::new();
    let mut command = kakehi_run(&folder, &[]);
    let command = command.args(["sh", "-c", "echo ready; cat"]).stdin(Stdio::piped());
    let mut running = ready(command);
    // Another run of this user looks for what killed jobs have left.
    succeed(kakehi_run(&folder, &[]).arg("true"), SOON);
    assert_eq!(daemon_in(&folder), None);
    let mut status = Command::new(kakehi());
    status.args(["status", "--json"]).env("XDG_RUNTIME_DIR", folder.path());
    let said: Value = serde_json::from_str(&succeed(&mut status, SOON)).expect("JSON");
    assert_eq!(said["pid"].as_i64(), daemon_in(&folder).map(i64::from));
    drop(running.child.stdin.take());
    assert!(running.wait(SOON).success());
    assert!(!folder.join("kakehi").exists(), "something is left behind");
}

/// As from a launcher that passes on what the scheduler has sent to all.
#[test]
fn signal_that_comes_again_after_the_program_does_not_end_its_run() {
    let folder = Folder::new();
    let said = folder.join("stats").display().to_string();
    let mut command = kakehi_run(&folder, &["--engine", "threads", "--stats", &said]);
    let mut running = ready(command.args(["sh", "-c", "echo ready; exec sleep 60"]));
    let ended = wait_for(SOON, || {
        running.signal(Signal::TERM);
        running.child.try_wait().expect("own child").is_some()
    });
    assert!(ended);
    assert_eq!(running.wait(SOON).code(), Some(143));
    assert_eq!(stats(&folder.join("stats")).len(), 1);
}

/// The program lowers its limit for itself; the daemon raises it.
#[test]
fn daemon_serves_a_program_under_a_soft_file_limit() {
    let folder = Folder::new();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -f 64; exec \"$@\"", "sh"]).arg(kakehi());
    command.args(["run", "--stats"]).arg(folder.join("stats")).args(["cp", "/etc/passwd"]);
    command.arg(folder.join("copy")).env("XDG_RUNTIME_DIR", folder.path()).envs(EAGER);
    succeed(command.env_remove("KAKEHI_JOB").env("KAKEHI_RULES", "/**=delegate"), SOON);
    assert_eq!(fs::read(folder.join("copy")).ok(), fs::read("/etc/passwd").ok());
    assert_eq!(stats(&folder.join("stats"))[0]["sessions"], 1);
}

/// Programs go on without it, and `kakehi run` says why there is none.
#[test]
fn daemon_that_cannot_start_when_it_is_asked_for_is_done_without() {
    let folder = Folder::new();
    let mut command = kakehi_run(&folder, &[]);
    // Whoever stands by has its first descriptors, and may get no more.
    let script = "run=$(readlink \"$KAKEHI_SOCKET/job\" | cut -d/ -f3)
        prlimit --pid \"$run\" --nofile=8:8; seq 100000 | tee \"$0\" >/dev/null";
    command.args(["sh", "-c", script]).arg(folder.join("out")).envs(EAGER);
    let output = run(&mut command, SOON);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines = fs::read_to_string(folder.join("out")).expect("written");
    assert_eq!(lines.lines().count(), 100_000);
    assert!(said.contains("the daemon did not start"), "{said}");
    assert!(!folder.join("kakehi").exists(), "something is left behind");
}

/// It has threads, and a process that has those is not forked.
#[test]
fn library_that_is_preloaded_besides_is_in_the_program_only() {
    let folder = Folder::new();
    let library = folder.join("threaded.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/threaded.c");
    let mut cc = Command::new("cc");
    succeed(cc.args(["-shared", "-fPIC", "-pthread", "-o"]).args([&library, &source]), SOON);
    let mut command = kakehi_run(&folder, &["--coalesce", "c=c.sion"]);
    let script = "echo kept >c/file; cat c/file; echo $LD_PRELOAD; env | grep -c PRELOADED";
    command.args(["sh", "-c", script]).env("LD_PRELOAD", &library).current_dir(folder.path());
    let output = run(&mut command, SOON);
    let (said, warned) = (text(&output.stdout), text(&output.stderr));
    let lines: Vec<_> = said.lines().collect();
    let [kept, preloaded, hidden] = lines[..] else { panic!("{said}{warned}") };
    assert_eq!((kept, hidden), ("kept", "0"), "{warned}");
    let ours = preloaded.strip_prefix(&format!("{}:", library.display())).expect("it is there");
    assert!(ours.ends_with("libkakehi_preload.so"), "{ours}");
}

/// The run waits for its daemon then, which may take long.
#[test]
fn run_of_a_program_that_cannot_be_started_is_ended_by_a_signal() {
    let folder = Folder::new();
    let script = folder.join("script");
    fs::write(&script, "#!/no-such/interpreter\n").expect("a file");
    fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("ours");
    // Most are over before their daemon is seen.
    let is_seen = wait_for(SOON, || {
        let mut command = kakehi_run(&folder, &["--engine", "threads"]);
        let mut running = Running::start(command.arg(&script).stderr(Stdio::null()));
        let mut is_over = || running.child.try_wait().expect("own child").is_some();
        let mut daemon = None;
        while daemon.is_none() && !is_over() {
            daemon = daemon_in(&folder).and_then(Pid::from_raw);
        }
        let Some(daemon) = daemon else { return false };
        kill_process(daemon, Signal::STOP).ok();
        // One that comes while the program is about to be started is that one's.
        let ended = wait_for(SOON, || {
            running.signal(Signal::TERM);
            running.child.try_wait().expect("own child").is_some()
        });
        kill_process(daemon, Signal::KILL).ok();
        assert!(ended);
        true
    });
    assert!(is_seen, "no daemon was seen");
}

/// The daemon that a `kakehi run` of this test has started.
pub(crate) fn daemon_in(folder: &Folder) -> Option<i32> {
    let all = processes_of(folder.path());
    all.into_iter().find(|(_, words)| words.contains("kakehi serve --socket")).map(|(pid, _)| pid)
}

/// How many cores a thread may run on.
fn cores_of(thread: i32) -> u32 {
    sched_getaffinity(Pid::from_raw(thread)).map_or(0, |set| set.count())
}

/// Two of the cores that this process may run on.
fn two_cores() -> Option<[String; 2]> {
    let ours = sched_getaffinity(None).expect("our cores");
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| ours.is_set(*core));
    Some([cores.next()?.to_string(), cores.next()?.to_string()])
}

/// A batch script has no `XDG_RUNTIME_DIR`, the login shell that looks after it has.
#[test]
fn a_login_shell_finds_the_daemon_of_a_batch_script() {
    let folder = Folder::new();
    let job = format!("e2e-{}", std::process::id());
    let script =
        format!("XDG_RUNTIME_DIR={} {} status", folder.path().display(), kakehi().display());
    let mut batch = kakehi_run(&folder, &[]);
    batch.env_remove("XDG_RUNTIME_DIR").env("KAKEHI_JOB", &job).env_remove("KAKEHI_SOCKET");
    let printed = succeed(batch.args(["env", "-u", "KAKEHI_SOCKET", "sh", "-c", &script]), SOON);
    assert!(printed.starts_with(&format!("job       {job}: daemon ")), "{printed}");
}

/// The shortest of 20 runs of each, in turn: what others do at the same time makes some longer.
fn shortest<const N: usize>(commands: [&dyn Fn() -> Command; N]) -> [Duration; N] {
    let mut shortest = [Duration::MAX; N];
    for _ in 0..20 {
        for (command, shortest) in commands.iter().zip(&mut shortest) {
            let mut command = command();
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let start = Instant::now();
            let mut child = command.spawn().expect("starts");
            assert!(child.wait().expect("own child").success());
            *shortest = start.elapsed().min(*shortest);
        }
    }
    shortest
}

/// A few ms where nothing else runs, and several times as many on a busy machine.
#[test]
fn job_starts_and_ends_within_milliseconds() {
    let folder = Folder::alone();
    let job = || {
        let mut job = kakehi_run(&folder, &[]);
        job.arg("true");
        job
    };
    kept_in_one_of(5, || {
        let [native, job] = shortest([&|| Command::new("true"), &job]);
        note(format_args!("kakehi run true: {job:?}, true: {native:?}"));
        job.saturating_sub(native) < Duration::from_millis(50)
    });
}

/// 0.1 ms where nothing else runs.
#[test]
fn program_of_a_job_starts_within_a_millisecond() {
    let folder = Folder::alone();
    let daemon = Daemon::start(&folder, "job", &[]);
    kept_in_one_of(5, || {
        let [native, wrapped] = shortest([&|| Command::new("true"), &|| daemon.wrap("true")]);
        note(format_args!("true in a job: {wrapped:?}, true: {native:?}"));
        wrapped.saturating_sub(native) < Duration::from_millis(1)
    });
    daemon.end();
}

/// An `exec` copies each page of it that it writes to, and a fork each that it has written.
#[test]
fn library_has_little_memory_of_its_own_that_is_not_zeros() {
    let folder = Folder::new();
    let mut command = kakehi_run(&folder, &[]);
    let maps = succeed(command.args(["cat", "/proc/self/maps"]), SOON);
    let ours = maps.lines().filter(|line| line.ends_with("libkakehi_preload.so"));
    let written = ours.filter(|line| line.contains(" rw-p "));
    let lens = written.map(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let (start, end) = range.expect("a range of addresses");
        let address = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
        address(end) - address(start)
    });
    let len: u64 = lens.sum();
    assert!((1..=64 << 10).contains(&len), "{len} bytes in\n{maps}");
}

/// A coalescing daemon has as many buffers as its address space has room for.
#[test]
fn coalescing_daemon_does_not_abort_in_a_short_address_space() {
    let folder = Folder::new();
    for kib in [80_000, 150_000] {
        let script = format!(
            "ulimit -v {kib}; exec \"$0\" run --coalesce c=c.sion -- sh -c 'echo x >c/file'"
        );
        let mut command = Command::new("bash");
        command.args(["-c", &script]).arg(kakehi()).env_remove("KAKEHI_JOB");
        command.env("XDG_RUNTIME_DIR", folder.path()).current_dir(folder.path());
        let output = run(&mut command, SOON);
        let said = text(&output.stderr);
        // With a session, or without one: then the shell is told that there is no such folder.
        assert!(output.status.code().is_some(), "{kib} KiB: {}: {said}", output.status);
        assert!(!said.contains("memory allocation"), "{kib} KiB: {said}");
    }
}

#[test]
fn doctor_names_the_missing_proc() {
    let folder = Folder::new();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", "umount -l /proc && exec \"$0\" doctor"]).arg(kakehi());
    let output = run(command.current_dir(folder.path()), SOON);
    let said = text(&output.stdout);
    if !said.contains("a run") {
        return skip("a missing /proc", "this user cannot unmount it");
    }
    let told = |line: &str| line.starts_with("problem  a run") && line.contains("/proc");
    assert!(output.status.code() == Some(1) && said.lines().any(told), "{said}");
}

#[test]
fn run_and_serve_name_the_missing_proc() {
    let folder = Folder::new();
    for words in ["run -- true", "serve --socket s --root . --listen unix://listening"] {
        let mut command = Command::new("unshare");
        let script = format!("umount -l /proc || exit 77; exec \"$0\" {words}");
        command.args(["-m", "sh", "-c", &script]).arg(kakehi()).current_dir(folder.path());
        let output = run(&mut command, SOON);
        let said = text(&output.stderr);
        if output.status.code() == Some(77) || said.starts_with("unshare") {
            return skip("a missing /proc", "this user cannot unmount it");
        }
        assert!(!output.status.success() && said.lines().count() == 1, "{words}: {said}");
        assert!(said.contains("; mount /proc"), "{words}: {said}");
    }
}

#[test]
fn run_serve_and_doctor_name_the_limit_on_file_length() {
    let folder = Folder::new();
    for words in ["run -- true", "serve --socket s", "doctor"] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -f 4000; exec \"$0\" {words}")]).arg(kakehi());
        let output = run(command.current_dir(folder.path()), SOON);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains("raise 'ulimit -f', which is 2048000"), "{words}: {said}");
    }
}
