//! Files that are made together.

use std::mem;

use multifile::catalogue::{Change, Encoder, Node, Time, is_name, unmake_files};
use rustix::io::Errno;

use super::{PERMISSIONS, REGULAR, SET_GROUP, Tree, Wish};
use crate::dense::Small;

/// Bytes that most files take in a record.
const FILE_LEN: usize = 128;

/// A folder in which files are made.
struct Above {
    inode: u64,
    /// The folder once they are made.
    node: Node,
    /// The group of files in it.
    group: u32,
}

impl Tree {
    /// True if a file can be made in a folder under this name.
    pub(crate) fn is_free_in(&self, folder: u64, name: &[u8]) -> bool {
        let names = self.catalogue.names(folder);
        names.is_some_and(|names| !names.contains(name))
            && is_name(name)
            && !self.covered.contains(&folder)
            && self.may(folder, Wish::WRITE.and(Wish::ENTER)).is_ok()
    }

    /// Makes files, with the bytes of those that have any in these tasks, and takes their names.
    /// Returns the record that says so, and changes that restore their folders.
    ///
    /// # Errors
    ///
    /// `EEXIST`: a name or a number is taken. Nothing has changed then.
    pub(crate) fn make_files(
        &mut self,
        files: &mut [Small],
    ) -> Result<(Vec<u8>, Vec<Change>), Errno> {
        let mut record = Encoder::with_room(files.len() * FILE_LEN);
        let mut folders = Vec::new();
        for file in files {
            if let Err(why) = self.make_file(file, &mut folders, &mut record) {
                self.apply(unmake_files(&record.finish()));
                return Err(why);
            }
        }
        let mut undo = Vec::with_capacity(folders.len());
        for Above { inode, node, .. } in folders {
            record.node(inode, &node);
            undo.extend(self.catalogue.replace(Change::Node(inode, node)));
        }
        Ok((record.finish(), undo))
    }

    fn make_file(
        &mut self,
        file: &mut Small,
        folders: &mut Vec<Above>,
        record: &mut Encoder,
    ) -> Result<(), Errno> {
        let at = folders.iter().position(|above| above.inode == file.folder);
        if at.is_none() {
            folders.push(self.above(file.folder, file.time)?);
        }
        let at = at.unwrap_or(folders.len().saturating_sub(1));
        let above = folders.get_mut(at).ok_or(Errno::IO)?;
        above.node.times = [above.node.times[0], file.time, file.time];
        let node = Node {
            mode: REGULAR | file.mode & PERMISSIONS,
            user: self.me.user,
            group: above.group,
            task: file.task,
            times: [file.time; 3],
            ..Node::default()
        };
        let end = record.end();
        record.node(file.inode, &node);
        record.name(file.folder, &file.name, file.inode);
        let name = mem::take(&mut file.name);
        let added = self.catalogue.add_file(file.folder, name, file.inode, node);
        // What is said is what was done.
        added.ok_or(Errno::EXIST).inspect_err(|_| record.cut(end))
    }

    fn above(&self, inode: u64, time: Time) -> Result<Above, Errno> {
        let node = self.touched_node(inode, time)?;
        let group = if node.mode & SET_GROUP == 0 { self.me.group } else { node.group };
        Ok(Above { inode, node, group })
    }
}
