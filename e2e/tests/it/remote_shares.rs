//! Shares of many clients at one server. A measurement: for a machine that does nothing else.
//!
//! The server has a core of its own, and all its clients share another: else the kernel decides who
//! gets more, by moving some of the clients' processes to where fewer are. Over 16 nodes on the
//! server's core and one more, the largest share was 1.08 to 1.27 times the smallest; with the
//! server on a core of its own 1.02 to 1.07.

use std::{process::Command, thread, time::Duration};

use rustix::{
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

use crate::{
    harness::{Folder, note, program, run, skip, text},
    remote::{
        LONG, local,
        server::{Scheme, Server},
    },
};

const RANKS: usize = 16;
/// The largest share over the smallest.
const RATIO_MAX: f64 = 1.25;
/// Until all have started.
const START: Duration = Duration::from_secs(8);
const SECONDS: u64 = 5;
const ROUNDS: usize = 3;

#[test]
#[ignore = "measures for a minute, on an idle machine"]
fn sixteen_nodes_get_equal_shares_of_a_server() {
    let Some(cores) = Cores::find() else { return };
    let folder = Folder::alone();
    let server = cores.apart(|| Server::start(&folder, Scheme::Tcp));
    let ratio = median_ratio("16 daemons of one process", || {
        let start = starting_at();
        let ranks = (0..RANKS).map(|rank| {
            let mut command = server.run(&folder);
            command.env("KAKEHI_JOB", format!("node{rank}"));
            rank_of(&mut command, &folder, rank, start);
            thread::spawn(move || run(&mut command, LONG))
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().expect("it ran")).collect()
    });
    server.end();
    assert!(ratio <= RATIO_MAX, "{ratio:.2}");
}

#[test]
#[ignore = "measures for a minute, on an idle machine"]
fn sixteen_ranks_of_a_node_get_equal_shares_of_a_server() {
    let Some(cores) = Cores::find() else { return };
    let folder = Folder::alone();
    let server = cores.apart(|| Server::start(&folder, Scheme::Tcp));
    let ratio = median_ratio("one daemon of 16 processes", || {
        let mut command = server.run(&folder);
        let ior = program("ior").display().to_string();
        let (file, start) = (local(&folder).join("shared").display().to_string(), starting_at());
        let ranks = (0..RANKS).map(|rank| format!("{ior} {file} {rank} {RANKS} {start} {SECONDS}"));
        let script = ranks.collect::<Vec<_>>().join(" & ") + " & wait";
        command.env("KAKEHI_SYNC", "1").args(["sh", "-c", &script]);
        vec![run(&mut command, LONG)]
    });
    server.end();
    assert!(ratio <= RATIO_MAX, "{ratio:.2}");
}

/// Two cores of this machine; what this thread starts runs on the second.
struct Cores {
    first: usize,
    second: usize,
    all: CpuSet,
}

impl Cores {
    /// `None`, said, where there is only one.
    fn find() -> Option<Self> {
        let all = sched_getaffinity(None).expect("cores");
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
        let (Some(first), Some(second)) = (cores.next(), cores.next()) else {
            skip("shares of a server", "one core only");
            return None;
        };
        let cores = Self { first, second, all };
        run_on(cores.second);
        Some(cores)
    }

    /// Has what is started in `start` run on the first.
    fn apart<T>(&self, start: impl FnOnce() -> T) -> T {
        run_on(self.first);
        let started = start();
        run_on(self.second);
        started
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        sched_setaffinity(None, &self.all).expect("as before");
    }
}

fn run_on(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).expect("one of those that were allowed");
}

fn rank_of(command: &mut Command, folder: &Folder, rank: usize, start: u64) {
    command.env("KAKEHI_SYNC", "1").arg(program("ior")).arg(local(folder).join("shared"));
    command.args([rank.to_string(), RANKS.to_string(), start.to_string(), SECONDS.to_string()]);
}

/// On the clock that never goes back, nanoseconds.
fn starting_at() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let now = Duration::new(now.tv_sec.unsigned_abs(), 0) + START;
    u64::try_from(now.as_nanos()).expect("a machine that was started this century")
}

/// The middle one of some rounds' ratios of the largest share to the smallest.
#[track_caller]
fn median_ratio(what: &str, mut round: impl FnMut() -> Vec<std::process::Output>) -> f64 {
    let mut ratios: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let outputs = round();
            let said = |output: &std::process::Output| text(&output.stdout) + &text(&output.stderr);
            let numbers = outputs.iter().flat_map(|output| {
                let lines: Vec<_> = said(output).lines().map(|line| line.parse().ok()).collect();
                lines.into_iter().flatten()
            });
            let shares: Vec<u32> =
                numbers.map(|bytes: u64| u32::try_from(bytes >> 16).expect("fits")).collect();
            assert_eq!(shares.len(), RANKS, "{:?}", outputs.iter().map(said).collect::<Vec<_>>());
            let (min, max) = (shares.iter().min().expect("16"), shares.iter().max().expect("16"));
            f64::from(*max) / f64::from((*min).max(1))
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    note(format_args!("{what}: largest share over smallest, {ROUNDS} rounds: {ratios:.3?}"));
    ratios[ROUNDS / 2]
}
