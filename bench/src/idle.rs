//! `kakehi-bench idle`: the idle policies against each other.
//!
//! Two experiments. The first is that of the poll-idle paper: jobs write 8 KiB at random places of
//! a RAM disk behind the daemon, each keeping a number of writes in flight, on every cell of a grid
//! of job counts and depths, under every policy. In the second, threads compute on every core, and
//! the daemon is away, idle, or loaded.
//!
//! There is one daemon per policy and a set of jobs for each; all but those whose turn it is are
//! stopped, so that a daemon that spins takes nothing from the others. Daemons and jobs run on any
//! core, as they do for a user. The policies take turns within every round. A ratio is taken round
//! by round, so that what disturbs the machine disturbs both sides.
//!
//! `iops/max_cell`, `iops/peak`, and `latency_cut/max_cell` compare with `interrupt`. A cell is
//! below another policy when the whole confidence interval of the median of its ratios lies below
//! 1: see [`judge`].

mod compute;
mod fleet;
mod grid;
mod heat_map;
mod histogram;
mod judge;
mod quiet;
pub(crate) mod storm;

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    machine::{self, Machine},
    report::Report,
};

/// Measures the idle policies against each other: latency, operations, and the CPU they take.
///
/// Ratios are poll-idle by the other policy: more than 1 is better. Exit status: 0, also when a
/// case was skipped; 1 when nothing could be measured; 2 when an argument is wrong.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Ends within a minute: nine cells of the grid, fewer and shorter rounds.
    #[arg(long)]
    quick: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
    /// Where the RAM disk is: behind the local daemon, or behind a second one at the other end of a
    /// transport.
    #[arg(long, value_enum, default_value_t = Target::Local)]
    target: Target,
    /// Folder of the RAM disk's files.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm", value_parser = machine::folder)]
    dir: PathBuf,
    /// Also writes the JSON to results/DATE-MACHINE/idle-TARGET.json below the current folder.
    #[arg(long)]
    save: bool,
}

/// Where the RAM disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    Local,
    Tcp,
    Ucx,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Tcp => "tcp",
            Self::Ucx => "ucx",
        })
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: usize,
    /// How long a policy is measured in a round of a cell: so long, and again so long for every
    /// 1024 writes in flight, each of which is to be completed several times.
    turn: Duration,
    /// How long a computation is.
    computation: Duration,
    /// How long a quiet daemon's CPU time is watched.
    watch: Duration,
    /// Values that jobs and depth take.
    steps: &'static [usize],
    /// No cell of the grid, and no round of a computation, is begun later after the start.
    ends: Option<[Duration; 2]>,
}

/// Says why nothing more is begun after this.
#[derive(Clone, Copy, Debug)]
struct Deadline(Option<Instant>);

impl Deadline {
    fn check(self) -> Result<(), String> {
        let is_over = self.0.is_some_and(|end| Instant::now() >= end);
        if is_over { Err("the time of --quick was used up".to_owned()) } else { Ok(()) }
    }
}

const FULL: Effort = Effort {
    rounds: 10,
    turn: Duration::from_millis(120),
    computation: Duration::from_millis(400),
    watch: Duration::from_secs(30),
    steps: &[1, 2, 4, 8, 16, 32, 64],
    ends: None,
};

const QUICK: Effort = Effort {
    rounds: 7,
    turn: Duration::from_millis(60),
    computation: Duration::from_millis(200),
    watch: Duration::from_secs(3),
    steps: &[1, 8, 64],
    ends: Some([Duration::from_secs(32), Duration::from_secs(48)]),
};

/// Runs the bench and prints what it found.
pub(crate) fn idle(args: &Args) -> anyhow::Result<()> {
    let effort = if args.quick { QUICK } else { FULL };
    let start = Instant::now();
    let [grid_end, end] = [0, 1]
        .map(|part| Deadline(effort.ends.and_then(|ends| ends.get(part).map(|end| start + *end))));
    let mut machine = Machine::find(None);
    (machine.idle, machine.pinning) = ("as the case says", "none".to_owned());
    machine.file_systems.insert("dir".to_owned(), machine::file_system(&args.dir));
    let mut report = Report::new("idle", machine, effort.rounds);
    let mut maps = String::new();
    match args.target {
        Target::Local => {
            let grid = grid::measure(&effort, grid_end, &args.dir)?;
            judge::report(&mut report, &effort, &grid);
            maps = heat_map::all(&effort, &grid);
            drop(grid);
            compute::measure(&mut report, &effort, end, &args.dir);
            quiet::measure(&mut report, &effort);
        }
        Target::Tcp | Target::Ucx => {
            let why = format!("this bench drives no second daemon over {} yet", args.target);
            judge::skip(&mut report, &effort, &why);
            compute::skip(&mut report, &why);
            quiet::skip(&mut report, &why);
        }
    }
    report.publish_as(&format!("idle-{}", args.target), args.json, args.save, &maps)
}
