//! The parts of the session's arena and their owners: a buddy allocator over blocks of 64 KiB.
//!
//! Allocations are powers of two at multiples of their own size. The lowest free place wins, so
//! that memory touched before is used again. What a program has is *lent*, and remembered by where
//! it starts; the rest stays for logs and windows.

use core::ops::Range;

/// Unit of allocation, bytes.
pub(crate) const BLOCK: u64 = 64 << 10;
/// Blocks that can be tracked: 1 GiB of arena.
const BLOCKS_MAX: usize = 16 << 10;
const BLOCKS: u64 = BLOCKS_MAX as u64;
const WORD: u64 = 64;
/// The program has at most this part of the arena.
const LENT_SHARE: u64 = 2;
/// Shares are rounded down as if this part more were free.
const SLACK: u64 = 16;

/// The free parts of an arena.
#[derive(Debug)]
pub(crate) struct Arena {
    /// A bit per block in use.
    used: [u64; (BLOCKS / WORD) as usize],
    blocks: u64,
    /// Bytes from the start that have memory behind them already.
    populated: u64,
    /// Blocks of what is lent, by its first one.
    lent: [u16; BLOCKS_MAX],
    lent_blocks: u64,
}

impl Arena {
    /// All of an arena of `len` bytes, or as much as can be tracked.
    pub(crate) const fn new(len: u64) -> Self {
        let (used, lent) = ([0; (BLOCKS / WORD) as usize], [0; BLOCKS_MAX]);
        Self { used, blocks: blocks_of(len), populated: 0, lent, lent_blocks: 0 }
    }

    /// Makes an empty one that of an arena of `len` bytes.
    pub(crate) fn cover(&mut self, len: u64) {
        self.blocks = blocks_of(len);
    }

    /// Makes it that of an arena of `len` bytes, unless it has more: of two threads that have it
    /// grow the one that got less may be the last.
    pub(crate) fn lengthen(&mut self, len: u64) {
        self.blocks = self.blocks.max(blocks_of(len));
    }

    /// About the `part`th part of what is free, as a power of two, and at least a block: who takes
    /// no more at a time leaves something for many others. A few blocks in use halve nothing.
    pub(crate) fn share(&self, part: u64) -> u64 {
        debug_assert!(part > 0, "a share is a part of what is free");
        let used: u32 = self.used.iter().map(|word| word.count_ones()).sum();
        let free = self.blocks.saturating_sub(u64::from(used));
        BLOCK << ((free + free / SLACK) / part).checked_ilog2().unwrap_or(0)
    }

    /// Takes `len` bytes, a power of two of at least 64 KiB; returns where they start.
    pub(crate) fn take(&mut self, len: u64) -> Option<u64> {
        debug_assert!(len > 0, "a range has bytes");
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
        debug_assert!(at % BLOCK == 0 && self.is_used(at / BLOCK), "{at} was taken");
        debug_assert!(at.saturating_add(len) <= self.blocks * BLOCK, "{at} is in the arena");
        self.mark(at / BLOCK, len.div_ceil(BLOCK).next_power_of_two(), false);
    }

    /// Takes at least `len` bytes for the program, if it has not its share already.
    pub(crate) fn lend(&mut self, len: u64) -> Option<Range<u64>> {
        let count = len.div_ceil(BLOCK).next_power_of_two();
        if self.lent_blocks.saturating_add(count) > self.blocks / LENT_SHARE {
            return None;
        }
        let at = self.take(len)?;
        *self.lent.get_mut(index(at)?)? = u16::try_from(count).ok()?;
        self.lent_blocks += count;
        debug_assert!(self.lent_blocks <= self.blocks / LENT_SHARE, "the program has its share");
        Some(at..at + count * BLOCK)
    }

    /// Takes back what was lent from `at` on; `None` when nothing was.
    pub(crate) fn regain(&mut self, at: u64) -> Option<Range<u64>> {
        let lent = self.lent.get_mut(index(at)?).filter(|_| at % BLOCK == 0)?;
        let count = u64::from(core::mem::take(lent));
        debug_assert!(count <= self.lent_blocks, "every lent block is counted");
        (count > 0).then(|| {
            self.mark(at / BLOCK, count, false);
            self.lent_blocks -= count;
            at..at + count * BLOCK
        })
    }

