//! The processes of the benches `rpc` and `file`, as kakehi-bench starts them.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use serde_json::{Value, json};

use crate::{part, text};

const SIZE: usize = 8192;

fn run(transport: &str, count: usize, depth: usize, clients: usize, span: usize) -> Value {
    json!({
        "size": SIZE, "count": count, "depth": depth, "clients": clients, "span": span,
        "transport": transport, "lends": false,
    })
}

/// A server that ends in time, its first line, and what follows.
fn server(
    program: &str,
    part: &str,
    path: &Path,
    run: &Value,
) -> (Child, String, BufReader<ChildStdout>) {
    let server = json!({"program": program, "part": part, "path": path, "run": run, "core": null});
    let mut command = Command::new("timeout");
    command.args(["300", env!("CARGO_BIN_EXE_kakehi-bench"), "part"]);
    command.arg(json!({"rpc-server": server}).to_string());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut address = String::new();
    lines.read_line(&mut address).expect("a line");
    (child, serde_json::from_str(&address).expect("an address"), lines)
}

fn client(address: &str, run: &Value) -> Output {
    let client = json!({"address": address, "run": run, "core": null});
    part(&json!({"rpc-client": client})).output().expect("starts")
}

fn is_sample(line: &str) -> bool {
    let sample: Value = serde_json::from_str(line).expect("JSON");
    let number = |name: &str| sample.get(name).and_then(Value::as_u64);
    let names = ["cpu_ns", "core_ns", "growth", "rss", "unfairness"];
    number("wall_ns") > Some(0) && names.iter().all(|name| number(name).is_some())
}

/// A file of this many blocks, all zero.
fn blocks(folder: &tempfile::TempDir, count: usize) -> std::path::PathBuf {
    let path = folder.path().join("file");
    fs::write(&path, vec![0; count * SIZE]).expect("a file");
    path
}

#[test]
fn every_packet_is_written_where_it_belongs() {
    let mut cases = vec![("kakehi", "tcp", 1), ("kakehi", "tcp", 4), ("psync", "tcp", 1)];
    match ucx::Worker::probe(&ucx::Config::default()) {
        Ok(()) => cases.push(("kakehi", "ucx", 1)),
        Err(why) => {
            let line = format!("1 SKIPPED: packets over UCX: {why}\n");
            io::stderr().write_all(line.as_bytes()).expect("standard error");
        }
    }
    for (program, transport, clients) in cases {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let path = blocks(&folder, 20);
        let run = run(transport, 15, 8, clients, 20 * SIZE); // Fewer packets than blocks.
        let (mut child, address, mut lines) = server(program, "integrated", &path, &run);
        let sent = client(&address, &run);
        assert!(sent.status.success(), "{program}, over {transport}: {sent:?}");
        let mut line = String::new();
        lines.read_to_string(&mut line).expect("a sample");
        assert!(is_sample(&line), "{line}");
        assert!(child.wait().expect("ends").success());

        let bytes = fs::read(&path).expect("the file");
        let (first, rest) = bytes.split_at(SIZE);
        assert!(first.iter().any(|byte| *byte != 0));
        for (index, block) in rest.chunks(SIZE).enumerate() {
            let expected = if index < 14 { first } else { &[0; SIZE] };
            assert!(block == expected, "{program}, over {transport}, block {}", index + 1);
        }
    }
}

#[test]
fn packets_may_be_received_without_being_written() {
    for (program, part) in [("kakehi", "request"), ("psync", "network")] {
        let run = run("tcp", 1000, 8, 1, SIZE);
        let (_, address, mut lines) = server(program, part, Path::new("/nowhere"), &run);
        assert!(client(&address, &run).status.success());
        let mut line = String::new();
        lines.read_to_string(&mut line).expect("a sample");
        assert!(is_sample(&line), "{line}");
    }
}

#[test]
fn a_client_that_sends_without_credit_is_cut_off() {
    let run = run("tcp", 100, 2, 1, SIZE);
    let (mut child, address, _) = server("kakehi", "request", Path::new("/nowhere"), &run);
    let address = address.strip_prefix("tcp://").expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("not zero");
    let mut credits = [0; 8];
    stream.read_exact(&mut credits).expect("credits");
    assert_eq!(u64::from_le_bytes(credits), 2);
    // As if all hundred were granted. The cut may come before the last is sent.
    for _ in 0..100 {
        if stream.write_all(&[0; 8 + SIZE]).is_err() {
            break;
        }
    }
    let end = stream.read_to_end(&mut Vec::new());
    let timed_out = end.is_err_and(|why| why.kind() == ErrorKind::WouldBlock);
    assert!(!timed_out, "the connection is still there");
    // It waits for packets that do not come.
    kill_process(Pid::from_child(&child), Signal::TERM).expect("not waited for yet");
    child.wait().expect("ends");
}

#[test]
fn a_file_is_read_and_written_by_every_engine() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = blocks(&folder, 16);
    for engine in ["auto", "uring", "threads", "psync"] {
        for (write, random) in [(false, false), (false, true), (true, false), (true, true)] {
            let side = json!({
                "engine": engine, "size": SIZE, "span": 16 * SIZE, "count": 40, "depth": 4,
                "path": path, "write": write, "random": random, "halfway": false, "core": null,
            });
            let output = part(&json!({"file-side": side})).output().expect("starts");
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert!(is_sample(&text(&output.stdout)), "{}", text(&output.stdout));
        }
    }
    assert_eq!(fs::metadata(&path).expect("the file").len(), (16 * SIZE) as u64);
}
