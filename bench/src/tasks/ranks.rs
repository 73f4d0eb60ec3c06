//! MPI processes: a C program of ours (`bench/mpi/tasks.c`) that the machine's `mpicc` compiles
//! with libsion, as a site would, and that does everything without and with a multifile in turn.
//!
//! With more ranks than processors, what ranks do together costs milliseconds: each of them has to
//! be given a processor before the last has spoken. Opening for writing is a gather and a scatter,
//! closing another, opening for reading one and a half; task-local files need none. Particles are
//! few where that is what counts.
//!
//! `trace` has four ranks to a physical file, as on a machine with far more ranks than servers of
//! its file system. On one machine they wait for the lock of the inode; a file for each rank would
//! write as fast as task-local files, and be as many.

use std::{
    cell::LazyCell,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

use super::{Effort, Place, Places};
use crate::{
    process::succeed,
    report::Report,
    rounds::{Rounds, spread},
    scratch::Scratch,
};

/// Numbers of ranks that create; there are more than processors.
const RANKS: [u32; 3] = [4, 16, 64];
/// Ranks of the tracing tool and of the simulation.
const WORKERS: u32 = 16;
/// Numbers of particles, and the most with `--quick`.
const PARTICLES: [u64; 4] = [10_000, 100_000, 1_000_000, 4_000_000];
const PARTICLES_QUICK: u64 = 1_000_000;
/// Bytes of a particle.
const PARTICLE_LEN: u64 = 52;
/// Longest that one job may run, in seconds.
const DEADLINE: &str = "300";

/// Sources of the program.
const SOURCES: &[(&str, &str)] = &[
    ("tasks.c", include_str!("../../mpi/tasks.c")),
    ("sion_mpi.c", include_str!("../../../multifile/capi/shims/sion_mpi.c")),
    ("comm.h", include_str!("../../../multifile/capi/shims/comm.h")),
    ("alias.h", include_str!("../../../multifile/capi/shims/alias.h")),
    ("sion.h", include_str!("../../../multifile/capi/include/sion.h")),
    ("sion_common.h", include_str!("../../../multifile/capi/include/sion_common.h")),
    ("sion_const.h", include_str!("../../../multifile/capi/include/sion_const.h")),
    ("sion_datatypes.h", include_str!("../../../multifile/capi/include/sion_datatypes.h")),
    ("sion_datatypes_mpi.h", include_str!("../../../multifile/capi/include/sion_datatypes_mpi.h")),
    ("sion_error.h", include_str!("../../../multifile/capi/include/sion_error.h")),
    ("sion_generic.h", include_str!("../../../multifile/capi/include/sion_generic.h")),
    ("sion_group.h", include_str!("../../../multifile/capi/include/sion_group.h")),
    ("sion_mpi.h", include_str!("../../../multifile/capi/include/sion_mpi.h")),
    ("sion_ompi.h", include_str!("../../../multifile/capi/include/sion_ompi.h")),
    ("sion_serial.h", include_str!("../../../multifile/capi/include/sion_serial.h")),
];

/// Where libsion may be, from the folder of this program: built beside it, or installed.
const ARCHIVES: [&str; 2] = ["libsion.a", "../lib/libsion.a"];

/// The compiled program.
struct Program {
    folder: Scratch,
}

/// One kind of job.
#[derive(Clone, Copy, Debug)]
struct Job {
    ranks: u32,
    what: &'static str,
    number: u64,
    /// Times of each round.
    columns: usize,
}

/// Measures creation by ranks, the paper's table 1, and its simulation.
pub(super) fn measure(report: &mut Report, places: &Places, effort: &Effort) {
    let program = LazyCell::new(|| Program::compile().map_err(|why| format!("{why:#}")));
    for (suffix, place) in places.memory_first() {
        let run = |names: &[&String], job| {
            effort.wants(names).then(|| times(&program, &place, effort, job))
        };
        let quick = effort.end.0.is_some();
        for particles in PARTICLES.into_iter().filter(|count| !quick || *count <= PARTICLES_QUICK) {
            simulate(report, &suffix, particles, &run);
        }
        trace(report, &suffix, effort, &run);
        for ranks in RANKS {
            create(report, &suffix, ranks, &run);
        }
    }
}

type Times = Rounds<Vec<f64>>;

/// Runs a job if any of these cases is wanted.
type Run<'a> = dyn Fn(&[&String], Job) -> Option<Times> + 'a;

/// The times of one job, or why there are none.
fn times(
    program: &LazyCell<Result<Program, String>, impl FnOnce() -> Result<Program, String>>,
    place: &Result<&Place, String>,
    effort: &Effort,
    job: Job,
) -> Times {
    let (program, place) = (program.as_ref()?, place.as_ref()?);
    effort.end.check()?;
    let times = program.run(place, effort.rounds, job).map_err(|why| format!("{why:#}"));
    // What a failure left must not stay for the next.
    place.clear().ok();
    times
}

fn create(report: &mut Report, suffix: &str, ranks: u32, run: &Run<'_>) {
    let name = format!("create/{ranks}ranks{suffix}");
    let job = Job { ranks, what: "create", number: 0, columns: 2 };
    if let Some(times) = run(&[&name], job) {
        pair(report, &name, &times, 0, 1, Unit::Ms);
    }
}

/// Activation, and bandwidth of writing.
fn trace(report: &mut Report, suffix: &str, effort: &Effort, run: &Run<'_>) {
    let number = effort.volume as u64 / u64::from(WORKERS);
    let [activation, write] =
        ["activation", "write"].map(|what| format!("trace/{WORKERS}ranks/{what}{suffix}"));
    let job = Job { ranks: WORKERS, what: "trace", number, columns: 4 };
    if let Some(times) = run(&[&activation, &write], job) {
        pair(report, &activation, &times, 0, 2, Unit::Ms);
        pair(report, &write, &times, 1, 3, Unit::Rate(number * u64::from(WORKERS)));
    }
}

/// Writing and reading back; without a multifile, all goes through rank 0.
fn simulate(report: &mut Report, suffix: &str, particles: u64, run: &Run<'_>) {
    let [write, read] =
        ["write", "read"].map(|what| format!("particles/{particles}/{what}{suffix}"));
    let job = Job { ranks: WORKERS, what: "particles", number: particles, columns: 4 };
    if let Some(times) = run(&[&write, &read], job) {
        let volume = Unit::Rate(particles * PARTICLE_LEN);
        pair(report, &write, &times, 0, 2, volume);
        pair(report, &read, &times, 1, 3, volume);
    }
}

/// Unit of a row.
#[derive(Clone, Copy, Debug)]
enum Unit {
    Ms,
    /// Of so many bytes.
    Rate(u64),
}

/// A row for each side, and the ratio.
fn pair(report: &mut Report, name: &str, times: &Times, native: usize, ours: usize, unit: Unit) {
    let of = |round: &Vec<f64>, column: usize| round.get(column).copied().unwrap_or(f64::NAN);
    let (text, scale): (_, &dyn Fn(f64) -> f64) = match unit {
        Unit::Ms => ("ms", &|time| time * 1e3),
        Unit::Rate(bytes) => ("MiB/s", &move |time| bytes as f64 / f64::from(1 << 20) / time),
    };
    for (side, column) in [("native", native), ("multifile", ours)] {
        let value = spread(times, |round| scale(of(round, column)));
        report.row(format!("{name}/{side}"), text, value);
    }
    report.ratio(name, spread(times, |round| of(round, native) / of(round, ours)));
}

impl Program {
    fn compile() -> anyhow::Result<Self> {
        let archive = archive()?;
        let folder = Scratch::create()?;
        for (name, text) in SOURCES {
            fs::write(folder.path().join(name), text)?;
        }
        let mut compiler = Command::new("mpicc");
        compiler.args(["-std=gnu11", "-O2", "-DSION_MPI", "-o", "tasks", "tasks.c", "sion_mpi.c"]);
        compiler.arg(archive).args(["-lpthread", "-lm", "-ldl"]).current_dir(folder.path());
        succeed(&mut compiler)?;
        Ok(Self { folder })
    }

    /// Times of all rounds, seconds.
    fn run(&self, place: &Place, rounds: usize, job: Job) -> anyhow::Result<Vec<Vec<f64>>> {
        let files = place.path("ranks");
        fs::create_dir(&files)?;
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", DEADLINE, "mpirun", "-n", &job.ranks.to_string()]);
        command.arg(self.folder.path().join("tasks")).arg(job.what).arg(&files);
        command.arg(rounds.to_string()).arg(job.number.to_string());
        // For Open MPI; the other needs nothing.
        for name in ["ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM"] {
            command.env(format!("OMPI_{name}"), "1");
        }
        for name in ["rmaps_base_oversubscribe", "mpi_yield_when_idle"] {
            command.env(format!("OMPI_MCA_{name}"), "1");
        }
        let text = succeed(&mut command)?;
        let line = |line: &str| {
            let times: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
            ensure!(times.len() == job.columns, "{line}");
            Ok(times)
        };
        text.lines().map(line).collect()
    }
}

fn archive() -> anyhow::Result<PathBuf> {
    let own = env::current_exe()?;
    let folder = own.parent().unwrap_or(Path::new("."));
    let mut places = ARCHIVES.iter().map(|place| folder.join(place));
    places.find(|place| place.exists()).context("no libsion.a beside this program")
}
