//! A table of inodes with files open for write-behind, looked at by every wrapped open and stat.
//!
//! Slots are found by hash and count files, so a collision costs a needless question and never a
//! missed one. A client counts a file in before it registers it and out after the daemon has let go
//! of it; the daemon counts out what a dead client left registered. A client that dies between the
//! two leaves a count behind: needless questions again, until the daemon ends.
//!
//! A count does not say whose files they are: one goes, another comes, and it is what it was. So a
//! slot numbers its changes, too. A file with a log makes one when it is counted in, and one when
//! the daemon has been told of it, before anything is staged for it. Who asks the daemon about an
//! inode reads the slot first: as long as it has that number nobody has staged but those the daemon
//! knew then.
//!
//! # Memory ordering
//!
//! All changes of a slot are read-modify-writes, `AcqRel`, and looks at it are `Acquire`: who sees
//! one change sees all that was done before it. Of two that open an inode at the same time, one
//! therefore finds the other counted when it tells of itself.

use crate::sync::{AtomicU64, Ordering};

// Many slots only make few collisions, which is nothing a model or an interpreter looks for.
const SLOTS: u32 = if cfg!(any(loom, miri)) { 2 } else { 16384 };

/// Bits of a slot that count; the others number its changes, and so many are not made while
/// somebody looks away.
const COUNT_BITS: u32 = 24;
const ONE_FILE: u64 = 1;
const ONE_CHANGE: u64 = 1 << COUNT_BITS;

/// The shared table.
#[derive(Debug)]
#[repr(C)]
pub struct Inodes {
    /// Files counted in, over all slots: while it is zero nobody needs a hash.
    total: AtomicU64,
    slots: [AtomicU64; SLOTS as usize],
}

/// Content of a slot at one moment. Equal ones: the same files, and nobody has come between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linked(u64);

impl Linked {
    /// No file, and none yet.
    pub const NOBODY: Self = Self(0);

    /// The content that a word of [`to_bits`](Self::to_bits) stands for.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// As a word, to be kept in an atomic one.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Files counted in for the inode, and for others with its hash.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.0 % ONE_CHANGE
    }

    /// True if a file has come since `before`.
    #[must_use]
    pub const fn has_news_since(self, before: Self) -> bool {
        self.0 / ONE_CHANGE != before.0 / ONE_CHANGE
    }
}

impl Inodes {
    /// True if no file is counted in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total.load(Ordering::Acquire) == 0
    }

    /// Counts a file in that the daemon is about to be told of.
    pub fn add(&self, device: u64, inode: u64) {
        self.slot(device, inode).fetch_add(ONE_CHANGE + ONE_FILE, Ordering::AcqRel);
        self.total.fetch_add(ONE_FILE, Ordering::AcqRel);
    }

    /// The same of a file that is only read for now: nothing changes for others.
    pub fn add_reader(&self, device: u64, inode: u64) {
        self.slot(device, inode).fetch_add(ONE_FILE, Ordering::AcqRel);
        self.total.fetch_add(ONE_FILE, Ordering::AcqRel);
    }

    /// Says that the daemon has been told of a file that was counted in; returns who else has one.
    /// Nothing is staged for it before.
    pub fn tell(&self, device: u64, inode: u64) -> Linked {
        let before = self.slot(device, inode).fetch_add(ONE_CHANGE, Ordering::AcqRel);
        Linked(before.wrapping_add(ONE_CHANGE))
    }

    /// Counts a file out.
    pub fn remove(&self, device: u64, inode: u64) {
        self.slot(device, inode).fetch_sub(ONE_FILE, Ordering::AcqRel);
        self.total.fetch_sub(ONE_FILE, Ordering::AcqRel);
    }

    /// Returns the users of this inode, and of others with its hash.
    #[must_use]
    pub fn linked(&self, device: u64, inode: u64) -> Linked {
        self.linked_at(Self::place(device, inode))
    }

    /// The number of an inode's slot, for who [looks at it](Self::linked_at) often.
    #[must_use]
    pub fn place(device: u64, inode: u64) -> u32 {
        let mixed = (inode ^ device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        u32::try_from(mixed).unwrap_or(0) % SLOTS
    }

    /// As [`linked`](Self::linked), by the number of the slot.
    #[must_use]
    pub fn linked_at(&self, place: u32) -> Linked {
        Linked(self.slot_at(place).load(Ordering::Acquire))
    }

    fn slot(&self, device: u64, inode: u64) -> &AtomicU64 {
        self.slot_at(Self::place(device, inode))
    }

    fn slot_at(&self, place: u32) -> &AtomicU64 {
        self.slots.get(place as usize).unwrap_or(&self.total)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::boxed::Box;

    use super::*;

    fn table() -> Box<Inodes> {
        let slots = std::array::from_fn(|_| AtomicU64::new(0));
        Box::new(Inodes { total: AtomicU64::new(0), slots })
    }

    #[test]
    fn a_file_is_found_until_it_is_counted_out() {
        let inodes = table();
        assert!(inodes.is_empty());
        inodes.add(8, 1234);
        inodes.add(8, 1234);
        assert_eq!(inodes.linked(8, 1234).count(), 2);
        inodes.remove(8, 1234);
        inodes.remove(8, 1234);
        assert!(inodes.is_empty());
        assert_eq!(inodes.linked(8, 1234).count(), 0);
    }

    #[test]
    fn a_file_that_takes_the_place_of_another_is_news() {
        let inodes = table();
        inodes.add(8, 1234);
        inodes.tell(8, 1234);
        let before = inodes.linked(8, 1234);
        inodes.remove(8, 1234);
        assert!(!inodes.linked(8, 1234).has_news_since(before), "nobody has come");
        inodes.add(8, 1234);
        let after = inodes.linked(8, 1234);
        assert_eq!(after.count(), before.count());
        assert!(after.has_news_since(before));
    }

    /// A process that asks the daemon in between is not told of it, and has to ask again.
    #[test]
    fn a_file_is_news_once_more_when_the_daemon_knows_it() {
        let inodes = table();
        inodes.add(8, 1234);
        let between = inodes.linked(8, 1234);
        assert_eq!(inodes.tell(8, 1234), inodes.linked(8, 1234));
        assert!(inodes.linked(8, 1234).has_news_since(between));
        assert_eq!(inodes.linked(8, 1234).count(), 1);
    }

    #[cfg(not(miri))]
    #[test]
    fn neighbouring_inodes_spread() {
        let inodes = table();
        (0..1000).for_each(|inode| inodes.add(2049, inode));
        let counts = inodes.slots.iter().map(|slot| Linked(slot.load(Ordering::Relaxed)).count());
        let crowded = counts.filter(|count| *count > 2).count();
        assert!(crowded < 20, "{crowded} slots hold more than two of 1000 inodes");
    }
}
