//! Daemons under one idle policy, and jobs that wait for them: stopped, but for their turns.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;

use super::{
    Target,
    daemons::Daemons,
    histogram::Histogram,
    storm::{Args, FILE_LEN, Order},
};
use crate::{child::Child, kakehi::Environment, scratch::Scratch};

/// Longest wait for an answer beyond the time the job was given.
const PATIENCE: Duration = Duration::from_secs(20);

/// The files of the RAM disk, one a job: every policy's jobs write the same ones.
pub(super) struct Disk(Scratch, usize);

impl Disk {
    /// Files for `count` jobs, with memory behind them.
    pub(super) fn create(dir: &Path, count: usize) -> anyhow::Result<Self> {
        let failed = || format!("files in {}", dir.display());
        let folder = Scratch::create_in(dir).with_context(failed)?;
        let disk = Self(folder, count);
        let bytes = vec![0x5a; usize::try_from(FILE_LEN)?];
        for index in 0..count {
            fs::write(disk.file(index), &bytes).with_context(failed)?;
        }
        Ok(disk)
    }

    /// The folder of the files.
    pub(super) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// A folder below that one, with the same files and nothing else.
    pub(super) fn share(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folder = self.0.path().join(name);
        if folder.is_dir() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir(&folder)?;
        for index in 0..self.1 {
            fs::hard_link(self.file(index), folder.join(index.to_string()))?;
        }
        Ok(folder)
    }

    /// The file of a job.
    pub(super) fn file(&self, index: usize) -> PathBuf {
        self.0.path().join(index.to_string())
    }
}

/// A daemon and its jobs. The jobs end first.
pub(super) struct Fleet {
    jobs: Vec<Child>,
    daemons: Daemons,
}

impl Fleet {
    /// Starts a daemon under this policy, and jobs that can reach it; then stops the daemon.
    pub(super) fn start(
        policy: &str,
        target: Target,
        disk: &Disk,
        job_count: usize,
    ) -> anyhow::Result<Self> {
        // The pauses between turns are no quiet time.
        let daemons = Daemons::start(policy, target, disk, &[("KAKEHI_QUIET", "1h")])?;
        let mut fleet = Self { jobs: Vec::new(), daemons };
        for index in 0..job_count {
            let (socket, file) = (fleet.daemons.socket(), fleet.daemons.file(index));
            let rule = fleet.daemons.rule().to_owned();
            let args = Args { socket, file, rule };
            let mut job = Child::start("storm", &args, &Environment::new())?;
            // One after the other: which executor serves a client depends on who came before.
            order(&mut job, 1, Duration::from_millis(1))?;
            answer(&mut job, Duration::from_millis(1))?;
            fleet.jobs.push(job);
        }
        // Everybody has touched what it uses before anything is measured.
        fleet.run(job_count, 64, Duration::from_millis(1))?;
        fleet.daemons.pause();
        Ok(fleet)
    }

    /// The daemon's turn: it runs until the result is dropped.
    pub(super) fn turn(&mut self) -> Turn<'_> {
        self.daemons.resume();
        Turn(self)
    }

    /// Has `job_count` jobs write for `time`, each with `depth` writes in flight.
    fn run(&mut self, job_count: usize, depth: usize, time: Duration) -> anyhow::Result<Histogram> {
        let jobs = self.jobs.get_mut(..job_count).context("as many jobs as were started")?;
        for job in &mut *jobs {
            order(job, depth, time)?;
        }
        let mut all = Histogram::default();
        for job in jobs {
            all.merge(&answer(job, time)?);
        }
        Ok(all)
    }
}

/// A daemon that runs.
pub(super) struct Turn<'a>(&'a mut Fleet);

impl Turn<'_> {
    /// As it says: operations completed in `time`.
    pub(super) fn run(
        &mut self,
        job_count: usize,
        depth: usize,
        time: Duration,
    ) -> anyhow::Result<Histogram> {
        self.0.run(job_count, depth, time)
    }

    /// Stops the daemon before its turn is over: jobs wait for it in vain.
    pub(super) fn pause(&self) {
        self.0.daemons.pause();
    }

    /// Ends such a pause.
    pub(super) fn resume(&self) {
        self.0.daemons.resume();
    }

    /// Starts what [`run`](Self::run) does, and does not wait for it.
    pub(super) fn begin(&mut self, depth: usize, time: Duration) -> anyhow::Result<()> {
        order(self.0.jobs.first_mut().context("a job")?, depth, time)
    }

    /// Waits for what was begun.
    pub(super) fn end(&mut self, time: Duration) -> anyhow::Result<Histogram> {
        answer(self.0.jobs.first_mut().context("a job")?, time)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.daemons.pause();
    }
}

fn order(job: &mut Child, depth: usize, time: Duration) -> anyhow::Result<()> {
    job.order(&Order { depth, time })
}

fn answer(job: &mut Child, time: Duration) -> anyhow::Result<Histogram> {
    job.answer(PATIENCE + time)
}
