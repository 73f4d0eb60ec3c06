//! The program `kakehi-bench` from outside: its command line, and the worker it starts.

mod all;
mod rpc;

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

fn bench() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kakehi-bench"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Gives a worker these jobs, and returns its answers.
fn worker(jobs: &str) -> Output {
    let mut command = bench();
    command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    child.stdin.take().expect("a pipe").write_all(jobs.as_bytes()).expect("reads");
    child.wait_with_output().expect("ends when its input ends")
}

fn is_sample(answer: &str) -> bool {
    answer.starts_with("ok ") && answer.split(' ').skip(1).all(|time| time.parse::<u64>().is_ok())
}

#[test]
fn a_wrong_argument_is_one_line_and_code_2() {
    for arguments in [
        &[][..],
        &["fly"],
        &["delegate", "--fast"],
        &["delegate", "--dir", "/nowhere"],
        &["rpc", "--transport", "x"],
        &["file", "--dir", "/nowhere"],
        &["tasks", "--dir", "/nowhere"],
    ] {
        let output = bench().args(arguments).output().expect("starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let line = text(&output.stderr);
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.starts_with("kakehi-bench: "), "{line}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn a_slip_is_told_with_the_word_that_was_meant() {
    for (arguments, word) in [(&["fiel"][..], "file"), (&["idle", "--quik"], "--quick")] {
        let output = bench().args(arguments).output().expect("starts");
        let line = text(&output.stderr);
        assert!(line.contains(&format!(", did you mean '{word}'?; see")), "{line}");
    }
}

#[test]
fn a_worker_writes_and_reads_what_it_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let [written, burst] = ["a b", "burst"].map(path);
    let jobs = format!(
        "write 4096 5 {0}\nread 1024 20 {0}\nburst 8192 2 {1}\n",
        written.display(),
        burst.display(),
    );
    let output = worker(&jobs);
    assert!(output.status.success());
    let answers = text(&output.stdout);
    assert_eq!(answers.lines().filter(|answer| is_sample(answer)).count(), 3, "{answers}");
    let len = |path: &Path| path.metadata().expect("a file").len();
    assert_eq!([len(&written), len(&burst)], [20480, 16384]);
}

#[test]
fn a_worker_says_why_a_job_failed_and_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    let jobs = format!("read 1 1 /nowhere/file\nfly 1 1 /\nwrite 1 1 {}\n", path.display());
    let answers = text(&worker(&jobs).stdout);
    let answers: Vec<_> = answers.lines().collect();
    let [missing, unknown, done] = answers[..] else { panic!("{answers:?}") };
    assert!(missing.starts_with("error ") && missing.contains("No such file"), "{missing}");
    assert!(unknown.starts_with("error "), "{unknown}");
    assert!(is_sample(done), "{done}");
}
