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

use crate::{bench, text};

const SIZE: usize = 8192;

fn words(transport: &str, count: usize, depth: usize, clients: usize, span: usize) -> Vec<String> {
    let [size, count, depth, clients, span] =
        [SIZE, count, depth, clients, span].map(|number| number.to_string());
    let words = ["--size", &size, "--count", &count, "--depth", &depth];
    let words = words.into_iter().chain(["--clients", &clients, "--span", &span]);
    words.chain(["--transport", transport]).map(str::to_owned).collect()
}

/// A server that ends in time, its first line, and what follows.
fn server(
    program: &str,
    part: &str,
    path: &Path,
    words: &[String],
) -> (Child, String, BufReader<ChildStdout>) {
    let mut command = Command::new("timeout");
    command.args(["300", env!("CARGO_BIN_EXE_kakehi-bench")]);
    command.args(["rpc-server", "--program", program, "--part", part]).arg("--path").arg(path);
    let mut child = command.args(words).stdout(Stdio::piped()).spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut address = String::new();
    lines.read_line(&mut address).expect("a line");
    (child, address.trim_end().to_owned(), lines)
}

fn client(address: &str, words: &[String]) -> Output {
    let mut command: Command = bench();
    command.args(["rpc-client", "--address", address]).args(words).output().expect("starts")
}

fn is_sample(line: &str) -> bool {
    let numbers: Result<Vec<u64>, _> = line.trim_end().split(' ').map(str::parse).collect();
    numbers.is_ok_and(|numbers| numbers.len() == 6 && numbers.first() > Some(&0))
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
        let words = words(transport, 15, 8, clients, 20 * SIZE); // Fewer packets than blocks.
        let (mut child, address, mut lines) = server(program, "integrated", &path, &words);
        let sent = client(&address, &words);
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
        let words = words("tcp", 1000, 8, 1, SIZE);
        let (_, address, mut lines) = server(program, part, Path::new("/nowhere"), &words);
        assert!(client(&address, &words).status.success());
        let mut line = String::new();
        lines.read_to_string(&mut line).expect("a sample");
        assert!(is_sample(&line), "{line}");
    }
}

#[test]
fn a_client_that_sends_without_credit_is_cut_off() {
    let words = words("tcp", 100, 2, 1, SIZE);
    let (mut child, address, _) = server("kakehi", "request", Path::new("/nowhere"), &words);
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
    let (size, span) = (SIZE.to_string(), (16 * SIZE).to_string());
    for engine in ["auto", "uring", "threads", "psync"] {
        for flags in [&[][..], &["--random"], &["--write"], &["--write", "--random"]] {
            let mut command = bench();
            command.args(["file-side", "--engine", engine, "--size", &size, "--span", &span]);
            command.args(["--count", "40", "--depth", "4", "--path"]).arg(&path).args(flags);
            let output = command.output().expect("starts");
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert!(is_sample(&text(&output.stdout)), "{}", text(&output.stdout));
        }
    }
    assert_eq!(fs::metadata(&path).expect("the file").len(), (16 * SIZE) as u64);
}
