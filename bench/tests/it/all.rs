//! `kakehi-bench all`: its page, and that every bench says at once that it runs.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{bench, text};

/// Of a bench `tasks` that measured two cases, and had no MPI for a third.
const TASKS: &str = r#"{"bench": "tasks", "machine": {"cpu": "a <fast> one", "cores": 2}, "rows": [
    {"case": "create/65536/ext4/files", "value": 900.0, "min": 800.0, "max": 950.0, "unit": "ms"},
    {"case": "create/65536/ext4/multifile", "value": 30.0, "min": 29.0, "max": 31.0, "unit": "ms"},
    {"case": "trace/16ranks/write/native", "skipped": "there is no mpicc"}], "ratios": []}"#;

#[test]
fn page_is_drawn_from_kept_results_and_marks_what_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("tasks.json"), TASKS).expect("written");
    let page = folder.path().join("page.html");
    let mut command = bench();
    command.arg("all").arg("--from").arg(folder.path()).arg("--report").arg(&page);
    let output = command.output().expect("starts");
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(page).expect("a page");
    assert!(page.contains("ext4, files: 900 (800 to 950)"), "{page}");
    assert!(page.contains("a &lt;fast&gt; one, 2 cores"), "{page}");
    assert!(page.contains("[INCOMPLETE]</b> 1 of 1 cases: there is no mpicc"), "{page}");
    let not_run = format!("{}: No such file", folder.path().join("idle.json").display());
    assert!(page.contains(&not_run), "{page}");
    // Creation is complete: nothing stands between its title and its picture.
    assert!(page.contains("creating files, ms</h3><svg"), "{page}");
}

#[test]
fn page_that_cannot_be_written_is_an_error_before_anything_is_measured() {
    let output = bench().args(["all", "--report", "/nowhere/page.html"]).output().expect("starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nowhere/page.html"), "{output:?}");
}

#[test]
fn every_bench_says_at_once_that_it_runs() {
    for name in ["delegate", "idle", "file", "rpc", "tasks", "here", "all"] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = bench();
        command.arg(name).current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let (sender, receiver) = mpsc::channel();
        let reader = thread::spawn(move || {
            let mut line = String::new();
            said.read_line(&mut line).expect("a line");
            sender.send(line).ok(); // Nobody waits any more.
            std::io::copy(&mut said, &mut std::io::sink()).ok();
        });
        let line = receiver.recv_timeout(Duration::from_secs(2));
        kill_process(Pid::from_child(&child), Signal::TERM).expect("not waited for yet");
        child.wait().expect("ends");
        reader.join().expect("reads");
        assert!(line.as_ref().is_ok_and(|line| line.contains(name)), "{name}: {line:?}");
    }
}
