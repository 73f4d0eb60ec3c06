//! `kakehi run` as a stand-in for the program: exit codes, signals, launchers, what is left.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::{
    fs::{CWD, Mode},
    process::{Pid, Signal, kill_process, kill_process_group},
};
use serde_json::Value;

use crate::{
    calls::Calls,
    harness::{
        EAGER, Folder, Running, SOON, heeded, kakehi, kakehi_run, pause, processes_of, program,
        python, run, skip, stats, succeed, sum, text, wait_for,
    },
    start::daemon_in,
};

const RECORDS: u64 = 500;
const RECORD_LEN: u64 = 4096;

#[test]
fn the_exit_code_is_the_programs_own() {
    let folder = Folder::new();
    fs::write(folder.join("data"), "no program").expect("a file");
    fs::set_permissions(folder.join("data"), fs::Permissions::from_mode(0o644)).expect("mode");
    let data = folder.join("data").display().to_string();
    for (name, content) in [("bare", "true\n"), ("orphan", "#!/nowhere/sh\n")] {
        fs::write(folder.join(name), content).expect("a script");
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).expect("mode");
        let output = run(kakehi_run(&folder, &[]).arg(folder.join(name)), SOON);
        let said = text(&output.stderr);
        assert!(said.contains("#!") && said.contains(name), "{said}");
    }
    for (words, code) in [
        (&["/bin/sh", "-c", "exit 0"][..], 0),
        (&["/bin/sh", "-c", "exit 7"], 7),
        (&["/bin/sh", "-c", "exit 255"], 255),
        (&["/bin/sh", "-c", "kill -9 $$"], 137),
        (&["/bin/sh", "-c", "kill -TERM $$"], 143),
        (&["/nowhere/at/all"], 127),
        (&["no-such-program"], 127),
        (&[&data], 126),
        (&["/tmp"], 126),
    ] {
        let output = run(kakehi_run(&folder, &[]).args(words), SOON);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        if [126, 127].contains(&code) {
            let line = said.lines().last().unwrap_or_default();
            assert!(line.starts_with("kakehi: ") && line.contains("; "), "{words:?}: {said}");
        }
    }
    assert!(!folder.join("kakehi").exists(), "a job's folder is left behind");
}

#[test]
fn the_exit_code_of_an_attached_program_is_its_own() {
    let folder = Folder::new();
    let inner = format!("{} run -- sh -c 'exit 9'", kakehi().display());
    let output = run(kakehi_run(&folder, &[]).args(["sh", "-c", &inner]), SOON);
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    let inner = format!("{} run -- /nowhere", kakehi().display());
    let output = run(kakehi_run(&folder, &[]).args(["sh", "-c", &inner]), SOON);
    assert_eq!(output.status.code(), Some(127), "{}", text(&output.stderr));
}

