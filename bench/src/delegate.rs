//! `kakehi-bench delegate`: file I/O under delegation against the system calls it replaces.
//!
//! Whole programs come first ([`whole`]), with default settings; they are what a user sees. Then
//! come processes that stream into a server ([`serve`]). The
//! rest takes calls apart: three processes do the same calls, one as it is (`native`), one under
//! policy `hybrid`, one under `delegate`. They take turns, round by round, on one core; the daemon
//! has another. Every other round is run with the cores the other way round, by processes of its
//! own.
//!
//! Under `delegate` the daemon spins, as the dedicated core of the 2012 paper did. Written files
//! are new: truncating one and writing it again makes ext4 write it back at close.

mod cells;
mod parts;
mod places;
mod serve;
mod sides;
mod volumes;
mod whole;

use std::{path::PathBuf, time::Duration};

use self::{
    places::Places,
    sides::{Bench, Idle},
    volumes::Volumes,
    whole::{Setting, Tools},
};
use crate::{
    machine::{self, Cores, Machine},
    options::{Common, Deadline},
    report::Report,
};

/// When the last case of `--quick` begins, under the spinning daemon and under the parking one; the
/// longest takes a quarter of a minute at worst.
const QUICK: [Duration; 2] = [Duration::from_secs(36), Duration::from_secs(48)];
/// When the last round of a whole program begins, and what is divided by how much.
const QUICK_PROGRAMS: Duration = Duration::from_secs(25);
const QUICK_DIVISOR: u64 = 20;

/// Measures file I/O under delegation against the system calls it replaces.
///
/// Ratios are native time by our time: more than 1 is faster. Exit status: 0, also when a case was
/// skipped; 1 when nothing could be measured; 2 when an argument is wrong.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Folder for the files that are written and read.
    #[arg(long, value_name = "DIR", default_value = ".", value_parser = machine::folder)]
    dir: PathBuf,
}

/// Time a case has for more rounds than it needs at least.
const CASE_TIME: Duration = Duration::from_millis(250);
/// Rounds of a case at most.
const ROUNDS_MAX: usize = 50;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Rounds at least; a case whose rounds are short has more of them, up to the other number.
    rounds: usize,
    rounds_max: usize,
    /// Bytes a round moves at least, but where a case needs more.
    volume: usize,
    /// No case is begun after this.
    end: Deadline,
}

impl Effort {
    /// That of the two phases.
    fn of(args: &Args) -> [Self; 2] {
        let [_, whole] = QUICK;
        let [spin, park] = QUICK.map(|end| args.common.end(end, whole));
        let rounds_max = args.common.rounds_or(ROUNDS_MAX);
        if args.common.quick {
            let (rounds, volume) = (args.common.rounds_or(8), 16 << 20);
            [spin, park].map(|end| Self { rounds, rounds_max, volume, end })
        } else {
            let rounds = args.common.rounds_or(16);
            [spin, park].map(|end| Self { rounds, rounds_max, volume: 64 << 20, end })
        }
    }
}

/// Runs the bench and prints what it found.
pub(crate) fn delegate(args: &Args) -> anyhow::Result<()> {
    let cores = Cores::find();
    let efforts = Effort::of(args);
    let [spin, park] = &efforts;
    let extent = whole::Extent::of(&args.common);
    let mut machine = Machine::with(cores, &args.dir);
    machine.pinning += ", and the other way round";
    let mut report = Report::new("delegate", machine, spin.rounds);
    let places = Places::create(&args.dir)?;

    let only = args.common.only();
    if whole::is_wanted(&only) || serve::is_wanted(&only) {
        let (tools, volumes) = (Tools::make(), Volumes::make(&args.dir));
        let with = Setting { only: &only, tools, volumes, extent: &extent };
        whole::measure(&mut report, &with);
        serve::measure(&mut report, &with);
    }
    let has_overhead = only.wants(parts::NAMES);
    let has_burst = only.wants(cells::BURST_NAMES);
    let [of_spin, of_park] =
        [Idle::Spin, Idle::Park].map(|idle| cells::wanted(idle, &places, &only));
    // Each daemon is gone before the next starts: two would share a core.
    let start = |idle| Bench::start(idle, &places, cores);
    let parts = has_overhead.then(|| parts::measure(spin.rounds, cores));
    let mut totals = Vec::new();
    if has_overhead || !of_spin.is_empty() {
        let mut bench = start(Idle::Spin);
        totals.extend(has_overhead.then(|| bench.round_trip(spin, 500)));
        bench.cells(&mut report, spin, &of_spin);
    }
    totals.extend(has_overhead.then(|| start(Idle::Poll).round_trip(spin, 500)));
    if has_overhead || has_burst || !of_park.is_empty() {
        let mut bench = start(Idle::Park);
        totals.extend(has_overhead.then(|| bench.round_trip(park, 20)));
        if let (Some(parts), Ok(totals)) = (parts, totals.try_into()) {
            parts::report(&mut report, &parts, totals);
        }
        if has_burst {
            bench.burst(&mut report, park);
        }
        bench.cells(&mut report, park, &of_park);
    }
    report.publish(&args.common)
}
