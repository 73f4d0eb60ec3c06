//! The locks that a daemon's clients have at a server, so that they can be had again of one that
//! was started anew.

use std::collections::BTreeMap;

use wire::{LockKind, LockOwner, LockTerms};

use crate::{lock_call::LockCall, names::Identity};

/// Owner of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// A process's, in a file.
    Process(u16, Identity),
    /// Those of an open file, by its handle; of both kinds.
    OpenFile(u32, LockOwner),
}

/// All locks, by owner.
#[derive(Default)]
pub(super) struct Held(BTreeMap<Owner, Locked>);

/// Locks of an owner.
struct Locked {
    /// A handle that it was asked for by.
    handle: u32,
    ranges: Ranges,
}

/// Locks of one owner in one file, without overlaps.
#[derive(Default)]
pub(in crate::remote) struct Ranges(Vec<Range>);

/// From the first byte to before the last; 2^64-1: as far as files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::remote) struct Range {
    start: u64,
    end: u64,
    kind: LockKind,
}

impl Held {
    /// A lock was taken or given up by a handle of a file.
    pub(super) fn note(&mut self, handle: u32, identity: Identity, call: LockCall) {
        let owner = match call.terms.owner {
            LockOwner::Process => Owner::Process(call.terms.process, identity),
            owner => Owner::OpenFile(handle, owner),
        };
        let held = self.0.entry(owner).or_insert(Locked { handle, ranges: Ranges::default() });
        held.handle = handle;
        held.ranges.set(Range::of(call));
        if held.ranges.0.is_empty() {
            self.0.remove(&owner);
        }
    }

    /// A lock was refused to a handle. The kernel gives up one of a whole file before it looks
    /// whether the other kind of lock can be had.
    pub(super) fn refused(&mut self, handle: u32, call: LockCall) {
        if call.terms.owner == LockOwner::Whole {
            self.0.remove(&Owner::OpenFile(handle, LockOwner::Whole));
        }
    }

    /// A handle was closed.
    pub(super) fn closed(&mut self, handle: u32) {
        for owner in [LockOwner::OpenFile, LockOwner::Whole] {
            self.0.remove(&Owner::OpenFile(handle, owner));
        }
    }

    /// An owner's locks are lost.
    pub(super) fn lost(&mut self, owner: Owner) {
        self.0.remove(&owner);
    }

    /// Returns all locks to reclaim, by owner: the handle, and the locks.
    pub(super) fn all(&self) -> Vec<(Owner, u32, Vec<LockCall>)> {
        let calls = |owner: Owner, held: &Locked| {
            let (owner, process) = match owner {
                Owner::Process(process, _) => (LockOwner::Process, process),
                Owner::OpenFile(_, owner) => (owner, 0),
            };
            let call = |range: &Range| {
                let kind = range.kind;
                let terms = LockTerms { kind, owner, waits: false, reclaims: true, process };
                let len = if range.end == u64::MAX { 0 } else { range.end - range.start };
                LockCall { terms, start: range.start, len }
            };
            held.ranges.0.iter().map(call).collect()
        };
        self.0.iter().map(|(owner, held)| (*owner, held.handle, calls(*owner, held))).collect()
    }
}

impl Range {
    pub(in crate::remote) fn of(call: LockCall) -> Self {
        let end = if call.len == 0 { u64::MAX } else { call.start.saturating_add(call.len) };
        Self { start: call.start, end, kind: call.terms.kind }
    }
}

impl Ranges {
    /// True if another owner's lock there would have to wait.
    pub(in crate::remote) fn conflict_with(&self, other: Range) -> bool {
        self.0.iter().any(|range| {
            let overlap = range.start < other.end && other.start < range.end;
            overlap && (range.kind == LockKind::Exclusive || other.kind == LockKind::Exclusive)
        })
    }

    /// Puts a range in the place of what was there.
    pub(in crate::remote) fn set(&mut self, new: Range) {
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
        self.0 = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Identity = (1, 2);

    fn call(kind: LockKind, start: u64, len: u64) -> LockCall {
        let owner = LockOwner::Process;
        let terms = LockTerms { kind, owner, waits: false, reclaims: true, process: 7 };
        LockCall { terms, start, len }
    }

    #[test]
    fn what_is_held_is_as_the_kernel_has_it() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..500 {
            let mut held = Held::default();
            let mut bytes = [LockKind::Unlocked; 32];
            for _ in 0..20 {
                let (start, len) = (rng.u64(0..32), rng.u64(0..16));
                let kinds = [LockKind::Unlocked, LockKind::Shared, LockKind::Exclusive];
                let kind = kinds[rng.usize(0..kinds.len())];
                held.note(3, FILE, call(kind, start, len));
                let end = if len == 0 { 32 } else { (start + len).min(32) };
                bytes[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()].fill(kind);
            }
            let mut found = [LockKind::Unlocked; 32];
            let mut last = None;
            for call in held.all().into_iter().flat_map(|(_, _, calls)| calls) {
                assert_ne!(last, Some((call.terms.kind, call.start)), "two ranges for one");
                let end = if call.len == 0 { 32 } else { (call.start + call.len).min(32) };
                last = Some((call.terms.kind, call.start + call.len));
                for place in call.start..end {
                    found[usize::try_from(place).unwrap()] = call.terms.kind;
                }
            }
            assert_eq!(found, bytes);
        }
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

    #[test]
    fn whole_file_is_unlocked_where_another_lock_of_it_is_refused() {
        for (owner, count) in [(LockOwner::Whole, 0), (LockOwner::OpenFile, 1)] {
            let mut held = Held::default();
            let mut shared = call(LockKind::Shared, 0, 0);
            shared.terms.owner = owner;
            held.note(3, FILE, shared);
            let mut exclusive = call(LockKind::Exclusive, 0, 0);
            exclusive.terms.owner = owner;
            held.refused(3, exclusive);
            assert_eq!(held.all().len(), count, "{owner:?}");
        }
    }

    #[test]
    fn owners_are_kept_apart() {
        let mut held = Held::default();
        held.note(3, FILE, call(LockKind::Exclusive, 0, 0));
        let mut whole = call(LockKind::Shared, 0, 0);
        whole.terms.owner = LockOwner::Whole;
        held.note(3, FILE, whole);
        held.note(4, FILE, call(LockKind::Unlocked, 0, 8));
        assert_eq!(held.all().len(), 2);
        held.closed(3);
        assert_eq!(
            held.all(),
            [(Owner::Process(7, FILE), 4, vec![call(LockKind::Exclusive, 8, 0)])]
        );
        held.lost(Owner::Process(7, FILE));
        assert!(held.all().is_empty());
    }
}
