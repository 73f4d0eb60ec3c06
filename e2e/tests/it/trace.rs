//! `kakehi run --trace`: the steps of requests and staged writes, as JSON.

use std::{fs, process::Command};

use crate::harness::{Folder, SOON, kakehi, kakehi_run, run, succeed, text};

/// Writes 4,000 pieces of 100 bytes to a file, and reads it.
const PROGRAM: &str = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for i in range(4000):
    os.write(fd, b'x' * 100)
    i % 500 or os.pread(fd, 100, i * 50)
os.close(fd)
";

/// Python's reading of a trace: names of calls with their numbers, once each call's times are found
/// in order and its slices within it.
const CHECK: &str = "
import collections, json, sys
trace = json.load(open(sys.argv[1]))
slices = [it for it in trace['traceEvents'] if it['ph'] == 'X']
calls = [it for it in slices if 'args' in it]
for call in calls:
    times = call['args']
    order = [times[it] for it in ('accepted', 'rung', 'taken', 'issued', 'completed')]
    assert order == sorted(order), order
    assert times.get('answered', order[-1]) >= order[-1], times
rows = collections.defaultdict(list)
for call in calls:
    rows[call['pid'], call['tid']].append((call['ts'], call['ts'] + call['dur']))
for row in rows.values():
    row.sort()
    assert all(one[1] <= other[0] + .001 for one, other in zip(row, row[1:])), row
steps = {'accept', 'wait', 'prepare', 'perform'}
assert {it['name'] for it in slices if 'args' not in it} == steps
names = collections.Counter(call['name'] for call in calls)
for name, number in names.items():
    mean = trace['otherData']['mean_ns'][name]
    assert mean['count'] == number and steps < set(mean), mean
print(dict(names))
";

/// The numbers of calls in the trace of a job with this policy, and what the run said.
fn traced(policy: &str) -> (serde_json::Value, String) {
    let folder = Folder::new();
    let (path, file) = (folder.join("trace.json"), folder.join("file"));
    let rule = format!("{}/**={policy}", folder.path().display());
    let shown = path.to_string_lossy();
    let mut command = kakehi_run(&folder, &["--rule", &rule, "--trace", &shown]);
    let ended = run(command.args(["python3", "-c", PROGRAM]).arg(file), SOON);
    assert!(ended.status.success(), "{ended:?}");
    let mut check = Command::new("python3");
    let names = succeed(check.args(["-c", CHECK]).arg(path), SOON);
    let names = serde_json::from_str(&names.replace('\'', "\"")).expect("a dict of numbers");
    (names, text(&ended.stderr))
}

/// The row of a call in the table that a run with a trace ends with: the mean time of each step, of
/// the way back, and of all, us.
fn steps(said: &str, name: &str) -> [Option<f64>; 6] {
    let heads = "call calls accept wait prepare perform answer total";
    let is_head = |line: &&str| line.split_whitespace().skip(1).eq(heads.split(' '));
    assert!(said.lines().any(|line| is_head(&line)), "{said}");
    let row = said.lines().find_map(|line| line.strip_prefix(&format!("kakehi: {name} ")));
    let row = row.unwrap_or_else(|| panic!("no {name}: {said}"));
    let times: Vec<_> = row.split_whitespace().skip(1).map(|time| time.parse().ok()).collect();
    times.try_into().unwrap_or_else(|_| panic!("not six times: {said}"))
}

#[test]
fn trace_shows_staged_writes_until_their_process_has_drained_them() {
    let (names, said) = traced("hybrid");
    assert!(names["staged write"].as_u64() > Some(50), "{names}");
    let steps = steps(&said, "staged write");
    assert!(steps[4].is_none() && steps[5] > Some(0.0), "{said}");
}

#[test]
fn trace_shows_requests_over_lanes_and_what_the_daemon_drained() {
    let (names, said) = traced("delegate");
    for name in ["staged write", "open", "read", "close"] {
        assert!(names[name].as_u64() > Some(0), "{name}: {names}");
    }
    // What the kernel does is one step; what delegation adds is the others.
    let [accept, wait, prepare, perform, answer, total] = steps(&said, "read")
        .map(|step| step.unwrap_or_else(|| panic!("a read has all steps: {said}")));
    let sum = accept + wait + prepare + perform + answer;
    assert!(total > 0.0 && (total - sum).abs() <= 0.07 + total * 1e-3, "{said}");
}

#[test]
fn trace_of_the_first_run_has_the_processes_of_those_that_joined() {
    let folder = Folder::new();
    let each = format!("{} run --trace $1.json -- python3 -c \"$2\" $1.out", kakehi().display());
    let all = "for name in one two; do sh -c \"$0\" x $name \"$1\"; done";
    let mut command = kakehi_run(&folder, &["--trace", "first.json"]);
    command.env("KAKEHI_JOB", "traced").current_dir(folder.path());
    succeed(command.args(["sh", "-c", all, &each, PROGRAM]), SOON);
    let trace = fs::read_to_string(folder.join("first.json")).expect("a trace");
    let trace: serde_json::Value = serde_json::from_str(&trace).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let named = events.iter().filter(|event| event["name"] == "process_name");
    assert_eq!(named.count(), 2, "{events:?}");
    assert!(!folder.join("one.json").exists(), "left empty");
}

/// Both are drawn from the same records.
#[test]
fn run_with_a_trace_and_a_report_writes_both_in_full() {
    let folder = Folder::new();
    let mut command = kakehi_run(&folder, &["--trace", "trace.json", "--report", "report.html"]);
    command.current_dir(folder.path()).args(["python3", "-c", PROGRAM, "written"]);
    let said = run(&mut command, SOON);
    assert!(said.status.success(), "{said:?}");
    assert!(steps(&text(&said.stderr), "staged write")[0] > Some(0.0));
    let page = fs::read_to_string(folder.join("report.html")).expect("a page");
    for part in ["Ranks and processes", "/written</td>", "Writes: 40"] {
        assert!(page.contains(part), "{part}: {page}");
    }
}
