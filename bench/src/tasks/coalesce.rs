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
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::{Effort, Place, Places, compare};
use crate::{child::words, process::succeed, report::Report};

/// Numbers of files; beyond the second only what [`Effort`] allows.
const COUNTS: [u32; 2] = [1024, 16_384];
/// Bytes of a file.
const LEN: usize = 4096;
/// Bytes of files in cases of their own, and how many there are.
const OTHERS: [(&str, usize, u32); 2] = [("100B", 100, 16_384), ("64KiB", 64 << 10, 4096)];
/// Processes that make them.
const RANKS: u32 = 4;
const ROUNDS: usize = 5;

/// Makes files, or reads them.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Args {
    files: Files,
    folder: PathBuf,
    verb: Verb,
    /// Which of the processes this is; without it the one that starts them.
    rank: Option<u32>,
}

/// Call that a program makes on each of the files.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
enum Verb {
    Make,
    /// In random order.
    Read,
    /// Asks how long it is.
    Stat,
}

/// Makes the files, or reads them, by several processes; says how many nanoseconds these took.
pub(crate) fn make(args: &Args) -> anyhow::Result<()> {
    if let Some(rank) = args.rank {
        let numbers = (rank..args.files.count).step_by(RANKS as usize);
        return match args.verb {
            Verb::Make => make_all(args, numbers),
            Verb::Read => read_all(args, numbers.collect()),
            Verb::Stat => stat_all(args, numbers),
        };
    }
    let begin = Instant::now();
    let start = |rank: u32| {
        let words = words("make-files", &Args { rank: Some(rank), ..args.clone() })?;
        Command::new(env::current_exe()?).args(words).spawn()
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
    let bytes = vec![7; args.files.len];
    for number in numbers {
        File::create_new(name(args, number))?.write_all(&bytes)?;
    }
    Ok(())
}

fn stat_all(args: &Args, mut numbers: impl Iterator<Item = u32>) -> anyhow::Result<()> {
    numbers.try_for_each(|number| {
        ensure!(fs::metadata(name(args, number))?.len() == args.files.len as u64, "another length");
        Ok(())
    })
}

fn read_all(args: &Args, mut numbers: Vec<u32>) -> anyhow::Result<()> {
    let mut bytes = vec![0; args.files.len];
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

/// Files that are made, and the bytes of each.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
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
    let rounds = effort.rounds_or(ROUNDS.min(effort.rounds));
    for (case, files) in of_counts.chain(others) {
        for (name, place) in places.all() {
            let case = format!("coalesce/{case}/{name}");
            let round = |place: &Place| {
                both(place, |folder, command| {
                    let run = |verb| {
                        let args = Args { files, folder: folder.to_owned(), verb, rank: None };
                        timed(command()?.args(words("make-files", &args)?))
                    };
                    let (whole, made) = run(Verb::Make)?;
                    Ok([whole, made, run(Verb::Read)?.1, run(Verb::Stat)?.1])
                })
            };
            let cases = ROUND.map(|suffix| format!("{case}{suffix}"));
            compare(report, effort, &cases, place, rounds, round);
        }
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

/// How long a command took, and how long the program in it, as it says.
fn timed(command: &mut Command) -> anyhow::Result<(Duration, Duration)> {
    let start = Instant::now();
    let said = succeed(command).context("run 'make build'")?;
    Ok((start.elapsed(), Duration::from_nanos(said.trim().parse()?)))
}
