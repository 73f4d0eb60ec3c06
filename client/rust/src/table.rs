//! Which open file a descriptor number stands for.
//!
//! Entries are changed by whoever opens, duplicates, and closes numbers, and read without a lock.
//! A reader that holds an outdated id finds out when it locks the file and the generation differs.
//! Where libc says that the process has one thread, its entries are changed by plain instructions:
//! a signal handler cannot get a number that the code it interrupts has open.

use core::sync::atomic::{AtomicU32, Ordering};

use rustix::fd::RawFd;

/// Numbers that can be looked up; higher ones are left to the kernel.
const NUMBERS: usize = 1 << 16;
const FOREIGN: u32 = 1;
const OWN: u32 = 2;
const FILE: u32 = 1 << 31;
const OPENED: u32 = 1 << 30;
/// The least of the bits that count writes.
const WRITE: u32 = 1 << 28;
const TURNS: u32 = WRITE;
const GENERATIONS: u32 = 1 << 15;
const _: () = assert!(FILE == GENERATIONS << 16, "a file has an index and a generation");
const _: () = assert!(OPENED & FILE == 0 && OWN < WRITE);
const _: () = assert!((Opened::WRITES_MAX + 1) * WRITE == OPENED, "the writes have their bits");

/// Meaning of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Never seen, or closed.
    Unknown,
    /// Nothing that could be delegated: not a regular file, or one that a rule excludes.
    Foreign,
    /// The client's own socket, which the program never opened.
    Own,
    /// Opened by this process and not examined: the kernel has executed all calls on it.
    Opened(Opened),
    /// A regular file.
    File(FileId),
}

/// A number that was opened and not examined since (`unexamined.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Tells it from what the number stood for before.
    turn: u32,
    /// Calls that have written to it.
    writes: u32,
}

impl Opened {
    /// Calls that may write to it. Examining it costs as much as a small write does, and `tar` and
    /// `cp` write most files by two or three.
    const WRITES_MAX: u32 = 3;

    pub(crate) const fn new(turn: u32) -> Self {
        Self { turn: turn % TURNS, writes: 0 }
    }

    pub(crate) const fn turn(self) -> u32 {
        self.turn
    }

    /// After one more write, if there may be one.
    pub(crate) fn written(self) -> Option<Self> {
        let writes = self.writes + 1;
        (writes <= Self::WRITES_MAX).then_some(Self { writes, ..self })
    }
}

/// An open file: where it is kept, and which of the files that were kept there it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) index: u16,
    pub(crate) generation: u16,
}

impl FileId {
    pub(crate) const fn new(index: u16, generation: u16) -> Self {
        Self { index, generation: generation % (1 << 15) }
    }
}

/// One entry per number.
pub(crate) type Numbers = [AtomicU32; NUMBERS];

/// None that was ever seen.
pub(crate) const fn no_numbers() -> Numbers {
    [const { AtomicU32::new(0) }; NUMBERS]
}

/// The table.
pub(crate) struct Table {
    entries: &'static Numbers,
    /// No number above this one stands for a file.
    highest: AtomicU32,
}

impl Table {
    pub(crate) const fn new(entries: &'static Numbers) -> Self {
        Self { entries, highest: AtomicU32::new(0) }
    }

    #[inline]
    pub(crate) fn get(&self, fd: RawFd) -> Entry {
        let Some(entry) = self.entry(fd) else { return Entry::Foreign };
        decode(entry.load(Ordering::Acquire))
    }

    /// Returns whether the number can be looked up at all.
    pub(crate) fn set(&self, fd: RawFd, entry: Entry) -> bool {
        self.raise_highest(fd, entry);
        self.entry(fd).map(|slot| slot.store(encode(entry), Ordering::Release)).is_some()
    }

