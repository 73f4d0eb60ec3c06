//! Bounds on lines of the log that peers can cause at will: one a minute.
//!
//! Among these lines are those about connections that cannot be accepted, as by a process without a
//! descriptor left. Its reason may last, and each try fails with it: so a listener pauses before it
//! tries again.

use std::{cell::Cell, io, time::Duration};

use executor::{Handle, Instant};

/// Between two lines.
const PERIOD: Duration = Duration::from_secs(60);

/// Lets one line of the log through each minute.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    said_at: Cell<Option<Instant>>,
    unsaid: Cell<u64>,
}

impl LogThrottle {
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
pub struct AcceptBackoff {
    handle: Handle,
    throttle: LogThrottle,
}

impl AcceptBackoff {
    /// That of a listener that has met none yet.
    pub fn new(handle: &Handle) -> Self {
        Self { handle: handle.clone(), throttle: LogThrottle::default() }
    }

    /// Returns when the next try may be made.
    pub async fn pause_after(&self, error: &io::Error) {
        if self.throttle.admits(self.handle.now()) {
            tracing::warn!("a connection could not be accepted: {error}");
        }
        self.handle.sleep(PAUSE).await;
    }
}
