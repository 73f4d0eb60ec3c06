//! Lines of the log that whoever causes them could cause as often as he likes; among them those of
//! connections that cannot be accepted, as by a process without a descriptor left. The reason may
//! stay for long, and each try fails with it: the tries have pauses.

use std::{cell::Cell, io, time::Duration};

use executor::{Handle, Instant};

/// Between two lines.
const PERIOD: Duration = Duration::from_secs(60);

/// Lets one line through each minute.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    said_at: Cell<Option<Instant>>,
    unsaid: Cell<u64>,
}

impl Throttle {
    /// True if the line is to be written; [`unsaid`](Self::unsaid) then tells how many were not.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        let admits = self.said_at.get().is_none_or(|at| now >= at + PERIOD);
        if admits {
            self.said_at.set(Some(now));
        } else {
            self.unsaid.set(self.unsaid.get() + 1);
        }
        admits
    }

    /// The number of lines that were not written since this was last called.
    pub(crate) fn unsaid(&self) -> u64 {
        self.unsaid.take()
    }
}

/// Between a connection that could not be accepted and the next try.
const PAUSE: Duration = Duration::from_millis(10);

/// Back-off of a listener for connections that cannot be accepted.
#[derive(Debug)]
pub struct Unaccepted {
    handle: Handle,
    throttle: Throttle,
}

impl Unaccepted {
    /// That of a listener that has met none yet.
    pub fn new(handle: &Handle) -> Self {
        Self { handle: handle.clone(), throttle: Throttle::default() }
    }

    /// Returns when the next try may be made.
    pub async fn pause_after(&self, error: &io::Error) {
        if self.throttle.admits(self.handle.now()) {
            tracing::warn!("a connection could not be accepted: {error}");
        }
        self.handle.sleep(PAUSE).await;
    }
}
