//! Who has which part of the session's arena: a buddy allocator over blocks of 64 KiB.
//!
//! Allocations are powers of two at multiples of their own size. The lowest free place wins, so
//! that memory touched before is used again.

const BLOCK: u64 = 64 << 10;
/// Blocks that can be tracked: 64 MiB of arena.
const BLOCKS: u64 = 1024;
const WORD: u64 = 64;

/// The free parts of an arena.
#[derive(Debug)]
pub(crate) struct Arena {
    /// A bit per block in use.
    used: [u64; (BLOCKS / WORD) as usize],
    blocks: u64,
    /// Bytes from the start that have memory behind them already.
    populated: u64,
}

impl Arena {
    /// All of an arena of `len` bytes, or as much as can be tracked.
    pub(crate) const fn new(len: u64) -> Self {
        let blocks = len / BLOCK;
        let blocks = if blocks < BLOCKS { blocks } else { BLOCKS };
        Self { used: [0; (BLOCKS / WORD) as usize], blocks, populated: 0 }
    }

    /// Bytes in all.
    pub(crate) const fn len(&self) -> u64 {
        self.blocks * BLOCK
    }

    /// Takes `len` bytes, a power of two of at least 64 KiB; returns where they start.
    pub(crate) fn take(&mut self, len: u64) -> Option<u64> {
        let count = len.div_ceil(BLOCK).next_power_of_two();
        let mut first = 0;
        while first + count <= self.blocks {
            if (first..first + count).all(|block| !self.is_used(block)) {
                self.mark(first, count, true);
                return Some(first * BLOCK);
            }
            first += count;
        }
        None
    }

    /// Gives back `len` bytes at `at` that were taken.
    pub(crate) fn give(&mut self, at: u64, len: u64) {
        self.mark(at / BLOCK, len.div_ceil(BLOCK).next_power_of_two(), false);
    }

    /// The part of the `len` bytes at `at` that nobody has touched yet, once.
    pub(crate) fn untouched(&mut self, at: u64, len: u64) -> Option<(u64, u64)> {
        let (start, end) = (at.max(self.populated), at + len);
        if start >= end {
            return None;
        }
        self.populated = end;
        Some((start, end - start))
    }

    fn is_used(&self, block: u64) -> bool {
        let word = usize::try_from(block / WORD).ok().and_then(|index| self.used.get(index));
        word.is_none_or(|word| word >> (block % WORD) & 1 == 1)
    }

    fn mark(&mut self, first: u64, count: u64, used: bool) {
        for block in first..(first + count).min(self.blocks) {
            let Some(word) =
                usize::try_from(block / WORD).ok().and_then(|index| self.used.get_mut(index))
            else {
                return;
            };
            let bit = 1 << (block % WORD);
            *word = if used { *word | bit } else { *word & !bit };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_and_come_back() {
        let mut arena = Arena::new(1 << 20);
        let big = arena.take(512 << 10).expect("half");
        let small = arena.take(64 << 10).expect("a block");
        assert_eq!((big, small), (0, 512 << 10));
        assert_eq!(arena.take(512 << 10), None);
        assert_eq!(arena.take(256 << 10), Some(768 << 10));
        arena.give(small, 64 << 10);
        assert_eq!(arena.take(256 << 10), Some(512 << 10));
        arena.give(big, 512 << 10);
        assert_eq!(arena.take(512 << 10), Some(0));
    }

    #[test]
    fn a_large_arena_is_used_as_far_as_it_can_be_tracked() {
        let mut arena = Arena::new(1 << 40);
        assert_eq!(arena.len(), 64 << 20);
        assert_eq!(arena.take(64 << 20), Some(0));
        assert_eq!(arena.take(64 << 10), None);
    }

    #[test]
    fn memory_is_populated_once() {
        let mut arena = Arena::new(1 << 20);
        assert_eq!(arena.untouched(0, 65536), Some((0, 65536)));
        assert_eq!(arena.untouched(0, 65536), None);
        assert_eq!(arena.untouched(0, 131_072), Some((65536, 65536)));
    }
}
