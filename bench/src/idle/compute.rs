//! The second experiment: what a computation on every core loses to the daemon, and the I/O to it.
//!
//! The computing threads are this program's own, and compute from before the daemons start: one
//! that polls would be found on a core of its own by a computation that begins, and long stay
//! there. A daemon that is `idle` has been asked for something just before, so that it polls, and
//! does not become quiet while it is watched.
//!
//! Turns are short and many: what else runs on the machine disturbs a single one by more than the
//! difference looked for. An idle daemon's ratio is the median of those of the rounds. A loaded
//! daemon's turn is fast or slow by which processes share a core, so its ratio is that of the sums,
//! and a round has several such turns. Both come with their confidence interval. Daemons are
//! started anew every few rounds, since every start has a speed of its own.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{
    Effort, Target,
    computation::Computation,
    fleet::{Disk, Fleet},
    judge::interval_of_sums,
};
use crate::{
    options::Deadline,
    process::pause,
    report::Report,
    spread::{Spread, interval},
};

/// Writes in flight of the one job that loads a daemon.
const DEPTH: usize = 8;
const RATIOS: [&str; 5] =
    ["compute/idle", "compute/loaded", "iops/loaded", "compute/idle/park", "compute/waiting"];
/// Threads of the computation for each core.
const SHARES: [(usize, &str); 2] = [(1, ""), (2, "/2x")];

/// Operations and steps of one turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Steps of the computation a second.
    speed: f64,
    /// Operations a second.
    iops: f64,
}

/// Load beside a turn of the computation.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nobody,
    Idle(usize),
    Loaded(usize),
    /// A job waits for an answer that does not come.
    Waiting(usize),
}

const PARK: usize = 0;
const POLL_IDLE: usize = 1;
const TURNS: [Beside; 6] = [
    Beside::Nobody,
    Beside::Idle(POLL_IDLE),
    Beside::Loaded(POLL_IDLE),
    Beside::Loaded(PARK),
    Beside::Idle(PARK),
    Beside::Waiting(POLL_IDLE),
];
/// The turns of a round, by their places in [`TURNS`].
const ROUND: [usize; 12] = [0, 2, 3, 1, 3, 2, 4, 2, 3, 5, 3, 2];

/// Reports the ratios.
pub(super) fn measure(
    report: &mut Report,
    effort: &Effort,
    end: Deadline,
    target: Target,
    dir: &Path,
) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for (share, suffix) in wanted(effort) {
        let rounds = Computation::run_beside(cores * share, |computation| {
            rounds(effort, end, target, dir, computation)
        });
        match rounds {
            Ok(rounds) => report_share(report, suffix, &rounds),
            Err(why) => return skip(report, effort, &format!("{why:#}")),
        }
    }
}

/// Reports that nothing of this could be measured.
pub(super) fn skip(report: &mut Report, effort: &Effort, why: &str) {
    for (_, suffix) in wanted(effort) {
        for name in names(suffix) {
            report.ratio(name, Err(why.to_owned()));
        }
    }
}

/// The shares of which any ratio is wanted.
fn wanted(effort: &Effort) -> impl Iterator<Item = (usize, &'static str)> {
    SHARES.into_iter().filter(|(_, suffix)| effort.only.wants(names(suffix)))
}

fn names(suffix: &str) -> [String; RATIOS.len()] {
    RATIOS.map(|name| format!("{name}{suffix}"))
}

