//! `kakehi-bench tasks`: task-local files against one multifile, after the figures of the SIONlib
//! paper: what creating costs as tasks grow many, and what writing costs then.
//!
//! The two sides of a ratio alternate, round by round, each into files that are new. Nothing is
//! timed but the calls a program would make: removing files and settling are not.

pub(crate) mod coalesce;
mod create;
mod ranks;
mod write;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    machine::{self, Machine},
    options::{Common, Deadline, Only},
    places::{Place, Places},
    report::Report,
    rounds::{Rounds, map, spread},
    spread::Spread,
};

/// When the last case of `--quick` begins, and when the last round of a case does.
const QUICK: Duration = Duration::from_secs(45);
const QUICK_CASE: Duration = Duration::from_secs(3);
/// The same, where --within bounds the whole bench.
const CASE: Duration = Duration::from_secs(12);
/// The most tasks of `--quick`, and of the whole bench: what the paper had.
const TASKS_QUICK: u32 = 16_384;
const TASKS: u32 = 65_536;

/// Measures task-local files against one multifile: creation and bandwidth.
///
/// Ratios of times are those of plain files by those of the multifile: more than 1 is faster.
/// Exit status: 0, also when a case was skipped; 1 when nothing could be measured; 2 when an
/// argument is wrong.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Folder for the files that are written.
    #[arg(long, value_name = "DIR", default_value = ".", value_parser = machine::folder)]
    dir: PathBuf,
}

/// The cases to measure, and how much of each.
#[derive(Debug)]
struct Effort {
    only: Only,
    /// Of most cases.
    rounds: usize,
    /// Of every case, if the user says so.
    asked: Option<usize>,
    /// The most tasks.
    tasks: u32,
    /// Rounds of writing: many short ones, of which the middle tells more than that of a few.
    write_rounds: usize,
    /// Bytes that one side writes in a round.
    volume: usize,
    /// No case is begun after this.
    end: Deadline,
    /// No round of a case is begun after this, but the first.
    case: Duration,
}

impl Effort {
    fn of(args: &Args) -> Self {
        let (only, asked) = (args.common.only(), args.common.rounds);
        let end = args.common.end(QUICK, QUICK);
        if args.common.quick {
            Self {
                only,
                rounds: args.common.rounds_or(5),
                asked,
                tasks: TASKS_QUICK,
                write_rounds: 41,
                volume: 128 << 20,
                end,
                case: QUICK_CASE,
            }
        } else {
            Self {
                only,
                rounds: args.common.rounds_or(11),
                asked,
                tasks: TASKS,
                write_rounds: 41,
                volume: 512 << 20,
                end,
                case: if end.0.is_some() { CASE } else { Duration::MAX },
            }
        }
    }

    /// True if any of these cases is to be measured.
    fn wants<S: AsRef<str>>(&self, cases: impl IntoIterator<Item = S>) -> bool {
        self.only.wants(cases)
    }

    /// Rounds of a case that usually has so many.
    fn rounds_or(&self, usual: usize) -> usize {
        self.asked.unwrap_or(usual)
    }

    /// Measures both sides in turn, in one round at least; `round` is given its number.
    fn alternate<T>(
        &self,
        rounds: usize,
        mut round: impl FnMut(usize) -> anyhow::Result<T>,
    ) -> Rounds<T> {
        self.end.check()?;
        let start = Instant::now();
        let mut times = Vec::new();
        while times.len() < rounds && (times.is_empty() || start.elapsed() < self.case) {
            times.push(round(times.len()).map_err(|why| format!("{why:#}"))?);
        }
        Ok(times)
    }
}

/// Runs the bench and prints what it found.
pub(crate) fn tasks(args: &Args) -> anyhow::Result<()> {
    let effort = Effort::of(args);
    let mut machine = Machine::with(None, &args.dir);
    (machine.idle, machine.pinning) = ("no daemon", "none".to_owned());
    let mut report = Report::new("tasks", machine, effort.rounds);
    let places = Places::create(&args.dir)?;
    create::measure(&mut report, &places, &effort, effort.tasks);
    write::measure(&mut report, &places, &effort);
    ranks::measure(&mut report, &places, &effort);
    coalesce::measure(&mut report, &places, &effort);
    create::measure_fewer(&mut report, &places, &effort);
    report.publish(&args.common)
}

/// Measures cases that come from the same rounds, each of plain files by one multifile, unless none
/// is wanted.
fn compare<const N: usize>(
    report: &mut Report,
    effort: &Effort,
    cases: &[String; N],
    place: Result<&Place, String>,
    rounds: usize,
    round: impl Fn(&Place) -> anyhow::Result<[[Duration; N]; 2]>,
) {
    let sides = |case: &str| ["", "/files", "/multifile"].map(|side| format!("{case}{side}"));
    let is_wanted = |case: &String| effort.wants(sides(case));
    if !cases.iter().any(is_wanted) {
        return;
    }
    let times = place.and_then(|place| effort.alternate(rounds, |_| round(place)));
    for (index, case) in cases.iter().enumerate().filter(|(_, case)| is_wanted(case)) {
        let of = |side: &[Duration; N]| side.get(index).copied().unwrap_or_default();
        let times = map(&times, |[plain, ours]| (of(plain), of(ours)));
        let [files, multifile, ratio] = spreads(&times);
        report.row(format!("{case}/files"), "ms", files);
        report.row(format!("{case}/multifile"), "ms", multifile);
        report.ratio(case, ratio);
    }
}

/// Spreads of pairs of times: the sides in milliseconds, and the first divided by the second.
fn spreads(times: &Rounds<(Duration, Duration)>) -> [Result<Spread, String>; 3] {
    let ms = |time: &Duration| time.as_secs_f64() * 1e3;
    [
        spread(times, |(plain, _)| ms(plain)),
        spread(times, |(_, ours)| ms(ours)),
        spread(times, |(plain, ours)| plain.div_duration_f64(*ours)),
    ]
}
