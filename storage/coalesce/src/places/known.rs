//! Entries of the table of places, as their writer knows them.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
};

use storage::names::Identity;

/// Which files have which entries.
#[derive(Default)]
pub(super) struct Known {
    /// By multifile and inode. Files that are made together, and found, have numbers in a row.
    entries: HashMap<u64, BTreeMap<u64, u32>>,
    /// The hash that leads to each entry there has been; of those that were given back, 0.
    hashes: Vec<u64>,
    /// Those that were given back.
    free: Vec<u32>,
}

impl Known {
    pub(super) fn get(&self, key: Identity) -> Option<(u32, u64)> {
        let entry = *self.entries.get(&key.0)?.get(&key.1)?;
        Some((entry, self.hashes.get(entry as usize).copied().unwrap_or(0)))
    }

    /// Files of a multifile have these entries.
    pub(super) fn insert(&mut self, multifile: u64, entries: impl IntoIterator<Item = (u64, u32)>) {
        let known = self.entries.entry(multifile).or_default();
        if known.is_empty() {
            *known = entries.into_iter().collect(); // That is faster.
        } else {
            known.extend(entries);
        }
    }

    pub(super) fn remove(&mut self, key: Identity) -> Option<(u32, u64)> {
        let entry = self.entries.get_mut(&key.0)?.remove(&key.1)?;
        Some((entry, self.give_back(entry)))
    }

    /// No file has an entry any more; returns the hash that led there.
    pub(super) fn give_back(&mut self, entry: u32) -> u64 {
        self.free.push(entry);
        self.hashes.get_mut(entry as usize).map(mem::take).unwrap_or(0)
    }

    /// This hash leads to an entry.
    pub(super) fn lead(&mut self, hash: u64, entry: u32) {
        match self.hashes.get_mut(entry as usize) {
            Some(place) => *place = hash,
            None => self.hashes.push(hash),
        }
    }

    /// Entries of files, and the hashes that lead there.
    pub(super) fn leading(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(self.hashes.iter().copied()).filter(|(_, hash)| *hash != 0)
    }

    /// Entries that there have been.
    pub(super) fn used(&self) -> usize {
        self.hashes.len()
    }

    /// Number of files that have entries.
    pub(super) fn count(&self) -> usize {
        self.hashes.len() - self.free.len()
    }

    /// An entry that no file has, if there are so many.
    pub(super) fn next(&mut self, capacity: u32) -> Option<u32> {
        let next = || u32::try_from(self.hashes.len()).ok().filter(|next| *next < capacity);
        self.free.pop().or_else(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_given_out_once_and_again_when_they_are_given_back() {
        let mut known = Known::default();
        let enter = |known: &mut Known, inode: u64| {
            let entry = known.next(2)?;
            known.lead(100 + inode, entry);
            known.insert(7, [(inode, entry)]);
            Some(entry)
        };
        assert_eq!([1, 2, 3].map(|inode| enter(&mut known, inode)), [Some(0), Some(1), None]);
        assert_eq!((known.get((7, 2)), known.get((8, 2))), (Some((1, 102)), None));
        assert_eq!((known.remove((7, 1)), known.remove((7, 1))), (Some((0, 101)), None));
        assert_eq!((known.count(), known.used()), (1, 2));
        assert!(known.leading().eq([(1, 102)]), "nothing leads to one that was given back");
        assert_eq!(enter(&mut known, 3), Some(0));
        assert!(known.leading().eq([(0, 103), (1, 102)]));
    }
}
