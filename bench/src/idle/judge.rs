//! What the grid says: rows of every cell, and the rows and ratios that have targets.
//!
//! # When a cell is below
//!
//! The ratios of a cell's rounds are sorted. Whatever their distribution, the interval from the
//! n-th smallest to the n-th largest holds the median with a probability that follows from the
//! number of rounds alone; n is the largest for which that is at least 95 %. A cell is below when
//! this interval is. Of many cells with no difference at all, one in forty or fewer is still found
//! below by chance.

use std::path::Path;

use super::{
    Effort,
    grid::{Cell, INTERRUPT, PARK, POLICIES, POLL_IDLE, Place, Round, places},
    native,
};
use crate::{report::Report, spread::Spread};

const CONFIDENCE: f64 = 0.95;
/// What `skip` and `report` say besides the cells.
const RATIOS: [&str; 6] = [
    "iops/max_cell",
    "iops/peak",
    "iops/peak/park",
    "scaling/max_cell",
    "scaling/native",
    "scaling/max_cell/native",
];
const ROWS: [&str; 3] = ["latency_cut/max_cell", "cells/below/interrupt", "cells/below/park"];

/// Reports the grid.
pub(super) fn report(report: &mut Report, effort: &Effort, grid: &[Cell]) {
    for cell in grid {
        report_cell(report, cell);
    }
    let against = |other| Against { grid, other };
    let (interrupt, park) = (against(INTERRUPT), against(PARK));
    report.ratio("iops/max_cell", interrupt.best(|round| round.iops));
    report.ratio("iops/peak", interrupt.peak());
    report.ratio("iops/peak/park", park.peak());
    report.ratio("scaling/max_cell", scaling(effort, grid));
    // Of latencies the inverse is the ratio, the other's by ours.
    let cut = interrupt.best(|round| 1.0 / round.mean).map(|ratio| {
        let cut = |ratio: f64| 1.0 - 1.0 / ratio;
        Spread { median: cut(ratio.median), min: cut(ratio.min), max: cut(ratio.max) }
    });
    report.row("latency_cut/max_cell", "fraction", cut);
    report.row("cells/below/interrupt", "cells", interrupt.cells_below());
    report.row("cells/below/park", "cells", park.cells_below());
}

/// Reports what of `scaling/max_cell` is the machine's: what the cores without a daemon scale to,
/// and ours by that.
pub(super) fn report_native(report: &mut Report, effort: &Effort, grid: &[Cell], dir: &Path) {
    let native = native::scaling(effort, largest(effort), dir);
    let ours = scaling(effort, grid).and_then(|ours| {
        let by = |native: f64| ours.median / native;
        let Spread { median, min, max } = native.clone()?;
        Ok(Spread { median: by(median), min: by(max), max: by(min) })
    });
    report.ratio("scaling/native", native);
    report.ratio("scaling/max_cell/native", ours);
}

/// Reports that nothing of this could be measured.
pub(super) fn skip(report: &mut Report, effort: &Effort, why: &str) {
    for place in places(effort) {
        for policy in POLICIES {
            report.row(format!("{}/iops", case(place, policy)), "1/s", Err(why.to_owned()));
        }
    }
    for name in RATIOS {
        report.ratio(name, Err(why.to_owned()));
    }
    for name in ROWS {
        report.row(name, "", Err(why.to_owned()));
    }
}

fn case(place: Place, policy: &str) -> String {
    format!("write/8KiB/{}jobs/qd{}/{policy}", place.jobs, place.depth)
}

fn report_cell(report: &mut Report, cell: &Cell) {
    for (policy, rounds) in POLICIES.iter().zip(&cell.rounds) {
        let case = case(cell.place, policy);
        let spread = |value: fn(&Round) -> f64| {
            let rounds = rounds.as_ref().map_err(String::clone)?;
            Spread::of(rounds.iter().map(value)).ok_or_else(|| "no round was run".to_owned())
        };
        report.row(format!("{case}/iops"), "1/s", spread(|round| round.iops));
        if rounds.is_ok() {
            report.row(format!("{case}/mean"), "ns", spread(|round| round.mean));
            report.row(format!("{case}/p50"), "ns", spread(|round| round.p50));
            report.row(format!("{case}/p99"), "ns", spread(|round| round.p99));
        }
    }
}

/// Median of one policy's rounds; `None` when there are none.
pub(super) fn median(cell: &Cell, policy: usize, value: impl Fn(&Round) -> f64) -> Option<f64> {
    let rounds = cell.rounds.get(policy)?.as_ref().ok()?;
    Spread::of(rounds.iter().map(value)).map(|spread| spread.median)
}

/// Poll-idle against another policy.
struct Against<'a> {
    grid: &'a [Cell],
    other: usize,
}

