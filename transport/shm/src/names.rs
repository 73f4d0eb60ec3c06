//! The set of names that may be in coalesced folders, and when a name was last about to change
//! (`docs/reference/protocol.md`, section 9).
//!
//! A client that [claims](Names::claim) the hash of a folder and a name knows that no file has this
//! name: the daemon has put all names in before it allowed claims in the folder, and puts in each
//! that it is about to make. And nobody else makes it without asking: one claim of a hash succeeds.
//! What is found taken may be another name with the same hash; then the daemon is asked in vain.
//!
//! # Memory ordering
//!
//! The daemon puts a name in and then [raises](Names::raise) an epoch, which releases; a client
//! reads the epoch, which acquires, and then claims. So one that has read the raised epoch finds
//! the name.
//!
//! The other way round is the sleeper's pattern of [`doorbell`](crate::doorbell), once more. The
//! client publishes its record and then looks at the epochs, the daemon raises one and then looks
//! at the records, and each has a `SeqCst` fence between the two. Either the client sees that the
//! epoch was raised, and asks, or the daemon sees the record before it executes the call.

use crate::sync::{AtomicU32, AtomicU64, Line, Ordering, fence};

/// Names that a daemon can know, and a few more.
pub const NAME_SLOTS: usize = SLOTS;
const SLOTS: usize = if cfg!(any(loom, miri)) { 4 } else { 1 << 20 };
/// Slots that are looked at for a name before it is left to the daemon.
const PROBES: usize = if cfg!(any(loom, miri)) { 4 } else { 64 };
/// Set in the slot of a name that no file has any more.
const GONE: u64 = 1;
const _: () = assert!(SLOTS.is_power_of_two() && PROBES <= SLOTS);

/// The shared set.
#[derive(Debug)]
#[repr(C)]
pub struct Names {
    offered: Line<Offer>,
    epochs: Line<EpochLine>,
    slots: [AtomicU64; SLOTS],
}

#[derive(Debug, Default)]
#[repr(C)]
struct Offer {
    /// Slots in use; 0: none is offered.
    slots: AtomicU32,
    is_near: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(C)]
struct EpochLine {
    names: AtomicU64,
    folders: AtomicU64,
}

/// Both epochs at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epochs {
    /// Raised before any call that changes names.
    pub names: u64,
    /// Raised before a call that may change where a path leads, or who may write a folder.
    pub folders: u64,
}

/// The hash of a name in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameHash(u64);

impl NameHash {
    /// The word that stands for it.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Of what stands for the folder, and the name by eight bytes, mixed so that every bit counts.
    #[must_use]
    pub fn new(folder: u64, name: &[u8]) -> Self {
        let step = |hash: u64, word: u64| {
            let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed.rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        };
        let words = name.chunks_exact(8);
        let rest =
            words.remainder().iter().rev().fold(0, |rest, byte| rest << 8 | u64::from(*byte));
        let words = words.map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let mut hash = words.chain([rest]).fold(step(0, folder), step);
        for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
            hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
        }
        // Neither free nor gone.
        Self((hash ^ (hash >> 33)) & !GONE | 2)
    }
}

impl Names {
    /// For the daemon: files may be made by claims, of which there is room for so many: a power of
    /// two, up to [`NAME_SLOTS`].
    pub fn offer(&self, slots: usize) {
        debug_assert!(slots <= SLOTS, "there are no more");
        let slots = u32::try_from(slots.min(SLOTS)).unwrap_or(0);
        self.offered.0.slots.store(slots, Ordering::Release);
    }

    /// For the daemon, before the first offer: the files are kept on file systems of this machine,
    /// whose page cache has room for a burst.
    pub fn say_near(&self) {
        self.offered.0.is_near.store(1, Ordering::Release);
    }

