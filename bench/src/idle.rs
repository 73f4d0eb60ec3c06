//! `kakehi-bench idle`: the idle policies against each other.
//!
//! Two experiments. The first is that of the poll-idle paper, on a grid of job counts and depths.
//! In the second, threads compute on every core, and the daemon is away, idle, or loaded.
//!
//! For a target elsewhere the jobs' daemon has a server, a second daemon under the same policy that
//! has the RAM disk.
//!
//! There is one daemon per policy and a set of jobs for each; all but those whose turn it is are
//! stopped, so that a daemon that spins takes nothing from the others. Daemons and jobs run on any
//! core, as they do for a user. The policies take turns in every cell of a round. A ratio is taken
//! round by round, so that what disturbs the machine disturbs both sides. Every round has daemons
//! and jobs of its own: two sets of the same policy differ by up to an eighth as long as they live.
//! `--quick` has no time for that.
//!
//! [`judge`] says what is measured once more, and why.

mod computation;
mod compute;
mod daemons;
mod fleet;
mod grid;
mod histogram;
mod judge;
pub(crate) mod storm;

use std::{path::PathBuf, time::Duration};

use crate::{
    machine::{self, Machine},
    options::{Common, Deadline, Only, one_of, time, word},
    report::Report,
};

/// Measures the idle policies against each other: latency, operations, and the CPU they take.
///
/// Ratios are poll-idle by the other policy: more than 1 is better. Exit status: 0, also when a
/// case was skipped; 1 when nothing could be measured; 2 when an argument is wrong.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Where the RAM disk is: behind the local daemon, or behind a second one at the other end of a
    /// transport.
    #[arg(long, value_enum, default_value_t = Target::Local)]
    target: Target,
    /// Has the grid of these job counts alone.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = step)]
    jobs: Vec<usize>,
    /// Has the grid of these depths alone.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = step)]
    depths: Vec<usize>,
    /// How long a policy is measured in a round of a cell of few writes, as 120ms.
    #[arg(long, value_name = "TIME", value_parser = time)]
    turn: Option<Duration>,
    /// Folder of the RAM disk's files.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm", value_parser = machine::folder)]
    dir: PathBuf,
}

/// Where the RAM disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    Local,
    Tcp,
    Ucx,
}

impl Target {
    /// Where a server is to listen, if there is one.
    fn listen(self) -> Option<&'static str> {
        match self {
            Self::Local => None,
            Self::Tcp => Some("tcp://127.0.0.1:0"),
            Self::Ucx => Some("ucx://127.0.0.1:0"),
        }
    }

    /// Why this target cannot be measured, if it cannot.
    fn why_not(self) -> Option<String> {
        let probe = || ucx::Worker::probe(&ucx::Config::default()).err();
        (self == Self::Ucx).then(probe).flatten().map(|why| why.to_string())
    }
}

/// A job count or depth.
fn step(text: &str) -> Result<usize, String> {
    one_of(&FULL_STEPS, text)
}

/// How much is measured.
#[derive(Clone, Debug)]
struct Effort {
    only: Only,
    rounds: usize,
    /// Rounds after which fleets are started anew.
    rounds_of_fleets: usize,
    /// How long a policy is measured in a round of a cell: so long, and again so long for every
    /// 1024 writes in flight, each of which is to be completed several times.
    turn: Duration,
    /// Best cells of every policy that are measured once more.
    finalists: usize,
    /// Rounds of the computation, and how long a turn of one is.
    computations: usize,
    computation: Duration,
    /// Rounds of the computation after which fleets are started anew.
    rounds_of_computation: usize,
    /// Values that jobs and depth take.
    steps: [Vec<usize>; 2],
    /// No round of the grid, and none of a computation, is begun later after the start.
    ends: [Deadline; 2],
}

/// When the last round of the grid and the last computation of `--quick` begin.
const QUICK: [Duration; 2] = [Duration::from_secs(32), Duration::from_secs(48)];
const FULL_STEPS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const QUICK_STEPS: [usize; 3] = [1, 8, 64];

impl Effort {
    fn full() -> Self {
        Self {
            only: Only::default(),
            rounds: 10,
            rounds_of_fleets: 1,
            turn: Duration::from_millis(120),
            finalists: 3,
            computations: 100,
            computation: Duration::from_millis(40),
            rounds_of_computation: 4,
            steps: [FULL_STEPS.into(), FULL_STEPS.into()],
            ends: [Deadline::default(); 2],
        }
    }

    fn quick() -> Self {
        Self {
            only: Only::default(),
            rounds: 7,
            rounds_of_fleets: 7,
            turn: Duration::from_millis(60),
            finalists: 1,
            computations: 15,
            computation: Duration::from_millis(25),
            rounds_of_computation: 3,
            steps: [QUICK_STEPS.into(), QUICK_STEPS.into()],
            ends: [Deadline::default(); 2],
        }
    }

    fn of(args: &Args) -> Self {
        let mut effort = if args.common.quick { Self::quick() } else { Self::full() };
        for (steps, asked) in effort.steps.iter_mut().zip([&args.jobs, &args.depths]) {
            if !asked.is_empty() {
                asked.clone_into(steps);
            }
        }
        let [_, whole] = QUICK;
        effort.ends = QUICK.map(|end| args.common.end(end, whole));
        effort.only = args.common.only();
        effort.rounds = args.common.rounds_or(effort.rounds);
        effort.computations = args.common.rounds_or(effort.computations);
        effort.turn = args.turn.unwrap_or(effort.turn);
        effort
    }
}

/// Runs the bench and prints what it found.
pub(crate) fn idle(args: &Args) -> anyhow::Result<()> {
    let effort = Effort::of(args);
    let [grid_end, end] = effort.ends;
    let mut machine = Machine::find(None);
    (machine.idle, machine.pinning) = ("as the case says", "none".to_owned());
    machine.file_systems.insert("dir".to_owned(), machine::file_system(&args.dir));
    let mut report = Report::new("idle", machine, effort.rounds);
    let (target, dir) = (args.target, &args.dir);
    let name = format!("idle-{}", word(target));
    if let Some(why) = target.why_not() {
        judge::skip(&mut report, &effort, &why);
        compute::skip(&mut report, &effort, &why);
        return report.publish_as(&name, &args.common);
    }
    let is_whole = judge::wants_all(&effort.only);
    if grid::wanted(&effort, is_whole).next().is_some() {
        let grid = grid::measure(&effort, is_whole, grid_end, target, dir)?;
        judge::report(&mut report, &effort, &grid, is_whole);
    }
    compute::measure(&mut report, &effort, end, target, dir);
    report.publish_as(&name, &args.common)
}
