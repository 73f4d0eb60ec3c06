//! `kakehi-bench file`: one thread that reads or writes a file, after chapter 2 of the 2024 thesis:
//! our engines and fio's, side by side, by bandwidth and by bandwidth per CPU.
//!
//! The file is there before, in its whole length, and is read and written past the page cache where
//! the file system can. Both sides go through the same file, fio with registered buffers, at random
//! in an order that is new in each run: so neither goes back to blocks of its own, which the host
//! then has in its caches. On a disk both take turns of some
//! hundredths of a second (`turns`); elsewhere they move as many bytes one after the other, and
//! change places from round to round.
//!
//! CPU time is that of our process and of fio's thread, and of the kernel's workers on their core
//! (`kernel_workers`). For files in memory fio's is that of its process, less its start: there
//! workers of its own copy for its thread.

pub(crate) mod side;
mod turns;

use std::{
    cell,
    io::{self, Write as _},
    path::PathBuf,
    time::Duration,
};

use self::{side::Engine, turns::Turns};
use crate::{
    files::{TestFile, TestFiles},
    fio::Fio,
    kernel_workers::Workers,
    machine::{self, Cores, Machine},
    options::{Common, Deadline, Only, one_of, size_name, size_of},
    plain::without_numbers,
    progress::Progress,
    report::Report,
    rounds::{Rounds, push, ratio, spread},
};

/// Bytes of a call, and calls at a time.
const SIZES: [usize; 6] = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB];
const DEPTHS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Bytes and calls of a run in memory, by `--quick` too: fewer take less time than fio can tell,
/// and less CPU time than its start varies by.
const IN_MEMORY: (u64, u64) = (2 << 30, 128 << 10);
/// When the last case of `--quick` begins.
const QUICK: Duration = Duration::from_secs(45);
/// How long each program has in a round in which they take turns; a quarter of it by `--quick`.
const ROUND: Duration = Duration::from_millis(800);
/// The engines of ours that are compared with fio's io_uring, with their names in the cases; on a
/// disk they are the same, and the first stands for both.
const OURS: [(Engine, &str); 2] = [(Engine::Auto, "auto"), (Engine::Uring, "uring")];
/// Those of ours and of fio's that stand beside.
const OTHERS: [(Engine, &str); 2] = [(Engine::Threads, "threads"), (Engine::Psync, "psync")];
const FIO: &str = "io_uring";
const FIO_OTHERS: [&str; 3] = ["libaio", "posixaio", "psync"];
const KIB: usize = 1 << 10;

/// Measures one thread that reads and writes a file, by engine, size, and depth.
///
/// Ratios are our bandwidth by fio's: more than 1 is faster. Exit status: 0, also when a case was
/// skipped; 1 when nothing could be measured; 2 when an argument is wrong.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Measures calls of these sizes alone, as 4KiB,1MiB.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    sizes: Vec<usize>,
    /// Measures these depths alone.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = depth)]
    depths: Vec<usize>,
    /// Folder for the file that is read and written.
    #[arg(long, value_name = "DIR", default_value = ".", value_parser = machine::folder)]
    dir: PathBuf,
}

fn size(text: &str) -> Result<usize, String> {
    size_of(&SIZES, text)
}

fn depth(text: &str) -> Result<usize, String> {
    one_of(&DEPTHS, text)
}

/// How much is measured.
#[derive(Clone, Debug)]
struct Effort {
    only: Only,
    rounds: usize,
    /// How long each program has in a round in which they take turns.
    round: Duration,
    /// Up to which size engines that only stand beside are measured, once.
    others_size_max: usize,
    /// With depths.
    sizes: Vec<(usize, Vec<usize>)>,
    /// Bytes a run moves at most, and calls it makes at most.
    volume: u64,
    count_max: u64,
    /// Length of the file.
    span: u64,
    /// Folders: the one named, and one in memory.
    place_count: usize,
    /// No case is begun after this.
    end: Deadline,
}

impl Effort {
    fn of(args: &Args) -> Self {
        let quick = args.common.quick;
        let end = args.common.end(QUICK, QUICK);
        let (rounds, round) = if quick { (3, ROUND / 4) } else { (5, ROUND) };
        let (volume, span, count_max) =
            if quick { (128 << 20, 256 << 20, 8 << 10) } else { (1 << 30, 1 << 30, 64 << 10) };
        Self {
            only: args.common.only(),
            rounds: args.common.rounds_or(rounds),
            round,
            others_size_max: if quick { 4 * KIB } else { usize::MAX },
            sizes: sizes(args),
            volume,
            count_max,
            span,
            place_count: if quick { 1 } else { 2 },
            end,
        }
    }

    fn cells(&self) -> impl Iterator<Item = Cell> {
        let calls = self
            .sizes
            .iter()
            .flat_map(|(size, depths)| depths.iter().map(move |&depth| (*size, depth)));
        let patterns = [(true, false), (false, false), (true, true), (false, true)];
        calls.flat_map(move |(size, depth)| {
            patterns.map(|(is_write, random)| Cell { is_write, random, size, depth })
        })
    }
}

