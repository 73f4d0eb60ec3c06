//! Which open file a descriptor number stands for.
//!
//! Entries are changed by whoever opens, duplicates, and closes numbers, and read without a lock.
//! A reader that holds an outdated id finds out when it locks the file and the generation differs.

use core::sync::atomic::{AtomicU32, Ordering};

use rustix::fd::RawFd;

/// Numbers that can be looked up; higher ones are left to the kernel.
const NUMBERS: usize = 1 << 16;
const FOREIGN: u32 = 1;
const OWN: u32 = 2;
const FILE: u32 = 1 << 31;
const GENERATIONS: u32 = 1 << 15;

/// What a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Never seen, or closed.
    Unknown,
    /// Nothing that could be delegated: not a regular file, or one that a rule excludes.
    Foreign,
    /// The client's own socket, which the program never opened.
    Own,
    /// A regular file.
    File(FileId),
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

/// The table, one entry per number.
pub(crate) struct Table {
    entries: [AtomicU32; NUMBERS],
    /// No file of ours has a number above this one.
    highest: AtomicU32,
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { entries: [const { AtomicU32::new(0) }; NUMBERS], highest: AtomicU32::new(0) }
    }

    pub(crate) fn get(&self, fd: RawFd) -> Entry {
        let Some(entry) = self.entry(fd) else { return Entry::Foreign };
        decode(entry.load(Ordering::Acquire))
    }

    /// Returns whether the number can be looked up at all.
    pub(crate) fn set(&self, fd: RawFd, entry: Entry) -> bool {
        self.raise_highest(fd, entry);
        self.entry(fd).map(|slot| slot.store(encode(entry), Ordering::Release)).is_some()
    }

    /// Remembers what an unknown number was found to stand for, and returns what it stands for:
    /// somebody may have known better meanwhile.
    pub(crate) fn learn(&self, fd: RawFd, entry: Entry) -> Entry {
        let Some(slot) = self.entry(fd) else { return entry };
        self.raise_highest(fd, entry);
        let learned = slot.compare_exchange(0, encode(entry), Ordering::AcqRel, Ordering::Acquire);
        learned.map_or_else(decode, |_| entry)
    }

    /// Makes the number unknown and returns what it stood for.
    pub(crate) fn take(&self, fd: RawFd) -> Entry {
        self.entry(fd).map_or(Entry::Foreign, |slot| decode(slot.swap(0, Ordering::AcqRel)))
    }

    /// The numbers in `first..=last` that stand for files of ours.
    pub(crate) fn files(&self, first: u32, last: u32) -> impl Iterator<Item = (RawFd, FileId)> {
        let last = last.min(self.highest.load(Ordering::Acquire)) as usize;
        let entries = self.entries.get(first as usize..=last).unwrap_or_default();
        (first..).zip(entries).filter_map(|(number, slot)| {
            match decode(slot.load(Ordering::Acquire)) {
                Entry::File(id) => RawFd::try_from(number).ok().map(|fd| (fd, id)),
                _ => None,
            }
        })
    }

    fn raise_highest(&self, fd: RawFd, entry: Entry) {
        if let (Entry::File(_), Ok(number)) = (entry, u32::try_from(fd)) {
            self.highest.fetch_max(number, Ordering::AcqRel);
        }
    }

    fn entry(&self, fd: RawFd) -> Option<&AtomicU32> {
        self.entries.get(usize::try_from(fd).ok()?)
    }
}

const fn encode(entry: Entry) -> u32 {
    match entry {
        Entry::Unknown => 0,
        Entry::Foreign => FOREIGN,
        Entry::Own => OWN,
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
        let table = std::boxed::Box::new(Table::new());
        let file = Entry::File(FileId::new(4095, 32767));
        for entry in [Entry::Foreign, Entry::Own, file, Entry::File(FileId::new(0, 0))] {
            assert!(table.set(7, entry));
            assert_eq!(table.get(7), entry);
        }
        table.set(9, file);
        assert_eq!(table.files(0, u32::MAX).count(), 2);
        assert_eq!(table.files(8, 8).count(), 0);
        assert_eq!(table.take(9), file);
        assert_eq!(table.get(9), Entry::Unknown);
    }

    #[test]
    fn numbers_beyond_the_table_are_foreign() {
        let table = std::boxed::Box::new(Table::new());
        assert!(!table.set(1 << 16, Entry::Foreign));
        assert_eq!(table.get(1 << 16), Entry::Foreign);
        assert_eq!(table.get(-1), Entry::Foreign);
    }
}
