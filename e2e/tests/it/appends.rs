//! Logs that several processes append to, under every policy: what one call appends is one piece.

use std::{fs, path::Path, process::Command};

use crate::{
    harness::{Folder, kakehi_run, program, run, text},
    remote::{
        LONG, local,
        server::{Scheme, Server},
    },
};

const COUNT: usize = 1500;
/// Bytes of a line: what crosses to a server by one request, and what is written by one call.
const LEN_MAX: (usize, usize) = (64 << 10, 200_000);

/// A command with processes of these names, which all append to `log`.
fn append_to<'a>(
    log: &Path,
    command: &'a mut Command,
    names: &str,
    len_max: usize,
) -> &'a mut Command {
    const SCRIPT: &str = "for name in $4; do \"$0\" \"$1\" $name $2 $3 & all=\"$all $!\"; done; \
        for one in $all; do wait $one || exit 1; done";
    command.args(["sh", "-c", SCRIPT]).arg(program("lines")).arg(log);
    command.args([&COUNT.to_string(), &len_max.to_string(), names])
}

#[track_caller]
fn ends_well(command: &mut Command) {
    let output = run(command, LONG);
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
}

/// Checks that every line of every process is there, whole, and in the process's order.
#[track_caller]
fn check(log: &Path, names: &str) {
    let found = fs::read_to_string(log).expect("the log");
    let mut next: Vec<(&str, usize)> = names.split(' ').map(|name| (name, 0)).collect();
    for (number, line) in found.lines().enumerate() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let begin = &line[..line.len().min(40)];
        assert!(words.len() == 4, "line {number} is torn: {begin}");
        assert_eq!(words[2], (line.len() + 1).to_string(), "line {number} is torn: {begin}");
        assert!(words[3].bytes().all(|byte| Some(byte) == words[0].bytes().next()), "{begin}");
        let process = next.iter_mut().find(|(name, _)| *name == words[0]).expect("a process");
        assert_eq!(words[1], process.1.to_string(), "line {number} of the file: {begin}");
        process.1 += 1;
    }
    assert!(next.iter().all(|(_, count)| *count == COUNT), "{next:?}");
}

fn lines_of_one_job_are_whole(flags: &[&str]) {
    let folder = Folder::new();
    let log = folder.join("log");
    ends_well(append_to(&log, &mut kakehi_run(&folder, flags), "a b c", LEN_MAX.1));
    check(&log, "a b c");
}

#[test]
fn lines_that_processes_append_under_hybrid_are_whole() {
    lines_of_one_job_are_whole(&[]);
}

#[test]
fn lines_that_processes_append_under_delegate_are_whole() {
    lines_of_one_job_are_whole(&["--rule", "**/log=delegate"]);
}

/// Other appenders may be undelegated, or in another job.
#[test]
fn lines_that_others_append_meanwhile_part_none() {
    let folder = Folder::new();
    let log = folder.join("log");
    let others = ["d e", "f g"].map(|names| {
        let mut command =
            if names == "d e" { Command::new("env") } else { kakehi_run(&folder, &[]) };
        append_to(&log, command.env("KAKEHI_JOB", "other"), names, LEN_MAX.1);
        std::thread::spawn(move || ends_well(&mut command))
    });
    ends_well(append_to(
        &log,
        &mut kakehi_run(&folder, &["--rule", "**/log=delegate"]),
        "a b",
        LEN_MAX.1,
    ));
    others.into_iter().for_each(|other| other.join().expect("it appends, too"));
    check(&log, "a b d e f g");
}

#[test]
fn lines_that_two_nodes_append_to_a_remote_log_are_whole() {
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let log = local(&folder).join("log");
    let nodes = ["a b", "c d"].map(|names| {
        let mut command = server.run(&folder);
        append_to(&log, command.env("KAKEHI_JOB", &names[..1]), names, LEN_MAX.0);
        std::thread::spawn(move || ends_well(&mut command))
    });
    nodes.into_iter().for_each(|node| node.join().expect("it appends, too"));
    check(&server.job().join("log"), "a b c d");
    server.end();
}

/// Each by one call, and more of them than most calls have.
#[test]
fn pieces_that_two_processes_append_stay_together() {
    const PIECES: [usize; 2] = [100, 50];
    let folder = Folder::new();
    let log = folder.join("log");
    let [count, len] = PIECES.map(|number| number.to_string());
    let mut pieces = kakehi_run(&folder, &[]);
    ends_well(pieces.arg(program("pieces")).arg(&log).args(["2000", &count, &len]));
    let found = fs::read(&log).expect("the log");
    let torn = found.chunk_by(|one, next| one == next).filter(|run| run.len() % 5000 != 0).count();
    assert_eq!((found.len(), torn), (20_000_000, 0));
}

#[test]
fn what_a_program_appends_and_what_the_shell_appends_of_it_alternate() {
    let folder = Folder::new();
    let log = folder.join("log");
    let mut command = kakehi_run(&folder, &[]);
    command.args(["sh", "-c", "\"$0\" \"$1\" 5 >>\"$1\""]).arg(program("output")).arg(&log);
    ends_well(&mut command);
    let expected: String = (0..5).map(|i| format!("file {i}\noutput {i}\n")).collect();
    assert_eq!(fs::read_to_string(&log).expect("the log"), expected);
}
