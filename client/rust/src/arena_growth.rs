//! How far the arena has grown, and when to ask for more.

use core::sync::atomic::{AtomicU64, Ordering};

/// Time after which more is asked for again that was refused, ns.
const ASK_EVERY_NS: u64 = 100_000_000;

/// How far the arena has grown.
pub(crate) struct ArenaGrowth {
    /// Bytes that were granted at first.
    pub(crate) granted: u64,
    /// When more may be asked for, ns: never again once it has been granted.
    due_ns: AtomicU64,
}

impl ArenaGrowth {
    pub(crate) const fn new(granted: u64) -> Self {
        Self { granted, due_ns: AtomicU64::new(0) }
    }

    /// True if more may be asked for.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns.load(Ordering::Relaxed)
    }

    /// Learns that `len` bytes are granted now.
    pub(crate) fn answered(&self, len: u64, now_ns: u64) {
        let is_more = len > self.granted;
        let due_ns = if is_more { u64::MAX } else { now_ns.saturating_add(ASK_EVERY_NS) };
        self.due_ns.fetch_max(due_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_asked_for_until_it_is_granted_and_not_at_every_write() {
        let growth = ArenaGrowth::new(100);
        assert!(growth.is_due(0));
        growth.answered(100, 0);
        assert!(!growth.is_due(ASK_EVERY_NS - 1) && growth.is_due(ASK_EVERY_NS));
        growth.answered(200, ASK_EVERY_NS);
        assert!(!growth.is_due(u64::MAX - 1));
        // Another thread's answer, which comes late.
        growth.answered(100, ASK_EVERY_NS);
        assert!(!growth.is_due(u64::MAX - 1));
    }
}
