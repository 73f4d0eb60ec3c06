//! The second experiment: what a computation on every core loses to the daemon, and the I/O to it.
//!
//! The computing threads are this program's own. A daemon that is `idle` has been asked for
//! something just before, so that it polls, and does not become quiet while it is watched.
//!
//! Turns are short and many, and a ratio is the median of those of the rounds, with its confidence
//! interval: what else runs on the machine disturbs a single turn by more than the difference
//! looked for.

use std::{
    hint::black_box,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{
    Deadline, Effort, Target,
    fleet::{Disk, Fleet},
    judge::interval,
};
use crate::{report::Report, worker};

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

/// What a turn of the computation has beside it.
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

/// Reports the ratios.
pub(super) fn measure(
    report: &mut Report,
    effort: &Effort,
    end: Deadline,
    target: Target,
    dir: &Path,
) {
    let fleets = Disk::create(dir, 1).and_then(|disk| {
        let start = |policy| Fleet::start(policy, target, &disk, 1);
        Ok((start("park")?, start("poll-idle")?, disk))
    });
    let (park, poll_idle, _disk) = match fleets {
        Ok(fleets) => fleets,
        Err(why) => return skip(report, &format!("{why:#}")),
    };
    let mut fleets = [park, poll_idle];
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for (share, suffix) in SHARES {
        let mut rounds = Vec::new();
        for _ in 0..effort.computations {
            if end.check().is_err() {
                break; // The ratios are of fewer rounds, or say that there was none.
            }
            match round(effort, cores * share, rounds.len(), &mut fleets) {
                Ok(turns) => rounds.push(turns),
                Err(why) => return skip(report, &format!("{why:#}")),
            }
        }
        report_share(report, suffix, &rounds);
    }
}

/// Reports that nothing of this could be measured.
pub(super) fn skip(report: &mut Report, why: &str) {
    for (_, suffix) in SHARES {
        for name in RATIOS {
            report.ratio(format!("{name}{suffix}"), Err(why.to_owned()));
        }
    }
}

fn report_share(report: &mut Report, suffix: &str, rounds: &[Vec<Turn>]) {
    let ratio = |ours: usize, other: usize, value: fn(&Turn) -> f64| {
        let ratios = rounds.iter().filter_map(|turns| {
            let (ours, other) = (turns.get(ours)?, turns.get(other)?);
            Some(value(ours) / value(other))
        });
        interval(ratios.collect()).ok_or_else(|| "no round was run".to_owned())
    };
    // By the places in `TURNS`.
    let [idle, loaded, iops, idle_park, waiting] = RATIOS.map(|name| format!("{name}{suffix}"));
    report.ratio(idle, ratio(1, 0, |turn| turn.speed));
    report.ratio(loaded, ratio(2, 3, |turn| turn.speed));
    report.ratio(iops, ratio(2, 3, |turn| turn.iops));
    report.ratio(idle_park, ratio(4, 0, |turn| turn.speed));
    report.ratio(waiting, ratio(5, 0, |turn| turn.speed));
}

/// Takes all turns once, each time beginning with another one; their results are in the order of
/// [`TURNS`].
fn round(
    effort: &Effort,
    thread_count: usize,
    number: usize,
    fleets: &mut [Fleet; 2],
) -> anyhow::Result<Vec<Turn>> {
    let mut turns: Vec<_> = TURNS.into_iter().enumerate().collect();
    turns.rotate_left(number % TURNS.len());
    let mut results = vec![Turn::default(); TURNS.len()];
    for (index, beside) in turns {
        let result = turn(effort, thread_count, beside, fleets)?;
        if let Some(place) = results.get_mut(index) {
            *place = result;
        }
    }
    Ok(results)
}

fn turn(
    effort: &Effort,
    thread_count: usize,
    beside: Beside,
    fleets: &mut [Fleet; 2],
) -> anyhow::Result<Turn> {
    let time = effort.computation;
    let (mut fleet, is_asked) = match beside {
        Beside::Nobody => (None, false),
        Beside::Idle(index) => (fleets.get_mut(index), false),
        Beside::Loaded(index) | Beside::Waiting(index) => (fleets.get_mut(index), true),
    };
    let mut daemon = fleet.as_mut().map(|fleet| fleet.turn());
    if let Some(daemon) = &mut daemon {
        // It has something to do, and is idle from then on.
        daemon.run(1, 1, Duration::from_millis(2))?;
        if is_asked {
            daemon.begin(DEPTH, time)?;
        }
        if matches!(beside, Beside::Waiting(_)) {
            daemon.pause();
        }
    }
    let speed = compute(thread_count, time);
    let iops = match &mut daemon {
        Some(daemon) if is_asked => {
            daemon.resume();
            daemon.end(time)?.count() as f64 / time.as_secs_f64()
        }
        _ => 0.0,
    };
    Ok(Turn { speed, iops })
}

/// Computes on so many threads, as many on every core; returns their steps a second.
fn compute(thread_count: usize, time: Duration) -> f64 {
    let end = Instant::now() + time;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let steps: u64 = thread::scope(|scope| {
        let run = |index: usize| {
            // Where it cannot be had, turns in which threads share a core are part of the noise.
            worker::pin(Some(index % cores)).ok();
            steps_until(end)
        };
        let threads: Vec<_> =
            (0..thread_count).map(|index| scope.spawn(move || run(index))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    });
    steps as f64 / time.as_secs_f64()
}

fn steps_until(end: Instant) -> u64 {
    let (mut value, mut steps) = (1u64, 0);
    while Instant::now() < end {
        for _ in 0..2000 {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        black_box(value);
        steps += 1;
    }
    steps
}
