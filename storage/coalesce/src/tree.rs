//! Calls on names as changes to a catalogue: POSIX's rules, and no I/O.
//!
//! A call is checked first, as a whole, and then says what it changes: so it happens or it does
//! not. Paths start at the root; links are followed inside it, and lead nowhere else.

mod attributes;
mod claimed;
mod files;

use std::{collections::HashSet, ffi::CStr, mem};

use multifile::catalogue::{Catalogue, Change, Names, Node, ROOT, TEXT_LEN_MAX, Time, is_name};
use rustix::{fs::RenameFlags, io::Errno};
use storage::scope::LINKS_MAX;
use wire::{Listed, NameKind};

pub(super) use self::claimed::NamedFile;

/// Names that a path may have, with those of the links in it.
const PARTS_MAX: usize = 4096;

pub(super) const FOLDER: u32 = 0o040_000;
pub(super) const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
pub(super) const PERMISSIONS: u32 = 0o7777;
/// Of a file, and there is none of a folder: who executes it is its owner then.
const SET_USER: u32 = 0o4000;
/// The same of its group; of a folder: what is made in it has its group.
const SET_GROUP: u32 = 0o2000;

/// Wanted access to an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish(u32);

impl Wish {
    pub(super) const READ: Self = Self(4);
    pub(super) const WRITE: Self = Self(2);
    pub(super) const ENTER: Self = Self(1);

    /// Those of an `access(2)` mode.
    pub(super) const fn of_access(mode: u32) -> Self {
        Self(mode & 7)
    }

    pub(super) const fn writes(self) -> bool {
        self.0 & Self::WRITE.0 != 0
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The caller.
#[derive(Clone, Debug, Default)]
pub(super) struct User {
    pub(super) user: u32,
    pub(super) group: u32,
    /// The others that it is in, too.
    pub(super) groups: Vec<u32>,
}

impl User {
    fn is_in(&self, group: u32) -> bool {
        group == self.group || self.groups.contains(&group)
    }
}

/// A name in a folder, and what has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) folder: u64,
    /// Empty: it is the root.
    pub(super) name: Vec<u8>,
    pub(super) inode: Option<u64>,
}

impl Found {
    pub(super) fn inode(&self) -> Result<u64, Errno> {
        self.inode.ok_or(Errno::NOENT)
    }
}

/// Result of changes.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// The inodes that are gone, as they were.
    pub(super) gone: Vec<(u64, Node)>,
    /// Changes that undo all of it.
    pub(super) undo: Vec<Change>,
}

/// The names of a multifile, with who asks for them.
#[derive(Debug)]
pub(super) struct Tree {
    catalogue: Catalogue,
    me: User,
    /// Folders whose files are in another multifile.
    covered: HashSet<u64>,
}

impl Tree {
    pub(super) fn new(catalogue: Catalogue, me: User) -> Self {
        Self { catalogue, me, covered: HashSet::new() }
    }

    /// Returns all names, and leaves none.
    pub(super) fn take(&mut self) -> Catalogue {
        mem::replace(&mut self.catalogue, Catalogue::new(0, Node::default()))
    }

    /// From now on nothing here leads to an empty folder: another multifile has its files, and who
    /// names it is not sent here.
    pub(super) fn cover(&mut self, inode: u64) -> Result<(), Errno> {
        match self.catalogue.names(inode) {
            None => Err(Errno::NOTDIR),
            Some(names) if !names.is_empty() => Err(Errno::NOTEMPTY),
            Some(_) => {
                self.covered.insert(inode);
                Ok(())
            }
        }
    }

    /// A folder to be [covered](Self::cover) that no record is to say.
    pub(super) fn show(&mut self, at: &Found, now: Time) -> Result<u64, Errno> {
        let (inode, mode) = (self.catalogue.next_inode(), FOLDER | 0o755);
        let User { user, group, .. } = self.me;
        let node = Node { mode, user, group, times: [now; 3], ..Node::default() };
        let changes = [Change::Node(inode, node), Change::Name(at.folder, at.name.clone(), inode)];
        let mut applied = changes.into_iter().map(|change| self.catalogue.apply(change));
        applied.all(|applied| applied.is_some()).then_some(inode).ok_or(Errno::INVAL)
    }

    pub(super) fn number(&self) -> u64 {
        self.catalogue.number()
    }

    /// Returns the stream of names that makes this tree.
    pub(super) fn stream(&self) -> Vec<u8> {
        self.catalogue.write()
    }

