//! Small files that were made, written, and closed before anybody asked for them.

use std::{io, rc::Rc};

use multifile::catalogue::{Change, Time};
use uring::{Buffer, Buffers};

use super::{
    stream::Stream,
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
        let mut tasks = Vec::new();
        let taken = async {
            for file in files {
                let task = if file.data.is_empty() { None } else { Some(self.free_task().await?) };
                tasks.push(task);
                if let Some(task) = task {
                    let stream = self.stream(task)?;
                    self.fill(&stream, &file.data).await?;
                }
            }
            self.change_in(changing, |tree| Ok(((), changes(tree, files, &tasks)?))).await
        };
        let taken = taken.await;
        if taken.is_err() {
            self.users.set_left(tasks.into_iter().flatten());
        }
        taken
    }

    /// Writes all of an empty stream.
    async fn fill(&self, stream: &Rc<Stream>, data: &[Buffer]) -> io::Result<()> {
        let mut at = 0;
        for piece in data {
            let mut rest = Buffers::from(piece.clone());
            loop {
                let len = stream.write(self.machine(), at, &rest).await?;
                at += len as u64;
                match rest.suffix(len) {
                    _ if len == 0 => return Err(Errno::NOSPC.into()),
                    Some(behind) => rest = behind,
                    None => break,
                }
            }
        }
        Ok(())
    }
}

/// What makes the files, their bytes in these tasks.
fn changes(tree: &Tree, files: &[Small], tasks: &[Option<u64>]) -> Result<Vec<Change>, Errno> {
    let (mut changes, mut folders) = (Vec::new(), Vec::new());
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
