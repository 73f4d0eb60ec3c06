//! Traces of a bench that does not reach its end.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::ExitStatusExt as _,
    process::{Command, Stdio},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Folder, Running, SOON, heeded, kakehi, processes_of, run, succeed, wait_for};

#[test]
fn a_bench_that_is_killed_takes_its_stopped_daemons_along_and_its_folders_if_it_can() {
    for signal in heeded([Signal::INT, Signal::TERM, Signal::KILL]) {
        let folder = Folder::new();
        let mut command = Command::new(kakehi().with_file_name("kakehi-bench"));
        command.args(["idle", "--quick", "--dir"]).arg(folder.path());
        let output = fs::File::create(folder.join("output")).expect("a file");
        command.env("TMPDIR", folder.path()).stdout(output.try_clone().expect("a file"));
        let mut bench = Running::start(command.stderr(output));
        let is_stopped = |(pid, arguments): &(i32, String)| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            arguments.contains("serve") && status.contains("\nState:\tT")
        };
        assert!(
            wait_for(SOON, || processes_of(folder.path()).iter().any(is_stopped)),
            "{signal:?}"
        );
        bench.signal(signal);
        assert_eq!(bench.wait(SOON).signal(), Some(signal.as_raw()));
        let entries = fs::read_dir(folder.path()).expect("readable").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let scratch = names.filter(|name| name.starts_with("kakehi-scratch-")).count();
        assert_eq!(scratch == 0, signal != Signal::KILL, "{signal:?}: {scratch} folders");
        let mut left = Vec::new();
        let are_gone = wait_for(SOON, || {
            left = processes_of(folder.path());
            left.is_empty()
        });
        for (pid, _) in &left {
            let pid = rustix::process::Pid::from_raw(*pid).expect("a pid");
            rustix::process::kill_process(pid, Signal::KILL).ok(); // It may have ended since.
        }
        assert!(are_gone, "{signal:?}: {left:?}");
    }
}

#[test]
fn bench_says_that_it_runs_before_it_measures() {
    let folder = Folder::new();
    let mut command = Command::new(kakehi());
    command.args(["bench", "delegate", "--quick", "--dir"]).arg(folder.path());
    let mut bench = Running::start(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let mut said = String::new();
    let errors = bench.child.stderr.take().expect("piped");
    BufReader::new(errors).read_line(&mut said).expect("a line");
    assert!(bench.child.try_wait().expect("asked").is_none(), "it has ended: {said}");
    assert!(said.starts_with("kakehi-bench: delegate runs"), "{said}");
    bench.signal(Signal::TERM);
    bench.wait(SOON);
}

#[test]
fn bench_of_a_file_leaves_nothing_when_it_is_interrupted() {
    for signal in heeded([Signal::INT, Signal::TERM]) {
        let folder = Folder::new();
        let mut command = Command::new(kakehi().with_file_name("kakehi-bench"));
        command.args(["file", "--quick", "--dir"]).arg(folder.path());
        let output = fs::File::create(folder.join("output")).expect("a file");
        command.stdout(output.try_clone().expect("a file")).stderr(output);
        let mut bench = Running::start(&mut command);
        let names = || {
            let entries = fs::read_dir(folder.path()).expect("readable").flatten();
            entries.map(|entry| entry.file_name()).filter(|name| name != "output").count()
        };
        assert!(wait_for(SOON, || names() > 0), "it makes no file");
        bench.signal(signal);
        assert_eq!(bench.wait(SOON).signal(), Some(signal.as_raw()));
        assert_eq!(names(), 0, "{signal:?}");
    }
}

#[test]
fn bench_tells_mistakes_as_json_where_json_was_asked_for() {
    let mut command = Command::new(kakehi());
    let output = run(command.args(["bench", "here", "--json", "--dir", "/nowhere"]), SOON);
    assert_eq!(output.status.code(), Some(2));
    let error: Value = serde_json::from_slice(&output.stderr).expect("one document");
    assert_eq!(error["error"]["exit_status"], 2, "{error}");
    assert!(error["error"]["reason"].as_str().is_some_and(|it| it.contains("/nowhere")), "{error}");
}

#[test]
fn bench_here_measures_every_case_and_leaves_nothing() {
    let folder = Folder::new();
    let dir = folder.join("scratch");
    fs::create_dir(&dir).expect("a folder");
    let mut command = Command::new(kakehi());
    command.args(["bench", "here", "--json", "--time", "2s", "--dir"]).arg(&dir);
    let said = succeed(command.env("TMPDIR", folder.path()), 2 * SOON);
    let found: Value = serde_json::from_str(&said).expect("JSON");
    let rows = found["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    let all = ["lines", "small", "files", "coalesce", "large", "checkpoint", "cold", "warm"];
    assert_eq!(names, all);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap_or(0.0);
        assert!(number("with_s") > 0.0 && number("gain") > 0.0, "{row:#}");
        assert!(number("rounds") >= 2.0, "{row:#}");
    }
    assert!(found["advice"].as_str().is_some_and(|advice| advice.contains("here")), "{found:#}");
    assert_eq!(fs::read_dir(&dir).expect("a folder").count(), 0);
}

#[test]
fn bench_delegate_streams_into_a_server_and_compares_it_with_the_limit() {
    let folder = Folder::new();
    let mut command = Command::new(kakehi());
    command.args(["bench", "delegate", "--quick", "--json", "--rounds", "1"]);
    command.args(["--only", "serve/64KiB", "--dir"]).arg(folder.path());
    let said = succeed(command.env("TMPDIR", folder.path()), 4 * SOON);
    let found: Value = serde_json::from_str(&said).expect("JSON");
    let ratios = found["ratios"].as_array().expect("ratios");
    let named = |end: &str| {
        let names = ratios.iter().filter_map(|ratio| ratio["name"].as_str());
        names.filter(|name| name.starts_with("serve/64KiB/") && name.ends_with(end)).count()
    };
    // As root, one each for ext4 and xfs.
    assert!(named(":limit") > 0 && named(":core") > 0, "{found:#}");
    for ratio in ratios {
        assert!(ratio["median"].as_f64().is_some_and(|ratio| ratio > 0.0), "{found:#}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}
