//! `kakehi serve` and the daemon that `run` starts: where they listen, and what they cannot use.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use tempfile::tempdir;

use crate::{fails, json, kakehi, library, output, voice::shown};

/// Longer than a daemon takes to start on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// More cores than any kernel is built for.
const NO_CORE: &str = "8191";

/// Killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn serve(folder: &Path, listen: &str) -> Command {
    let mut command = kakehi(folder);
    command.env("XDG_RUNTIME_DIR", folder).stdin(Stdio::null());
    command.args(["serve", "--listen", listen, "--root", "root", "--key", "key"]);
    command
}

/// Starts a server and returns the line that it says.
fn start(command: &mut Command) -> (Server, String) {
    let mut server = Server(command.stderr(Stdio::piped()).spawn().expect("kakehi starts"));
    let mut said = BufReader::new(server.0.stderr.take().expect("piped"));
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let read = said.read_line(&mut line);
        // The test has given up when nobody listens.
        tell.send(read.map(|_| line)).ok();
    });
    let line = told.recv_timeout(SOON).expect("a line in time").expect("a line");
    (server, line)
}

#[test]
fn a_server_says_where_it_listens() {
    let folder = tempdir().expect("temporary folder");
    fs::create_dir(folder.path().join("root")).expect("folder");
    let (_server, line) = start(&mut serve(folder.path(), "tcp://127.0.0.1:0"));
    let port = line.trim_end().strip_prefix("kakehi: listening at tcp://127.0.0.1:");
    let port: u16 = port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    assert_ne!(port, 0);
}

#[test]
fn what_killed_daemons_have_left_is_gone_when_the_next_starts() {
    let folder = tempdir().expect("temporary folder");
    fs::create_dir(folder.path().join("root")).expect("folder");
    let start = || start(&mut serve(folder.path(), "tcp://127.0.0.1:0")).0;
    let jobs = folder.path().join("kakehi");
    let names = || {
        let entries = fs::read_dir(&jobs).expect("folders of jobs");
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
        names.map(|name| name.expect("a number")).collect::<BTreeSet<_>>()
    };
    let (killed, users, lives) = (start(), start(), start());
    let number = |server: &Server| server.0.id().to_string();
    let [killed_name, users_name, lives_name] = [&killed, &users, &lives].map(number);
    assert_eq!(names().len(), 3);
    let rights = fs::Permissions::from_mode(0o700);
    fs::set_permissions(jobs.join(&users_name), rights).expect("as if the user had made it");
    drop((killed, users));
    assert!(names().contains(&killed_name));

    let next = start();

    assert_eq!(names(), [users_name, lives_name.clone(), number(&next)].into());
    assert!(jobs.join(lives_name).join("socket").exists());
}

