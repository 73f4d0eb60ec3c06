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

use super::{Effort, Place, Places, compare};
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
    /// Reads the files that are there, in random order, and then asks how long each is.
    #[arg(long)]
    read: bool,
    /// Which of the processes this is; without it the one that starts them.
    #[arg(long)]
    rank: Option<u32>,
}

/// Makes the files, or reads them, by several processes; says how many nanoseconds these took.
pub(crate) fn make(args: &Args) -> anyhow::Result<()> {
    if let Some(rank) = args.rank {
        let numbers = (rank..args.count).step_by(RANKS as usize);
        return if args.read { read_all(args, numbers.collect()) } else { make_all(args, numbers) };
    }
    let begin = Instant::now();
    let start = |rank: u32| {
        let mut command = Command::new(env::current_exe()?);
        command.arg("make-files").arg(args.count.to_string()).arg(&args.folder);
        command.args(["--len", &args.len.to_string()]).args(args.read.then_some("--read"));
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

fn read_all(args: &Args, mut numbers: Vec<u32>) -> anyhow::Result<()> {
    let mut bytes = vec![0; args.len];
    Rng::with_seed(7).shuffle(&mut numbers);
    for number in &numbers {
        File::open(name(args, *number))?.read_exact(&mut bytes)?;
        ensure!(bytes.iter().all(|byte| *byte == 7), "file {number} has other bytes");
    }
    for number in &numbers {
        ensure!(fs::metadata(name(args, *number))?.len() == args.len as u64, "another length");
    }
    Ok(())
}

/// Timed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Making the files: the whole command.
    Command,
    /// The same by the program's own time.
    Program,
    /// Reading them back, by the program's own time.
    Reading,
}

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
            for (suffix, what) in
                [("", What::Command), ("/program", What::Program), ("/read", What::Reading)]
            {
                let case = (format!("coalesce/{case}/{name}{suffix}"), place.clone());
                let rounds = effort.rounds_or(ROUNDS.min(effort.rounds));
                compare(report, effort, case, rounds, |place| round(place, files, what));
            }
        }
    }
}

fn round(place: &Place, files: Files, what: What) -> anyhow::Result<(Duration, Duration)> {
    let (folder, kept) = (place.path("files"), place.path("kept.sion"));
    fs::create_dir(&folder)?;
    let own = env::current_exe()?.canonicalize()?;
    let plain = side(files, what, &folder, || Ok(Command::new(&own)))?;
    place.clear()?;
    // Or the multifile would wait for the journal of thousands of files.
    place.settle()?;
    let coalesced = side(files, what, &folder, || {
        let mut command = Command::new(own.with_file_name("kakehi"));
        let map = format!("{}={}", folder.display(), kept.display());
        command.args(["run", "--socket"]).arg(place.path("job"));
        command.args(["--coalesce", &map, "--"]).arg(&own);
        Ok(command)
    })?;
    place.clear()?;
    place.settle()?;
    Ok((plain, coalesced))
}

/// Makes files by `command`, and has the time of that, or of reading them.
fn side(
    files: Files,
    what: What,
    folder: &Path,
    command: impl Fn() -> anyhow::Result<Command>,
) -> anyhow::Result<Duration> {
    let (whole, program) = timed(&mut maker(command()?, files, folder))?;
    Ok(match what {
        What::Command => whole,
        What::Program => program,
        What::Reading => timed(maker(command()?, files, folder).arg("--read"))?.1,
    })
}

fn maker(mut command: Command, files: Files, folder: &Path) -> Command {
    command.arg("make-files").arg(files.count.to_string()).arg(folder);
    command.args(["--len", &files.len.to_string()]);
    command
}

/// How long a command took, and the program in it.
fn timed(command: &mut Command) -> anyhow::Result<(Duration, Duration)> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().context("kakehi: run 'make build'")?;
    let whole = start.elapsed();
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", why.trim());
    let said = String::from_utf8(output.stdout)?;
    Ok((whole, Duration::from_nanos(said.trim().parse()?)))
}
