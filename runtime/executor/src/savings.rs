//! How much polling the polls have repaid.
//!
//! A poll that finds something saves a wake-up, for which somebody would have waited: it earns
//! [`WORTH`]. Time in which polls find nothing is spent. An executor polls as long as there are
//! savings, so all polling of a daemon is bounded by what it has found: ten finds a second pay for
//! 2 ms of a core, and a core that is polled all the time needs a find every [`WORTH`].
//!
//! The executors of a daemon share their savings, because a poll of one may find what another
//! handles. Orderings are relaxed: the savings publish nothing, and a lost update is some polling
//! more or less.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// Polling that one find repays. The guest's haltpoll governor of Linux polls for as long.
pub(crate) const WORTH: Duration = Duration::from_micros(200);

/// Time that polls have earned and not spent.
#[derive(Debug, Default)]
pub(crate) struct Savings(AtomicU64);

impl Savings {
    /// Time for which polling is paid.
    pub(crate) fn left(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// A poll has found something. What exceeds `most` is lost.
    pub(crate) fn earn(&self, most: Duration) {
        self.0.store(nanos((self.left() + WORTH).min(most)), Ordering::Relaxed);
    }

    /// As many polls have found something as ever pay.
    #[cfg(test)]
    pub(crate) fn earn_all(&self) {
        self.0.store(u64::MAX, Ordering::Relaxed);
    }

    /// Polls have found nothing for so long.
    pub(crate) fn spend(&self, time: Duration) {
        self.0.store(nanos(self.left().saturating_sub(time)), Ordering::Relaxed);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