    /// True if the daemon has said so.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.offered.0.is_near.load(Ordering::Acquire) != 0
    }

    /// For the daemon: forgets all names, after which more slots may be offered. Raise the epochs
    /// before this; whoever has claimed a name and not published it sees that.
    pub fn clear(&self) {
        self.used().iter().for_each(|slot| slot.store(0, Ordering::Release));
    }

    /// True if the daemon keeps files of whose names it knows.
    #[must_use]
    pub fn is_offered(&self) -> bool {
        self.offered.0.slots.load(Ordering::Acquire) != 0
    }

    /// The epochs now. Read before a claim.
    #[must_use]
    pub fn epochs(&self) -> Epochs {
        let names = self.epochs.0.names.load(Ordering::Acquire);
        Epochs { names, folders: self.epochs.0.folders.load(Ordering::Acquire) }
    }

    /// True if nothing has changed, after a record was published: then it is as if that had been
    /// executed at once.
    #[must_use]
    pub fn are_still(&self, before: Epochs) -> bool {
        fence(Ordering::SeqCst);
        self.epochs() == before
    }

    /// For the daemon, before a call that changes names, and with `folders` where a path leads.
    /// Look at the published records after this.
    pub fn raise(&self, folders: bool) {
        if folders {
            self.epochs.0.folders.fetch_add(1, Ordering::AcqRel);
        }
        self.epochs.0.names.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Claims a name for the caller; `false`: it may be there, or there is no room to know.
    pub fn claim(&self, hash: NameHash) -> bool {
        for slot in self.probe(hash) {
            let mut found = slot.load(Ordering::Acquire);
            while found == 0 || found == hash.0 | GONE {
                match slot.compare_exchange(found, hash.0, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return true,
                    Err(now) => found = now,
                }
            }
            if found == hash.0 {
                return false;
            }
        }
        false
    }

    /// True if a name is certainly not there, and can be claimed as things stand.
    #[must_use]
    pub fn may_claim(&self, hash: NameHash) -> bool {
        for slot in self.probe(hash) {
            match slot.load(Ordering::Acquire) {
                found if found == hash.0 => return false,
                found if found == 0 || found == hash.0 | GONE => return true,
                _ => {}
            }
        }
        false
    }

    /// For the daemon: a name is there, or about to be.
    ///
    /// Returns whether it can be known: a name that has no slot nobody can claim, either, since
    /// slots are never free again.
    pub fn insert(&self, hash: NameHash) -> bool {
        self.claim(hash) || self.probe(hash).any(|slot| slot.load(Ordering::Acquire) == hash.0)
    }

    /// For the daemon, once a name is there no more: it can be claimed again.
    pub fn remove(&self, hash: NameHash) {
        let slot = self.probe(hash).find(|slot| slot.load(Ordering::Acquire) == hash.0);
        slot.inspect(|slot| slot.store(hash.0 | GONE, Ordering::Release));
    }

    fn used(&self) -> &[AtomicU64] {
        // Whatever the segment says, there are no more.
        let offered = self.offered.0.slots.load(Ordering::Relaxed) as usize;
        self.slots.get(..offered.min(SLOTS)).unwrap_or_default()
    }

    fn probe(&self, hash: NameHash) -> impl Iterator<Item = &AtomicU64> {
        let slots = self.used();
        let first = usize::try_from(hash.0 >> 2).unwrap_or(0).checked_rem(slots.len()).unwrap_or(0);
        slots.iter().skip(first).chain(slots.iter().take(first)).take(PROBES)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{boxed::Box, vec::Vec};

    use super::*;

    /// A zeroed set, as in a segment.
    fn names() -> Box<Names> {
        let layout = std::alloc::Layout::new::<Names>();
        // SAFETY: the layout has a size.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        // SAFETY: as much memory as that, which any bytes are a valid value of.
        let names: Box<Names> = unsafe { Box::from_raw(memory.cast()) };
        names.offer(SLOTS);
        names
    }

    #[test]
    fn name_is_claimed_once_until_it_is_gone() {
        let (names, hash) = (names(), NameHash::new(1, b"a"));
        assert!(names.may_claim(hash) && names.claim(hash));
        assert!(!names.may_claim(hash) && !names.claim(hash));
        assert!(names.claim(NameHash::new(2, b"a")), "another folder's");
        names.remove(hash);
        assert!(names.may_claim(hash) && names.claim(hash));
        assert!(!names.claim(hash));
    }

    #[test]
    fn name_that_the_daemon_makes_is_claimed_by_nobody() {
        let (names, hash) = (names(), NameHash::new(1, b"b"));
        assert!(names.insert(hash) && names.insert(hash));
        assert!(!names.claim(hash));
        names.remove(hash);
        assert!(names.insert(hash) && !names.claim(hash));
    }

    #[test]
    fn names_without_room_can_be_claimed_by_nobody() {
        let names = names();
        let hash = |number: u32| NameHash::new(7, &number.to_le_bytes());
        let hashes = (0..).map(hash).take(SLOTS + SLOTS / 2);
        let (known, unknown): (Vec<_>, Vec<_>) = hashes.partition(|hash| names.insert(*hash));
        assert!(known.len() >= SLOTS / 2 && !unknown.is_empty());
        assert!(unknown.iter().chain(&known).all(|hash| !names.claim(*hash)));
        names.clear();
        assert!(unknown.iter().take(1000).all(|hash| names.claim(*hash)));
    }

    #[test]
    fn raised_epoch_is_seen_after_a_publication() {
        let names = names();
        let before = names.epochs();
        assert!(names.are_still(before));
        names.raise(false);
        assert!(!names.are_still(before));
        assert_eq!(names.epochs().folders, before.folders);
        names.raise(true);
        assert_ne!(names.epochs().folders, before.folders);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;

    use super::*;

    /// The state that the daemon and a client share.
    struct Shared {
        names: Names,
        head: AtomicU64,
    }

    fn shared() -> Arc<Shared> {
        let slots = core::array::from_fn(|_| AtomicU64::new(0));
        let names = Names { offered: Line::default(), epochs: Line::default(), slots };
        names.offer(SLOTS);
        Arc::new(Shared { names, head: AtomicU64::new(0) })
    }

    /// A client makes a name by a claim while the daemon makes it for somebody who asks: the daemon
    /// sees the client's record before that, or the client finds the name taken, or it asks.
    #[test]
    fn claim_and_call_that_make_one_name_see_each_other() {
        crate::sync::model(3, || {
            let (shared, hash) = (shared(), NameHash::new(1, b"a"));
            let client = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    let before = shared.names.epochs();
                    if !shared.names.claim(hash) {
                        return false;
                    }
                    shared.head.store(1, Ordering::Release);
                    shared.names.are_still(before)
                })
            };
            shared.names.insert(hash);
            shared.names.raise(false);
            let has_seen = shared.head.load(Ordering::Acquire) == 1;
            let is_made = client.join().unwrap();
            assert!(has_seen || !is_made, "made twice");
        });
    }

    /// Of two clients that claim a name one gets it.
    #[test]
    fn two_claims_of_a_name_have_one_winner() {
        crate::sync::model(3, || {
            let (shared, hash) = (shared(), NameHash::new(1, b"a"));
            let other = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || shared.names.claim(hash))
            };
            // One that takes the slot first does not matter.
            shared.names.claim(NameHash::new(2, b"b"));
            let won = shared.names.claim(hash);
            assert_ne!(won, other.join().unwrap());
        });
    }
}
