//! Names as clients claim them, what the files are made with that they make, and where they are.

use std::ffi::{CStr, CString};

use multifile::catalogue::{Names, Node, ROOT, TEXT_LEN_MAX, is_name};
use rustix::io::Errno;
use shm::NameHash;
use storage::names::CallPath;

use super::{Found, Tree, Wish};

/// A file that has one name.
pub(crate) struct NamedFile<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) inode: u64,
    pub(crate) node: &'a Node,
}

impl Tree {
    /// As [`find`](Self::find), if the folder that the path is relative to is still where the path
    /// says.
    pub(crate) fn find_at(&self, path: &CallPath, follow: bool) -> Result<Found, Errno> {
        let base = path.base.and_then(|base| Some((base, base.len_in(path.to_bytes())?)));
        if let Some((base, len)) = base {
            let folder = path.to_bytes().get(..len).unwrap_or_default();
            let folder = CString::new(folder).map_err(|_| Errno::INVAL)?;
            if self.find(&folder, true)?.inode()? != base.number {
                return Err(Errno::STALE);
            }
        }
        self.find(path, follow)
    }

    /// Numbers that nobody but the caller gives to inodes: so many from the one returned on.
    pub(crate) fn reserve(&mut self, count: u64) -> u64 {
        self.catalogue.reserve(count)
    }

    /// A name in a folder, in which the caller may make files, and what has it.
    pub(crate) fn find_in(&self, folder: u64, name: &[u8]) -> Result<Found, Errno> {
        let names = self.catalogue.names(folder).ok_or(Errno::NOENT)?;
        if !is_name(name) || self.covered.contains(&folder) {
            return Err(Errno::XDEV);
        }
        self.may(folder, Wish::WRITE.and(Wish::ENTER))?;
        Ok(Found { folder, name: name.to_vec(), inode: names.get(name) })
    }

    /// The key of a folder that the caller may enter.
    pub(crate) fn enter(&self, folder: u64) -> Result<u64, Errno> {
        self.catalogue.names(folder).ok_or(Errno::NOTDIR)?;
        if self.covered.contains(&folder) {
            return Err(Errno::XDEV);
        }
        self.may(folder, Wish::ENTER).map(|()| self.key_of(folder))
    }

    /// The key that names of a folder are hashed with, another one in each multifile.
    pub(crate) fn key_of(&self, folder: u64) -> u64 {
        self.number().rotate_left(32) ^ folder
    }

    /// The hash of a name.
    pub(crate) fn hash(&self, at: &Found) -> NameHash {
        NameHash::new(self.key_of(at.folder), &at.name)
    }

    /// True if something has that name now.
    pub(crate) fn has(&self, at: &Found) -> bool {
        self.catalogue.names(at.folder).is_some_and(|names| names.contains(&at.name))
    }

    /// What has a name in a folder.
    pub(crate) fn named_in(&self, folder: u64, name: &[u8]) -> Option<u64> {
        let names = self.catalogue.names(folder).filter(|_| !self.covered.contains(&folder));
        names?.get(name)
    }

    /// The files in a folder that have no other name, by their numbers: as these were given to
    /// them, what is known of them is in memory.
    pub(crate) fn files_of(&self, folder: u64) -> impl Iterator<Item = NamedFile<'_>> {
        let names = self.catalogue.names(folder).into_iter().flat_map(Names::iter);
        let mut names: Vec<_> = names.map(|(name, inode)| (inode, name)).collect();
        names.sort_unstable_by_key(|(inode, _)| *inode);
        names.into_iter().filter_map(|(inode, name)| {
            let node = self.catalogue.file_of_one_name(inode)?;
            Some(NamedFile { name, inode, node })
        })
    }

    /// How many names all folders have.
    pub(crate) fn all_names_count(&self) -> usize {
        self.catalogue.name_count()
    }

    /// How many names a folder has.
    pub(crate) fn name_count(&self, folder: u64) -> usize {
        self.catalogue.names(folder).map_or(0, Names::len)
    }

    /// All of them, whoever may know them.
    pub(crate) fn names_of(&self, folder: u64) -> impl Iterator<Item = &[u8]> {
        self.catalogue.names(folder).into_iter().flat_map(Names::iter).map(|(name, _)| name)
    }

    /// The name of an inode in a folder.
    pub(crate) fn name_in(&self, folder: &CStr, inode: u64) -> Option<Vec<u8>> {
        debug_assert!(inode != 0, "inodes have numbers");
        let mut names = self.catalogue.names(self.find(folder, true).ok()?.inode?)?.iter();
        names.find(|(_, found)| *found == inode).map(|(name, _)| name.to_vec())
    }

    /// A path of an inode, from the root: looks through all names for each part of it.
    pub(crate) fn path_of(&self, inode: u64) -> Option<Vec<u8>> {
        let (mut path, mut below) = (Vec::new(), inode);
        self.catalogue.node(inode)?;
        while below != ROOT {
            let (folder, name) = self.catalogue.name_of(below)?;
            path.splice(..0, [b"/", name].concat());
            below = folder;
            if path.len() > TEXT_LEN_MAX {
                return None; // Or a folder is in itself.
            }
        }
        Some(path)
    }
}
