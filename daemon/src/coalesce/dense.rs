//! Small files that were made, written, and closed before anybody asked for them.

use std::io;

use multifile::catalogue::{Change, Time};
use uring::Buffer;

use super::{
    tree::{Found, REGULAR, Tree},
    volume::{Changing, Volume},
};
use rustix::io::Errno;

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
    /// Its bytes.
    pub(super) data: Vec<Buffer>,
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
        files: &[Small],
    ) -> io::Result<()> {
        let disturb = |file: &Small| self.disturb(file.inode, Some(&file.found));
        let _disturbed: Vec<_> = files.iter().map(disturb).collect();
        let is_empty = |file: &&Small| file.data.is_empty();
        let data: Vec<&[Buffer]> =
            files.iter().filter(|file| !is_empty(file)).map(|file| &file.data[..]).collect();
        let mut tasks = Vec::new();
        let taken = async {
            self.keep(&data, &mut tasks).await?;
            debug_assert_eq!(tasks.len(), data.len(), "every file with bytes has a task");
            let mut given = tasks.iter().copied();
            let next = |file: &Small| if file.data.is_empty() { None } else { given.next() };
            let of_files: Vec<Option<u64>> = files.iter().map(next).collect();
            self.change_in(changing, |tree| Ok(((), changes(tree, files, &of_files)?))).await
        };
        let taken = taken.await;
        if taken.is_err() {
            self.users.set_left(tasks);
        }
        taken
    }
}

/// Changes that make the files, with their bytes in these tasks.
fn changes(tree: &Tree, files: &[Small], tasks: &[Option<u64>]) -> Result<Vec<Change>, Errno> {
    let (mut changes, mut folders) = (Vec::new(), Vec::new());
    debug_assert_eq!(files.len(), tasks.len());
    for (file, task) in files.iter().zip(tasks) {
        let kind = ((REGULAR, file.mode), *task);
        for change in tree.make_as(file.inode, &file.found, kind, file.time)? {
            match change {
                // Once for all of its files.
                Change::Node(folder, node) if folder == file.found.folder => {
                    folders.retain(|(other, _)| *other != folder);
                    folders.push((folder, node));
                }
                change => changes.push(change),
            }
        }
    }
    changes.extend(folders.into_iter().map(|(folder, node)| Change::Node(folder, node)));
    Ok(changes)
}
