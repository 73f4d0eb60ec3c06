//! Verdicts on the grid: rows of every cell, and the rows and ratios that have targets.
//!
//! # When a cell is below
//!
//! The ratios of a cell's rounds are sorted. Whatever their distribution, the interval from the
//! n-th smallest to the n-th largest holds the median with a probability that follows from the
//! number of rounds alone; n is the largest for which that is at least 95 %. A cell is below when
//! this interval is, and is again in the finals: of many cells with no difference at all,
//! one in forty or fewer is found below by chance once, so a grid has one or two such cells, and
//! one in 1600 twice.
//!
//! # Peaks
//!
//! The largest of many noisy cells owes its place to chance as well, and is less when measured
//! again: the ratio of two such maxima says little. So the grid only nominates: every policy's best
//! cells, the one of most jobs and depth, and those found below, are measured once more under all
//! policies, and a policy's peak is its best cell among those. Peaks are compared round by round.
//!
//! What two rounds differ in, the machine's speed and that of each start of the daemons, does not
//! become less within a round. So the finals have twice the rounds of the grid, of half the length.
//! The ends of a ratio are those of the interval of its median, here as in the cells.

use super::{
    Effort,
    grid::{Cell, Grid, GridPoint, INTERRUPT, PARK, POLICIES, POLL_IDLE, Round, wanted},
};
use crate::{
    options::Only,
    report::Report,
    rounds::spread,
    spread::{Spread, interval, rank},
};

/// So many standard deviations to either side hold a sum with a probability of 95 %.
const DEVIATIONS: f64 = 1.96;
/// Rows of `skip` and `report` besides the cells.
const RATIOS: [&str; 4] = ["iops/max_cell", "iops/peak", "iops/peak/park", "scaling/max_cell"];
const FINAL: &str = "final/";
/// Values of a cell and a policy.
const VALUES: [&str; 4] = ["iops", "mean", "p50", "p99"];
const ROWS: [&str; 3] = ["latency_cut/max_cell", "cells/below/interrupt", "cells/below/park"];

/// True if anything is wanted for which the whole grid is needed.
pub(super) fn wants_all(only: &Only) -> bool {
    only.wants(RATIOS) || only.wants(ROWS) || only.wants([FINAL])
}

/// True if a cell's rows are wanted.
pub(super) fn wants(only: &Only, point: GridPoint) -> bool {
    let rows = |policy| VALUES.map(|value| format!("{}/{value}", case(point, policy)));
    POLICIES.into_iter().any(|policy| only.wants(rows(policy)))
}

/// Reports the grid, and if it is whole what it says.
pub(super) fn report(report: &mut Report, effort: &Effort, grid: &Grid, is_whole: bool) {
    grid.cells.iter().for_each(|cell| report_cell(report, "", cell));
    if !is_whole {
        return;
    }
    grid.finals.iter().for_each(|cell| report_cell(report, FINAL, cell));
    let against = |other| Against { grid, other };
    let (interrupt, park) = (against(INTERRUPT), against(PARK));
    report.ratio("iops/peak/park", park.peak());
    report.ratio("iops/peak", interrupt.peak());
    report.ratio("iops/max_cell", interrupt.best(|round| round.iops));
    report.ratio("scaling/max_cell", scaling(effort, grid));
    // Of latencies the inverse is the ratio, the other's by ours.
    let cut = interrupt.best(|round| 1.0 / round.mean).map(|ratio| {
        let cut = |ratio: f64| 1.0 - 1.0 / ratio;
        Spread { median: cut(ratio.median), min: cut(ratio.min), max: cut(ratio.max) }
    });
    report.row("latency_cut/max_cell", "fraction", cut);
    report.row("cells/below/park", "cells", park.cells_below());
    report.row("cells/below/interrupt", "cells", interrupt.cells_below());
}

/// Reports that nothing of this could be measured.
pub(super) fn skip(report: &mut Report, effort: &Effort, why: &str) {
    let is_whole = wants_all(&effort.only);
    for point in wanted(effort, is_whole) {
        for policy in POLICIES {
            report.row(format!("{}/iops", case(point, policy)), "1/s", Err(why.to_owned()));
        }
    }
    if is_whole {
        RATIOS.into_iter().for_each(|name| report.ratio(name, Err(why.to_owned())));
        ROWS.into_iter().for_each(|name| report.row(name, "", Err(why.to_owned())));
    }
}

fn case(point: GridPoint, policy: &str) -> String {
    format!("write/8KiB/{}jobs/qd{}/{policy}", point.jobs, point.depth)
}

fn report_cell(report: &mut Report, prefix: &str, cell: &Cell) {
    for (policy, rounds) in POLICIES.iter().zip(&cell.rounds) {
        let case = prefix.to_owned() + &case(cell.point, policy);
        let spread = |value: fn(&Round) -> f64| spread(rounds, value);
        let [iops, mean, p50, p99] = VALUES.map(|value| format!("{case}/{value}"));
        report.row(iops, "1/s", spread(|round| round.iops));
        if rounds.is_ok() {
            report.row(mean, "ns", spread(|round| round.mean));
            report.row(p50, "ns", spread(|round| round.p50));
            report.row(p99, "ns", spread(|round| round.p99));
        }
    }
}

