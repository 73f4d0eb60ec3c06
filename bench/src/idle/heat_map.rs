//! The grid as tables: a line per job count, a column per depth, as figures of the paper show it.

use std::fmt::Write as _;

use super::{
    Effort,
    grid::{Cell, INTERRUPT, PARK, POLICIES, POLL_IDLE, Place, Round},
    judge::median,
};

/// All tables: latency and operations under every policy, and poll-idle against two of them.
pub(super) fn all(effort: &Effort, grid: &[Cell]) -> String {
    let mut text = String::new();
    for (index, policy) in POLICIES.iter().enumerate() {
        let value = |cell: &Cell, value: fn(&Round) -> f64| median(cell, index, value);
        let latency = |cell: &Cell| Some(value(cell, |round| round.mean)? / 1e3);
        let operations = |cell: &Cell| Some(value(cell, |round| round.iops)? / 1e3);
        table(&mut text, &format!("mean latency under {policy}, us"), effort, grid, latency);
        table(&mut text, &format!("1000 operations/s under {policy}"), effort, grid, operations);
    }
    for other in [INTERRUPT, PARK] {
        let ratio = |cell: &Cell| {
            let iops = |policy| median(cell, policy, |round| round.iops);
            Some(iops(POLL_IDLE)? / iops(other)?)
        };
        let name = POLICIES.get(other).copied().unwrap_or_default();
        table(&mut text, &format!("operations, poll-idle / {name}"), effort, grid, ratio);
    }
    text
}

fn table(
    text: &mut String,
    title: &str,
    effort: &Effort,
    grid: &[Cell],
    value: impl Fn(&Cell) -> Option<f64>,
) {
    let [jobs, depths] = &effort.steps;
    let heads: String = depths.iter().map(|depth| format!("{depth:>9}")).collect();
    let mut lines = format!("\n{title}\njobs\\depth{heads}\n");
    for &jobs in jobs {
        write!(lines, "{jobs:<10}").ok(); // Writing to a string cannot fail.
        for &depth in depths {
            let place = Place { jobs, depth };
            let found = grid.iter().find(|cell| cell.place == place).and_then(&value);
            let word = found.map_or("-".to_owned(), |value| format!("{value:.2}"));
            write!(lines, "{word:>9}").ok();
        }
        lines.push('\n');
    }
    text.push_str(&lines);
}
