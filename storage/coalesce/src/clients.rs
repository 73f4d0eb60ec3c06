//! The clients of this node that make and read files without asking, and what is shared with them:
//! the names, their bundles, and descriptors that they get for the asking.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use executor::lock;
use shm::{Costs, JobShared};

use crate::bundles::Bundles;

/// The clients of a daemon, on whichever executor.
#[derive(Debug)]
pub struct Clients {
    job: shm::Job,
    /// Files that they make.
    pub bundles: Bundles,
    /// Descriptors that they get.
    pub shares: Shares,
    /// Files they made that could not be written.
    errors: AtomicU64,
}

impl AsRef<Costs> for Clients {
    fn as_ref(&self) -> &Costs {
        &self.shared().costs
    }
}

impl Clients {
    /// Those of a job.
    #[must_use]
    pub fn new(job: shm::Job) -> Self {
        let (bundles, shares) = (Bundles::default(), Shares::default());
        Self { job, bundles, shares, errors: AtomicU64::new(0) }
    }

    /// The shared struct of the job's segment.
    #[must_use]
    pub fn shared(&self) -> &JobShared {
        self.job.shared()
    }

    pub(crate) fn count_errors(&self, count: u64) {
        self.errors.fetch_add(count, Ordering::Relaxed);
    }

    /// Files that clients made and that could not be written, so far.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}

/// Descriptors that clients get for the asking, by number: see
/// [`Request::Share`](wire::Request::Share).
#[derive(Debug, Default)]
pub struct Shares(Mutex<Vec<Arc<OwnedFd>>>);

impl Shares {
    /// Adds the next one.
    pub(crate) fn add(&self, fd: OwnedFd) {
        lock(&self.0).push(Arc::new(fd));
    }

    /// That of a number.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<Arc<OwnedFd>> {
        lock(&self.0).get(number as usize).cloned()
    }
}
