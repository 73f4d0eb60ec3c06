//! Lines of the log that whoever causes them could cause as often as he likes.

use std::{cell::Cell, time::Duration};

use executor::Instant;

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
