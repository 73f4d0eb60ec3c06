//! Nodes by their numbers.
//!
//! Numbers come in runs: whoever makes files has a range of them. So nodes lie next to each other
//! in pages, and which one has a number is mostly known by where its page begins. A page has no
//! room for numbers that nobody has: a stream that says any number gets memory for its nodes alone.

use std::collections::BTreeMap;

use super::Named;
use crate::codec::narrow;

/// Numbers of a page, as a power of two.
const PAGE_BITS: u32 = 8;

/// Nodes, each with its number.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    /// Those of each page that has some, by number.
    pages: BTreeMap<u64, Vec<(u64, Named)>>,
}

impl Nodes {
    /// A node gets a number that none has; false, and nothing, if one has it.
    pub(super) fn insert(&mut self, inode: u64, node: Named) -> bool {
        let page = self.pages.entry(inode >> PAGE_BITS).or_default();
        match place(page, inode) {
            Ok(_) => false,
            Err(place) => {
                page.insert(place, (inode, node));
                true
            }
        }
    }

    pub(super) fn remove(&mut self, inode: u64) -> Option<Named> {
        let page = self.pages.get_mut(&(inode >> PAGE_BITS))?;
        let (_, node) = page.remove(place(page, inode).ok()?);
        if page.is_empty() {
            self.pages.remove(&(inode >> PAGE_BITS));
        }
        Some(node)
    }

    pub(super) fn get(&self, inode: u64) -> Option<&Named> {
        let page = self.pages.get(&(inode >> PAGE_BITS))?;
        page.get(place(page, inode).ok()?).map(|(_, node)| node)
    }

    pub(super) fn get_mut(&mut self, inode: u64) -> Option<&mut Named> {
        let page = self.pages.get_mut(&(inode >> PAGE_BITS))?;
        let place = place(page, inode).ok()?;
        page.get_mut(place).map(|(_, node)| node)
    }

    pub(super) fn contains(&self, inode: u64) -> bool {
        self.get(inode).is_some()
    }

    /// All of them by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Named)> {
        self.pages.values().flatten().map(|(inode, node)| (*inode, node))
    }
}

/// Where a number is in its page, or would be.
fn place(page: &[(u64, Named)], inode: u64) -> Result<usize, usize> {
    // The last ones come one after the other.
    if page.last().is_none_or(|(last, _)| *last < inode) {
        return Err(page.len());
    }
    let first = page.first().map_or(0, |(first, _)| *first);
    let likely = narrow(inode.saturating_sub(first));
    if page.get(likely).is_some_and(|(its, _)| *its == inode) {
        return Ok(likely);
    }
    page.binary_search_by_key(&inode, |(its, _)| *its)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_as_in_a_map() {
        let (mut nodes, mut map) = (Nodes::default(), BTreeMap::new());
        let mut rng = fastrand::Rng::with_seed(7);
        for count in 0..20_000 {
            let inode = match rng.u8(..4) {
                0 => rng.u64(..2000),
                1 => u64::MAX - rng.u64(..300),
                _ => count,
            };
            let node = Named { count, ..Named::default() };
            match rng.u8(..3) {
                0 => {
                    let removed = nodes.remove(inode).map(|node| node.count);
                    assert_eq!(removed, map.remove(&inode));
                }
                _ => {
                    assert_eq!(nodes.insert(inode, node), !map.contains_key(&inode));
                    map.entry(inode).or_insert(count);
                }
            }
            assert_eq!(nodes.get_mut(inode).map(|node| node.count), map.get(&inode).copied());
            let other = rng.u64(..count + 1);
            assert_eq!(nodes.get(other).map(|node| node.count), map.get(&other).copied());
        }
        assert!(nodes.iter().map(|(inode, node)| (inode, node.count)).eq(map));
    }
}
