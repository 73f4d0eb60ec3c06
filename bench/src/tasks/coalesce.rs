//! Files of many ranks that an unmodified program makes, as they are and coalesced by `kakehi run`.
//!
//! The whole command is timed: with the start of the daemon, and with its end, when the multifile
//! is closed.

use std::{
    env,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};

use super::{Effort, Place, Places, compare};
use crate::report::Report;

/// Numbers of files; beyond the second only what [`Effort`] allows.
const COUNTS: [u32; 2] = [1024, 16_384];
/// Bytes of a file.
const LEN: usize = 4096;
/// Processes that make them.
const RANKS: u32 = 4;
const ROUNDS: usize = 5;

/// Makes files, for kakehi-bench itself.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Number of files.
    count: u32,
    /// Their folder.
    folder: PathBuf,
    /// Which of the processes this is; without it the one that starts them.
    #[arg(long)]
    rank: Option<u32>,
}

/// Makes the files, by several processes.
pub(crate) fn make(args: &Args) -> anyhow::Result<()> {
    if let Some(rank) = args.rank {
        let bytes = [u8::try_from(rank)?; LEN];
        for number in (rank..args.count).step_by(RANKS as usize) {
            let name = args.folder.join(format!("rank.{number:05}"));
            File::create_new(name)?.write_all(&bytes)?;
        }
        return Ok(());
    }
    let start = |rank: u32| {
        let mut command = Command::new(env::current_exe()?);
        command.arg("make-files").arg(args.count.to_string()).arg(&args.folder);
        command.arg("--rank").arg(rank.to_string()).spawn()
    };
    let ranks = (0..RANKS).map(start).collect::<Result<Vec<_>, _>>()?;
    for mut rank in ranks {
        ensure!(rank.wait()?.success(), "a rank failed");
    }
    Ok(())
}

pub(super) fn measure(report: &mut Report, places: &Places, effort: &Effort) {
    let counts = COUNTS.into_iter().chain((effort.tasks > COUNTS[1]).then_some(effort.tasks));
    for count in counts {
        for (name, place) in places.all() {
            let case = (format!("coalesce/{count}/{name}"), place);
            let rounds = effort.rounds_or(ROUNDS.min(effort.rounds));
            compare(report, effort, case, rounds, |place| round(place, count));
        }
    }
}

fn round(place: &Place, count: u32) -> anyhow::Result<(Duration, Duration)> {
    let (folder, kept) = (place.path("files"), place.path("kept.sion"));
    fs::create_dir(&folder)?;
    let own = env::current_exe()?.canonicalize()?;
    let files = timed(&mut maker(Command::new(&own), count, &folder))?;
    place.clear()?;
    // Or the multifile would wait for the journal of thousands of files.
    place.settle()?;
    let mut command = Command::new(own.with_file_name("kakehi"));
    let map = format!("{}={}", folder.display(), kept.display());
    command.args(["run", "--socket"]).arg(place.path("job")).args(["--coalesce", &map, "--"]);
    command.arg(&own);
    let multifile = timed(&mut maker(command, count, &folder))?;
    place.clear()?;
    place.settle()?;
    Ok((files, multifile))
}

fn maker(mut command: Command, count: u32, folder: &Path) -> Command {
    command.arg("make-files").arg(count.to_string()).arg(folder);
    command
}

fn timed(command: &mut Command) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().context("kakehi: run 'make build'")?;
    let time = start.elapsed();
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", why.trim());
    Ok(time)
}
