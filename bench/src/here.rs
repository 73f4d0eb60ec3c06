//! `kakehi-bench here`: what a program would gain on one file system, in words.
//!
//! Each case is one small program, run in turn as it is and in a job. The job has begun before, as
//! that of a batch script has; only with `--coalesce` its start and its end, which closes the
//! multifile, count, too. A case is sized by a trial so that a round takes some tenths of a second,
//! and has as many rounds as its share of the minute allows.

mod advice;
mod cases;
pub(crate) mod play;

use std::{
    fmt::Write as _,
    io::{self, ErrorKind, Write as _},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde::Serialize;

use self::cases::{CASES, Field};
use crate::{kakehi::Daemon, machine, spread::Spread};

/// Time of the whole bench, of which each case has an equal share.
const TIME: Duration = Duration::from_secs(55);
/// The daemon's default.
const IDLE: &str = "poll-idle";
/// A round of a case is sized for this part of the whole time.
const PARTS: u32 = 140;
const ROUNDS_MIN: usize = 2;
const ROUNDS_MAX: usize = 15;

/// Estimates the gain on this file system. Ends within a minute.
///
/// Exit status: 0; 1 when nothing could be measured; 2 when an argument is wrong.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// A folder on the file system.
    #[arg(long, value_name = "DIR", default_value = ".", value_parser = machine::folder)]
    dir: PathBuf,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
    /// How long it may take, as 20s.
    #[arg(long, value_name = "TIME", value_parser = crate::options::time)]
    time: Option<Duration>,
}

/// Findings.
#[derive(Debug, Serialize)]
struct Found {
    bench: &'static str,
    folder: PathBuf,
    file_system: String,
    rows: Vec<Row>,
    advice: String,
}

/// A case, with the medians of its rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// A short name, for programs.
    pub(crate) name: &'static str,
    case: String,
    #[serde(flatten)]
    pub(crate) result: Outcome,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Outcome {
    Measured {
        without_s: f64,
        with_s: f64,
        /// How many times faster it is with Kakehi; below 1 it is slower.
        gain: f64,
        rounds: usize,
    },
    Skipped {
        skipped: String,
    },
}

impl Row {
    pub(crate) const fn gain(&self) -> Option<f64> {
        match self.result {
            Outcome::Measured { gain, .. } => Some(gain),
            Outcome::Skipped { .. } => None,
        }
    }
}

/// Runs the bench and prints what it found.
pub(crate) fn here(args: &Args) -> anyhow::Result<()> {
    let field = Field::make(&args.dir)?;
    let daemon = Daemon::start(IDLE, None)?;
    let environment = daemon.environment(None)?;
    let (begin, whole) = (Instant::now(), args.time.unwrap_or(TIME));
    let mut rows = Vec::new();
    for (index, case) in (1..).zip(&CASES) {
        let until = begin + whole * index / u32::try_from(CASES.len()).unwrap_or(u32::MAX);
        let count = field.size(case, whole / PARTS);
        let result = count.as_ref().map_err(|why| format!("{why:#}")).and_then(|count| {
            let round = || field.round(case, *count, &environment);
            rounds(round, until).map_err(|why| format!("{why:#}"))
        });
        let case_name = count.map_or_else(|_| case.name.to_owned(), |count| case.describe(count));
        let result = result.unwrap_or_else(|skipped| Outcome::Skipped { skipped });
        rows.push(Row { name: case.name, case: case_name, result });
    }
    anyhow::ensure!(rows.iter().any(|row| row.gain().is_some()), "nothing could be measured");
    let file_system = machine::file_system(&args.dir);
    let advice = advice::advice(&rows);
    let found = Found { bench: "here", folder: args.dir.clone(), file_system, rows, advice };
    found.publish(args.json)
}

/// Alternating rounds until the time of the case is over.
fn rounds(
    mut round: impl FnMut() -> anyhow::Result<[Duration; 2]>,
    until: Instant,
) -> anyhow::Result<Outcome> {
    let mut times = Vec::new();
    // Of the first one both sides find nothing prepared.
    round()?;
    while times.len() < ROUNDS_MIN || Instant::now() < until && times.len() < ROUNDS_MAX {
        times.push(round()?);
    }
    let side = |index: usize| {
        let side = times.iter().filter_map(|round| round.get(index)).map(Duration::as_secs_f64);
        Spread::of(side).map(|spread| spread.median).context("there are rounds")
    };
    let (without, with) = (side(0)?, side(1)?);
    let gain = two_digits(without / with.max(1e-9));
    let (without_s, with_s) = (two_digits(without), two_digits(with));
    Ok(Outcome::Measured { without_s, with_s, gain, rounds: times.len() })
}