/// Poll-idle against another policy.
struct Against<'a> {
    grid: &'a Grid,
    other: usize,
}

impl Against<'_> {
    /// The ratios of the cell where they are best.
    fn best(&self, value: impl Fn(&Round) -> f64) -> Result<Spread, String> {
        let ratios = |cell: &Cell| ratios(cell, self.other, &value).ok();
        let spreads = self.grid.cells.iter().filter_map(|cell| interval(ratios(cell)?));
        let best = spreads.max_by(|one, other| one.median.total_cmp(&other.median));
        best.ok_or_else(|| self.why_not(POLL_IDLE))
    }

    /// The best cell of ours by the best cell of the other's.
    fn peak(&self) -> Result<Spread, String> {
        let peak = |policy| peak(self.grid, policy).ok_or_else(|| self.why_not(policy));
        by_rounds(peak(POLL_IDLE)?, peak(self.other)?)
    }

    fn cells_below(&self) -> Result<Spread, String> {
        let mut count = 0.0;
        for cell in &self.grid.cells {
            let again = self.grid.finals.iter().find(|again| again.point == cell.point);
            if is_below(cell, self.other)?
                && is_below(again.ok_or("not measured again")?, self.other)?
            {
                count += 1.0;
            }
        }
        Ok(Spread { median: count, min: count, max: count })
    }

    fn why_not(&self, policy: usize) -> String {
        let rounds =
            self.grid.cells.iter().filter_map(|cell| cell.rounds.get(policy)?.as_ref().err());
        rounds.into_iter().next().map_or("no round was run", String::as_str).to_owned()
    }
}

/// The points that are measured once more: the best ones of every policy, the largest, and those
/// found below.
pub(super) fn finalists(effort: &Effort, cells: &[Cell]) -> Vec<GridPoint> {
    let mut points = vec![largest(effort)];
    for policy in [INTERRUPT, PARK, POLL_IDLE] {
        let mut cells: Vec<_> =
            cells.iter().filter_map(|cell| Some((iops(cell, policy)?, cell.point))).collect();
        cells.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        points.extend(cells.iter().map(|(_, point)| *point).take(effort.finalists));
    }
    let is_below =
        |cell: &&Cell| [INTERRUPT, PARK].map(|other| is_below(cell, other)).contains(&Ok(true));
    points.extend(cells.iter().filter(is_below).map(|cell| cell.point));
    let mut seen = Vec::new();
    points.retain(|point| {
        let is_new = !seen.contains(point);
        seen.push(*point);
        is_new
    });
    points
}

/// The rounds of a policy in the cell where it does the most operations a second.
fn peak(grid: &Grid, policy: usize) -> Option<&[Round]> {
    let cells = grid.finals.iter().filter_map(|cell| Some((iops(cell, policy)?, cell)));
    let (_, best) = cells.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    best.of(policy).ok()
}

/// Operations of some rounds by those of others, round by round.
fn by_rounds(some: &[Round], others: &[Round]) -> Result<Spread, String> {
    let ratios = some.iter().zip(others).map(|(one, other)| one.iops / other.iops);
    interval(ratios.collect()).ok_or_else(|| "no round was run".to_owned())
}

/// Median of one policy's operations a second; `None` when it has no round.
fn iops(cell: &Cell, policy: usize) -> Option<f64> {
    spread(cell.rounds.get(policy)?, |round| round.iops).ok().map(|spread| spread.median)
}

/// The cell of most jobs and depth.
fn largest(effort: &Effort) -> GridPoint {
    let [jobs, depth] =
        effort.steps.each_ref().map(|steps| steps.iter().max().map_or(1, |most| *most));
    GridPoint { jobs, depth }
}

/// Operations of poll-idle in the cell of most jobs and depth, by its peak.
fn scaling(effort: &Effort, grid: &Grid) -> Result<Spread, String> {
    let point = largest(effort);
    let largest = grid.finals.iter().find(|cell| cell.point == point);
    let why = || "no round was run".to_owned();
    by_rounds(largest.ok_or_else(why)?.of(POLL_IDLE)?, peak(grid, POLL_IDLE).ok_or_else(why)?)
}

/// Poll-idle by another policy in every round of a cell.
fn ratios(cell: &Cell, other: usize, value: impl Fn(&Round) -> f64) -> Result<Vec<f64>, String> {
    let pairs = cell.of(POLL_IDLE)?.iter().zip(cell.of(other)?);
    Ok(pairs.map(|(ours, other)| value(ours) / value(other)).collect())
}

/// True if the whole confidence interval of the median of a cell's operations lies below 1.
fn is_below(cell: &Cell, other: usize) -> Result<bool, String> {
    let ratios = ratios(cell, other, |round| round.iops)?;
    let is_judged = rank(ratios.len()).is_some();
    Ok(is_judged && interval(ratios).is_some_and(|ratio| ratio.max < 1.0))
}

