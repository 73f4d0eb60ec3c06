//! The cases of `kakehi-bench here`, and one round of each.

use std::{
    env,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{self, Command},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::fs::{Advice, fadvise};

use super::play::{self, CHECKPOINT, FILE, LINE, MIB, PIECE, Verb};
use crate::{child, kakehi::Environment, places::Place, process::succeed};

/// One case.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    verb: Verb,
    /// How often the trial does it, and the case at the most.
    counts: [u64; 2],
    side: Side,
}

/// How the side with Kakehi runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Job,
    /// `kakehi run --coalesce`, from start to end.
    Coalesced,
}

const fn job(name: &'static str, verb: Verb, counts: [u64; 2]) -> Case {
    Case { name, verb, counts, side: Side::Job }
}

pub(crate) const CASES: [Case; 8] = [
    job("lines", Verb::Lines, [500, 200_000]),
    job("small", Verb::Small, [200, 50_000]),
    job("files", Verb::Files, [20, 5_000]),
    Case { name: "coalesce", verb: Verb::Files, counts: [20, 5_000], side: Side::Coalesced },
    job("large", Verb::Large, [8, 256]),
    job("checkpoint", Verb::Checkpoint, [8, 256]),
    job("cold", Verb::Cold, [8, 128]),
    job("warm", Verb::Warm, [8, 1024]),
];

impl Case {
    /// The case in words.
    pub(crate) fn describe(&self, count: u64) -> String {
        let mib = |each: usize| (count * each as u64).div_ceil(MIB as u64);
        match (self.verb, self.side) {
            (Verb::Lines, _) => format!("{count} lines of {LINE} bytes to a log"),
            (Verb::Small, _) => format!("{} MiB by writes of {} KiB", mib(PIECE), PIECE >> 10),
            (Verb::Files, Side::Job) => format!("{count} files of {} KiB", FILE >> 10),
            (Verb::Files, Side::Coalesced) => {
                format!("{count} files of {} KiB, with --coalesce", FILE >> 10)
            }
            (Verb::Large, _) => format!("{} MiB by writes of 1 MiB", mib(CHECKPOINT)),
            (Verb::Checkpoint, _) => {
                format!("checkpoint of {} MiB, then as long a computation", mib(CHECKPOINT))
            }
            (Verb::Cold, _) => format!("reading {count} MiB, not in memory"),
            (Verb::Warm, _) => format!("reading {count} MiB, in memory"),
        }
    }
}

/// The folder of the cases, and the programs.
pub(crate) struct Field {
    folder: Place,
    own: PathBuf,
}

impl Field {
    pub(crate) fn make(dir: &Path) -> anyhow::Result<Self> {
        Ok(Self { folder: Place::create(dir)?, own: env::current_exe()?.canonicalize()? })
    }

    /// How often a case does what it does in a round of this time.
    pub(crate) fn size(&self, case: &Case, round: Duration) -> anyhow::Result<u64> {
        let [few, most] = case.counts;
        let time = self.play(case, few, Duration::ZERO, &Environment::new())?;
        let factor = round.as_nanos() / time.as_nanos().max(1);
        let factor = u64::try_from(factor).unwrap_or(u64::MAX).max(1);
        Ok(few.saturating_mul(factor).min(most))
    }

    /// Times without Kakehi and with it.
    pub(crate) fn round(
        &self,
        case: &Case,
        count: u64,
        environment: &Environment,
    ) -> anyhow::Result<[Duration; 2]> {
        let nothing = Environment::new();
        if case.side == Side::Coalesced {
            let without = self.whole(case, count, &mut Command::new(&self.own))?;
            let mut command = Command::new(self.own.with_file_name("kakehi"));
            let (to, kept) = (self.to(), self.folder.path("kept.sion"));
            let map = format!("{}={}", to.display(), kept.display());
            // Its folder is where those of users are, on no file system that is measured.
            command.env("KAKEHI_JOB", format!("bench-{}", process::id()));
            command.args(["run", "--coalesce", &map, "--"]).arg(&self.own);
            return Ok([without, self.whole(case, count, &mut command)?]);
        }
        let mut computation = Duration::ZERO;
        if case.verb == Verb::Checkpoint {
            computation = self.play(case, count, computation, &nothing)?;
        }
        let without = self.play(case, count, computation, &nothing)?;
        Ok([without, self.play(case, count, computation, environment)?])
    }

    /// Runs the program of a case; the time it says its calls took.
    fn play(
        &self,
        case: &Case,
        count: u64,
        computation: Duration,
        environment: &Environment,
    ) -> anyhow::Result<Duration> {
        self.prepare(case, count)?;
        let words = self.words(case, count, computation)?;
        let said = succeed(Command::new(&self.own).args(words).envs(environment))?;
        self.folder.clear()?;
        let ns = said.trim().parse().context("a time")?;
        Ok(Duration::from_nanos(ns))
    }

    /// Runs the program of a case by `command`, from its start to its end.
    fn whole(&self, case: &Case, count: u64, command: &mut Command) -> anyhow::Result<Duration> {
        self.prepare(case, count)?;
        let begin = Instant::now();
        succeed(command.args(self.words(case, count, Duration::ZERO)?))?;
        let time = begin.elapsed();
        self.folder.clear()?;
        Ok(time)
    }

    fn words(&self, case: &Case, count: u64, computation: Duration) -> io::Result<[String; 2]> {
        let args = play::Args { verb: case.verb, count, folder: self.to(), computation };
        child::words("play", &args)
    }

    fn prepare(&self, case: &Case, count: u64) -> anyhow::Result<()> {
        let to = self.to();
        fs::create_dir(&to)?;
        if !matches!(case.verb, Verb::Cold | Verb::Warm) {
            return Ok(());
        }
        let (path, bytes) = (to.join("file"), vec![7; MIB]);
        let mut file = File::create(&path)?;
        for _ in 0..count {
            file.write_all(&bytes)?;
        }
        file.sync_all()?;
        if case.verb == Verb::Cold {
            fadvise(&file, 0, None, Advice::DontNeed)?;
        } else {
            fs::read(&path)?;
        }
        Ok(())
    }

    fn to(&self) -> PathBuf {
        self.folder.path("files")
    }
}
