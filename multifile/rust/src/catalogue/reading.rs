//! Changes of a stream that is read: names are sorted and listed many at a time.

use std::mem;

use super::{Catalogue, Change, ROOT, is_name};

/// Names of files in a folder that are read and not yet in its list.
#[derive(Debug, Default)]
pub(super) struct Unlisted {
    folder: Option<u64>,
    names: Vec<(Vec<u8>, u64)>,
}

impl Catalogue {
    /// Makes a change of a stream that is read. Names of files are [listed](Self::list) later, many
    /// at a time, and before anything else needs them.
    pub(super) fn take(&mut self, change: Change, unlisted: &mut Unlisted) -> Option<()> {
        match change {
            Change::Name(folder, name, inode) => {
                if self.nodes.get(inode)?.node.is_folder() {
                    self.list(unlisted);
                    return self.apply(Change::Name(folder, name, inode));
                }
                if unlisted.folder != Some(folder) {
                    self.list(unlisted);
                    unlisted.folder = self.folders.contains_key(&folder).then_some(folder);
                }
                if unlisted.folder.is_none() || !is_name(&name) || inode == ROOT {
                    return None;
                }
                self.nodes.get_mut(inode)?.count += 1;
                unlisted.names.push((name, inode));
                Some(())
            }
            Change::Node(..) => self.apply(change),
            Change::NoName(..) | Change::Gone(_) => {
                self.list(unlisted);
                self.apply(change)
            }
        }
    }

    /// Lists names in their folder, as if one after the other.
    pub(super) fn list(&mut self, unlisted: &mut Unlisted) {
        let Unlisted { folder: Some(folder), mut names } = mem::take(unlisted) else { return };
        let Some(listed) = self.folders.get_mut(&folder) else { return };
        // Equal ones stay in their order: the last one counts.
        names.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut lost = Vec::new();
        if listed.is_empty() {
            let equal = names.windows(2).filter_map(|pair| match pair {
                [(a, lost), (b, _)] if a == b => Some(*lost),
                _ => None,
            });
            lost.extend(equal);
            *listed = names.into_iter().collect();
        } else {
            lost.extend(names.into_iter().filter_map(|(name, inode)| listed.insert(name, inode)));
        }
        lost.into_iter().for_each(|was| self.unlink(folder, was));
    }
}
