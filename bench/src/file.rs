//! `kakehi-bench file`: one thread that reads or writes a file, after chapter 2 of the 2024 thesis:
//! our engines and fio's, side by side, by bandwidth and by bandwidth per CPU.
//!
//! A ratio is our bandwidth by fio's with io_uring at the same size and depth, or the bandwidth per
//! CPU of both: more than 1 is better. The file is there before, in its whole length, and is read
//! and written past the page cache where the file system can. The sides take turns, round by round.

pub(crate) mod side;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use self::side::Engine;
use crate::{
    files::{self, Place, Places},
    fio::Fio,
    machine::{self, Cores, Machine},
    report::Report,
    spread::Spread,
};

/// When the last case of `--quick` begins.
const QUICK: Duration = Duration::from_secs(45);
/// The engines of ours that are measured, with their names in the cases.
const ENGINES: [(Engine, &str); 3] =
    [(Engine::Uring, "uring"), (Engine::Threads, "threads"), (Engine::Auto, "auto")];
const KIB: usize = 1 << 10;

/// Measures one thread that reads and writes a file, by engine, size, and depth.
///
/// Ratios are our bandwidth by fio's: more than 1 is faster. Exit status: 0, also when a case was
/// skipped; 1 when nothing could be measured; 2 when an argument is wrong.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Ends within a minute: fewer cells and rounds, less data a run, nothing in memory.
    #[arg(long)]
    quick: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
    /// Folder for the file that is read and written.
    #[arg(long, value_name = "DIR", default_value = ".", value_parser = machine::folder)]
    dir: PathBuf,
    /// Also writes the JSON to results/DATE-MACHINE/file.json below the current folder.
    #[arg(long)]
    save: bool,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: usize,
    sizes: &'static [usize],
    depths: &'static [usize],
    /// Bytes a run moves at most, and calls it makes at most.
    volume: u64,
    count_max: u64,
    /// Length of the file.
    span: u64,
    /// Folders: the one named, and one in memory.
    place_count: usize,
    /// No case is begun after this.
    end: Option<Instant>,
}

impl Effort {
    fn of(args: &Args) -> Self {
        if args.quick {
            let end = Some(Instant::now() + QUICK);
            let (sizes, depths) = (&[4 * KIB, 64 * KIB, KIB * KIB], &[1, 32]);
            let (volume, span) = (128 << 20, 256 << 20);
            let count_max = 8 << 10;
            Self { rounds: 1, sizes, depths, volume, count_max, span, place_count: 1, end }
        } else {
            let sizes = &[KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, KIB * KIB];
            let depths = &[1, 2, 4, 8, 16, 32, 64, 128, 256];
            let (volume, span, count_max) = (1 << 30, 1 << 30, 64 << 10);
            Self { rounds: 5, sizes, depths, volume, count_max, span, place_count: 2, end: None }
        }
    }

    fn is_used_up(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }
}

/// Runs the bench and prints what it found.
pub(crate) fn file(args: &Args) -> anyhow::Result<()> {
    let core = Cores::find().map(|cores| cores.daemon);
    let effort = Effort::of(args);
    let mut machine = Machine::find(Cores::find());
    for (name, folder) in [("dir", &*args.dir), ("memory", files::MEMORY.as_ref())] {
        machine.file_systems.insert(name.to_owned(), machine::file_system(folder));
    }
    machine.idle = "park";
    let (rows, ratios) = (Vec::new(), Vec::new());
    let mut report = Report { bench: "file", machine, rounds: effort.rounds, rows, ratios };
    let places = Places::create(&args.dir, effort.span)?;
    for place in places.0.iter().take(effort.place_count) {
        for &size in effort.sizes {
            for &depth in effort.depths {
                for (is_write, random) in
                    [(true, false), (false, false), (true, true), (false, true)]
                {
                    let cell = Cell { is_write, random, size, depth };
                    cell.measure(&effort, place, core, &mut report);
                }
            }
        }
    }
    report.publish(args.json, args.save)
}

/// What is done, in calls of how many bytes, and how many of them at a time.
#[derive(Clone, Copy, Debug)]
struct Cell {
    is_write: bool,
    random: bool,
    size: usize,
    depth: usize,
}

/// MB/s, and MB per second of CPU time; one a round, or why there are none.
type Values = Result<Vec<[f64; 2]>, String>;

