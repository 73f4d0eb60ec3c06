//! Files of many ranks that an unmodified program makes and reads back, as they are and coalesced
//! by `kakehi run`.
//!
//! The whole command is timed, with the start of the daemon, and with its end, when the multifile
//! is closed; and the program alone, which says how long its ranks took.

use std::{
    env,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use fastrand::Rng;

use super::{Effort, Place, Places, spreads};
use crate::report::Report;

/// Numbers of files; beyond the second only what [`Effort`] allows.
const COUNTS: [u32; 2] = [1024, 16_384];
/// Bytes of a file.
const LEN: usize = 4096;
/// Bytes of files in cases of their own, and how many there are.
const OTHERS: [(&str, usize, u32); 2] = [("100B", 100, 16_384), ("64KiB", 64 << 10, 4096)];
/// Processes that make them.
const RANKS: u32 = 4;
const ROUNDS: usize = 5;

/// Makes files, or reads them, for kakehi-bench itself.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Number of files.
    count: u32,
    /// Their folder.
    folder: PathBuf,
    /// Bytes of each.
    #[arg(long, default_value_t = LEN)]
    len: usize,
    /// Reads the files that are there, in random order.
    #[arg(long)]
    read: bool,
    /// Asks how long each file is.
    #[arg(long, conflicts_with = "read")]
    stat: bool,
    /// Which of the processes this is; without it the one that starts them.
    #[arg(long)]
    rank: Option<u32>,
}

/// Makes the files, or reads them, by several processes; says how many nanoseconds these took.
pub(crate) fn make(args: &Args) -> anyhow::Result<()> {
    if let Some(rank) = args.rank {
        let numbers = (rank..args.count).step_by(RANKS as usize);
        return match args {
            Args { read: true, .. } => read_all(args, numbers.collect()),
            Args { stat: true, .. } => stat_all(args, numbers),
            _ => make_all(args, numbers),
        };
    }
    let begin = Instant::now();
    let start = |rank: u32| {
        let mut command = Command::new(env::current_exe()?);
        command.arg("make-files").arg(args.count.to_string()).arg(&args.folder);
        command.args(["--len", &args.len.to_string()]);
        command.args(args.read.then_some("--read")).args(args.stat.then_some("--stat"));
        command.arg("--rank").arg(rank.to_string()).spawn()
    };
    let ranks = (0..RANKS).map(start).collect::<Result<Vec<_>, _>>()?;
    for mut rank in ranks {
        ensure!(rank.wait()?.success(), "a rank failed");
    }
    writeln!(io::stdout(), "{}", begin.elapsed().as_nanos())?;
    Ok(())
}

fn name(args: &Args, number: u32) -> PathBuf {
    args.folder.join(format!("rank.{number:05}"))
}

fn make_all(args: &Args, numbers: impl Iterator<Item = u32>) -> anyhow::Result<()> {
    let bytes = vec![7; args.len];
    for number in numbers {
        File::create_new(name(args, number))?.write_all(&bytes)?;
    }
    Ok(())
}

fn stat_all(args: &Args, mut numbers: impl Iterator<Item = u32>) -> anyhow::Result<()> {
    numbers.try_for_each(|number| {
        ensure!(fs::metadata(name(args, number))?.len() == args.len as u64, "another length");
        Ok(())
    })
}

fn read_all(args: &Args, mut numbers: Vec<u32>) -> anyhow::Result<()> {
    let mut bytes = vec![0; args.len];
    Rng::with_seed(7).shuffle(&mut numbers);
    for number in &numbers {
        File::open(name(args, *number))?.read_exact(&mut bytes)?;
        ensure!(bytes.iter().all(|byte| *byte == 7), "file {number} has other bytes");
    }
    Ok(())
}

/// Cases of a round: making the files by the whole command, and by the program's own time; reading
/// them back, and asking for the status of each, by the program's own time.
const ROUND: [&str; 4] = ["", "/program", "/read", "/stat"];

/// Files that are made.
#[derive(Clone, Copy, Debug)]
struct Files {
    count: u32,
    len: usize,
}