fn report_share(report: &mut Report, suffix: &str, rounds: &[[Turn; TURNS.len()]]) {
    type Judge = fn(&[(f64, f64)]) -> Option<Spread>;
    let ratio = |ours: usize, other: usize, value: fn(&Turn) -> f64, judge: Judge| {
        let pairs: Vec<_> = rounds
            .iter()
            .filter_map(|turns| Some((value(turns.get(ours)?), value(turns.get(other)?))))
            .collect();
        judge(&pairs).ok_or_else(|| "too few rounds were run".to_owned())
    };
    let median: Judge = |pairs| interval(pairs.iter().map(|(ours, other)| ours / other).collect());
    // By the places in `TURNS`.
    let [idle, loaded, iops, idle_park, waiting] = names(suffix);
    report.ratio(idle, ratio(1, 0, |turn| turn.speed, median));
    report.ratio(loaded, ratio(2, 3, |turn| turn.speed, interval_of_sums));
    report.ratio(iops, ratio(2, 3, |turn| turn.iops, interval_of_sums));
    report.ratio(idle_park, ratio(4, 0, |turn| turn.speed, median));
    report.ratio(waiting, ratio(5, 0, |turn| turn.speed, median));
}

/// All rounds beside this computation, with fleets that serve a few of them.
fn rounds(
    effort: &Effort,
    end: Deadline,
    target: Target,
    dir: &Path,
    computation: &Computation,
) -> anyhow::Result<Vec<[Turn; TURNS.len()]>> {
    let disk = Disk::create(dir, 1)?;
    let start = |policy| Fleet::start(policy, target, &disk, 1);
    let mut fleets = Vec::new();
    let mut rounds = Vec::new();
    for number in 0..effort.computations {
        if end.is_over() {
            break; // The ratios are of fewer rounds, or say that there was none.
        }
        if number % effort.rounds_of_computation == 0 {
            fleets.clear();
            // Either is as often the first to start.
            if number / effort.rounds_of_computation % 2 == 0 {
                fleets.push(start("park")?);
                fleets.push(start("poll-idle")?);
            } else {
                fleets.push(start("poll-idle")?);
                fleets.insert(PARK, start("park")?);
            }
        }
        rounds.push(round(effort, computation, number, &mut fleets)?);
    }
    Ok(rounds)
}

/// Takes the turns of a round, each time beginning with another one, and every second time in the
/// opposite order; their means are in the order of [`TURNS`].
fn round(
    effort: &Effort,
    computation: &Computation,
    number: usize,
    fleets: &mut [Fleet],
) -> anyhow::Result<[Turn; TURNS.len()]> {
    let mut order = ROUND;
    order.rotate_left(number % ROUND.len());
    if number % 2 == 1 {
        order.reverse();
    }
    let mut means = [Turn::default(); TURNS.len()];
    for index in order {
        let (Some(beside), Some(mean)) = (TURNS.get(index), means.get_mut(index)) else { continue };
        let count = ROUND.iter().filter(|other| **other == index).count() as f64;
        let turn = turn(effort, computation, *beside, fleets)?;
        mean.speed += turn.speed / count;
        mean.iops += turn.iops / count;
    }
    Ok(means)
}

fn turn(
    effort: &Effort,
    computation: &Computation,
    beside: Beside,
    fleets: &mut [Fleet],
) -> anyhow::Result<Turn> {
    let time = effort.computation;
    let (fleet, is_asked) = match beside {
        Beside::Nobody => (None, false),
        Beside::Idle(index) => (fleets.get_mut(index), false),
        Beside::Loaded(index) | Beside::Waiting(index) => (fleets.get_mut(index), true),
    };
    let mut daemon = fleet.map(Fleet::turn);
    if let Some(daemon) = &mut daemon {
        // It has something to do, and is idle from then on.
        daemon.run(1, 1, Duration::from_millis(2))?;
    }
    let (start, steps) = (Instant::now(), computation.steps());
    if let Some(daemon) = &mut daemon {
        if is_asked {
            daemon.begin(DEPTH, time)?;
        }
        if matches!(beside, Beside::Waiting(_)) {
            daemon.pause();
        }
    }
    pause(time)?;
    let speed = (computation.steps() - steps) as f64 / start.elapsed().as_secs_f64();
    let iops = match &mut daemon {
        Some(daemon) if is_asked => {
            daemon.resume();
            daemon.end(time)?.count() as f64 / time.as_secs_f64()
        }
        _ => 0.0,
    };
    Ok(Turn { speed, iops })
}
