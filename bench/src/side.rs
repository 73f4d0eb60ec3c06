//! One side of a comparison: a worker process under one policy, and the way to drive it.

use std::time::Duration;

use crate::{
    child::Child,
    job::{Job, Sample},
    kakehi::Environment,
    worker::Args,
};

/// Longest answer to one job. A worker that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// A worker, or why there is none.
pub(crate) struct Side(Result<Child, String>);

impl Side {
    /// Starts a worker with nothing but `environment`, on `core` if one is named.
    pub(crate) fn start(environment: anyhow::Result<Environment>, core: Option<usize>) -> Self {
        let worker = environment.and_then(|all| Child::start("worker", &Args { core }, &all));
        Self(worker.map_err(|why| format!("{why:#}")))
    }

    /// Has the job done, and waits for it.
    ///
    /// # Errors
    ///
    /// Why there is no sample. A worker that died or hangs is not asked again.
    pub(crate) fn run(&mut self, job: &Job) -> Result<Sample, String> {
        let worker = self.0.as_mut().map_err(|why| why.clone())?;
        match worker.order(job).and_then(|()| worker.hear(PATIENCE)) {
            Ok(answer) => answer,
            Err(why) => {
                self.fail(format!("{why:#}"));
                Err(format!("{why:#}"))
            }
        }
    }

    /// Gives the worker up, unless it is given up already.
    pub(crate) fn fail(&mut self, why: String) {
        if self.0.is_ok() {
            self.0 = Err(why);
        }
    }
}
