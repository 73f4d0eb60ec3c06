//! Which files this process has mapped, and which it has locked.
//!
//! A mapping shows what is in the file, and outlives the descriptor: such a file is not staged to
//! any more, whichever descriptor is written. Only the close of a file that was locked may give up
//! a lock; it drains all others.
//!
//! Nobody follows what is unmapped or unlocked, and files whose words have the same last bits are
//! one: then the kernel serves a file that could have been staged, or a close drains in vain.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::file::identity;

const WORDS: usize = 1024;

/// A bit for each file that was mapped, or locked.
pub(crate) struct Marks([AtomicU64; WORDS]);

impl Marks {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    pub(crate) fn add(&self, device: u64, inode: u64) {
        let (word, bit) = self.place(device, inode);
        word.fetch_or(bit, Ordering::AcqRel);
    }

    pub(crate) fn has(&self, device: u64, inode: u64) -> bool {
        let (word, bit) = self.place(device, inode);
        word.load(Ordering::Acquire) & bit != 0
    }

    fn place(&self, device: u64, inode: u64) -> (&AtomicU64, u64) {
        let [low, high, ..] = identity(device, inode).to_le_bytes();
        let number = u16::from_le_bytes([low, high]);
        let [first, ..] = &self.0;
        (self.0.get(usize::from(number / 64)).unwrap_or(first), 1 << (number % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_marked_is_known() {
        let mapped = Marks::new();
        for inode in [0, 63, 64, 0xfffe] {
            assert!(!mapped.has(7, inode));
            mapped.add(7, inode);
            assert!(mapped.has(7, inode) && !mapped.has(7, inode + 1));
        }
    }
}