pub(super) fn measure(report: &mut Report, places: &Places, effort: &Effort) {
    let counts = COUNTS.into_iter().chain((effort.tasks > COUNTS[1]).then_some(effort.tasks));
    let of_counts = counts.map(|count| (count.to_string(), Files { count, len: LEN }));
    let others = OTHERS
        .into_iter()
        .map(|(size, len, count)| (format!("{count}x{size}"), Files { count, len }));
    for (case, files) in of_counts.chain(others) {
        for (name, place) in places.all() {
            let case = format!("coalesce/{case}/{name}");
            let round = |place: &Place| {
                let both = both(place, |folder, command| {
                    let make = |more: &[&str]| timed(maker(command()?, files, folder).args(more));
                    let (whole, made) = make(&[])?;
                    let program = |more| Ok::<_, anyhow::Error>(first(&make(more)?.1));
                    Ok([whole, first(&made), program(&["--read"])?, program(&["--stat"])?])
                })?;
                Ok(both)
            };
            compare(report, effort, &case, &ROUND, place, round);
        }
    }
}

/// Measures cases that come from the same rounds, each with both sides, unless none is wanted.
fn compare<const N: usize>(
    report: &mut Report,
    effort: &Effort,
    case: &str,
    suffixes: &[&str; N],
    place: Result<&Place, String>,
    round: impl Fn(&Place) -> anyhow::Result<[[Duration; N]; 2]>,
) {
    let name = |suffix: &str| format!("{case}{suffix}");
    let is_wanted = |suffix: &&&str| {
        let sides = ["", "/files", "/multifile"].map(|side| format!("{}{side}", name(suffix)));
        effort.wants(sides)
    };
    if !suffixes.iter().any(|suffix| is_wanted(&suffix)) {
        return;
    }
    let rounds = effort.rounds_or(ROUNDS.min(effort.rounds));
    let times = place.and_then(|place| effort.alternate(rounds, |_| round(place)));
    for (index, suffix) in suffixes.iter().enumerate().filter(|(_, suffix)| is_wanted(suffix)) {
        let case = name(suffix);
        let times = times.as_ref().map_err(String::clone).map(|times| {
            let of =
                |[plain, ours]: &[[Duration; N]; 2]| Some((*plain.get(index)?, *ours.get(index)?));
            times.iter().filter_map(of).collect::<Vec<_>>()
        });
        let [files, multifile, ratio] = spreads(&times);
        report.row(format!("{case}/files"), "ms", files);
        report.row(format!("{case}/multifile"), "ms", multifile);
        report.ratio(case, ratio);
    }
}

/// Measurements by `side` of plain files, and of coalesced ones, by commands that it is given.
fn both<T>(
    place: &Place,
    side: impl Fn(&Path, &dyn Fn() -> anyhow::Result<Command>) -> anyhow::Result<T>,
) -> anyhow::Result<[T; 2]> {
    let (folder, kept) = (place.path("files"), place.path("kept.sion"));
    fs::create_dir(&folder)?;
    let own = env::current_exe()?.canonicalize()?;
    let plain = side(&folder, &|| Ok(Command::new(&own)))?;
    place.clear()?;
    // Or the multifile would wait for the journal of thousands of files.
    place.settle()?;
    let coalesced = side(&folder, &|| {
        let mut command = Command::new(own.with_file_name("kakehi"));
        let map = format!("{}={}", folder.display(), kept.display());
        command.args(["run", "--socket"]).arg(place.path("job"));
        command.args(["--coalesce", &map, "--"]).arg(&own);
        Ok(command)
    })?;
    place.clear()?;
    place.settle()?;
    Ok([plain, coalesced])
}

fn first(times: &[Duration]) -> Duration {
    times.first().copied().unwrap_or_default()
}

fn maker(mut command: Command, files: Files, folder: &Path) -> Command {
    command.arg("make-files").arg(files.count.to_string()).arg(folder);
    command.args(["--len", &files.len.to_string()]);
    command
}

/// How long a command took, and the times that the program in it said.
fn timed(command: &mut Command) -> anyhow::Result<(Duration, Vec<Duration>)> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().context("kakehi: run 'make build'")?;
    let whole = start.elapsed();
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", why.trim());
    let said = String::from_utf8(output.stdout)?;
    let times = said.split_whitespace().map(|time| Ok(Duration::from_nanos(time.parse()?)));
    Ok((whole, times.collect::<anyhow::Result<Vec<_>>>()?))
}
