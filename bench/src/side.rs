//! One side of a comparison: a worker process under one policy, and the way to drive it.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};

use crate::{
    job::{Answer, Job, Sample},
    kakehi::Environment,
    process::{Process, is_ready},
};

/// Longest answer to one job. A worker that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// A worker, or why there is none.
pub(crate) struct Side {
    worker: Result<Worker, String>,
}

/// Ends when dropped: its standard input ends first.
struct Worker {
    jobs: ChildStdin,
    answers: BufReader<ChildStdout>,
    process: Process,
}

impl Side {
    /// Starts a worker with nothing but `environment`, on `core` if one is named.
    pub(crate) fn start(environment: anyhow::Result<Environment>, core: Option<usize>) -> Self {
        let worker = environment.and_then(|environment| Worker::start(environment, core));
        Self { worker: worker.map_err(|why| format!("{why:#}")) }
    }

    /// Has the job done, and waits for it.
    ///
    /// # Errors
    ///
    /// Why there is no sample. A worker that died or hangs is not asked again.
    pub(crate) fn run(&mut self, job: &Job) -> Result<Sample, String> {
        let worker = self.worker.as_mut().map_err(|why| why.clone())?;
        match worker.run(job) {
            Ok(Answer(answer)) => answer,
            Err(why) => {
                let why = format!("{why:#}");
                self.worker = Err(why.clone());
                Err(why)
            }
        }
    }

    /// Gives the worker up, unless it is given up already.
    pub(crate) fn fail(&mut self, why: String) {
        if self.worker.is_ok() {
            self.worker = Err(why);
        }
    }
}

impl Worker {
    fn start(environment: Environment, core: Option<usize>) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg("worker").env_clear().envs(environment);
        if let Some(core) = core {
            command.arg("--core").arg(core.to_string());
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (jobs, answers) = (child.stdin.take(), child.stdout.take());
        Ok(Self {
            jobs: jobs.context("a pipe to the worker")?,
            answers: BufReader::new(answers.context("a pipe from the worker")?),
            process: Process(child),
        })
    }

    fn run(&mut self, job: &Job) -> anyhow::Result<Answer> {
        writeln!(self.jobs, "{job}").context("the worker has ended")?;
        let has_answered = is_ready(self.answers.get_ref(), PATIENCE)?;
        if !has_answered {
            self.process.kill();
        }
        ensure!(has_answered, "no answer within {PATIENCE:?}");
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "the worker has ended");
        line.trim_end().parse()
    }
}