/// No more digits than a few rounds are worth.
fn two_digits(value: f64) -> f64 {
    format!("{value:.1e}").parse().unwrap_or(value)
}

impl Found {
    fn publish(&self, as_json: bool) -> anyhow::Result<()> {
        let text = match as_json {
            true => serde_json::to_string_pretty(self)? + "\n",
            false => self.table()?,
        };
        match io::stdout().write_all(text.as_bytes()) {
            Err(why) if why.kind() != ErrorKind::BrokenPipe => Err(why).context("standard output"),
            _ => Ok(()),
        }
    }

    fn table(&self) -> anyhow::Result<String> {
        let Self { folder, file_system, rows, advice, .. } = self;
        let mut text = format!("{} ({file_system})\n\n", folder.display());
        let width = rows.iter().map(|row| row.case.len()).max().unwrap_or(0);
        writeln!(text, "{:width$} {:>9} {:>9}  gain", "case", "without", "with")?;
        for row in rows {
            match &row.result {
                Outcome::Measured { without_s, with_s, gain, .. } => {
                    let (without, with) = (in_words(*without_s), in_words(*with_s));
                    let gain = gain_in_words(*gain);
                    writeln!(text, "{:width$} {without:>9} {with:>9}  {gain}", row.case)?;
                }
                Outcome::Skipped { skipped } => {
                    writeln!(text, "{:width$} skipped: {skipped}", row.case)?;
                }
            }
        }
        writeln!(text, "\n{advice}")?;
        Ok(text)
    }
}

fn in_words(seconds: f64) -> String {
    match seconds {
        s if s < 0.001 => format!("{:.0} us", s * 1e6),
        s if s < 0.01 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

fn gain_in_words(gain: f64) -> String {
    match gain {
        gain if gain >= 10.0 => format!("{gain:.0} times faster"),
        gain if gain > advice::SAME => format!("{gain:.1} times faster"),
        gain if gain >= 1.0 / advice::SAME => "the same".to_owned(),
        gain => format!("{:.1} times slower", 1.0 / gain.max(1e-9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_says_times_and_gains_in_words() {
        let row = |case: &str, result| Row { name: "lines", case: case.to_owned(), result };
        let measured =
            |without_s, with_s, gain| Outcome::Measured { without_s, with_s, gain, rounds: 5 };
        let rows = vec![
            row("a log", measured(1.2, 0.034, 35.0)),
            row("files", measured(0.0005, 0.0006, 0.83)),
            row("reads", measured(0.1, 0.099, 1.01)),
            row("no", Outcome::Skipped { skipped: "no room".to_owned() }),
        ];
        let (folder, file_system) = ("/scratch".into(), "lustre".to_owned());
        let advice = "Do.".to_owned();
        let table = Found { bench: "here", folder, file_system, rows, advice }.table();
        let table = table.expect("a string takes everything");
        let lines = [
            "/scratch (lustre)",
            "a log     1.2 s     34 ms  35 times faster",
            "files    500 us    600 us  1.2 times slower",
            "reads    100 ms     99 ms  the same",
            "no    skipped: no room",
            "Do.",
        ];
        assert!(lines.iter().all(|line| table.lines().any(|found| found == *line)), "{table}");
    }

    #[test]
    fn rounds_go_on_for_the_time_of_a_case_and_are_two_at_least() {
        let round = || Ok([Duration::from_millis(6), Duration::from_millis(2)]);
        let found = rounds(round, Instant::now()).expect("measured");
        assert!(matches!(found, Outcome::Measured { gain: 3.0, rounds: ROUNDS_MIN, .. }));
        let found = rounds(round, Instant::now() + Duration::from_secs(60)).expect("measured");
        assert!(matches!(found, Outcome::Measured { rounds: ROUNDS_MAX, .. }));
        let failed = rounds(|| anyhow::bail!("full"), Instant::now());
        assert!(failed.is_err_and(|why| why.to_string() == "full"));
    }
}
