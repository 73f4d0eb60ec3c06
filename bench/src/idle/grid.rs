//! The first experiment: every cell of the grid under every policy.

use std::{path::Path, time::Duration};

use super::{
    Effort, Target,
    fleet::{Disk, Fleet},
    histogram::Histogram,
    judge,
    storm::RAMP,
};
use crate::{
    options::Deadline,
    rounds::{Rounds, push},
};

/// The policies, in the order they take turns.
pub(super) const POLICIES: [&str; 4] = ["interrupt", "park", "poll-idle", "spin"];
pub(super) const INTERRUPT: usize = 0;
pub(super) const PARK: usize = 1;
pub(super) const POLL_IDLE: usize = 2;

/// All measurements.
pub(super) struct Grid {
    pub(super) cells: Vec<Cell>,
    /// Once more, those of which the peaks and the scaling are taken.
    pub(super) finals: Vec<Cell>,
}

/// A job count and a depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GridPoint {
    pub(super) jobs: usize,
    pub(super) depth: usize,
}

/// Measurements of one cell: for every policy its rounds, or why there are none.
pub(super) struct Cell {
    pub(super) point: GridPoint,
    pub(super) rounds: [Rounds<Round>; POLICIES.len()],
}

/// One policy's turn in one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// Operations a second, of all jobs together.
    pub(super) iops: f64,
    /// Latencies, ns.
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
}

impl Cell {
    /// A cell of which nothing was measured yet.
    pub(super) fn new(point: GridPoint) -> Self {
        Self { point, rounds: [const { Ok(Vec::new()) }; POLICIES.len()] }
    }

    /// The rounds of one policy.
    pub(super) fn of(&self, policy: usize) -> Result<&[Round], String> {
        let rounds = self.rounds.get(policy).ok_or_else(String::new)?;
        rounds.as_deref().map_err(String::clone)
    }

    /// Says why there are no rounds, if there are none.
    fn skip(&mut self, why: &str) {
        for rounds in &mut self.rounds {
            if rounds.as_ref().is_ok_and(Vec::is_empty) {
                *rounds = Err(why.to_owned());
            }
        }
    }

    /// A policy's turn.
    fn measure(
        &mut self,
        effort: &Effort,
        policy: usize,
        fleets: &mut [Result<Fleet, String>; POLICIES.len()],
    ) {
        let (Some(fleet), Some(rounds)) = (fleets.get_mut(policy), self.rounds.get_mut(policy))
        else {
            return;
        };
        let turn = effort.turn_of(self.point);
        push(rounds, || {
            let running = fleet.as_mut().map_err(|why| why.clone())?;
            let all = running.turn().run(self.point.jobs, self.point.depth, turn);
            let round = all.map_err(|why| format!("{why:#}")).and_then(|all| Round::of(turn, &all));
            // A job that died or hangs is not asked again.
            round.inspect_err(|why| *fleet = Err(why.clone()))
        });
    }
}

impl Effort {
    /// The same time in twice the rounds.
    fn of_finals(&self) -> Self {
        Self { rounds: 2 * self.rounds, turn: self.turn / 2, ..self.clone() }
    }

    /// How long a policy is measured in a round of this cell.
    fn turn_of(&self, point: GridPoint) -> Duration {
        let in_flight = u32::try_from(point.jobs * point.depth).unwrap_or(u32::MAX);
        self.turn + self.turn * in_flight / 1024
    }
}

/// The points of the grid, by rows of one job count.
pub(super) fn points(effort: &Effort) -> impl Iterator<Item = GridPoint> {
    let [jobs, depths] = &effort.steps;
    jobs.iter().flat_map(move |&jobs| depths.iter().map(move |&depth| GridPoint { jobs, depth }))
}

/// Those that are measured: the `whole` grid, or the cells that are asked for.
pub(super) fn wanted(effort: &Effort, is_whole: bool) -> impl Iterator<Item = GridPoint> {
    points(effort).filter(move |point| is_whole || judge::wants(&effort.only, *point))
}

/// Measures the grid, on files in `dir`: all of it, and what is best once more, or some cells.
pub(super) fn measure(
    effort: &Effort,
    is_whole: bool,
    end: Deadline,
    target: Target,
    dir: &Path,
) -> anyhow::Result<Grid> {
    let job_count = wanted(effort, is_whole).map(|point| point.jobs).max().unwrap_or(1);
    let disk = Disk::create(dir, job_count)?;
    let start = |policy: &str| {
        let fleet = Fleet::start(policy, target, &disk, job_count);
        fleet.map_err(|why| format!("{policy}: {why:#}"))
    };
    let mut cells: Vec<_> = wanted(effort, is_whole).map(Cell::new).collect();
    measure_cells(effort, end, &mut cells, start);
    let finals = is_whole.then(|| judge::finalists(effort, &cells)).into_iter().flatten();
    let mut finals: Vec<_> = finals.map(Cell::new).collect();
    measure_cells(&effort.of_finals(), Deadline::default(), &mut finals, start);
    Ok(Grid { cells, finals })
}

/// Measures all of these cells once a round, with fleets that serve as many rounds as they may.
fn measure_cells(
    effort: &Effort,
    end: Deadline,
    cells: &mut [Cell],
    start: impl Fn(&str) -> Result<Fleet, String>,
) {
    let none = || [const { Err(String::new()) }; POLICIES.len()];
    let mut fleets = none();
    for round in 0..effort.rounds {
        if let Err(why) = end.check() {
            cells.iter_mut().for_each(|cell| cell.skip(&why));
            return;
        }
        // Nobody is always the one that comes after the same other.
        let order = (0..POLICIES.len()).map(|index| (index + round) % POLICIES.len());
        if round % effort.rounds_of_fleets == 0 {
            fleets = none();
            for policy in order.clone() {
                if let (Some(fleet), Some(name)) = (fleets.get_mut(policy), POLICIES.get(policy)) {
                    *fleet = start(name);
                }
            }
        }
        for cell in &mut *cells {
            for policy in order.clone() {
                cell.measure(effort, policy, &mut fleets);
            }
        }
    }
}

impl Round {
    fn of(turn: Duration, all: &Histogram) -> Result<Self, String> {
        let none = || "no operation was completed".to_owned();
        Ok(Self {
            iops: all.count() as f64 / (turn - turn / RAMP).as_secs_f64(),
            mean: all.mean().ok_or_else(none)?,
            p50: all.quantile(0.5).ok_or_else(none)?,
            p99: all.quantile(0.99).ok_or_else(none)?,
        })
    }
}