/// Those asked for, of all; by `--quick` a few unless any is asked for.
fn sizes(args: &Args) -> Vec<(usize, Vec<usize>)> {
    let is_all = args.sizes.is_empty() && args.depths.is_empty() && args.common.only().is_all();
    if args.common.quick && is_all {
        return vec![(64 * KIB, vec![32]), (1024 * KIB, vec![32]), (4 * KIB, vec![32, 1])];
    }
    let or_all = |asked: &[usize], all: &[usize]| {
        if asked.is_empty() { all.to_vec() } else { asked.to_vec() }
    };
    let depths = or_all(&args.depths, &DEPTHS);
    or_all(&args.sizes, &SIZES).into_iter().map(|size| (size, depths.clone())).collect()
}

/// Runs the bench and prints what it found.
pub(crate) fn file(args: &Args) -> anyhow::Result<()> {
    let core = Cores::find().map(|cores| cores.daemon);
    let effort = Effort::of(args);
    let machine = Machine { idle: "park", ..Machine::with(Cores::find(), &args.dir) };
    let mut report = Report::new("file", machine, effort.rounds);
    let places = TestFiles::create(&args.dir, effort.span)?;
    let places: Vec<_> = places.0.iter().take(effort.place_count).collect();
    let all = places.into_iter().flat_map(|place| effort.cells().map(move |cell| (cell, place)));
    let cells: Vec<_> = all.filter(|(cell, place)| cell.is_wanted(&effort, place)).collect();
    let mut progress = Progress::of("file", cells.len());
    let takes_turns = cell::Cell::new(true);
    for (cell, place) in cells {
        let at = At { effort: &effort, place, core, takes_turns: &takes_turns };
        cell.measure(at, &mut report);
        progress.step();
    }
    report.publish(&args.common)
}

/// One case: the operation, its size in bytes, and the depth.
#[derive(Clone, Copy, Debug)]
struct Cell {
    is_write: bool,
    random: bool,
    size: usize,
    depth: usize,
}

/// Where, how much, and on which core it is measured.
#[derive(Clone, Copy)]
struct At<'a> {
    effort: &'a Effort,
    place: &'a TestFile,
    core: Option<usize>,
    /// On a disk two programs take turns, unless that has failed.
    takes_turns: &'a cell::Cell<bool>,
}