    /// Bytes of those records.
    pub(super) fn records_len(&self) -> u64 {
        self.catalogue.records_len()
    }

    /// The records that make this tree, and the head of a stream in which they begin at `at`.
    pub(super) fn records(&self) -> Vec<u8> {
        self.catalogue.records()
    }

    pub(super) fn head_at(&self, at: u64) -> Vec<u8> {
        self.catalogue.head_at(at)
    }

    pub(super) fn node(&self, inode: u64) -> Option<&Node> {
        self.catalogue.node(inode)
    }

    /// The tasks that have somebody's data.
    pub(super) fn tasks(&self) -> impl Iterator<Item = u64> {
        self.catalogue.nodes().filter_map(|(_, node)| node.task)
    }

    pub(super) fn link_count(&self, inode: u64) -> u64 {
        match self.catalogue.names(inode) {
            Some(_) => 2 + self.catalogue.folder_count(inode),
            None => self.catalogue.link_count(inode),
        }
    }

    /// Makes changes that [were made up](self) for this tree.
    pub(super) fn apply(&mut self, changes: Vec<Change>) -> Applied {
        let mut made = Applied { gone: Vec::new(), undo: Vec::with_capacity(changes.len()) };
        for change in changes {
            let gone = match change {
                Change::Gone(inode) => Some(inode),
                _ => None,
            };
            let undo = self.catalogue.replace(change);
            debug_assert!(undo.is_some(), "a change was made up for this tree");
            if let (Some(inode), Some(Change::Node(_, node))) = (gone, &undo) {
                made.gone.push((inode, node.clone()));
            }
            made.undo.extend(undo);
        }
        made.undo.reverse();
        made
    }

