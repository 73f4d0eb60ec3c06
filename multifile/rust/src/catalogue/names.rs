//! The names in a folder.

use std::collections::hash_map::Entry;

use foldhash::HashMap;

/// Names, and the node that has each.
#[derive(Clone, Debug, Default)]
pub struct Names(HashMap<Box<[u8]>, u64>);

impl Names {
    /// The node that has a name.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// True if a node has this name.
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.0.contains_key(name)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], u64)> {
        self.0.iter().map(|(name, inode)| (&name[..], *inode))
    }

    /// All of them, in the order of their bytes.
    #[must_use]
    pub fn sorted(&self) -> Vec<(&[u8], u64)> {
        let mut names: Vec<_> = self.iter().collect();
        names.sort_unstable();
        names
    }

    /// A node gets a name; returns the one that had it.
    pub(super) fn insert(&mut self, name: Vec<u8>, inode: u64) -> Option<u64> {
        self.0.insert(name.into_boxed_slice(), inode)
    }

    /// A name that is free, for a node to get it.
    pub(super) fn free(&mut self, name: Vec<u8>) -> Option<impl FnOnce(u64)> {
        match self.0.entry(name.into_boxed_slice()) {
            Entry::Vacant(free) => Some(|inode| {
                free.insert(inode);
            }),
            Entry::Occupied(_) => None,
        }
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<u64> {
        self.0.remove(name)
    }
}