#[test]
fn what_a_server_cannot_use_is_named_with_what_to_do() {
    let folder = tempdir().expect("temporary folder");
    let any = "tcp://127.0.0.1:0";
    fails(&mut serve(folder.path(), any), 1, &["root folder", "/root: No such file", "--root"]);

    fs::create_dir(folder.path().join("root")).expect("folder");
    let key = folder.path().join("key");
    fs::write(&key, "secret").expect("key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("mode");
    fails(&mut serve(folder.path(), any), 1, &["key file", "/key: ", "mode 0600", "chmod"]);
    fs::remove_file(&key).expect("there");

    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = format!("tcp://{}", other.local_addr().expect("bound"));
    fails(&mut serve(folder.path(), &taken), 1, &[&*taken, "in use", "free port"]);

    let long = format!("unix://{}", "x".repeat(107));
    fails(&mut serve(folder.path(), &long), 1, &["too long", "107 bytes"]);
    let mut nowhere = serve(folder.path(), "unix:///nowhere/socket");
    fails(&mut nowhere, 1, &["/nowhere/socket: No such file", "folder", "107 bytes"]);

    let mut nowhere = serve(folder.path(), any);
    fails(nowhere.args(["--address-file", "no"]), 1, &["/no: No such file", "--address-file"]);
    let mut cores = serve(folder.path(), any);
    fails(cores.args(["--cores", NO_CORE]), 1, &["core 8191", "--cores"]);
    let mut multifile = serve(folder.path(), any);
    fs::write(folder.path().join("text"), "no multifile").expect("file");
    fails(multifile.args(["--coalesce", "root/c=text"]), 1, &["/text: "]);
    assert!(!key.exists(), "a key that nobody can use is left behind");
    assert!(!folder.path().join("root/.kakehi").exists(), "records of no session are left behind");
}

#[test]
fn programs_that_env_is_asked_for_join_the_daemon_that_waits_for_them() {
    let folder = tempdir().expect("temporary folder");
    fs::create_dir(folder.path().join("root")).expect("folder");
    let command = |name: &str| {
        let mut command = kakehi(folder.path());
        command.env("XDG_RUNTIME_DIR", folder.path()).stdin(Stdio::null()).arg(name);
        command.env("KAKEHI_PRELOAD", library(folder.path()));
        command
    };
    let socket = |command: &mut Command| {
        json(command.arg("--json"))["KAKEHI_SOCKET"].as_str().expect("a path").to_owned()
    };
    // What serves other nodes is not meant.
    let (server, _) = start(&mut serve(folder.path(), "tcp://127.0.0.1:0"));
    let path = |server: &Server| folder.path().join(format!("kakehi/{}", server.0.id()));
    assert_ne!(Path::new(&socket(&mut command("env"))), path(&server));

    let waiting = Server(command("serve").spawn().expect("kakehi starts"));
    let end = Instant::now() + SOON;
    let status = || output(command("status").arg("--socket").arg(path(&waiting))).0;
    while status() != 0 {
        assert!(Instant::now() < end, "the daemon does not start");
        thread::park_timeout(Duration::from_millis(10));
    }
    let (_, variables, said) = output(&mut command("env"));
    let path = path(&waiting).display().to_string();
    assert!(variables.contains(&format!("KAKEHI_SOCKET={path}\n")), "{variables}");
    assert!(said.contains(&format!("join the daemon in {path}")), "{said}");
    let named = socket(command("env").env("KAKEHI_JOB", "other"));
    assert!(named.ends_with("/kakehi/other"), "{named}");
}

/// `kakehi run`, of which no program gets to run.
fn run(folder: &Path) -> Command {
    let mut command = kakehi(folder);
    command.env("KAKEHI_PRELOAD", library(folder)).env("XDG_RUNTIME_DIR", folder).arg("run");
    command
}

#[test]
fn a_daemon_that_cannot_start_leaves_nothing_and_keeps_the_program_from_running() {
    let folder = tempdir().expect("temporary folder");
    let mut command = run(folder.path());
    let (code, stdout, stderr) = output(command.args(["--cores", NO_CORE, "echo", "ran"]));
    assert_eq!((code, &*stdout), (2, ""), "{stderr}");
    assert!(stderr.contains("core 8191"), "{stderr}");
    assert!(!folder.path().join("kakehi").exists(), "a job's folder is left behind");

    let mut command = kakehi(folder.path());
    command.env("XDG_RUNTIME_DIR", folder.path());
    command.args(["serve", "--listen", "tcp://127.0.0.1:0", "--root", "."]);
    fails(&mut command, 2, &["--listen needs --key"]);
    assert!(!folder.path().join("kakehi").exists(), "a server's folder is left behind");
}

#[test]
fn statistics_that_cannot_be_written_are_refused_before_the_program_runs() {
    let folder = tempdir().expect("temporary folder");
    let mut command = run(folder.path());
    command.args(["--stats", "/nowhere/stats", "touch", "ran"]);
    fails(&mut command, 125, &["/nowhere/stats", "--stats"]);
    assert!(!folder.path().join("ran").exists());
}

#[test]
fn status_finds_the_only_job_and_asks_which_of_several() {
    let folder = tempdir().expect("temporary folder");
    let status = || {
        let mut command = kakehi(folder.path());
        command.env("XDG_RUNTIME_DIR", folder.path()).arg("status");
        command
    };
    fails(&mut status(), 3, &["no daemon at", "no job"]);
    let server = |job: &str, root: &str| {
        fs::create_dir(folder.path().join(root)).expect("folder");
        let mut command = kakehi(folder.path());
        command.env("XDG_RUNTIME_DIR", folder.path()).env("KAKEHI_JOB", job).stdin(Stdio::null());
        command.args(["serve", "--listen", "tcp://127.0.0.1:0", "--root", root, "--key", "key"]);
        start(&mut command).0
    };
    let first = server("one", "root");
    let (code, stdout, stderr) = output(&mut status());
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains(&format!("daemon {}, ", first.0.id())), "{stdout}");
    let second = server("two", "other");
    fails(&mut status(), 2, &["one (server, ", "two (server, ", "--job one"]);
    let runtime = folder.path().to_str().expect("UTF-8");
    let shown = shown(folder.path(), "status", 80, &[("XDG_RUNTIME_DIR", runtime)]);
    // The colours have 11 letters.
    assert!(shown.lines().all(|line| line.chars().count() <= 91), "{shown}");
    assert!(!shown.contains(runtime), "a name, and no path: {shown}");
    let (code, stdout, stderr) = output(status().args(["--job", "two"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains(&format!("daemon {}, ", second.0.id())), "{stdout}");
    let mut jobs = kakehi(folder.path());
    let (code, stdout, stderr) = output(jobs.env("XDG_RUNTIME_DIR", folder.path()).arg("jobs"));
    assert_eq!(code, 0, "{stderr}");
    let names = stdout.lines().skip(1).filter_map(|line| line.split(' ').next());
    assert!(
        ["one", "two"].iter().all(|name| names.clone().any(|found| found == *name)),
        "{stdout}"
    );
    drop(first);
    // What was killed has left its folder, and is no job any more.
    let (_, stdout, _) = output(&mut status());
    assert!(stdout.contains(&format!("daemon {}, ", second.0.id())), "{stdout}");
}