    /// Remembers what a number that stood for `before` was found to stand for, and returns what it
    /// stands for: somebody may have known better meanwhile.
    pub(crate) fn learn(&self, fd: RawFd, before: Entry, entry: Entry) -> Entry {
        let Some(slot) = self.entry(fd) else { return entry };
        self.raise_highest(fd, entry);
        let (before, after) = (encode(before), encode(entry));
        debug_assert!(decode(after) == entry, "an entry fits its word");
        let learned = slot.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire);
        learned.map_or_else(decode, |_| entry)
    }

    /// Makes the number unknown and returns what it stood for.
    pub(crate) fn take(&self, fd: RawFd) -> Entry {
        self.entry(fd).map_or(Entry::Foreign, |slot| {
            if shm::is_alone() {
                let before = slot.load(Ordering::Relaxed);
                slot.store(0, Ordering::Relaxed);
                return decode(before);
            }
            decode(slot.swap(0, Ordering::AcqRel))
        })
    }

    /// True if a number was [opened](Entry::Opened), and not examined since.
    #[inline]
    pub(crate) fn is_opened(&self, fd: RawFd) -> bool {
        let word = self.entry(fd).map_or(0, |slot| slot.load(Ordering::Acquire));
        word & (FILE | OPENED) == OPENED
    }

    /// Makes a number unknown that was [opened](Entry::Opened) and not examined since. Returns
    /// whether it was one.
    #[inline]
    pub(crate) fn forget_opened(&self, fd: RawFd) -> bool {
        let Some(slot) = self.entry(fd) else { return false };
        let before = slot.load(Ordering::Acquire);
        if before & (FILE | OPENED) != OPENED {
            return false;
        }
        if shm::is_alone() {
            slot.store(0, Ordering::Relaxed);
            return true;
        }
        slot.compare_exchange(before, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The numbers in `first..=last` that stand for files of ours.
    pub(crate) fn files(&self, first: u32, last: u32) -> impl Iterator<Item = (RawFd, FileId)> {
        self.all(first, last).filter_map(|(fd, entry)| match entry {
            Entry::File(id) => Some((fd, id)),
            _ => None,
        })
    }

    /// The numbers that were opened and not examined since.
    pub(crate) fn unexamined(&self) -> impl Iterator<Item = RawFd> {
        let all = self.all(0, u32::MAX);
        all.filter(|(_, entry)| matches!(entry, Entry::Opened(_))).map(|(fd, _)| fd)
    }

    fn all(&self, first: u32, last: u32) -> impl Iterator<Item = (RawFd, Entry)> {
        let last = last.min(self.highest.load(Ordering::Acquire)) as usize;
        let entries = self.entries.get(first as usize..=last).unwrap_or_default();
        let numbers = (first..).zip(entries);
        numbers.filter_map(|(number, slot)| {
            Some((RawFd::try_from(number).ok()?, decode(slot.load(Ordering::Acquire))))
        })
    }

    fn raise_highest(&self, fd: RawFd, entry: Entry) {
        if let (Entry::File(_) | Entry::Opened(_), Ok(number)) = (entry, u32::try_from(fd)) {
            // A look is cheaper than a change of what all threads look at.
            if number > self.highest.load(Ordering::Acquire) {
                self.highest.fetch_max(number, Ordering::AcqRel);
            }
        }
    }

    #[inline]
    fn entry(&self, fd: RawFd) -> Option<&AtomicU32> {
        self.entries.get(usize::try_from(fd).ok()?)
    }
}

const fn encode(entry: Entry) -> u32 {
    match entry {
        Entry::Unknown => 0,
        Entry::Foreign => FOREIGN,
        Entry::Own => OWN,
        Entry::Opened(Opened { turn, writes }) => OPENED | (writes * WRITE) | (turn % TURNS),
        Entry::File(FileId { index, generation }) => {
            FILE | (generation as u32 % GENERATIONS) << 16 | index as u32
        }
    }
}

const fn decode(word: u32) -> Entry {
    match word {
        0 => Entry::Unknown,
        FOREIGN => Entry::Foreign,
        OWN => Entry::Own,
        _ if word & FILE == 0 => {
            Entry::Opened(Opened { turn: word % TURNS, writes: (word % OPENED) / WRITE })
        }
        _ => {
            let [low, high, generation_low, generation_high] = word.to_le_bytes();
            let generation = u16::from_le_bytes([generation_low, generation_high & 0x7f]);
            Entry::File(FileId { index: u16::from_le_bytes([low, high]), generation })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_the_table() {
        static NUMBERS: Numbers = no_numbers();
        let table = Table::new(&NUMBERS);
        let file = Entry::File(FileId::new(4095, 32767));
        let opened = Opened::new(TURNS + 7);
        let written = Entry::Opened(opened.written().expect("the first"));
        let most = opened.written().and_then(Opened::written).and_then(Opened::written);
        let most = most.expect("the third");
        assert_eq!(most.written(), None);
        let others = [file, Entry::File(FileId::new(0, 0)), Entry::Opened(opened), written];
        let others = others.into_iter().chain([Entry::Opened(most)]);
        for entry in [Entry::Foreign, Entry::Own].into_iter().chain(others) {
            assert!(table.set(7, entry));
            assert_eq!(table.get(7), entry);
        }
        table.set(7, file);
        table.set(9, file);
        table.set(11, written);
        assert_eq!(table.files(0, u32::MAX).count(), 2);
        assert_eq!(table.files(8, 8).count(), 0);
        assert_eq!(table.unexamined().collect::<std::vec::Vec<_>>(), [11]);
        // What the number stood for before it was closed says nothing of it.
        let other = Entry::Opened(Opened::new(8));
        assert_eq!(table.learn(11, other, file), written);
        assert_eq!(table.learn(11, written, file), file);
        assert!(!table.is_opened(9) && !table.is_opened(10));
        assert!(!table.forget_opened(9), "a file may have something staged");
        assert_eq!(table.take(9), file);
        assert!(table.set(9, written) && table.is_opened(9));
        assert!(table.forget_opened(9) && !table.forget_opened(9));
        assert_eq!(table.get(9), Entry::Unknown);
    }

    #[test]
    fn numbers_beyond_the_table_are_foreign() {
        static NUMBERS: Numbers = no_numbers();
        let table = Table::new(&NUMBERS);
        assert!(!table.set(1 << 16, Entry::Foreign));
        assert_eq!(table.get(1 << 16), Entry::Foreign);
        assert_eq!(table.get(-1), Entry::Foreign);
    }
}
