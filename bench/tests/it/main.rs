//! The program `kakehi-bench` from outside: its command line, and the worker it starts.

mod all;
mod rpc;

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

fn bench() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kakehi-bench"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// This program, to play a part of a bench.
fn part(part: &Value) -> Command {
    let mut command = bench();
    command.arg("part").arg(part.to_string());
    command
}

/// Gives a worker these jobs, and returns its answers.
fn worker(jobs: &str) -> Output {
    let mut command = part(&json!({"worker": {"core": null}}));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    child.stdin.take().expect("a pipe").write_all(jobs.as_bytes()).expect("reads");
    child.wait_with_output().expect("ends when its input ends")
}

fn job(verb: &str, size: usize, count: usize, path: &Path) -> String {
    json!({"verb": verb, "size": size, "count": count, "path": path}).to_string() + "\n"
}

fn is_sample(answer: &str) -> bool {
    let answer: Value = serde_json::from_str(answer).expect("JSON");
    ["/Ok/wall_ns", "/Ok/cpu_ns"].iter().all(|time| answer.pointer(time).is_some_and(Value::is_u64))
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
    let (write, read) = (job("write", 4096, 5, &written), job("read", 1024, 20, &written));
    let output = worker(&(write + &read + &job("burst", 8192, 2, &burst)));
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
    let jobs = [("read", "/nowhere/file".as_ref()), ("fly", "/".as_ref()), ("write", &*path)];
    let jobs = jobs.map(|(verb, path)| job(verb, 1, 1, path)).concat();
    let answers = text(&worker(&jobs).stdout);
    let answers: Vec<_> = answers.lines().collect();
    let [missing, unknown, done] = answers[..] else { panic!("{answers:?}") };
    assert!(missing.starts_with("{\"Err\":") && missing.contains("No such file"), "{missing}");
    assert!(unknown.starts_with("{\"Err\":"), "{unknown}");
    assert!(is_sample(done), "{done}");
}