/// Measurements of a cell.
struct Engines {
    ours: Vec<(Engine, &'static str)>,
    /// With io_uring, to be compared with.
    has_fio: bool,
    others: Vec<(Engine, &'static str)>,
    fio_others: Vec<&'static str>,
}

/// Name of one of fio's engines.
fn fios(engine: &str) -> String {
    format!("fio_{engine}")
}

/// MB/s, and MB per second of CPU time.
type Values = Rounds<[f64; 2]>;

impl Cell {
    /// Measures our engines and fio's.
    fn measure(&self, at: At<'_>, report: &mut Report) {
        let engines = self.engines(at.effort, at.place);
        let name = |engine: &str| self.row(engine, at.place);
        let (ours, fio) = self.compare(&engines, at);
        if engines.has_fio {
            put(report, &name(&fios(FIO)), &fio);
        }
        for ((_, engine), values) in engines.ours.iter().zip(&ours) {
            put(report, &name(engine), values);
            report.ratio(name(engine) + ":fio", ratio(values, &fio, |value| value[0]));
            report.ratio(name(engine) + ":fio/cpu", ratio(values, &fio, |value| value[1]));
        }
        if at.effort.end.is_over() {
            return;
        }
        for (engine, named) in &engines.others {
            let value = self.ours(*engine, at);
            put(report, &name(named), &value.map(|value| vec![value]));
        }
        for engine in &engines.fio_others {
            let value = self.fio(engine, at);
            put(report, &name(&fios(engine)), &value.map(|value| vec![value]));
        }
    }

    /// Rates of our engines and fio's: in turns where there is one of each and the kernel counts
    /// what they move; else one run after the other.
    fn compare(&self, engines: &Engines, at: At<'_>) -> (Vec<Values>, Values) {
        let takes_turns = !at.place.is_memory() && at.takes_turns.get();
        if let ([(engine, _)], true, true) = (&*engines.ours, engines.has_fio, takes_turns) {
            match self.in_turns(*engine, at) {
                Ok([ours, fio]) => return (vec![Ok(ours)], Ok(fio)),
                Err(why) => {
                    at.takes_turns.set(false);
                    let told = "kakehi-bench: file: one run after the other, not in turns";
                    let why = without_numbers(&format!("{why:#}"));
                    writeln!(io::stderr(), "{told}: {why}").ok();
                }
            }
        }
        let none = Values::Ok(Vec::new());
        let (mut ours, mut fio) = (vec![none.clone(); engines.ours.len()], none);
        for round in 0..at.effort.rounds {
            if at.effort.end.is_over() {
                break;
            }
            let is_fio_first = round % 2 == 1;
            if engines.has_fio && is_fio_first {
                push(&mut fio, || self.fio(FIO, at));
            }
            for ((engine, _), values) in engines.ours.iter().zip(&mut ours) {
                push(values, || self.ours(*engine, at));
            }
            if engines.has_fio && !is_fio_first {
                push(&mut fio, || self.fio(FIO, at));
            }
        }
        (ours, fio)
    }

    fn in_turns(&self, engine: Engine, at: At<'_>) -> anyhow::Result<[Vec<[f64; 2]>; 2]> {
        let Effort { rounds, round, end, .. } = *at.effort;
        let in_flight = (self.depth * self.size) as u64;
        let turns = Turns { rounds, round, end, is_write: self.is_write, in_flight, core: at.core };
        let ours = self.our_side(engine, at).endless()?;
        let fio = self.fio_side(FIO, at).endless(&at.place.file());
        // fio first, which may not be there.
        turns.run(&mut [fio, ours]).map(|[fio, ours]| [ours, fio])
    }

    /// Those that are wanted, and what they are compared with.
    fn engines(&self, effort: &Effort, place: &TestFile) -> Engines {
        let wants = |engine: &str| {
            let row = self.row(engine, place);
            effort.only.wants(["", "/cpu", ":fio", ":fio/cpu"].map(|end| format!("{row}{end}")))
        };
        // A blocking call is one at a time.
        let stands_beside = |is_blocking: bool| {
            self.size <= effort.others_size_max && (!is_blocking || self.depth == 1)
        };
        let mut ours = OURS.to_vec();
        ours.retain(|(engine, name)| (place.is_memory() || *engine == Engine::Auto) && wants(name));
        let mut others = OTHERS.to_vec();
        others.retain(|(engine, name)| stands_beside(*engine == Engine::Psync) && wants(name));
        let mut fio_others = FIO_OTHERS.to_vec();
        fio_others.retain(|engine| stands_beside(*engine == "psync") && wants(&fios(engine)));
        let has_fio = !ours.is_empty() || wants(&fios(FIO));
        Engines { ours, has_fio, others, fio_others }
    }

    fn is_wanted(&self, effort: &Effort, place: &TestFile) -> bool {
        let Engines { has_fio, others, fio_others, .. } = self.engines(effort, place);
        has_fio || !others.is_empty() || !fio_others.is_empty()
    }

    /// The name of an engine's row.
    fn row(&self, engine: &str, place: &TestFile) -> String {
        format!("{}/{engine}{}", self.name(), place.suffix)
    }

    fn ours(&self, engine: Engine, at: At<'_>) -> Result<[f64; 2], String> {
        let args = self.our_side(engine, at);
        let (sample, workers) = Workers::of(at.core).beside(|| args.run());
        let sample = sample?;
        let times = [sample.wall_ns as f64, sample.cpu_ns as f64 + workers.as_nanos() as f64];
        // Bytes a nanosecond are gigabytes a second.
        Ok(times.map(|time| 1e3 * (args.count * self.size as u64) as f64 / time))
    }

    fn fio(&self, engine: &'static str, at: At<'_>) -> Result<[f64; 2], String> {
        let fio = self.fio_side(engine, at);
        let (found, workers) = Workers::of(at.core).beside(|| fio.run(&at.place.file()));
        let found = found?;
        let own = if at.place.is_memory() {
            fio.cpu_with_workers(&found, &at.place.file())?
        } else {
            found.thread_cpu
        };
        let cpu = own + workers.as_secs_f64();
        let volume = (fio.count * self.size as u64) as f64;
        Ok([found.rate, volume / 1e6 / cpu.max(f64::MIN_POSITIVE)])
    }

    /// Our process for it.
    fn our_side(&self, engine: Engine, at: At<'_>) -> side::Args {
        let Self { is_write: write, random, size, depth } = *self;
        let At { effort, place, core, .. } = at;
        let (count, span, path) = (self.count(effort, place), effort.span, place.file());
        let halfway = false;
        side::Args { engine, write, random, size, count, depth, span, halfway, path, core }
    }

    /// fio's process for it.
    fn fio_side(&self, engine: &'static str, at: At<'_>) -> Fio {
        let pattern = match (self.is_write, self.random) {
            (true, false) => "write",
            (true, true) => "randwrite",
            (false, false) => "read",
            (false, true) => "randread",
        };
        let At { effort, place, core, .. } = at;
        let (size, count, span) = (self.size, self.count(effort, place), effort.span);
        let depth = u32::try_from(self.depth).unwrap_or(u32::MAX);
        Fio { pattern, engine, size, count, depth, span, core }
    }

    fn count(&self, effort: &Effort, place: &TestFile) -> u64 {
        let of_disk = (effort.volume, effort.count_max);
        let (volume, count_max) = if place.is_memory() { IN_MEMORY } else { of_disk };
        (volume / self.size as u64).min(count_max)
    }

    fn name(&self) -> String {
        let verb = if self.is_write { "write" } else { "read" };
        let order = if self.random { "random" } else { "sequential" };
        format!("{verb}/{}/{order}/qd{}", size_name(self.size), self.depth)
    }
}

fn put(report: &mut Report, name: &str, values: &Values) {
    report.row(name, "MB/s", spread(values, |value| value[0]));
    report.row(format!("{name}/cpu"), "MB per CPU second", spread(values, |value| value[1]));
}