#[test]
fn signals_reach_the_program() {
    let folder = Folder::new();
    for signal in heeded([Signal::TERM, Signal::INT, Signal::USR1]) {
        let number = signal.as_raw();
        let script =
            format!("trap 'exit {number}' {number}; echo ready; while :; do sleep 0.05; done");
        let mut command = kakehi_run(&folder, &[]);
        command.args(["sh", "-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut running = Running::start(command.stderr(Stdio::null()));
        let mut line = String::new();
        let mut stdout = BufReader::new(running.child.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        running.signal(signal);
        assert_eq!(running.wait(SOON).code(), Some(number), "{signal:?}");
    }
}

/// As schedulers do, which signal whatever belongs to a job.
#[test]
fn what_the_program_is_sent_as_well_is_not_passed_on_to_it() {
    let folder = Folder::new();
    let Some([python, program]) = python("signals of a whole job", "signals") else { return };
    let mut running = ready(kakehi_run(&folder, &[]).arg(python).arg(program));
    let counted = heeded([Signal::TERM, Signal::USR1, Signal::HUP]);
    for signal in counted {
        for _ in 0..5 {
            kill_process_group(running.pid(), signal).expect("it runs");
            // Two that come at once are one.
            pause(Duration::from_millis(100));
        }
    }
    kill_process_group(running.pid(), Signal::USR2).expect("it runs");
    let mut said = String::new();
    running.child.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
    running.wait(SOON);
    let counts: Vec<u32> = said.split_whitespace().map(|n| n.parse().expect("counts")).collect();
    // One that is ignored here is so there. And on a busy machine a witness may be late.
    assert!(counts.iter().all(|count| *count == 0 || *count >= 5), "{said}");
    assert!(counts[0] >= 5 && counts.iter().sum::<u32>() <= 17, "{said}");
}

/// As under `timeout`, which signals its own group besides, and a shell there twice.
#[test]
fn a_program_that_has_left_the_group_gets_its_signals() {
    let folder = Folder::new();
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = kakehi_run(&folder, &[]);
    let mut running = ready(command.args(["setsid", "sh", "-c", script]));
    kill_process_group(running.pid(), Signal::TERM).expect("it runs");
    assert_eq!(running.wait(SOON).code(), Some(9));
}

#[test]
fn signals_that_are_to_be_ignored_stay_ignored() {
    let folder = Folder::new();
    let script = "trap '' HUP USR1; exec \"$@\"";
    let program = "echo ready; kill -USR1 $$; read line; exit 7";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(kakehi()).args(["run", "--", "sh", "-c", program]);
    command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running::start(command.stderr(Stdio::null()));
    let mut line = String::new();
    let mut stdout = BufReader::new(running.child.stdout.take().expect("piped"));
    stdout.read_line(&mut line).expect("a line");
    running.signal(Signal::HUP);
    drop(running.child.stdin.take());
    assert_eq!(running.wait(SOON).code(), Some(7));
}

#[test]
fn a_terminal_stops_and_interrupts_the_program_as_if_it_ran_by_itself() {
    let folder = Folder::new();
    let Some([python, terminal]) = python("terminals", "terminal") else { return };
    let mut command = Command::new(python);
    command.arg(terminal).env("KAKEHI", kakehi()).env("XDG_RUNTIME_DIR", folder.path());
    succeed(command.env_remove("KAKEHI_JOB"), SOON * 3);
}

/// The daemon goes on by itself.
#[test]
fn sigterm_ends_a_run_that_waits_for_the_daemon_only() {
    let folder = Folder::new();
    let out = folder.join("out");
    let (_outliving, script) = Outliving::new(&folder, &out);
    let mut first = kakehi_run(&folder, &[]);
    first.env("KAKEHI_JOB", "ending").args(["sh", "-c", &script]);
    let mut first = Running::start(first.stdout(Stdio::null()).stderr(Stdio::null()));
    assert!(wait_for(SOON, || ends(&folder, "ending")), "the daemon does not end");
    first.signal(Signal::TERM);
    assert_eq!(first.wait(SOON).signal(), Some(Signal::TERM.as_raw()));
    assert!(wait_for(SOON, || daemon_in(&folder).is_none()), "the daemon does not end");
    assert_eq!(fs::read_to_string(&out).expect("the file"), "hello");
}

/// True if a daemon ends, and waits for the program that it serves.
fn ends(folder: &Folder, job: &str) -> bool {
    let mut drain = Command::new(kakehi());
    drain.arg("drain").env("KAKEHI_JOB", job).env("XDG_RUNTIME_DIR", folder.path());
    text(&run(&mut drain, SOON).stderr).contains("is stopping")
}

/// A scheduler signals all processes of a job: to have it checkpoint, or some time before it kills.
#[test]
fn a_daemon_that_is_signalled_with_its_job_serves_the_programs_to_their_end() {
    let folder = Folder::new();
    let (local, kept) = (folder.join("local"), folder.join("kept.sion"));
    let flag = format!("{}={}", local.display(), kept.display());
    let script = "trap 'sleep 0.5; echo saved | tee \"$0/checkpoint\" >/dev/null; exit $?' \
                  TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = kakehi_run(&folder, &["--coalesce", &flag]);
    let mut running = ready(command.args(["sh", "-c", script]).arg(&local));
    let daemon = the_daemon(&folder);
    for signal in [Signal::USR1, Signal::XCPU, Signal::ALARM, Signal::HUP, Signal::TERM] {
        kill_process(daemon, signal).expect("it serves");
    }
    running.signal(Signal::TERM);
    assert_eq!(running.wait(SOON).code(), Some(0));
    let mut extract = Command::new(kakehi());
    let files = folder.join("files");
    succeed(extract.args(["multifile", "extract"]).arg(&kept).arg(&files), SOON);
    assert_eq!(fs::read(files.join("checkpoint")).expect("a file"), b"saved\n");
}

#[test]
fn the_second_sigterm_ends_a_jobs_daemon() {
    let folder = Folder::new();
    let mut command = kakehi_run(&folder, &[]);
    let mut running = ready(command.args(["sh", "-c", "echo ready; cat"]).stdin(Stdio::piped()));
    let daemon = the_daemon(&folder);
    kill_process(daemon, Signal::TERM).expect("it serves");
    let mut status = Command::new(kakehi());
    succeed(status.arg("status").env("XDG_RUNTIME_DIR", folder.path()), SOON);
    kill_process(daemon, Signal::TERM).expect("it serves");
    // It is a zombie until it is waited for.
    let said = || processes_of(folder.path()).iter().any(|(_, said)| said.contains("serve"));
    assert!(wait_for(SOON, || !said()), "it serves on");
    drop(running.child.stdin.take());
    assert!(running.wait(SOON).success());
}

/// The job's daemon, which is started if nobody has needed it yet.
fn the_daemon(folder: &Folder) -> Pid {
    let mut status = Command::new(kakehi());
    succeed(status.arg("status").env("XDG_RUNTIME_DIR", folder.path()), SOON);
    daemon_in(folder).and_then(Pid::from_raw).expect("a daemon")
}

/// Starts a program, and waits until it says `ready`.
pub(crate) fn ready(command: &mut Command) -> Running {
    let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut line = String::new();
    let stdout = running.child.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    running
}

/// `pkill -f` ends the program by its command line, and not the daemon that has its bytes.
#[test]
fn daemon_knows_its_program_and_is_not_found_by_it() {
    let folder = Folder::new();
    let script = "echo ready; cat";
    let mut command = kakehi_run(&folder, &[]);
    let _running = ready(command.args(["sh", "-c", script]).stdin(Stdio::piped()));
    let mut status = Command::new(kakehi());
    status.args(["status", "--json"]).env("XDG_RUNTIME_DIR", folder.path());
    let said: Value = serde_json::from_str(&succeed(&mut status, SOON)).expect("JSON");
    assert_eq!(said["command"], format!("sh -c {script}"), "{said:#}");
    let found = processes_of(folder.path());
    assert!(!found.iter().any(|(_, said)| said.contains(" serve ") && said.contains(script)));
}

/// The program ended well and lost nothing: that its daemon was killed is told, not returned.
#[test]
fn a_killed_daemon_does_not_change_the_exit_code() {
    let folder = Folder::new();
    for code in [0, 7] {
        let out = folder.join(format!("out{code}"));
        let script = format!(
            "{0} blocks {1} {RECORDS} {RECORD_LEN} >/dev/null; echo ready; read line; \
             {0} blocks {1}.2 {RECORDS} {RECORD_LEN} >/dev/null || exit 99; exit {code}",
            program("writer").display(),
            out.display()
        );
        let mut command = kakehi_run(&folder, &[]);
        command.args(["sh", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = Running::start(command.stderr(Stdio::null()));
        let mut line = String::new();
        let mut stdout = BufReader::new(running.child.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("a line");
        kill_process(the_daemon(&folder), Signal::KILL).expect("running");
        drop(running.child.stdin.take());
        assert_eq!(running.wait(SOON).code(), Some(code));
        let size = |path: &Path| fs::metadata(path).expect("a file").len();
        assert_eq!(size(&out), RECORDS * RECORD_LEN);
        assert_eq!(size(&out.with_extension("2")), RECORDS * RECORD_LEN);
    }
}

/// A launcher of four ranks, and the variable that numbers them.
const LAUNCHERS: [(&str, &str, &str); 2] = [
    ("mpirun", "--allow-run-as-root --oversubscribe -n 4", "OMPI_COMM_WORLD_RANK"),
    ("mpirun.mpich", "-n 4", "PMI_RANK"),
];

/// The first run of a job has started the daemon, and decided what it is like.
#[test]
fn settings_that_come_too_late_are_told_of() {
    let folder = Folder::new();
    let inner = |flags: &str| format!("{} run {flags} -- true", kakehi().display());
    let said_of = |flags: &str| {
        let mut command = kakehi_run(&folder, &["--idle", "park"]);
        text(&run(command.args(["sh", "-c", &inner(flags)]), SOON).stderr)
    };
    let said = said_of("--idle spin --engine auto");
    assert!(said.contains("it runs already, with idle=park; "), "{said}");
    let said = said_of("--idle park");
    assert!(!said.contains("it runs already"), "{said}");
}

#[test]
fn a_launcher_inside_and_outside_makes_one_job() {
    for (launcher, flags, rank) in LAUNCHERS {
        if Command::new(launcher).arg("--version").output().is_err() {
            skip("launchers", format_args!("no {launcher}"));
            continue;
        }
        make_one_job(&format!("{launcher} {flags}"), rank);
    }
}

fn make_one_job(ranks: &str, rank: &str) {
    let folder = Folder::new();
    // Ranks begin when all have come, as those of MPI do: one that came late would start a daemon.
    let write = |out: &str| {
        let out = folder.join(out).display().to_string();
        let writer = program("writer").display().to_string();
        format!(
            ": >{out}.came.${rank}; for rank in 0 1 2 3; do \
             until [ -e {out}.came.$rank ]; do sleep 0.01; done; done; \
             {writer} blocks {out}.${rank} {RECORDS} {RECORD_LEN} >/dev/null"
        )
    };
    let stats_file = folder.join("stats");
    let run_job = |before: &str, after: &str, out: &str| {
        let flags = format!("run --stats {}", stats_file.display());
        let kakehi = format!("{} {flags} --", kakehi().display());
        let line = format!("{before} {after}").replace("KAKEHI", &kakehi);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{line} sh -c '{}'", write(out))]);
        command.env("XDG_RUNTIME_DIR", folder.path()).envs(EAGER);
        succeed(&mut command, SOON * 3);
        (0..4).map(|rank| folder.join(format!("{out}.{rank}"))).for_each(|path| {
            assert_eq!(fs::metadata(path).expect("a file").len(), RECORDS * RECORD_LEN);
        });
    };
    run_job("KAKEHI", ranks, "inside");
    run_job(ranks, "KAKEHI", "outside");
    run_job(&format!("KAKEHI {ranks}"), "KAKEHI", "both");
    let documents = stats(&stats_file);
    assert_eq!(documents.len(), 3, "{documents:#?}");
    for document in &documents {
        let delegated = sum(std::slice::from_ref(document), "/bytes_delegated");
        assert!(delegated >= 4 * RECORDS * RECORD_LEN, "{document:#}");
        assert_eq!(document["bytes_undelegated"], serde_json::json!({}), "{document:#}");
    }
    assert!(!folder.join("kakehi").exists(), "a job's folder is left behind");
}

/// Of an attached program the daemon learns the end all the same: `exec 4>log` closes what it has
/// as number 4, and some programs close whatever they find.
#[test]
fn a_program_that_closes_what_it_inherited_stays_attached() {
    let folder = Folder::new();
    let close_all =
        "for fd in /proc/self/fd/*; do n=${fd##*/}; [ $n -lt 3 ] || eval \"exec $n>&-\"; done";
    for (name, before) in [("reused", "exec 3>log 4>&3 5>&3 6>&3"), ("closed", close_all)] {
        let of_job = |command: &mut Command| {
            ready(command.env("KAKEHI_JOB", name).current_dir(folder.path()).stdin(Stdio::piped()))
        };
        let stats_file = folder.join(name);
        let mut first = kakehi_run(&folder, &["--stats", &stats_file.display().to_string()]);
        let mut first = of_job(first.args(["sh", "-c", "echo ready; cat"]));
        let writer = program("writer").display().to_string();
        let script = format!(
            "{before}; echo ready; read line; exec {writer} blocks out {RECORDS} {RECORD_LEN}"
        );
        let mut second = of_job(kakehi_run(&folder, &[]).args(["bash", "-c", &script]));
        drop(first.child.stdin.take());
        let ends = || first.child.try_wait().expect("own child").is_some();
        assert!(!wait_for(Duration::from_millis(500), ends), "{name}: the daemon ends");
        drop(second.child.stdin.take());
        assert!(second.wait(SOON).success() && first.wait(SOON).success());
        let summary = &stats(&stats_file)[0];
        assert_eq!(summary["bytes_delegated"], RECORDS * RECORD_LEN, "{name}: {summary:#}");
    }
}

/// A program that is told what to call, and outlives its job.
struct Outliving {
    calls: File,
    answers: PathBuf,
}

impl Outliving {
    /// The program, and a script that starts it, has it write `hello` to `out`, and ends.
    fn new(folder: &Folder, out: &Path) -> (Self, String) {
        let (fifo, answers) = (folder.join("calls"), folder.join("answers"));
        rustix::fs::mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).expect("a pipe");
        let mut calls = File::options().read(true).write(true).open(&fifo).expect("the pipe");
        write!(calls, "open {} wc\nwrite 3 hello\n", out.display()).expect("written");
        let (program, fifo) = (program("calls").display().to_string(), fifo.display());
        // It ends when both calls are answered, and does not wait for a third. Number 3 is free,
        // whatever this test has inherited.
        let script = format!(
            "{program} <{fifo} >{0} 2>&1 3>&- & \
             until [ \"$(wc -l <{0})\" = 2 ]; do sleep 0.05; done",
            answers.display()
        );
        (Self { calls, answers }, script)
    }
}

#[test]
fn a_process_that_outlives_the_job_goes_on_undelegated() {
    let folder = Folder::new();
    let out = folder.join("out");
    let (Outliving { mut calls, answers }, script) = Outliving::new(&folder, &out);
    let output = run(kakehi_run(&folder, &[]).args(["sh", "-c", &script]), SOON);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&out).expect("the file"), "hello");
    let left = processes_of(folder.path());
    assert!(left.iter().any(|(_, words)| words.contains("calls")), "{left:?}");

    write!(calls, "write 3 world\nclose 3\nopen {} wca\n", out.display()).expect("written");
    write!(calls, "write 3 again\nclose 3\n").expect("written");
    let said = || fs::read_to_string(&answers).expect("answers");
    assert!(wait_for(SOON, || said().lines().count() == 7), "{}", said());
    assert_eq!(said(), "3\n5\n5\n0\n3\n5\n0\n");
    assert_eq!(fs::read_to_string(&out).expect("the file"), "helloworldagain");
}

#[test]
fn a_run_that_comes_while_the_daemon_ends_starts_the_next() {
    let folder = Folder::new();
    let (_outliving, script) = Outliving::new(&folder, &folder.join("out"));
    let of_job = |command: &mut Command| {
        command.env("KAKEHI_JOB", "ending");
    };
    let mut first = kakehi_run(&folder, &[]);
    of_job(first.args(["sh", "-c", &script]).stdout(Stdio::null()).stderr(Stdio::null()));
    let mut first = Running::start(&mut first);
    assert!(wait_for(SOON, || ends(&folder, "ending")), "the daemon does not end");

    let mut second = kakehi_run(&folder, &[]);
    of_job(second.args(["echo", "ran"]));
    let output = run(&mut second, SOON);
    assert_eq!((text(&output.stdout).trim(), output.status.code()), ("ran", Some(0)));
    assert!(first.wait(SOON).success());
}

#[test]
fn kill_switches_do_what_they_say() {
    let folder = Folder::new();
    let mut command = kakehi_run(&folder, &[]);
    command.env("KAKEHI_DISABLE", "1").args(["sh", "-c", "echo $LD_PRELOAD; exit 3"]);
    let output = run(&mut command, SOON);
    assert_eq!((text(&output.stdout).trim(), output.status.code()), ("", Some(3)));
    assert_eq!(text(&output.stderr), "");

    let path = folder.join("file");
    let stats_file = folder.join("stats");
    let mut command = kakehi_run(&folder, &["--stats", &stats_file.display().to_string()]);
    let mut calls = Calls::start(command.env("KAKEHI_SYNC", "1").arg(program("calls")));
    let fd = calls.get(&format!("open {} wc", path.display()));
    for round in 1..=200 {
        calls.get(&format!("write {fd} hello"));
        assert_eq!(fs::metadata(&path).expect("a file").len(), 5 * round);
    }
    calls.end();
    let documents: Vec<Value> = stats(&stats_file);
    assert_eq!(sum(&documents, "/bytes_undelegated/synchronous"), 1000, "{documents:#?}");
}

/// Memory that client and daemon share counts as a file for that limit, the program's may fit.
#[test]
fn program_that_fits_under_a_short_file_limit_runs_without_delegation() {
    let folder = Folder::new();
    let limited = |flags: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 64; exec \"$@\"", "sh"]);
        let job = kakehi_run(&folder, flags);
        command.arg(job.get_program()).args(job.get_args());
        command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB");
        run(command.args(["cp", "/etc/passwd"]).arg(folder.join("copy")), SOON)
    };
    let output = limited(&[]);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("ulimit -f"), "{said}");
    assert_eq!(fs::read(folder.join("copy")).ok(), fs::read("/etc/passwd").ok());
    // What only a daemon has there is no way without.
    let kept = folder.join("kept").display().to_string();
    let output = limited(&["--coalesce", &format!("{kept}={kept}.sion")]);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
}

#[test]
fn rule_that_no_file_is_opened_by_is_told_of() {
    let folder = Folder::new();
    let file = folder.join("out.txt");
    let flags = ["--rule", "out.{dat,txt}=delegate", "--rule", "/no/[s]uch/*=pass"];
    let mut command = kakehi_run(&folder, &flags);
    let output =
        run(command.arg("cp").arg("/etc/passwd").arg(&file).current_dir(folder.path()), SOON);
    let said = text(&output.stderr);
    let told: Vec<_> = said.lines().filter(|line| line.contains(": it matched no file")).collect();
    assert!(output.status.success() && told.len() == 2, "{said}");
    assert!(
        told[0].contains("/out.dat=delegate") && told[1].contains("/no/[s]uch/*=pass"),
        "{said}"
    );
}
