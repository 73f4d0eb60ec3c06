//! Programs and daemons in containers: namespaces in which users and processes have other numbers.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    calls::Calls,
    harness::{
        Daemon, EAGER, Folder, Running, SOON, kakehi, kakehi_run, processes_of, program, run, skip,
        stats, succeed, sum, text, wait_for,
    },
};

/// As rootless containers have it: this user is root there, processes are everybody's.
const USERS: &[&str] = &["--user", "--map-root-user"];
/// Processes have numbers of their own, too.
const PROCESSES: &[&str] =
    &["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
const RECORDS: u64 = 500;
const RECORD_LEN: u64 = 4096;
const ROUNDS: u64 = 20;
const FENCE_TIMEOUT: Duration = Duration::from_secs(1);

/// The words before a command that is to run in a container; `None`, and said loudly, where this
/// user can make none.
fn container(namespaces: &[&str]) -> Option<Vec<String>> {
    let made = Command::new("unshare").args(namespaces).arg("true").output();
    if !made.is_ok_and(|made| made.status.success()) {
        skip("containers", format_args!("unshare {} is not allowed", namespaces.join(" ")));
        return None;
    }
    Some(["unshare"].iter().chain(namespaces).map(ToString::to_string).collect())
}

/// The same command in a container.
fn within(container: &[String], command: &Command) -> Command {
    let mut inner = Command::new(&container[0]);
    inner.args(&container[1..]).arg(command.get_program()).args(command.get_args());
    let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    inner.envs(variables);
    inner
}

#[test]
fn a_program_in_a_container_is_delegated() {
    let folder = Folder::new();
    for (index, namespaces) in [USERS, PROCESSES].into_iter().enumerate() {
        let Some(container) = container(namespaces) else { return };
        let (out, stats_file) = (folder.join(format!("out{index}")), folder.join("stats"));
        let mut command = kakehi_run(&folder, &["--stats", &stats_file.display().to_string()]);
        command.args(container).arg(program("writer")).arg("blocks").arg(&out);
        command.args([RECORDS.to_string(), RECORD_LEN.to_string()]);
        let output = run(&mut command, SOON);
        let said = text(&output.stderr);
        assert!(output.status.success() && !said.contains("running undelegated"), "{said}");
        assert_eq!(fs::metadata(&out).expect("a file").len(), RECORDS * RECORD_LEN);
        let documents = stats(&stats_file);
        let delegated = sum(&documents[index..], "/bytes_delegated");
        assert_eq!(delegated, RECORDS * RECORD_LEN, "{documents:#?}");
    }
}

/// Both have the same number, each among its own, and share the folder of jobs.
#[test]
fn runs_of_two_containers_are_two_jobs() {
    let Some(container) = container(PROCESSES) else { return };
    let folder = Folder::new();
    let job = |name: &str, script: &str| {
        let mut command = kakehi_run(&folder, &["--stats", &folder.join(name).to_string_lossy()]);
        command.args(["sh", "-c", script]);
        within(&container, &command)
    };
    let mut first = job("first", "echo ready; read line");
    let mut first = Running::start(first.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut line = String::new();
    let stdout = first.child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    succeed(&mut job("second", "exit 0"), SOON);
    assert_eq!(stats(&folder.join("second")).len(), 1);
    assert_eq!(fs::read_to_string(folder.join("first")).expect("opened"), "");
    drop(first.child.stdin.take());
    assert_eq!(first.wait(SOON).code(), Some(1)); // Nothing was to be read.
    assert_eq!(stats(&folder.join("first")).len(), 1);
}

/// The link to what the job's processes share leads through the daemon's folder in `/proc`, which
/// these may not enter, or do not have.
#[test]
fn programs_in_and_outside_of_a_container_see_each_others_writes() {
    let folder = Folder::new();
    for namespaces in [USERS, PROCESSES] {
        let Some(container) = container(namespaces) else { return };
        let daemon = Daemon::start(&folder, "job", &[]);
        let mut outside = Calls::wrapped(&daemon);
        let mut inside = Calls::start(&mut within(&container, &daemon.wrap(program("calls"))));
        for round in 0..ROUNDS {
            let path = folder.join(format!("file{round}")).display().to_string();
            for is_inside in [false, true] {
                let (writer, other) = match is_inside {
                    false => (&mut outside, &mut inside),
                    true => (&mut inside, &mut outside),
                };
                let fd = writer.get(&format!("open {path} wct"));
                writer.get(&format!("write {fd} hello"));
                let reader = other.get(&format!("open {path} r"));
                assert_eq!(other.ask(&format!("pread {reader} 0 99")), "[hello]");
                other.get(&format!("close {reader}"));
                writer.get(&format!("close {fd}"));
            }
            // What is staged for a file that another process empties does not come back.
            let fd = outside.get(&format!("open {path} w"));
            outside.get(&format!("write {fd} longer"));
            let emptied = inside.get(&format!("open {path} wt"));
            inside.get(&format!("close {emptied}"));
            outside.get(&format!("close {fd}"));
            assert_eq!(fs::read_to_string(&path).expect("a file"), "");
        }
        outside.end();
        inside.end();
        let staged = daemon.status()["summary"]["bytes_staged"].as_u64();
        assert!(staged >= Some(ROUNDS * 2 * 5), "{:#}", daemon.status());
        daemon.end();
    }
}

/// Nobody in a container can kill a daemon outside: until that has ended, whatever it was about to
/// write may still be written, over whatever the program would write by itself.
#[test]
fn a_client_that_cannot_end_its_silent_daemon_waits_for_it() {
    let Some(container) = container(PROCESSES) else { return };
    let folder = Folder::new();
    let mut daemon = Daemon::start(&folder, "job", &[]);
    daemon.set("KAKEHI_FENCE_TIMEOUT", &format!("{}s", FENCE_TIMEOUT.as_secs()));
    let (out, log) = (folder.join("out"), folder.join("said"));
    let mut command = within(&container, &daemon.wrap(program("calls")));
    command.stderr(File::create(&log).expect("a log"));
    let mut calls = Calls::start(&mut command);
    let fd = calls.get(&format!("open {} wc", out.display()));
    calls.get(&format!("write {fd} hello"));
    let said = || fs::read_to_string(&log).expect("a log");

    // What is staged the program drains by itself; that the daemon has let go it has to be told.
    daemon.running.signal(Signal::STOP);
    calls.begin(&format!("close {fd}"));
    assert!(wait_for(SOON, || !said().is_empty()), "it says nothing");
    assert!(said().contains("waiting"), "{}", said());
    assert!(daemon.running.child.try_wait().expect("child").is_none(), "it is gone");
    assert!(calls.is_silent_for(FENCE_TIMEOUT * 2), "it does not wait");
    daemon.running.signal(Signal::CONT);
    assert_eq!(calls.answer(), "0");

    let fd = calls.get(&format!("open {} w", out.display()));
    calls.get(&format!("pwrite {fd} 5 world"));
    daemon.running.signal(Signal::STOP);
    calls.begin(&format!("close {fd}"));
    daemon.kill();
    assert_eq!(calls.answer(), "0");
    assert_eq!(fs::read_to_string(&out).expect("a file"), "helloworld");
    calls.end();
    assert_eq!(said().lines().count(), 1, "{}", said());
}

/// A daemon in a container, of which a client outside has a number, but not the other way round.
struct Contained {
    daemon: Daemon,
    server: Pid,
}

impl Contained {
    /// Starts it by a command that becomes what is appended.
    fn start(folder: &Folder, container: &[String], before: &[&str]) -> Self {
        let socket = folder.join("job");
        let mut command = Command::new(&container[0]);
        command.args(&container[1..]).args(before);
        command.arg(kakehi()).args(["serve", "--socket"]).arg(&socket);
        let daemon = Daemon::start_by(folder, socket, &mut command);
        let all = processes_of(folder.path());
        let is_server = |words: &str| words.starts_with(&kakehi().display().to_string());
        let server = all.iter().find(|(_, words)| is_server(words));
        let (server, _) = server.unwrap_or_else(|| panic!("no daemon: {all:?}"));
        Self { daemon, server: Pid::from_raw(*server).expect("a pid") }
    }

    fn end(mut self) {
        kill_process(self.server, Signal::TERM).expect("it runs");
        let status = self.daemon.running.wait(SOON);
        assert!(status.success(), "{status}: {}", self.daemon.said());
    }
}

#[test]
fn a_daemon_in_a_container_serves_programs_outside() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a version");
    let version: Vec<u32> = release.split('.').map_while(|part| part.parse().ok()).collect();
    if version < vec![6, 5] {
        return skip("a daemon in a container", "it needs SO_PEERPIDFD (Linux 6.5)");
    }
    let Some(container) = container(PROCESSES) else { return };
    let folder = Folder::new();
    let contained = Contained::start(&folder, &container, &[]);
    let out = folder.join("out");
    succeed(&mut run_in(&contained.daemon.socket, &out), SOON);
    assert_eq!(fs::metadata(&out).expect("a file").len(), RECORDS * RECORD_LEN);
    let summary = contained.daemon.status()["summary"].clone();
    assert_eq!(summary["bytes_delegated"], RECORDS * RECORD_LEN, "{summary:#}");
    // Whoever is killed is buried: nobody else is told of its end.
    let mut calls = Calls::wrapped(&contained.daemon);
    let fd = calls.get(&format!("open {} wc", out.display()));
    calls.get(&format!("write {fd} hello"));
    let sessions = || contained.daemon.status()["sessions"].as_u64();
    assert_eq!(sessions(), Some(1));
    calls.running.signal(Signal::KILL);
    assert!(wait_for(SOON, || sessions() == Some(0)), "it is not buried");
    contained.end();
}

#[test]
fn a_daemon_that_cannot_watch_its_clients_says_why_it_refuses_them() {
    let Some(container) = container(PROCESSES) else { return };
    let folder = Folder::new();
    let forbid = program("forbid").display().to_string();
    let contained = Contained::start(&folder, &container, &[&forbid, "ENOPROTOOPT"]);
    let out = folder.join("out");
    let output = run(&mut run_in(&contained.daemon.socket, &out), SOON);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let told = said.lines().filter(|line| line.contains("running undelegated")).count();
    assert!(told == 1 && said.contains("pid namespace"), "{said}");
    assert_eq!(fs::metadata(&out).expect("a file").len(), RECORDS * RECORD_LEN);
    contained.end();
}

/// A writer that `kakehi run` starts beside the daemon in a folder.
fn run_in(socket: &Path, out: &Path) -> Command {
    let mut command = Command::new(kakehi());
    command.args(["run", "--socket"]).arg(socket).arg("--").arg(program("writer"));
    command.arg("blocks").arg(out).args([RECORDS.to_string(), RECORD_LEN.to_string()]);
    command.stdin(Stdio::null()).envs(EAGER);
    command
}
