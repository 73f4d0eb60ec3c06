//! Locked ranges of one owner in one file, as a client remembers and a server grants them.

use storage::lock_call::LockCall;
use wire::LockKind;

/// Locks of one owner in one file, without overlaps.
#[derive(Default)]
pub(crate) struct Ranges(Vec<Range>);

/// From the first byte to before the last; 2^64-1: as far as files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: LockKind,
}

impl Range {
    pub(crate) fn of(call: LockCall) -> Self {
        let end = if call.len == 0 { u64::MAX } else { call.start.saturating_add(call.len) };
        debug_assert!(call.start <= end, "a range ends behind its start");
        Self { start: call.start, end, kind: call.terms.kind }
    }
}

impl Ranges {
    /// True if another owner's lock there would have to wait.
    pub(crate) fn conflict_with(&self, other: Range) -> bool {
        self.0.iter().any(|range| {
            let overlap = range.start < other.end && other.start < range.end;
            overlap && (range.kind == LockKind::Exclusive || other.kind == LockKind::Exclusive)
        })
    }

    /// All of them, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Range> {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts a range in the place of what was there.
    pub(crate) fn set(&mut self, new: Range) {
        let mut kept = Vec::with_capacity(self.0.len() + 2);
        for old in self.0.drain(..) {
            let before = Range { end: old.end.min(new.start), ..old };
            let behind = Range { start: old.start.max(new.end), ..old };
            kept.extend([before, behind].into_iter().filter(|range| range.start < range.end));
        }
        if new.kind != LockKind::Unlocked {
            kept.push(new);
        }
        kept.sort_unstable_by_key(|range| range.start);
        kept.dedup_by(|next, last| {
            let joins = last.kind == next.kind && last.end == next.start;
            if joins {
                last.end = next.end;
            }
            joins
        });
        let is_apart = |one: &Range, next: &Range| one.end <= next.start;
        debug_assert!(kept.is_sorted_by(is_apart), "the ranges of an owner do not overlap");
        self.0 = kept;
    }
}

#[cfg(test)]
mod tests {
    use wire::{LockOwner, LockTerms};

    use super::*;

    fn call(kind: LockKind, start: u64, len: u64) -> LockCall {
        let owner = LockOwner::Process;
        let terms = LockTerms { kind, owner, waits: false, reclaims: true, process: 7 };
        LockCall { terms, start, len }
    }

    #[test]
    fn conflicts_need_a_common_byte_and_an_exclusive_lock() {
        let mut ranges = Ranges::default();
        ranges.set(Range::of(call(LockKind::Shared, 4, 4)));
        for (kind, start, len, conflicts) in [
            (LockKind::Shared, 4, 4, false),
            (LockKind::Exclusive, 7, 1, true),
            (LockKind::Exclusive, 0, 0, true),
            (LockKind::Exclusive, 0, 4, false),
            (LockKind::Exclusive, 8, 0, false),
        ] {
            let other = Range::of(call(kind, start, len));
            assert_eq!(ranges.conflict_with(other), conflicts, "{other:?}");
        }
        ranges.set(Range::of(call(LockKind::Exclusive, 5, 1)));
        assert!(ranges.conflict_with(Range::of(call(LockKind::Shared, 0, 0))));
        assert!(!ranges.conflict_with(Range::of(call(LockKind::Shared, 6, 0))));
    }
}
