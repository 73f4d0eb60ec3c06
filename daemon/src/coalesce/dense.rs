//! Small files that were made, written, and closed before anybody asked for them.

use std::{io, ops::Range};

use multifile::catalogue::{Change, Node, Time};
use rustix::io::Errno;
use uring::Buffer;

use super::{
    tree::{Found, REGULAR, Tree},
    volume::{Changing, Volume},
};

/// A small file.
pub(super) struct Small {
    /// Its number, which was [reserved](Tree::reserve), and which nobody has.
    pub(super) inode: u64,
    /// Its folder, and its name, which is free.
    pub(super) found: Found,
    /// Permission bits.
    pub(super) mode: u32,
    /// When it was made and written.
    pub(super) time: Time,
    /// Its bytes, among those of all files that are made together.
    pub(super) data: Range<usize>,
}

impl Volume {
    /// Makes all of `files`, whose names are different ones: their bytes first, and then all names
    /// by one record. On return they are in the multifile.
    ///
    /// # Errors
    ///
    /// Those of writing: none of the files is made.
    pub(super) async fn take_files(
        &self,
        changing: &Changing<'_>,
        files: Vec<Small>,
        data: &[Buffer],
    ) -> io::Result<()> {
        // Nobody knows of them, so there is nothing to hide; but none is shown before it is made.
        let _paused = self.resting.pause();
        let mut shown = Vec::new();
        let mut tasks = Vec::new();
        let data: Vec<&[Buffer]> =
            files.iter().filter_map(|file| data.get(file.data.clone())).collect();
        let with_bytes: Vec<&[Buffer]> =
            data.iter().copied().filter(|data| !data.is_empty()).collect();
        debug_assert_eq!(data.len(), files.len(), "the data of every file is there");
        let taken = async {
            self.keep(&with_bytes, &mut tasks).await?;
            debug_assert_eq!(tasks.len(), with_bytes.len(), "every file with bytes has a task");
            self.change_in(changing, |tree| {
                let names = files.iter().map(|file| (file.inode, &file.found));
                shown = self.resting.to_show(names);
                Ok(((), changes(tree, files, tasks.iter().copied())?))
            })
            .await
        };
        let taken = taken.await;
        match taken {
            Ok(()) => self.resting.are_calm(shown),
            Err(_) => self.users.set_left(tasks),
        }
        taken
    }
}

/// Changes that make the files, with the bytes of those that have any in these tasks.
fn changes(
    tree: &Tree,
    files: Vec<Small>,
    mut tasks: impl Iterator<Item = u64>,
) -> Result<Vec<Change>, Errno> {
    let mut changes = Vec::with_capacity(2 * files.len() + 1);
    let mut folders: Vec<(u64, Node)> = Vec::new();
    for file in files {
        let (folder, time) = (file.found.folder, file.time);
        match folders.iter_mut().find(|(known, _)| *known == folder) {
            Some((_, node)) => node.times = [node.times[0], time, time],
            None => folders.push((folder, tree.touched_node(folder, time)?)),
        }
        let task = if file.data.is_empty() { None } else { tasks.next() };
        let node = tree.new_node(&file.found, ((REGULAR, file.mode), task), time)?;
        changes.push(Change::Node(file.inode, node));
        changes.push(Change::Name(folder, file.found.name, file.inode));
    }
    changes.extend(folders.into_iter().map(|(folder, node)| Change::Node(folder, node)));
    Ok(changes)
}
