//! Files that were mapped, by this process or as shared by one of the job, and files that this
//! process has locked.
//!
//! A mapping shows what is in the file, and outlives the descriptor: such a file is not staged to
//! any more, whichever descriptor is written. The pages of a private mapping concern its process
//! alone, which may have changed them; those of a shared one are the file, so no process of the job
//! stages to that. Only the close of a file that was locked may give up a lock; it drains all
//! others.
//!
//! Nobody follows what is unmapped or unlocked, and a file whose two bits others have set is taken
//! for one of them: then the kernel serves a file that could have been staged, or a close drains in
//! vain. With some thirty files that are mapped, as libraries are, that is one file in a million;
//! with 100,000 that a job has mapped as shared, one in thirty.
//!
//! # Memory ordering
//!
//! A process that maps a file sets the mark, then a fence, then looks at the job's table of inodes.
//! One that stages to it counts its file in, then a fence, then looks for the mark. So one of both
//! sees the other: what is counted in is drained and demoted; what sees the mark stages nothing.

use core::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 1024;
/// 2^64 by the golden ratio, odd.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Two bits for each file that this process has mapped, or locked.
pub(crate) type Bits = [AtomicU64; WORDS];

/// Those of no file.
pub(crate) const fn no_bits() -> Bits {
    [const { AtomicU64::new(0) }; WORDS]
}

/// The files that were marked.
pub(crate) struct Marks(&'static [AtomicU64]);

impl Marks {
    pub(crate) const fn new(bits: &'static [AtomicU64]) -> Self {
        Self(bits)
    }

    pub(crate) fn add(&self, device: u64, inode: u64) {
        self.add_identity(identity(device, inode));
    }

    pub(crate) fn add_identity(&self, identity: u64) {
        for (word, bit) in self.places(identity).into_iter().flatten() {
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }

    pub(crate) fn has(&self, device: u64, inode: u64) -> bool {
        self.has_identity(identity(device, inode))
    }

    pub(crate) fn has_identity(&self, identity: u64) -> bool {
        let is_set = |(word, bit): (&AtomicU64, u64)| word.load(Ordering::Acquire) & bit != 0;
        self.places(identity).into_iter().flatten().all(is_set)
    }

    fn places(&self, identity: u64) -> [Option<(&AtomicU64, u64)>; 2] {
        let fold = |word: u64| (word ^ word >> 32).wrapping_mul(MIX);
        let mixed = fold(fold(identity));
        let count = self.0.len() as u64 * 64;
        [mixed >> 32, mixed & u64::from(u32::MAX)].map(|half| {
            let number = (half * count) >> 32;
            let word = self.0.get(usize::try_from(number / 64).ok()?)?;
            Some((word, 1 << (number % 64)))
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

    #[test]
    fn table_of_a_job_takes_few_files_for_one_of_a_hundred_thousand() {
        static BITS: [AtomicU64; 16 << 10] = [const { AtomicU64::new(0) }; 16 << 10];
        let mapped = Marks::new(&BITS);
        (0..100_000).for_each(|inode| mapped.add(7, inode));
        assert!((0..100_000).all(|inode| mapped.has(7, inode)));
        let taken = (0..100_000).filter(|inode| mapped.has(8, *inode)).count();
        assert!(taken < 5_000, "{taken}");
    }
}
