//! Names for the tasks of a multifile that has none, as SIONlib's own: each by its number in the
//! set, and by its rank.

use std::{collections::HashSet, fs::Metadata, os::unix::fs::MetadataExt as _};

use multifile::{
    Disk, Growing,
    catalogue::{Catalogue, Change, Node, ROOT},
};

use super::tree::{FOLDER, REGULAR};

/// The folder of the tasks by their ranks.
const BY_RANK: &[u8] = b"by-rank";

/// A catalogue of the tasks; everything in it is as old as the multifile, and its owner's. `None`:
/// there are more than can be named.
pub(super) fn catalogue(growing: &Growing<Disk>, found: &Metadata) -> Option<Catalogue> {
    let ranks = (0..growing.file_count()).flat_map(|file| growing.ranks(file).iter().copied());
    named(ranks, &node(found), found.ino())
}

/// A file that everybody may read who may read the multifile.
fn node(found: &Metadata) -> Node {
    let at = |seconds: i64, nanoseconds: i64| (seconds, u32::try_from(nanoseconds).unwrap_or(0));
    let modified = at(found.mtime(), found.mtime_nsec());
    let (user, group) = (found.uid(), found.gid());
    let mode = REGULAR | (found.mode() & 0o444);
    Node { mode, user, group, times: [modified; 3], ..Node::default() }
}

fn named(ranks: impl Iterator<Item = i64>, file: &Node, number: u64) -> Option<Catalogue> {
    debug_assert!(file.task.is_none(), "each task gets a file");
    debug_assert!(file.is_file(), "tasks are files");
    let readers = file.mode & 0o444;
    let folder = Node { mode: FOLDER | readers | readers >> 2, ..file.clone() };
    let mut catalogue = Catalogue::new(number, folder.clone());
    let by_rank = ROOT + 1;
    catalogue.apply(Change::Node(by_rank, folder))?;
    catalogue.apply(Change::Name(ROOT, BY_RANK.to_vec(), by_rank))?;
    let mut known = HashSet::new();
    for (task, rank) in (0..).zip(ranks) {
        let inode = by_rank + 1 + task;
        catalogue.apply(Change::Node(inode, Node { task: Some(task), ..file.clone() }))?;
        catalogue.apply(Change::Name(ROOT, task.to_string().into_bytes(), inode))?;
        // A damaged one may say a rank twice: the first has it.
        if known.insert(rank) {
            catalogue.apply(Change::Name(by_rank, rank.to_string().into_bytes(), inode))?;
        }
    }
    Some(catalogue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_have_their_numbers_and_ranks_for_names() {
        let file = Node { mode: REGULAR | 0o440, ..Node::default() };
        let catalogue = named([7, 3, 7].into_iter(), &file, 5).expect("few");
        let paths = catalogue.paths().expect("short");
        let mut tasks: Vec<_> = paths
            .iter()
            .filter_map(|(path, inode)| {
                let task = catalogue.node(*inode)?.task?;
                Some((String::from_utf8(path.clone()).ok()?, task))
            })
            .collect();
        tasks.sort();
        let expected = [("0", 0), ("1", 1), ("2", 2), ("by-rank/3", 1), ("by-rank/7", 0)];
        assert_eq!(tasks, expected.map(|(name, task)| (name.to_owned(), task)));
        assert_eq!(catalogue.node(ROOT).map(|root| root.mode), Some(FOLDER | 0o550));
    }
}