    /// The part of the `len` bytes at `at` that nobody has touched yet, once.
    pub(crate) fn untouched(&mut self, at: u64, len: u64) -> Option<(u64, u64)> {
        debug_assert!(at % BLOCK == 0, "ranges are of whole blocks");
        let (start, end) = (at.max(self.populated), at + len);
        if start >= end {
            return None;
        }
        self.populated = end;
        Some((start, end - start))
    }

    /// Forgets the memory behind all from `at` on, which was given back.
    pub(crate) fn untouch(&mut self, at: u64) {
        debug_assert!(at % BLOCK == 0, "ranges are of whole blocks");
        self.populated = self.populated.min(at);
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

/// Blocks of an arena of `len` bytes that can be tracked.
const fn blocks_of(len: u64) -> u64 {
    let blocks = len / BLOCK;
    if blocks < BLOCKS { blocks } else { BLOCKS }
}

/// The block that a place lies in.
fn index(at: u64) -> Option<usize> {
    usize::try_from(at / BLOCK).ok()
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
    fn an_arena_that_grows_never_loses_what_it_gave() {
        let mut arena = Arena::new(1 << 20);
        arena.lengthen(4 << 20);
        let log = arena.take(2 << 20).expect("half");
        assert_eq!(log, 0);
        let upper = arena.take(2 << 20).expect("the other half");
        arena.lengthen(2 << 20);
        arena.give(upper, 2 << 20);
        assert_eq!(arena.take(2 << 20), Some(upper));
    }

    #[test]
    fn a_large_arena_is_used_as_far_as_it_can_be_tracked() {
        let mut arena = Arena::new(1 << 40);
        assert_eq!(arena.share(1), 1 << 30);
        assert_eq!(arena.take(1 << 30), Some(0));
        assert_eq!(arena.take(64 << 10), None);
    }

    #[test]
    fn shares_are_parts_of_what_is_free() {
        let mut arena = Arena::new(4 << 20);
        let shares = core::iter::from_fn(|| arena.take(arena.share(4)));
        let taken = shares.count();
        assert!(taken > 12, "{taken}");
        assert_eq!(arena.share(4), BLOCK, "a block, though there is none");
    }

    #[test]
    fn half_of_an_arena_is_found_beside_a_few_blocks() {
        for len in [4 << 20, 32 << 20, 512 << 20] {
            let mut arena = Arena::new(len);
            arena.take(BLOCK).expect("a block");
            assert_eq!(arena.share(2), len / 2);
            assert_eq!(arena.take(len / 2), Some(len / 2));
            assert!(arena.share(2) <= len / 4, "{}", arena.share(2));
        }
    }

    #[test]
    fn half_is_lent_at_most_and_comes_back_by_its_start() {
        let mut arena = Arena::new(1 << 20);
        let lent = arena.lend(100_000).expect("a share");
        assert_eq!(lent, 0..128 << 10);
        assert_eq!(arena.lend(256 << 10), Some(256 << 10..512 << 10));
        assert_eq!(arena.lend(128 << 10), Some(128 << 10..256 << 10));
        assert_eq!(arena.lend(1), None, "the other half is for logs");
        assert_eq!(arena.take(512 << 10), Some(512 << 10));
        assert_eq!(arena.regain(64 << 10), None, "within what was lent");
        assert_eq!(arena.regain(lent.start + 1), None, "not its start");
        assert_eq!(arena.regain(512 << 10), None, "not lent");
        assert_eq!(arena.regain(lent.start), Some(lent.clone()));
        assert_eq!(arena.regain(lent.start), None, "twice");
        assert_eq!(arena.lend(1), Some(0..64 << 10));
        assert_eq!(arena.regain(u64::MAX), None);
        assert_eq!(arena.lend(u64::MAX), None);
    }

    #[test]
    fn memory_is_populated_once() {
        let mut arena = Arena::new(1 << 20);
        assert_eq!(arena.untouched(0, 65536), Some((0, 65536)));
        assert_eq!(arena.untouched(0, 65536), None);
        assert_eq!(arena.untouched(0, 131_072), Some((65536, 65536)));
        arena.untouch(65536);
        assert_eq!(arena.untouched(0, 131_072), Some((65536, 65536)));
    }
}
