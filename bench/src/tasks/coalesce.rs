//! Files of many ranks that an unmodified program makes and reads back, as they are and coalesced
//! by `kakehi run`.
//!
//! The whole command is timed, with the start of the daemon, and with its end, when the multifile
//! is closed; and the program alone, which says how long its ranks took. Files are read back by
//! jobs of their own, whose daemons first load the multifile, and by the job that has made them.

use std::{
    env,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{self, Command},
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
    /// One after the other.
    verbs: Vec<Verb>,
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

/// Makes the files, or reads them, by several processes; says how many nanoseconds these took for
/// each verb.
pub(crate) fn make(args: &Args) -> anyhow::Result<()> {
    args.verbs.iter().try_for_each(|verb| match args.rank {
        Some(rank) => {
            let numbers = (rank..args.files.count).step_by(RANKS as usize);
            match verb {
                Verb::Make => make_all(args, numbers),
                Verb::Read => read_all(args, numbers.collect()),
                Verb::Stat => stat_all(args, numbers),
            }
        }
        None => by_ranks(args, *verb),
    })
}

fn by_ranks(args: &Args, verb: Verb) -> anyhow::Result<()> {
    let begin = Instant::now();
    let start = |rank: u32| {
        let its = Args { rank: Some(rank), verbs: vec![verb], ..args.clone() };
        Command::new(env::current_exe()?).args(words("make-files", &its)?).spawn()
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
    let (mut bytes, expected) = (vec![0; args.files.len], vec![7; args.files.len]);
    Rng::with_seed(7).shuffle(&mut numbers);
    for number in &numbers {
        File::open(name(args, *number))?.read_exact(&mut bytes)?;
        // At once: one by one takes as long as a file.
        ensure!(bytes == expected, "file {number} has other bytes");
    }
    Ok(())
}

/// Cases of a round: making the files by the whole command, and by the program's own time; reading
/// them back, and asking for the status of each, by the program's own time: by jobs of their own,
/// and by the one that has made them.
const ROUND: [&str; 6] = ["", "/program", "/read", "/stat", "/read/warm", "/stat/warm"];

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
            let round = |place: &Place| measure_round(place, files);
            let cases = ROUND.map(|suffix| format!("{case}{suffix}"));
            compare(report, effort, &cases, place, rounds, round);
        }
    }
}

/// Both sides of all cases.
fn measure_round(place: &Place, files: Files) -> anyhow::Result<[[Duration; ROUND.len()]; 2]> {
    let words = |folder: &Path, verbs| {
        words("make-files", &Args { files, folder: folder.to_owned(), verbs, rank: None })
    };
    let [cold, warm] = [
        both(place, |folder, command| {
            let run = |verb| timed(command()?.args(words(folder, vec![verb])?));
            let (whole, [made]) = run(Verb::Make)?;
            let ((_, [read]), (_, [stat])) = (run(Verb::Read)?, run(Verb::Stat)?);
            Ok([whole, made, read, stat])
        })?,
        both(place, |folder, command| {
            let verbs = vec![Verb::Make, Verb::Read, Verb::Stat];
            let (whole, [made, read, stat]) = timed(command()?.args(words(folder, verbs)?))?;
            Ok([whole, made, read, stat])
        })?,
    ];
    let side = |[whole, made, read, stat]: [Duration; 4], warm: [Duration; 4]| {
        let [_, _, warm_read, warm_stat] = warm;
        [whole, made, read, stat, warm_read, warm_stat]
    };
    let ([plain, ours], [warm_plain, warm_ours]) = (cold, warm);
    Ok([side(plain, warm_plain), side(ours, warm_ours)])
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
        // Its folder is where those of users are, on no file system that is measured.
        command.env("KAKEHI_JOB", format!("bench-{}", process::id()));
        command.args(["run", "--coalesce", &map, "--"]).arg(&own);
        Ok(command)
    })?;
    place.clear()?;
    place.settle()?;
    Ok([plain, coalesced])
}

/// How long a command took, and how long the program in it for each verb, as it says.
fn timed<const N: usize>(command: &mut Command) -> anyhow::Result<(Duration, [Duration; N])> {
    let start = Instant::now();
    let said = succeed(command).context("run 'make build'")?;
    let whole = start.elapsed();
    let times = said.lines().map(|line| Ok(Duration::from_nanos(line.trim().parse()?)));
    let times = times.collect::<anyhow::Result<Vec<_>>>()?.try_into();
    Ok((whole, times.ok().context("a time for each verb")?))
}
