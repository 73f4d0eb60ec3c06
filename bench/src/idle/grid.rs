//! The first experiment: every cell of the grid under every policy.

use std::{path::Path, time::Duration};

use super::{
    Deadline, Effort, Target,
    fleet::{Disk, Fleet},
    histogram::Histogram,
    judge,
    storm::RAMP,
};

/// The policies, in the order they take turns.
pub(super) const POLICIES: [&str; 4] = ["interrupt", "park", "poll-idle", "spin"];
pub(super) const INTERRUPT: usize = 0;
pub(super) const PARK: usize = 1;
pub(super) const POLL_IDLE: usize = 2;

/// What was measured.
pub(super) struct Grid {
    pub(super) cells: Vec<Cell>,
    /// Once more, those of which the peaks and the scaling are taken.
    pub(super) finals: Vec<Cell>,
}

/// A job count and a depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) jobs: usize,
    pub(super) depth: usize,
}

/// What was measured in one cell: for every policy its rounds, or why there are none.
pub(super) struct Cell {
    pub(super) place: Place,
    pub(super) rounds: [Result<Vec<Round>, String>; POLICIES.len()],
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
    /// The rounds of one policy.
    pub(super) fn of(&self, policy: usize) -> Result<&[Round], String> {
        let rounds = self.rounds.get(policy).ok_or_else(String::new)?;
        rounds.as_deref().map_err(String::clone)
    }
}

impl Effort {
    /// How long a policy is measured in a round of this cell.
    fn turn_of(&self, place: Place) -> Duration {
        let in_flight = u32::try_from(place.jobs * place.depth).unwrap_or(u32::MAX);
        self.turn + self.turn * in_flight / 1024
    }
}

/// The places of the grid, by rows of one job count.
pub(super) fn places(effort: &Effort) -> impl Iterator<Item = Place> {
    let [jobs, depths] = &effort.steps;
    jobs.iter().flat_map(move |&jobs| depths.iter().map(move |&depth| Place { jobs, depth }))
}

/// Measures the grid, on files in `dir`.
pub(super) fn measure(
    effort: &Effort,
    end: Deadline,
    target: Target,
    dir: &Path,
) -> anyhow::Result<Grid> {
    let job_count = places(effort).map(|place| place.jobs).max().unwrap_or(1);
    let disk = Disk::create(dir, job_count)?;
    let mut fleets = POLICIES.map(|policy| {
        let fleet = Fleet::start(policy, target, &disk, job_count);
        fleet.map_err(|why| format!("{policy}: {why:#}"))
    });
    let cells = places(effort).map(|place| match end.check() {
        Ok(()) => measure_cell(effort, place, &mut fleets),
        Err(why) => Cell { place, rounds: [(); POLICIES.len()].map(|()| Err(why.clone())) },
    });
    let cells: Vec<_> = cells.collect();
    let finals = judge::finalists(effort, &cells).into_iter();
    let finals = finals.map(|place| measure_cell(effort, place, &mut fleets)).collect();
    Ok(Grid { cells, finals })
}

fn measure_cell(
    effort: &Effort,
    place: Place,
    fleets: &mut [Result<Fleet, String>; POLICIES.len()],
) -> Cell {
    let mut rounds = [const { Ok(Vec::new()) }; POLICIES.len()];
    for round in 0..effort.rounds {
        // Nobody is always the one that comes after the same other.
        let order = (0..POLICIES.len()).map(|index| (index + round) % POLICIES.len());
        for policy in order {
            let (Some(fleet), Some(rounds)) = (fleets.get_mut(policy), rounds.get_mut(policy))
            else {
                continue;
            };
            let measured = match fleet {
                Ok(fleet) => fleet.turn().run(place.jobs, place.depth, effort.turn_of(place)),
                Err(why) => Err(anyhow::anyhow!("{why}")),
            };
            let measured = measured.map_err(|why| format!("{why:#}"));
            match (measured.and_then(|all| Round::of(effort.turn_of(place), &all)), &mut *rounds) {
                (Ok(one), Ok(list)) => list.push(one),
                (Err(why), Ok(_)) => {
                    // A job that died or hangs is not asked again.
                    *fleet = Err(why.clone());
                    *rounds = Err(why);
                }
                (_, Err(_)) => {}
            }
        }
    }
    Cell { place, rounds }
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
