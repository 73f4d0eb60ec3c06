//! Reading ahead of small files that lie next to each other in a physical file.
//!
//! A program that reads many of them in any order reads all of a physical file, in parts that the
//! kernel takes for random: each waits for the file system. So where a second read in the same
//! stretch of a file had to wait, the kernel is asked for all of that stretch, and nobody waits for
//! it. What is in the page cache is never asked for: a read from there does not wait.

use core::{
    num::NonZeroU64,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use rustix::{
    fd::BorrowedFd,
    fs::{Advice, fadvise},
};

/// Bytes that are asked for together.
const STRETCH: u64 = 1 << 20;
/// Stretches of a file that are known; those behind them are read as they are.
const COUNT: u64 = 64;
/// The kernel reads no more ahead at a time than this, bytes, on most file systems.
const STEP: u64 = 128 << 10;
/// A read that takes longer has waited for the file system, ns. The page cache takes 1 us for
/// 4 KiB, a local SSD some 80 us, a server 200 us and more.
const WAITED_NS: u64 = 50_000;
/// After so many reads in a row that did not wait, one of so many is looked at: the clock costs as
/// much as a part of a read.
const QUICK: u32 = 32;
const SAMPLE: u32 = 8;

/// Reads of a physical file that waited.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    /// Stretches in which a read has waited, a bit each, and those that were asked for since.
    waited: AtomicU64,
    asked: AtomicU64,
    /// Reads since one has waited.
    quick: AtomicU32,
}

/// A stretch that has not been asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch(u64);

impl Neighbours {
    pub(crate) const fn new() -> Self {
        let (waited, asked) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { waited, asked, quick: AtomicU32::new(0) }
    }

    /// The stretch that a read at `at` begins in, if it is worth to be timed.
    pub(crate) fn stretch(&self, at: u64) -> Option<Stretch> {
        let stretch = at / STRETCH;
        // Threads may count each other's reads or not: it is about how many there are.
        let quick = self.quick.load(Ordering::Relaxed).wrapping_add(1);
        self.quick.store(quick, Ordering::Relaxed);
        if quick > QUICK && quick % SAMPLE != 0 {
            return None;
        }
        let is_open = stretch < COUNT && self.asked.load(Ordering::Relaxed) & 1 << stretch == 0;
        is_open.then_some(Stretch(stretch))
    }

    /// A read in there took `ns`. Returns whether to ask for all of the stretch, once.
    fn note_read(&self, Stretch(stretch): Stretch, ns: u64) -> bool {
        let bit = 1 << stretch;
        if ns > WAITED_NS {
            self.quick.store(0, Ordering::Relaxed);
        }
        ns > WAITED_NS
            && self.waited.fetch_or(bit, Ordering::Relaxed) & bit != 0
            && self.asked.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// The same, and asks for it.
    pub(crate) fn observe(&self, file: BorrowedFd<'_>, stretch: Stretch, ns: u64) {
        if !self.note_read(stretch, ns) {
            return;
        }
        for step in 0..STRETCH / STEP {
            let at = stretch.0 * STRETCH + step * STEP;
            // A hint: what is not read ahead is read when it is wanted.
            match fadvise(file, at, NonZeroU64::new(STEP), Advice::WillNeed) {
                Ok(()) | Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretch_is_asked_for_once_when_a_second_read_has_waited() {
        let neighbours = Neighbours::new();
        let stretch = neighbours.stretch(3 * STRETCH + 17).expect("one of the first");
        assert!(!neighbours.note_read(stretch, WAITED_NS + 1), "the first");
        assert!(!neighbours.note_read(stretch, WAITED_NS), "from the page cache");
        let other = neighbours.stretch(4 * STRETCH).expect("one of the first");
        assert!(!neighbours.note_read(other, WAITED_NS + 1), "the first of another stretch");
        assert!(neighbours.note_read(stretch, WAITED_NS + 1), "the second");
        assert!(!neighbours.note_read(stretch, WAITED_NS + 1), "it is asked for");
        assert_eq!(neighbours.stretch(4 * STRETCH - 1), None, "it is asked for");
        assert_eq!(neighbours.stretch(COUNT * STRETCH), None, "none of the first");
    }

    #[test]
    fn quick_reads_are_seldom_timed_until_one_waits() {
        let neighbours = Neighbours::new();
        let timed = |count: u32| (0..count).filter_map(|_| neighbours.stretch(0)).count();
        assert_eq!(timed(QUICK), QUICK as usize);
        assert_eq!(timed(10 * SAMPLE), 10);
        assert!(!neighbours.note_read(Stretch(0), WAITED_NS + 1));
        assert_eq!(timed(QUICK), QUICK as usize);
    }
}