    /// Checks the caller's permission on an inode.
    pub(super) fn may(&self, inode: u64, wish: Wish) -> Result<(), Errno> {
        let rights = self.rights(self.node(inode).ok_or(Errno::NOENT)?);
        if rights & wish.0 == wish.0 { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// All that the caller may do with a node, in the bits of `access(2)`.
    pub(super) fn rights(&self, node: &Node) -> u32 {
        let bits = match &self.me {
            // Root executes only what somebody may.
            me if me.user == 0 => 6 | u32::from(node.is_folder() || node.mode & 0o111 != 0),
            me if me.user == node.user => node.mode >> 6,
            me if me.is_in(node.group) => node.mode >> 3,
            _ => node.mode,
        };
        bits & 7
    }

    /// A file that has one name.
    pub(super) fn file_of_one_name(&self, inode: u64) -> Option<&Node> {
        self.catalogue.file_of_one_name(inode)
    }

    /// Finds a name; what it leads to if it is a link that is to be followed.
    pub(super) fn find(&self, path: &CStr, follow: bool) -> Result<Found, Errno> {
        let parts = |path: &[u8]| -> Vec<Vec<u8>> {
            let parts =
                path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
            parts.rev().map(<[u8]>::to_vec).collect()
        };
        let mut above = Vec::new();
        let mut found = Found { folder: ROOT, name: Vec::new(), inode: Some(ROOT) };
        let (mut rest, mut links, mut steps) = (parts(path.to_bytes()), 0, 0);
        while let Some(part) = rest.pop() {
            steps += 1;
            let folder = found.inode()?;
            let names = self.catalogue.names(folder).ok_or(Errno::NOTDIR)?;
            self.may(folder, Wish::ENTER)?;
            if part == b".." {
                // Nothing leads out.
                found = above.pop().ok_or(Errno::XDEV)?;
                continue;
            }
            let inode = names.get(&part);
            let text = inode.and_then(|inode| self.node(inode)).filter(|node| node.is_link());
            if let Some(link) = text.filter(|_| follow || !rest.is_empty()) {
                links += 1;
                if links > LINKS_MAX || steps + rest.len() > PARTS_MAX {
                    return Err(Errno::LOOP);
                }
                if link.text.starts_with(b"/") {
                    return Err(Errno::XDEV);
                }
                rest.extend(parts(&link.text));
                continue;
            }
            if !is_name(&part) {
                return Err(Errno::NAMETOOLONG);
            }
            if inode.is_some_and(|inode| self.covered.contains(&inode)) {
                return Err(Errno::XDEV);
            }
            above.push(mem::replace(&mut found, Found { folder, name: part, inode }));
        }
        Ok(found)
    }

    /// The names in a folder, and the inode of each.
    pub(super) fn names(
        &self,
        folder: u64,
    ) -> Result<impl Iterator<Item = (&[u8], u64)> + use<'_>, Errno> {
        let names = self.catalogue.names(folder).ok_or(Errno::NOTDIR)?;
        self.may(folder, Wish::READ)?;
        Ok(names.iter())
    }

    /// A name, and what it stands for.
    pub(super) fn listed<'a>(&self, name: &'a [u8], inode: u64) -> Listed<'a> {
        let kind = match self.node(inode) {
            Some(node) if node.is_folder() => NameKind::Folder,
            Some(node) if node.is_link() => NameKind::Link,
            _ => NameKind::File,
        };
        Listed { kind, inode, name }
    }

    // ---- what calls change

    /// A new inode of this mode, without a task, under a name that is free.
    pub(super) fn make(
        &self,
        at: &Found,
        kind: u32,
        permissions: u32,
        now: Time,
    ) -> Result<(u64, Vec<Change>), Errno> {
        let inode = self.catalogue.next_inode();
        Ok((inode, self.make_as(inode, at, kind, permissions, now)?))
    }

    /// As [`make`](Self::make), of a number that was [reserved](Self::reserve).
    pub(super) fn make_as(
        &self,
        inode: u64,
        at: &Found,
        kind: u32,
        permissions: u32,
        now: Time,
    ) -> Result<Vec<Change>, Errno> {
        if at.inode.is_some() || self.has(at) {
            return Err(Errno::EXIST);
        }
        let above = self.node(at.folder).filter(|folder| folder.mode & SET_GROUP != 0);
        // As the kernel does it: a folder takes over that bit, and gets neither from its maker.
        let (asked, inherited) = match kind {
            FOLDER => (permissions & !(SET_USER | SET_GROUP), above.map_or(0, |_| SET_GROUP)),
            _ => (permissions, 0),
        };
        let node = Node {
            mode: kind | asked & PERMISSIONS | inherited,
            user: self.me.user,
            group: above.map_or(self.me.group, |folder| folder.group),
            times: [now; 3],
            ..Node::default()
        };
        let named = Change::Name(at.folder, at.name.clone(), inode);
        Ok(vec![Change::Node(inode, node), named, self.touched(at.folder, now)?])
    }

    pub(super) fn symlink(&self, text: &CStr, at: &Found, now: Time) -> Result<Vec<Change>, Errno> {
        if text.to_bytes().len() > TEXT_LEN_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let (_, mut changes) = self.make(at, LINK, 0o777, now)?;
        if let Some(Change::Node(_, node)) = changes.first_mut() {
            node.text = text.to_bytes().to_vec();
        }
        Ok(changes)
    }

    pub(super) fn link(&self, from: &Found, at: &Found, now: Time) -> Result<Vec<Change>, Errno> {
        let inode = from.inode()?;
        if at.inode.is_some() {
            return Err(Errno::EXIST);
        }
        if self.catalogue.names(inode).is_some() {
            return Err(Errno::PERM);
        }
        let named = Change::Name(at.folder, at.name.clone(), inode);
        Ok(vec![named, self.changed(inode, now)?, self.touched(at.folder, now)?])
    }

    pub(super) fn unlink_file(&self, at: &Found, now: Time) -> Result<Vec<Change>, Errno> {
        let inode = at.inode()?;
        if self.catalogue.names(inode).is_some() {
            return Err(Errno::ISDIR);
        }
        let mut changes = vec![self.touched(at.folder, now)?];
        self.take_name(at, inode, now, &mut changes)?;
        Ok(changes)
    }

    pub(super) fn remove_folder(&self, at: &Found, now: Time) -> Result<Vec<Change>, Errno> {
        let inode = at.inode()?;
        let names = self.catalogue.names(inode).ok_or(Errno::NOTDIR)?;
        if at.name.is_empty() {
            return Err(Errno::BUSY);
        }
        if !names.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        let touched = self.touched(at.folder, now)?;
        Ok(vec![touched, Change::NoName(at.folder, at.name.clone()), Change::Gone(inode)])
    }

    pub(super) fn rename(
        &self,
        from: &Found,
        to: &Found,
        flags: u32,
        now: Time,
    ) -> Result<Vec<Change>, Errno> {
        let flags = RenameFlags::from_bits_retain(flags);
        let exchanges = flags.contains(RenameFlags::EXCHANGE);
        let known = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
        if !known.contains(flags) || flags == known {
            return Err(Errno::INVAL);
        }
        if from.name.is_empty() || to.name.is_empty() {
            return Err(Errno::BUSY);
        }
        let inode = from.inode()?;
        let is_folder = |inode: u64| self.catalogue.names(inode).is_some();
        if is_folder(inode) && self.is_below(to.folder, inode) {
            return Err(Errno::INVAL);
        }
        let moved = [Some(inode), to.inode].into_iter().flatten();
        // Another multifile has the files of a folder somewhere below one of them.
        let covers = |moved| self.covered.iter().any(|covered| self.is_below(*covered, moved));
        if moved.into_iter().any(covers) {
            return Err(Errno::BUSY);
        }
        // The kernel changes the `..` of a folder that goes to another one.
        if from.folder != to.folder && is_folder(inode) {
            self.may(inode, Wish::WRITE)?;
        }
        let mut changes = vec![self.touched(from.folder, now)?, self.touched(to.folder, now)?];
        let named = |at: &Found, inode| Change::Name(at.folder, at.name.clone(), inode);
        match to.inode {
            None if exchanges => return Err(Errno::NOENT),
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EXIST),
            Some(other) if exchanges => {
                if is_folder(other) && self.is_below(from.folder, other) {
                    return Err(Errno::INVAL);
                }
                changes.extend([named(to, inode), named(from, other)]);
                return Ok(changes);
            }
            // Two names of one inode: both stay.
            Some(other) if other == inode => return Ok(Vec::new()),
            Some(other) => match (is_folder(inode), self.catalogue.names(other)) {
                (true, None) => return Err(Errno::NOTDIR),
                (false, Some(_)) if self.is_below(from.folder, other) => {
                    return Err(Errno::NOTEMPTY);
                }
                (false, Some(_)) => return Err(Errno::ISDIR),
                (true, Some(names)) if !names.is_empty() => return Err(Errno::NOTEMPTY),
                (true, Some(_)) => {
                    changes
                        .extend([Change::NoName(to.folder, to.name.clone()), Change::Gone(other)]);
                }
                (false, None) => self.take_name(to, other, now, &mut changes)?,
            },
            None => {}
        }
        changes.extend([
            named(to, inode),
            Change::NoName(from.folder, from.name.clone()),
            self.changed(inode, now)?,
        ]);
        Ok(changes)
    }

    /// Takes a name from an inode, and the inode with its last one.
    fn take_name(
        &self,
        at: &Found,
        inode: u64,
        now: Time,
        changes: &mut Vec<Change>,
    ) -> Result<(), Errno> {
        changes.push(Change::NoName(at.folder, at.name.clone()));
        changes.push(match self.link_count(inode) {
            ..=1 => Change::Gone(inode),
            _ => self.changed(inode, now)?,
        });
        Ok(())
    }

    /// A folder whose names change; it may have to be written for that.
    fn touched(&self, folder: u64, now: Time) -> Result<Change, Errno> {
        self.touched_node(folder, now).map(|node| Change::Node(folder, node))
    }

    /// The node of a folder whose names change.
    fn touched_node(&self, folder: u64, now: Time) -> Result<Node, Errno> {
        self.may(folder, Wish::WRITE.and(Wish::ENTER))?;
        let node = self.node(folder).ok_or(Errno::NOENT)?;
        Ok(Node { times: [node.times[0], now, now], ..node.clone() })
    }

    fn changed(&self, inode: u64, now: Time) -> Result<Change, Errno> {
        let node = self.node(inode).ok_or(Errno::NOENT)?;
        let times = [node.times[0], node.times[1], now];
        Ok(Change::Node(inode, Node { times, ..node.clone() }))
    }

    /// True if a folder is another one, or somewhere below it.
    fn is_below(&self, folder: u64, other: u64) -> bool {
        // A stream of names may say that one is in itself.
        let (mut waiting, mut seen) = (vec![other], HashSet::new());
        while let Some(next) = waiting.pop() {
            if next == folder {
                return true;
            }
            if !seen.insert(next) {
                continue;
            }
            let its = self.catalogue.names(next).into_iter().flat_map(Names::iter);
            let its = its.map(|(_, inode)| inode);
            waiting.extend(its.filter(|inode| self.node(*inode).is_some_and(Node::is_folder)));
        }
        false
    }
}
