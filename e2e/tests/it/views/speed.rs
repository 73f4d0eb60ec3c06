//! Bytes through a view alone, beside a passthrough file system in user space on the same disk.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use super::{coalescing, is_mounted, needs_view, strange};
use crate::{
    harness::{Folder, Running, SOON, kakehi, note, program, skip, succeed, wait_for},
    remote::{LONG, local},
};

const ROUNDS: usize = 9;
/// MiB of the large file, and files of 4 KiB.
const AMOUNTS: [&str; 2] = ["128", "1000"];
/// How fast a view is to be, by the passthrough's speed, in parts of what the program does.
const LEAST: [(&str, &[&str], f64); 3] = [
    ("write by 1 MiB", &["write"], 0.8),
    ("read by 1 MiB", &["read"], 0.8),
    ("files of 4 KiB, made and read", &["make", "open"], 1.0),
];

/// Seconds of each part of `moved`, over all rounds.
type Times = BTreeMap<String, Vec<f64>>;

fn add(times: &mut Times, said: &str) {
    for line in said.lines() {
        let (part, seconds) = line.split_once(' ').expect("a part and its time");
        times.entry(part.to_owned()).or_default().push(seconds.parse().expect("seconds"));
    }
}

/// The median of what these parts took together.
fn median(times: &Times, parts: &[&str]) -> f64 {
    let sum = |round: usize| parts.iter().map(|part| times[*part][round]).sum();
    let mut sums: Vec<f64> = (0..ROUNDS).map(sum).collect();
    sums.sort_by(f64::total_cmp);
    sums[ROUNDS / 2]
}

/// Both keep names and attributes for no time, check modes in the kernel, and have one thread.
#[test]
#[ignore = "for a quiet machine: for `make soak`"]
fn view_is_as_fast_as_a_passthrough() {
    needs_view!();
    let slowfs = kakehi().with_file_name("slowfs");
    if !slowfs.exists() || Command::new("fusermount3").arg("-V").output().is_err() {
        return skip("the speed of a view", "no slowfs ('make build'), or no fusermount3");
    }
    let folder = Folder::new();
    let (source, mounted, moved) = (folder.join("source"), folder.join("mnt"), program("moved"));
    for path in [&source, &mounted] {
        fs::create_dir(path).expect("a folder");
    }
    let mut passthrough = Command::new(slowfs);
    passthrough.args(["--servers", "1", "--keep", "0us"]).args([&source, &mounted]);
    let mut passthrough = Running::start(passthrough.stdout(Stdio::null()));
    assert!(wait_for(SOON, || is_mounted(&mounted)), "slowfs");
    let (mut beside, mut viewed) = (Times::new(), Times::new());
    let run = |command: &mut Command, at: &Path| succeed(command.arg(at).args(AMOUNTS), LONG);
    for _ in 0..ROUNDS {
        add(&mut beside, &run(&mut Command::new(&moved), &mounted));
        let mut command = coalescing(&folder, "always");
        add(&mut viewed, &run(strange(&mut command).arg(&moved), &local(&folder)));
    }
    succeed(Command::new("fusermount3").arg("-u").arg(&mounted), SOON);
    passthrough.wait(SOON);
    let mut slow = Vec::new();
    for (what, parts, least) in LEAST {
        let (one, other) = (median(&beside, parts), median(&viewed, parts));
        let gain = one / other;
        let [one, other] = [one, other].map(|seconds| seconds * 1e3);
        note(format_args!("{what}: passthrough {one:.0} ms, view {other:.0} ms, {gain:.2}x"));
        if gain < least {
            slow.push(what);
        }
    }
    assert!(slow.is_empty(), "slower than it is to be: {slow:?}");
}
