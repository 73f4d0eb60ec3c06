//! Which files this process has mapped, and which it has locked.
//!
//! A mapping shows what is in the file, and outlives the descriptor: such a file is not staged to
//! any more, whichever descriptor is written. Only the close of a file that was locked may give up
//! a lock; it drains all others.
//!
//! Nobody follows what is unmapped or unlocked, and a file whose two bits others have set is taken
//! for one of them: then the kernel serves a file that could have been staged, or a close drains in
//! vain. With some thirty files that are mapped, as libraries are, that is one file in a million.

use core::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 1024;
const _: () = assert!(WORDS * 64 == 1 << 16, "two bytes name a bit");
/// 2^64 by the golden ratio, odd.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Two bits for each file that was mapped, or locked.
pub(crate) type Bits = [AtomicU64; WORDS];

/// Those of no file.
pub(crate) const fn no_bits() -> Bits {
    [const { AtomicU64::new(0) }; WORDS]
}

/// The files that were marked.
pub(crate) struct Marks(&'static Bits);

impl Marks {
    pub(crate) const fn new(bits: &'static Bits) -> Self {
        Self(bits)
    }

    pub(crate) fn add(&self, device: u64, inode: u64) {
        self.add_identity(identity(device, inode));
    }

    pub(crate) fn add_identity(&self, identity: u64) {
        for (word, bit) in self.places(identity) {
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }

    pub(crate) fn has(&self, device: u64, inode: u64) -> bool {
        self.has_identity(identity(device, inode))
    }

    pub(crate) fn has_identity(&self, identity: u64) -> bool {
        let is_set = |(word, bit): (&AtomicU64, u64)| word.load(Ordering::Acquire) & bit != 0;
        self.places(identity).into_iter().all(is_set)
    }

    fn places(&self, identity: u64) -> [(&AtomicU64, u64); 2] {
        // The lowest bits, and the highest of a product that all bits have a part in.
        let [low, high, ..] = identity.to_le_bytes();
        let mixed = identity.wrapping_mul(MIX).to_be_bytes();
        let [first, ..] = self.0;
        [[low, high], [mixed[0], mixed[1]]].map(|bytes| {
            let number = u16::from_le_bytes(bytes);
            (self.0.get(usize::from(number / 64)).unwrap_or(first), 1 << (number % 64))
        })
    }
}

/// A word that stands for an inode; never zero.
pub(crate) const fn identity(device: u64, inode: u64) -> u64 {
    (inode ^ device.rotate_left(40)) | 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_marked_is_known() {
        static BITS: Bits = no_bits();
        let mapped = Marks::new(&BITS);
        for inode in [0, 63, 64, 0xfffe] {
            assert!(!mapped.has(7, inode));
            mapped.add(7, inode);
            assert!(mapped.has(7, inode) && !mapped.has(7, inode + 1));
        }
    }

    #[test]
    fn few_of_many_files_are_taken_for_one_that_was_marked() {
        static BITS: Bits = no_bits();
        let mapped = Marks::new(&BITS);
        (1000..1030).for_each(|inode| mapped.add(7, inode * 37));
        let taken = (0..100_000u64).filter(|inode| mapped.has(8, *inode)).count();
        assert!(taken < 10, "{taken}");
    }
}
