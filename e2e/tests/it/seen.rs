//! A running job as it is seen: by `status`, `jobs`, `top`, and as metrics.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::harness::{Folder, Running, SOON, kakehi, kakehi_run, run, succeed, text, wait_for};

/// Writes a megabyte in small pieces and syncs it, so that all of it is counted; says so, and waits
/// for the end of its input.
const PROGRAM: &str = "
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for i in range(1024):
    os.write(fd, b'x' * 1024)
os.fsync(fd)
print('written', flush=True)
sys.stdin.read()
";

/// A command that looks at the jobs of a folder.
fn look(folder: &Folder, words: &[&str]) -> Command {
    let mut command = Command::new(kakehi());
    command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("KAKEHI_JOB").args(words);
    command
}

#[test]
fn jobs_status_top_and_metrics_show_a_running_job() {
    let folder = Folder::new();
    let mut command = kakehi_run(&folder, &[]);
    command.args(["python3", "-c", PROGRAM]).arg(folder.join("file")).env("KAKEHI_JOB", "seen");
    let mut job = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut said = String::new();
    let output = job.child.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut said).expect("a line");
    assert_eq!(said, "written\n");

    let listed = || {
        let jobs = succeed(&mut look(&folder, &["jobs", "--json"]), SOON);
        let jobs: Value = jobs.parse().expect("JSON");
        let ours = |it: &&Value| it["name"] == "seen";
        jobs["jobs"].as_array().expect("a list").iter().find(ours).expect("listed").clone()
    };
    let status = &listed()["status"];
    assert_eq!(status["summary"]["bytes_written"], 1 << 20, "{status}");
    let command = &status["command"];
    assert!(command.as_str().is_some_and(|it| it.starts_with("python3 -c ")), "{command}");
    let table = succeed(&mut look(&folder, &["jobs"]), SOON);
    assert!(
        table.lines().any(|line| line.starts_with("seen ") && line.contains("1MiB")),
        "{table}"
    );

    let of_job = |words: &[&str]| succeed(look(&folder, words).args(["--job", "seen"]), SOON);
    let status = of_job(&["status"]);
    let second = status.lines().nth(1).expect("two lines");
    assert!(second.starts_with("written   1MiB, "), "{status}");
    let metrics = of_job(&["status", "--metrics"]);
    assert!(metrics.contains("kakehi_written_bytes_total{job=\"seen\"} 1048576\n"), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"));
    let file = folder.join("kakehi.prom");
    of_job(&["status", "--metrics", &file.to_string_lossy()]);
    let left = fs::read_to_string(&file).expect("left there");
    assert!(left.contains("kakehi_staged_bytes_total{job=\"seen\"}"), "{left}");
    for columns in ["80", "200"] {
        let arguments = ["top", "--once", "--every", "200ms", "--columns", columns];
        let picture = succeed(&mut look(&folder, &arguments), SOON);
        assert!(picture.lines().any(|line| line.starts_with("seen ")), "{picture}");
    }

    drop(job.child.stdin.take());
    assert!(job.wait(SOON).success());
    let gone = || !succeed(&mut look(&folder, &["jobs"]), SOON).contains("seen ");
    assert!(wait_for(SOON, gone), "the job is over");
}

#[test]
fn watch_repeats_the_status_until_the_job_ends() {
    let folder = Folder::new();
    let mut command = kakehi_run(&folder, &[]);
    command.args(["python3", "-c", PROGRAM]).arg(folder.join("file")).env("KAKEHI_JOB", "watched");
    let mut job = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut said = String::new();
    let output = job.child.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut said).expect("a line");
    let mut watch = look(&folder, &["status", "--watch", "100ms", "--job", "watched"]);
    let mut watch = Running::start(watch.stdout(Stdio::piped()));
    let mut lines = BufReader::new(watch.child.stdout.take().expect("piped")).lines();
    let mut jobs = lines.by_ref().map_while(Result::ok).filter(|line| line.starts_with("job "));
    // It is shown again.
    assert!(jobs.next().is_some() && jobs.next().is_some());
    drop(job.child.stdin.take());
    assert!(job.wait(SOON).success());
    drop(jobs);
    lines.map_while(Result::ok).for_each(drop);
    assert!(watch.wait(SOON).success());
}

#[test]
fn serve_answers_scrapers_over_http() {
    let folder = Folder::new();
    let mut command = look(&folder, &["serve", "--socket"]);
    command.arg(folder.join("job")).args(["--metrics-listen", "127.0.0.1:0"]);
    let mut daemon = Running::start(command.stderr(Stdio::piped()));
    let mut line = String::new();
    let errors = daemon.child.stderr.take().expect("piped");
    BufReader::new(errors).read_line(&mut line).expect("a line");
    let address = line.trim().rsplit_once("http://").and_then(|(_, url)| url.split_once('/'));
    let (address, path) = address.unwrap_or_else(|| panic!("no address: {line}"));
    assert_eq!(path, "metrics");
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address).expect("listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        text(&answer)
    };
    let answer = get("/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\nkakehi_sessions{job=") && answer.ends_with("# EOF\n"), "{answer}");
    assert!(get("/other").starts_with("HTTP/1.1 404 "));
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.wait(SOON).success());
}

/// The window of a terminal is closed, and no hang-up comes, as in a container.
#[test]
fn top_ends_with_its_terminal() {
    const PROGRAM: &str = "\
import fcntl, os, pty, struct, subprocess, sys, termios
side, terminal = pty.openpty()
fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack('4H', 24, 80, 0, 0))
top = subprocess.Popen([sys.argv[1], 'top'], stdin=terminal, stdout=terminal, stderr=terminal)
os.close(terminal)
while b'q: end' not in os.read(side, 4096):
    pass
os.close(side)
sys.exit(top.wait(timeout=10))
";
    let folder = Folder::new();
    let mut command = Command::new("python3");
    command.args(["-c", PROGRAM]).arg(kakehi()).env("XDG_RUNTIME_DIR", folder.path());
    let output = run(&mut command, SOON);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
}