impl Cell {
    /// Measures our engines and fio's in turn.
    fn measure(&self, effort: &Effort, place: &Place, core: Option<usize>, report: &mut Report) {
        let mut ours = ENGINES.map(|_| Values::Ok(Vec::new()));
        // A blocking call is one at a time.
        let fio_count = if self.depth == 1 { FIO_ENGINES.len() } else { 1 };
        let mut fios = vec![Values::Ok(Vec::new()); fio_count];
        for _ in 0..effort.rounds {
            if effort.is_used_up() {
                break;
            }
            for ((engine, _), values) in ENGINES.into_iter().zip(&mut ours) {
                push(values, || self.ours(engine, effort, &place.file(), core));
            }
            for (engine, values) in FIO_ENGINES.into_iter().zip(&mut fios) {
                push(values, || self.fio(engine, effort, &place.file(), core));
            }
        }
        let name = |engine: &str| format!("{}/{engine}{}", self.name(), place.suffix);
        for (engine, values) in FIO_ENGINES.into_iter().zip(&fios) {
            put(report, &name(&format!("fio_{engine}")), values);
        }
        let [fio, ..] = &*fios else { return };
        for ((_, engine), values) in ENGINES.into_iter().zip(&ours) {
            put(report, &name(engine), values);
            report.ratio(name(engine) + ":fio", ratio(values, fio, 0));
            report.ratio(name(engine) + ":fio/cpu", ratio(values, fio, 1));
        }
    }

    fn ours(
        &self,
        engine: Engine,
        effort: &Effort,
        path: &Path,
        core: Option<usize>,
    ) -> Result<[f64; 2], String> {
        let Self { is_write: write, random, size, depth } = *self;
        let (count, span, path) = (self.count(effort), effort.span, path.to_owned());
        let args = side::Args { engine, write, random, size, count, depth, span, path, core };
        let sample = args.run()?;
        let volume = (count * size as u64) as f64;
        // Bytes a nanosecond are gigabytes a second.
        let [rate, per_cpu] =
            [sample.wall_ns, sample.cpu_ns].map(|time| 1e3 * volume / time as f64);
        Ok([rate, per_cpu])
    }

    fn fio(
        &self,
        engine: &'static str,
        effort: &Effort,
        path: &Path,
        core: Option<usize>,
    ) -> Result<[f64; 2], String> {
        let pattern = match (self.is_write, self.random) {
            (true, false) => "write",
            (true, true) => "randwrite",
            (false, false) => "read",
            (false, true) => "randread",
        };
        let (size, count, span) = (self.size, self.count(effort), effort.span);
        let depth = u32::try_from(self.depth).unwrap_or(u32::MAX);
        let found = Fio { pattern, engine, size, count, depth, span, core }.run(path)?;
        Ok([found.rate, found.rate / found.cpu.max(f64::MIN_POSITIVE)])
    }

    fn count(&self, effort: &Effort) -> u64 {
        (effort.volume / self.size as u64).min(effort.count_max)
    }

    fn name(&self) -> String {
        let verb = if self.is_write { "write" } else { "read" };
        let order = if self.random { "random" } else { "sequential" };
        let size = if self.size >= KIB * KIB {
            format!("{}MiB", self.size / (KIB * KIB))
        } else {
            format!("{}KiB", self.size / KIB)
        };
        format!("{verb}/{size}/{order}/qd{}", self.depth)
    }
}

/// The first is what ratios are by.
const FIO_ENGINES: [&str; 2] = ["io_uring", "psync"];

/// Measures once more, unless it failed before.
fn push(values: &mut Values, measure: impl FnOnce() -> Result<[f64; 2], String>) {
    if let Ok(list) = values {
        match measure() {
            Ok(value) => list.push(value),
            Err(why) => *values = Err(why),
        }
    }
}

fn put(report: &mut Report, name: &str, values: &Values) {
    report.row(name, "MB/s", spread(values, |value| value[0]));
    report.row(format!("{name}/cpu"), "MB per CPU second", spread(values, |value| value[1]));
}

fn spread(values: &Values, value: impl Fn(&[f64; 2]) -> f64) -> Result<Spread, String> {
    let values = values.as_ref().map_err(String::clone)?;
    Spread::of(values.iter().map(value)).ok_or_else(|| "the time of --quick was used up".to_owned())
}

/// Round by round: the bandwidth (0), or that per CPU (1).
fn ratio(ours: &Values, fio: &Values, which: usize) -> Result<Spread, String> {
    let ours = ours.as_ref().map_err(String::clone)?;
    let fio = fio.as_ref().map_err(String::clone)?;
    let ratios =
        ours.iter().zip(fio).filter_map(|(ours, fio)| Some(ours.get(which)? / fio.get(which)?));
    Spread::of(ratios).ok_or_else(|| "the time of --quick was used up".to_owned())
}
