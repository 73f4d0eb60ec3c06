//! A table of inodes with files open for write-behind, looked at by every wrapped open and stat.
//!
//! Slots are found by hash and count files, so a collision costs a needless question and never a
//! missed one. A client counts a file in before it registers it and out after the daemon has let go
//! of it; the daemon counts out what a dead client left registered. A client that dies between the
//! two leaves a count behind: needless questions again, until the daemon ends.

use crate::sync::{AtomicU32, Ordering};

// Many slots only make few collisions, which is nothing a model or an interpreter looks for.
const SLOTS: usize = if cfg!(any(loom, miri)) { 2 } else { 16384 };

/// The shared table.
#[derive(Debug)]
#[repr(C)]
pub struct Inodes {
    /// Files counted in, over all slots: while it is zero nobody needs a hash.
    total: AtomicU32,
    slots: [AtomicU32; SLOTS],
}

impl Inodes {
    /// Whether no file is counted in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total.load(Ordering::Acquire) == 0
    }

    /// Counts a file in.
    pub fn add(&self, device: u64, inode: u64) {
        self.slot(device, inode).fetch_add(1, Ordering::AcqRel);
        self.total.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a file out.
    pub fn remove(&self, device: u64, inode: u64) {
        self.slot(device, inode).fetch_sub(1, Ordering::AcqRel);
        self.total.fetch_sub(1, Ordering::AcqRel);
    }

    /// Files counted in for this inode, and for others with its hash.
    #[must_use]
    pub fn count(&self, device: u64, inode: u64) -> u32 {
        self.slot(device, inode).load(Ordering::Acquire)
    }

    fn slot(&self, device: u64, inode: u64) -> &AtomicU32 {
        let mixed = (inode ^ device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let index = usize::try_from(mixed).unwrap_or(0) % SLOTS;
        self.slots.get(index).unwrap_or(&self.total)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::boxed::Box;

    use super::*;

    fn table() -> Box<Inodes> {
        let slots = std::array::from_fn(|_| AtomicU32::new(0));
        Box::new(Inodes { total: AtomicU32::new(0), slots })
    }

    #[test]
    fn a_file_is_found_until_it_is_counted_out() {
        let inodes = table();
        assert!(inodes.is_empty());
        inodes.add(8, 1234);
        inodes.add(8, 1234);
        assert_eq!(inodes.count(8, 1234), 2);
        inodes.remove(8, 1234);
        inodes.remove(8, 1234);
        assert!(inodes.is_empty());
        assert_eq!(inodes.count(8, 1234), 0);
    }

    #[cfg(not(miri))]
    #[test]
    fn neighbouring_inodes_spread() {
        let inodes = table();
        (0..1000).for_each(|inode| inodes.add(2049, inode));
        let crowded = inodes.slots.iter().filter(|slot| slot.load(Ordering::Relaxed) > 2).count();
        assert!(crowded < 20, "{crowded} slots hold more than two of 1000 inodes");
    }
}
