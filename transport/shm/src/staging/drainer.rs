//! The drainer of a log: the client that fills it, or the daemon that guards it.
//!
//! One word says who writes the log's bytes to the file now. Whoever finds it free claims it, takes
//! `tail` and the extents from the slot ([`Consumer::resume`](super::Consumer::resume)), writes,
//! and releases what is written before it gives the word back. So two drainers never write the same
//! bytes, and never in different orders.
//!
//! A client writes with the kernel's file position, which its own system call moves: from
//! [`claim`](FileSlot::claim_drain) to [`begin_release`](FileSlot::begin_release) the daemon can
//! read there how far the write has come, and may take the claim over once it is done, although the
//! client is stopped. From then on the client's claim is void: it must not store `tail`, and
//! `begin_release` tells it so. A claim of a dead process is taken over whatever its state.
//!
//! # Memory ordering
//!
//! The word is changed with `Release` after `tail` and `extent_tail` are stored, and with `Acquire`
//! before they are loaded. [`loom_tests`](super) has the model.

use super::FileSlot;
use crate::sync::Ordering;

/// A side that may drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drainer {
    /// The process that fills the log.
    Client,
    /// The daemon.
    Daemon,
}

/// The right to drain a log, as found in the word: its holder, and the number of the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainClaim(u32);

const HOLDER: u32 = 3;
const NOBODY: u32 = 0;
const CLIENT_WRITES: u32 = 1;
const CLIENT_RELEASES: u32 = 2;
const DAEMON: u32 = 3;
/// Claims are numbered in steps of this.
const NEXT: u32 = 4;

impl DrainClaim {
    /// True if the client holds the claim and has not begun to release what it wrote.
    #[must_use]
    pub const fn is_client_writing(self) -> bool {
        self.0 & HOLDER == CLIENT_WRITES
    }

    const fn with(self, holder: u32) -> Self {
        Self(self.0 & !HOLDER | holder)
    }

    const fn next(self, holder: u32) -> Self {
        Self((self.0 & !HOLDER).wrapping_add(NEXT) | holder)
    }
}

impl FileSlot {
    /// Claims the right to drain; `None` while the other side has it.
    pub fn claim_drain(&self, by: Drainer) -> Option<DrainClaim> {
        let free = DrainClaim(self.consumer.0.drainer.load(Ordering::Relaxed));
        if free.0 & HOLDER != NOBODY {
            return None;
        }
        let holder = match by {
            Drainer::Client => CLIENT_WRITES,
            Drainer::Daemon => DAEMON,
        };
        self.change(free, free.next(holder))
    }

    /// Returns the holder of the right to drain; `None` if nobody has it.
    #[must_use]
    pub fn drain_holder(&self) -> Option<DrainClaim> {
        let claim = DrainClaim(self.consumer.0.drainer.load(Ordering::Acquire));
        (claim.0 & HOLDER != NOBODY).then_some(claim)
    }

    /// Before the client releases what it wrote. `None`: the daemon has taken the claim over, and
    /// has released it.
    pub fn begin_release(&self, claim: DrainClaim) -> Option<DrainClaim> {
        self.change(claim, claim.with(CLIENT_RELEASES))
    }

    /// Takes over the claim of a holder that has died, or, by the daemon, of a client whose write
    /// is done. `None`: the claim has changed since it was looked at.
    pub fn take_over_drain(&self, from: DrainClaim, by: Drainer) -> Option<DrainClaim> {
        let holder = match by {
            Drainer::Client => CLIENT_WRITES,
            Drainer::Daemon => DAEMON,
        };
        self.change(from, from.next(holder))
    }

    /// Gives the right to drain back. A claim that was taken over is left alone.
    pub fn end_drain(&self, claim: DrainClaim) {
        self.change(claim, claim.with(NOBODY));
    }

    fn change(&self, from: DrainClaim, to: DrainClaim) -> Option<DrainClaim> {
        let word = &self.consumer.0.drainer;
        word.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).ok().map(|_| to)
    }

    /// Says whether the client drains a full log itself; else the daemon drains ahead of it.
    pub fn set_drained_by_client(&self, is_so: bool) {
        self.control.0.drained_by_client.store(is_so.into(), Ordering::Relaxed);
    }

    /// True if the client drains a full log itself. A hint: who may drain, the claim decides.
    #[must_use]
    pub fn is_drained_by_client(&self) -> bool {
        self.control.0.drained_by_client.load(Ordering::Relaxed) != 0
    }
}
