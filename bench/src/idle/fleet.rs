//! Daemons under one idle policy, and jobs that wait for them: stopped, but for their turns.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};

use super::{Target, daemons::Daemons, histogram::Histogram, storm::FILE_LEN};
use crate::{
    process::{Process, is_ready},
    scratch::Scratch,
};

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
    jobs: Vec<Job>,
    daemons: Daemons,
}

struct Job {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    process: Process,
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
            let mut job = Job::start(&fleet.daemons, index)?;
            // One after the other: which executor serves a client depends on who came before.
            job.order(1, Duration::from_millis(1))?;
            job.answer(Duration::from_millis(1))?;
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
            job.order(depth, time)?;
        }
        let mut all = Histogram::default();
        for job in jobs {
            all.merge(&job.answer(time)?);
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
        self.0.jobs.first_mut().context("a job")?.order(depth, time)
    }

    /// Waits for what was begun.
    pub(super) fn end(&mut self, time: Duration) -> anyhow::Result<Histogram> {
        self.0.jobs.first_mut().context("a job")?.answer(time)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.daemons.pause();
    }
}

impl Job {
    fn start(daemons: &Daemons, index: usize) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg("storm").env_clear();
        command.arg("--socket").arg(daemons.socket()).arg("--file").arg(daemons.file(index));
        command.args(["--rule", daemons.rule()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        Ok(Self {
            orders: orders.context("a pipe to the job")?,
            answers: BufReader::new(answers.context("a pipe from the job")?),
            process: Process(child),
        })
    }

    fn order(&mut self, depth: usize, time: Duration) -> anyhow::Result<()> {
        let order = format!("{depth} {}\n", time.as_millis());
        self.orders.write_all(order.as_bytes()).context("a job has ended")
    }

    fn answer(&mut self, time: Duration) -> anyhow::Result<Histogram> {
        let has_answered = is_ready(self.answers.get_ref(), PATIENCE + time)?;
        if !has_answered {
            self.process.kill();
        }
        ensure!(has_answered, "no answer within {PATIENCE:?}");
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "a job has ended");
        match line.trim_end().split_once(' ') {
            Some(("ok", histogram)) => histogram.parse(),
            Some(("error", why)) => bail!("{why}"),
            _ => bail!("'{line}' is no answer"),
        }
    }
}
