//! State that ticks keep of a file, and when its bytes are wanted.

use std::cell::Cell;

use shm::staging::DrainClaim;
use storage::Storage;

use super::OpenFile;

/// Refused bytes are tried again every so many ticks: 100 ms.
const RETRY_TICKS: u32 = 50;

/// State that ticks keep of a file.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    pub(crate) is_active: Cell<bool>,
    /// Head of the log at the last tick.
    pub(crate) seen: Cell<u64>,
    /// Ticks in a row that found the log empty, since its mark was taken.
    pub(crate) quiet_ticks: Cell<u32>,
    /// Log position up to which the background shall drain, however little that is.
    pub(crate) wanted: Cell<u64>,
    /// Holder that kept the background from draining when it last tried.
    pub(crate) last_holder: Cell<Option<DrainClaim>>,
    /// The kernel has refused the oldest staged bytes when they were last tried.
    pub(crate) is_refused: Cell<bool>,
    /// Ticks since the background has tried refused bytes.
    refused_ticks: Cell<u32>,
}

impl Pace {
    /// Counts a tick that finds refused bytes; whether they are to be tried again.
    pub(crate) fn tick_refused(&self) -> bool {
        let ticks = self.refused_ticks.get() + 1;
        debug_assert!(ticks <= RETRY_TICKS, "a retry starts the count again");
        self.refused_ticks.set(ticks % RETRY_TICKS);
        ticks == RETRY_TICKS
    }
}

impl<S: Storage> OpenFile<S> {
    /// True if so much is staged that it is drained whatever its age, where the client does not
    /// drain a full log itself.
    pub(crate) fn has_much(&self) -> bool {
        if self.shared().is_drained_by_client() || self.pace.is_refused.get() {
            return false;
        }
        let staged = self.staged();
        staged != 0 && staged >= self.log().stripe_len()
    }

    /// True if the background shall drain another unit.
    pub(crate) fn wants_drain(&self) -> bool {
        !self.is_drained_to(self.pace.wanted.get()) || self.has_much()
    }
}
