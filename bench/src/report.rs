//! A bench's findings: the JSON document all benches share, and a table of the same.

use std::{
    fmt, fs,
    io::{self, ErrorKind, Write as _},
    path::Path,
};

use anyhow::Context as _;
use serde::Serialize;

use crate::{machine::Machine, options::Common, plain::without_numbers, spread::Spread};

/// The result of one bench.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) bench: &'static str,
    pub(crate) machine: Machine,
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<Row>,
    pub(crate) ratios: Vec<Ratio>,
}

/// A measured value, or why there is none.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Row {
    Measured { case: String, value: f64, unit: &'static str, min: f64, max: f64 },
    Skipped { case: String, skipped: String },
}

/// One side by the other, over all rounds. Of times it is native time by our time: more than 1 is
/// faster.
#[derive(Debug, Serialize)]
pub(crate) struct Ratio {
    pub(crate) name: String,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Report {
    /// A report without rows.
    pub(crate) fn new(bench: &'static str, machine: Machine, rounds: usize) -> Self {
        Self { bench, machine, rounds, rows: Vec::new(), ratios: Vec::new() }
    }

    /// Adds a row; an `Err` says why there is no value.
    pub(crate) fn row(
        &mut self,
        case: impl Into<String>,
        unit: &'static str,
        value: Result<Spread, String>,
    ) {
        let case = case.into();
        self.rows.push(match value {
            Ok(Spread { median, min, max }) => {
                Row::Measured { case, value: round(median), unit, min: round(min), max: round(max) }
            }
            Err(why) => Row::Skipped { case, skipped: without_numbers(&why) },
        });
    }

    /// Adds a ratio; one that could not be measured is a skipped row.
    pub(crate) fn ratio(&mut self, name: impl Into<String>, value: Result<Spread, String>) {
        let name = name.into();
        match value {
            Ok(Spread { median, min, max }) => {
                let (median, min, max) = (round(median), round(min), round(max));
                self.ratios.push(Ratio { name, median, min, max });
            }
            // A row of this name, for the rate, has said so already.
            Err(_) if self.has_skipped(&name) => {}
            Err(why) => {
                let skipped = without_numbers(&why);
                self.rows.push(Row::Skipped { case: name, skipped });
            }
        }
    }

    /// Prints the report, and on request keeps its JSON in results/DATE-MACHINE/BENCH.json below
    /// the current folder.
    pub(crate) fn publish(&self, how: &Common) -> anyhow::Result<()> {
        self.publish_as(self.bench, how)
    }

    /// As [`publish`](Self::publish), kept under `name`.
    pub(crate) fn publish_as(&self, name: &str, how: &Common) -> anyhow::Result<()> {
        how.only().check(self.rows.is_empty() && self.ratios.is_empty())?;
        let json = serde_json::to_string_pretty(self)? + "\n";
        if how.save {
            let folder = Path::new("results").join(self.machine.folder());
            fs::create_dir_all(&folder)?;
            fs::write(folder.join(name).with_extension("json"), &json)?;
        }
        let text = if how.json { json } else { self.to_string() };
        match io::stdout().write_all(text.as_bytes()) {
            Err(why) if why.kind() != ErrorKind::BrokenPipe => Err(why).context("standard output"),
            _ => Ok(()),
        }
    }

    fn has_skipped(&self, name: &str) -> bool {
        self.rows.iter().any(|row| matches!(row, Row::Skipped { case, .. } if case == name))
    }
}

/// Four significant digits: no measurement has more.
fn round(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({} rounds)\n{}", self.bench, self.rounds, self.machine)?;
        let names = self.rows.iter().map(|row| match row {
            Row::Measured { case, .. } | Row::Skipped { case, .. } => case,
        });
        let names = names.chain(self.ratios.iter().map(|ratio| &ratio.name));
        let width = names.map(String::len).max().unwrap_or(0);
        writeln!(f, "{:width$} {:>10} {:>10} {:>10}", "case", "median", "min", "max")?;
        for row in &self.rows {
            match row {
                Row::Measured { case, value, unit, min, max } => {
                    writeln!(f, "{case:width$} {value:>10} {min:>10} {max:>10} {unit}")?;
                }
                Row::Skipped { case, skipped } => writeln!(f, "{case:width$} skipped: {skipped}")?,
            }
        }
        if !self.ratios.is_empty() {
            writeln!(f, "\nratios")?;
        }
        for Ratio { name, median, min, max } in &self.ratios {
            writeln!(f, "{name:width$} {median:>10.2} {min:>10.2} {max:>10.2}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_without_a_value_is_a_row_with_its_reason() {
        let mut report = Report {
            bench: "delegate",
            machine: Machine::default(),
            rounds: 7,
            rows: Vec::new(),
            ratios: Vec::new(),
        };
        report.row("a", "ns", Spread::of([1.0, 2.00004]).ok_or_else(String::new));
        report.ratio("b", Err("no daemon".to_owned()));
        report.ratio("b", Err("no daemon".to_owned()));
        report.ratio("c", Ok(Spread { median: 2.0, min: 2.0, max: 2.0 }));

        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(
            json["rows"],
            serde_json::json!([
                {"case": "a", "value": 1.5, "unit": "ns", "min": 1.0, "max": 2.0},
                {"case": "b", "skipped": "no daemon"},
            ])
        );
        assert_eq!(
            json["ratios"],
            serde_json::json!([{"name": "c", "median": 2.0, "min": 2.0, "max": 2.0}])
        );
    }
}