impl Against<'_> {
    /// The ratios of a cell's rounds.
    fn ratios(&self, cell: &Cell, value: impl Fn(&Round) -> f64) -> Result<Vec<f64>, String> {
        let rounds = |policy: usize| {
            let rounds = cell.rounds.get(policy).ok_or_else(String::new)?;
            rounds.as_ref().map_err(String::clone)
        };
        let pairs = rounds(POLL_IDLE)?.iter().zip(rounds(self.other)?);
        Ok(pairs.map(|(ours, other)| value(ours) / value(other)).collect())
    }

    /// The ratios of the cell where they are best.
    fn best(&self, value: impl Fn(&Round) -> f64) -> Result<Spread, String> {
        let spreads = self.grid.iter().filter_map(|cell| {
            let ratios = self.ratios(cell, &value).ok()?;
            Spread::of(ratios)
        });
        let best = spreads.max_by(|one, other| one.median.total_cmp(&other.median));
        best.ok_or_else(|| self.why_not(POLL_IDLE))
    }

    /// The best cell of ours by the best cell of the other's.
    fn peak(&self) -> Result<Spread, String> {
        let peak = |policy| peak(self.grid, policy).ok_or_else(|| self.why_not(policy));
        let ratio = peak(POLL_IDLE)? / peak(self.other)?;
        Ok(Spread { median: ratio, min: ratio, max: ratio })
    }

    fn cells_below(&self) -> Result<Spread, String> {
        let mut count = 0.0;
        for cell in self.grid {
            let ratios = self.ratios(cell, |round| round.iops)?;
            if is_below(ratios) {
                count += 1.0;
            }
        }
        Ok(Spread { median: count, min: count, max: count })
    }

    fn why_not(&self, policy: usize) -> String {
        let rounds = self.grid.iter().filter_map(|cell| cell.rounds.get(policy)?.as_ref().err());
        rounds.into_iter().next().map_or("no round was run", String::as_str).to_owned()
    }
}

/// Most operations a second in any cell.
fn peak(grid: &[Cell], policy: usize) -> Option<f64> {
    let cells = grid.iter().filter_map(|cell| median(cell, policy, |round| round.iops));
    cells.max_by(f64::total_cmp)
}

/// The cell of most jobs and depth.
fn largest(effort: &Effort) -> Place {
    let [jobs, depth] =
        effort.steps.each_ref().map(|steps| steps.iter().max().map_or(1, |most| *most));
    Place { jobs, depth }
}

/// Operations of poll-idle in the cell of most jobs and depth, by its peak.
fn scaling(effort: &Effort, grid: &[Cell]) -> Result<Spread, String> {
    let place = largest(effort);
    let largest = grid.iter().find(|cell| cell.place == place);
    let largest = largest.and_then(|cell| median(cell, POLL_IDLE, |round| round.iops));
    let why = || "no round was run".to_owned();
    let ratio = largest.ok_or_else(why)? / peak(grid, POLL_IDLE).ok_or_else(why)?;
    Ok(Spread { median: ratio, min: ratio, max: ratio })
}

/// Whether the whole confidence interval of the median lies below 1.
fn is_below(ratios: Vec<f64>) -> bool {
    let is_judged = rank(ratios.len()).is_some();
    is_judged && interval(ratios).is_some_and(|ratio| ratio.max < 1.0)
}

/// The median, between the ends of its confidence interval; of too few values, between the ends of
/// all. `None` of nothing.
pub(super) fn interval(mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    let rank = rank(values.len()).unwrap_or(1);
    let (min, max) = (*values.get(rank - 1)?, *values.get(values.len() - rank)?);
    Spread::of(values).map(|Spread { median, .. }| Spread { median, min, max })
}

/// The largest n for which the n-th smallest and the n-th largest of `count` values enclose the
/// median with [`CONFIDENCE`]; `None` when there are too few values for any.
fn rank(count: usize) -> Option<usize> {
    let mut outside = 0.0;
    let mut ways = 1.0;
    let mut rank = None;
    for below in 0..count {
        outside += 2.0 * ways / 2f64.powi(i32::try_from(count).ok()?);
        if 1.0 - outside < CONFIDENCE {
            break;
        }
        rank = Some(below + 1);
        ways *= (count - below) as f64 / (below + 1) as f64;
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_sign_test() {
        let table = [(5, None), (6, Some(1)), (8, Some(1)), (9, Some(2)), (10, Some(2))];
        for (count, expected) in table.into_iter().chain([(12, Some(3)), (20, Some(6))]) {
            assert_eq!(rank(count), expected, "{count}");
        }
    }

    #[test]
    fn a_cell_is_below_only_when_its_interval_is() {
        assert!(is_below(vec![0.9; 8]));
        assert!(!is_below([vec![0.9; 7], vec![1.1]].concat()));
        assert!(is_below([vec![0.9; 9], vec![1.1]].concat()));
        assert!(!is_below([vec![0.9; 8], vec![1.1; 2]].concat()));
        assert!(!is_below(vec![0.1; 5]), "too few to say so");
    }
}
