//! The locks that a daemon's clients have at a server, so that they can be had again of one that
//! was started anew.

use std::collections::BTreeMap;

use storage::{lock_call::LockCall, names::Identity};
use wire::{LockOwner, LockTerms};

use crate::ranges::{Range, Ranges};

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
        if held.ranges.is_empty() {
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
            held.ranges.all().map(call).collect()
        };
        self.0.iter().map(|(owner, held)| (*owner, held.handle, calls(*owner, held))).collect()
    }
}

#[cfg(test)]
mod tests {
    use wire::LockKind;

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