/// The sum of the first values by that of the second, between the ends of its confidence interval.
/// `None` of fewer than two pairs. Where single values vary widely, it is surer than the median.
pub(super) fn interval_of_sums(pairs: &[(f64, f64)]) -> Option<Spread> {
    let (ours, other) = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    let ratio = ours / other;
    let squares: f64 = pairs.iter().map(|(ours, other)| (ours - ratio * other).powi(2)).sum();
    let count = pairs.len() as f64;
    let deviation = (squares * count / (count - 1.0)).sqrt() / other;
    let [min, max] = [-DEVIATIONS, DEVIATIONS].map(|deviations| ratio + deviations * deviation);
    (pairs.len() > 1 && other > 0.0).then_some(Spread { median: ratio, min, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_sums_is_as_sure_as_its_pairs_agree() {
        let equal = interval_of_sums(&[(3.0, 2.0), (1.5, 1.0), (6.0, 4.0)]);
        assert_eq!(equal, Some(Spread { median: 1.5, min: 1.5, max: 1.5 }));
        let spread = interval_of_sums(&[(1.0, 2.0), (3.0, 2.0)].repeat(50)).expect("many pairs");
        assert_eq!(spread.median, 1.0);
        // The standard deviation of a hundred ratios that are 0.5 away, 0.05, for 1 % more.
        assert!((spread.max - 1.0 - 1.96 * 0.05 * 1.005).abs() < 1e-3, "{spread:?}");
        assert!((spread.max + spread.min - 2.0).abs() < 1e-9, "{spread:?}");
        assert_eq!(interval_of_sums(&[(1.0, 1.0)]), None);
    }

    /// A cell of one job with these operations a second in its rounds, under every policy.
    fn cell<const N: usize>(depth: usize, iops: [[f64; N]; POLICIES.len()]) -> Cell {
        let round = |iops| Round { iops, mean: 1.0, p50: 1.0, p99: 1.0 };
        let rounds = iops.map(|rounds| Ok(rounds.map(round).to_vec()));
        Cell { point: GridPoint { jobs: 1, depth }, rounds }
    }

    /// A cell where poll-idle makes these and every other policy 1.
    fn ours<const N: usize>(depth: usize, iops: [f64; N]) -> Cell {
        let one = [1.0; N];
        cell(depth, [one, one, iops, one])
    }

    #[test]
    fn peaks_are_of_what_was_measured_once_more_and_compared_round_by_round() {
        let effort = Effort { steps: [vec![1], vec![1, 2, 4, 8]], ..Effort::quick() };
        let few = [1.0; 2];
        let cells = vec![
            cell(1, [few, few, [9.0; 2], few]),
            cell(2, [[9.0; 2], few, few, few]),
            cell(4, [few, [100.0; 2], few, few]),
            cell(8, [few; 4]),
        ];
        let finals: Vec<_> = finalists(&effort, &cells).iter().map(|point| point.depth).collect();
        assert_eq!(finals, [8, 2, 4, 1]);

        let finals = vec![
            cell(8, [few, few, [4.0, 2.0], few]),
            cell(4, [few, [4.0, 2.0], few, few]),
            cell(1, [few, few, [8.0, 4.0], few]),
        ];
        let grid = Grid { cells, finals };
        let peak = Against { grid: &grid, other: PARK }.peak();
        assert_eq!(peak, Ok(Spread { median: 2.0, min: 2.0, max: 2.0 }));
        let scaling = scaling(&effort, &grid);
        assert_eq!(scaling, Ok(Spread { median: 0.5, min: 0.5, max: 0.5 }));
    }

    #[test]
    fn a_cell_is_below_only_when_its_interval_is() {
        let is_below = |cell: Cell| is_below(&cell, PARK).expect("rounds");
        assert!(is_below(ours(1, [0.9; 8])));
        assert!(!is_below(ours(1, [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 1.1])));
        assert!(is_below(ours(1, [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 1.1])));
        assert!(!is_below(ours(1, [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 1.1, 1.1])));
        assert!(!is_below(ours(1, [0.1; 5])), "too few to say so");
    }

    #[test]
    fn a_cell_counts_as_below_when_it_is_so_twice() {
        let effort = Effort { steps: [vec![1], vec![1, 2, 4, 8]], ..Effort::quick() };
        let [below, above] = [[0.9; 8], [1.1; 8]];
        let cells =
            vec![ours(1, below), ours(2, below), cell(4, [[1.0; 8]; 4]), cell(8, [[9.0; 8]; 4])];
        let points = finalists(&effort, &cells);
        assert_eq!(points.iter().map(|point| point.depth).collect::<Vec<_>>(), [8, 1, 2]);

        let finals = vec![ours(8, below), ours(1, below), ours(2, above)];
        let count = Against { grid: &Grid { cells, finals }, other: PARK }.cells_below();
        assert_eq!(count, Ok(Spread { median: 1.0, min: 1.0, max: 1.0 }));
    }
}
