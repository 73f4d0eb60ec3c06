//! The nodes of a view: what the kernel calls a file by, and the names that lead there.
//!
//! The kernel gets to know a node when it looks a name up, and says how many lookups it forgets; a
//! node that it knows no more is gone. A node has every name that the kernel has looked it up by:
//! of a file with several, whichever is left leads there. So it has after what programs of the
//! library do with names. One that has none was unlinked, and only its open files are left.

use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    hash::{BuildHasher as _, RandomState},
    ops::Range,
};

use fuse::{Lookups, ROOT};
use rustix::{
    fs::{FileType, RenameFlags},
    io::Errno,
};
use storage::names::{CallPath, Identity, NameCall, is_same};
use wire::{Base, Status};

/// A name in a folder.
type Name = (u64, Vec<u8>);

/// All nodes of a view.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// The path of the folder that is mounted.
    top: Vec<u8>,
    nodes: HashMap<u64, Node>,
    by_name: HashMap<Name, u64>,
    by_identity: HashMap<Identity, u64>,
    /// Numbers that have been given so far. They begin where no other view's do: a process may be
    /// in a folder of one that is gone, or is another job's.
    given: Range<u64>,
}

#[derive(Debug)]
struct Node {
    names: Vec<Name>,
    lookups: u64,
    identity: Identity,
    born: u64,
    is_folder: bool,
}

/// A name in a folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf<'a> {
    /// Number of the folder.
    pub(crate) folder: u64,
    pub(crate) name: &'a CStr,
}

impl Leaf<'_> {
    fn owned(self) -> Name {
        (self.folder, self.name.to_bytes().to_vec())
    }
}

impl Nodes {
    pub(crate) fn new(top: &[u8]) -> Self {
        let (nodes, by_name, by_identity) = (HashMap::new(), HashMap::new(), HashMap::new());
        let first = (RandomState::new().hash_one(top) >> 1) + ROOT + 1;
        Self { top: top.to_vec(), nodes, by_name, by_identity, given: first..first }
    }

    /// The path of a node, by any name that is left; `None`: it has none.
    pub(crate) fn path(&self, node: u64) -> Option<CString> {
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut at = node;
        while at != ROOT {
            // Who looks a folder up while it is moved into what was in it learns a circle.
            if parts.len() > self.nodes.len() {
                return None;
            }
            let names = &self.nodes.get(&at)?.names;
            let is_known = |name: &&Name| name.0 == ROOT || self.nodes.contains_key(&name.0);
            let (folder, name) = names.iter().rev().find(is_known)?;
            parts.push(name);
            at = *folder;
        }
        let parts = parts.into_iter().rev();
        CString::new(parts.fold(self.top.clone(), |path, part| [&path, &b"/"[..], part].concat()))
            .ok()
    }

    /// A path that is relative to an open folder of the view, as a server is asked for it; `None`:
    /// the folder is not of this view.
    ///
    /// # Errors
    ///
    /// `ENOENT`: the folder was removed, or the name by which it was known leads elsewhere by now.
    pub(crate) fn locate(&self, path: &CallPath) -> Option<Result<CallPath, Errno>> {
        let is_ours = |base: &Base| base.number == ROOT || self.given.contains(&base.number);
        let base = path.base.filter(is_ours)?;
        let (folder, rest) = path.to_bytes().split_at_checked(base.len_in(path.to_bytes())?)?;
        folder.strip_prefix(&self.top[..]).filter(|rest| matches!(rest, [] | [b'/', ..]))?;
        let above = (0..base.ups).try_fold(base.number, |node, _| self.above(node));
        Some(above.and_then(|node| self.behind(node, rest)).ok_or(Errno::NOENT))
    }

    /// The path that is `rest` behind a folder's.
    fn behind(&self, node: u64, rest: &[u8]) -> Option<CallPath> {
        let text = CString::new([self.path(node)?.to_bytes(), rest].concat()).ok()?;
        let rest_len = u16::try_from(rest.len()).ok()?;
        // The root is what is at its path.
        let base = self.nodes.get(&node).map(|folder| {
            let ((_, number), born) = (folder.identity, folder.born);
            Base { number, born, rest_len, ups: 0 }
        });
        Some(CallPath { text, base })
    }

    /// Device and inode; `None`: those of the root.
    pub(crate) fn identity(&self, node: u64) -> Option<Identity> {
        self.nodes.get(&node).map(|node| node.identity)
    }

    /// The folder that a node is in; `None`: it is the root, or has no name.
    pub(crate) fn above(&self, node: u64) -> Option<u64> {
        let names = &self.nodes.get(&node)?.names;
        names.last().map(|(folder, _)| *folder)
    }

    /// The path of a name in a folder.
    pub(crate) fn child(&self, folder: u64, name: &CStr) -> Option<CallPath> {
        self.behind(folder, &[b"/", name.to_bytes()].concat())
    }

    /// The kernel learns the node of a name, which leads to a file of this status.
    pub(crate) fn look_up(&mut self, folder: u64, name: &CStr, status: &Status) -> u64 {
        let name = (folder, name.to_bytes().to_vec());
        let node = self.known(&name, status).unwrap_or_else(|| self.add(status));
        if let Some(found) = self.nodes.get_mut(&node) {
            found.lookups += 1;
            // A folder has one name: by another it was moved.
            let others =
                if found.is_folder { std::mem::take(&mut found.names) } else { Vec::new() };
            // The last one leads there for sure.
            found.names.retain(|other| *other != name);
            found.names.push(name.clone());
            others.iter().filter(|other| **other != name).for_each(|other| {
                self.by_name.remove(other);
            });
        }
        if let Some(other) = self.by_name.insert(name.clone(), node).filter(|other| *other != node)
        {
            self.unname(other, &name);
        }
        node
    }

    /// The node that a file of this status has, if the kernel knows it.
    fn known(&self, name: &Name, status: &Status) -> Option<u64> {
        let candidates = [self.by_name.get(name), self.by_identity.get(&status.identity())];
        let is_it = |number: &&u64| {
            let node = self.nodes.get(number);
            node.is_some_and(|node| {
                is_same((node.identity, node.born), (status.identity(), status.born))
                    && node.is_folder == is_folder(status)
            })
        };
        candidates.into_iter().flatten().find(is_it).copied()
    }

    fn add(&mut self, status: &Status) -> u64 {
        let number = self.given.end;
        self.given.end += 1;
        let (names, identity, born) = (Vec::new(), status.identity(), status.born);
        let node = Node { names, lookups: 0, identity, born, is_folder: is_folder(status) };
        self.nodes.insert(number, node);
        self.by_identity.insert(identity, number);
        number
    }

    /// The kernel forgets lookups of a node.
    pub(crate) fn forget(&mut self, lookups: Lookups) {
        let Some(node) = self.nodes.get_mut(&lookups.node) else { return };
        node.lookups = node.lookups.saturating_sub(lookups.count);
        if node.lookups > 0 {
            return;
        }
        let Some(node) = self.nodes.remove(&lookups.node) else { return };
        for name in &node.names {
            if self.by_name.get(name) == Some(&lookups.node) {
                self.by_name.remove(name);
            }
        }
        self.strip(node.identity, lookups.node);
    }

    /// The name by which a node's path was found leads elsewhere by now.
    pub(crate) fn mistrust(&mut self, node: u64) {
        let found = self.nodes.get(&node).and_then(|node| node.names.last().cloned());
        if let Some(name) = found {
            self.by_name.remove(&name);
            self.unname(node, &name);
        }
    }

    /// A name leads nowhere any more.
    pub(crate) fn remove(&mut self, folder: u64, name: &CStr) {
        self.removed(&Leaf { folder, name }.owned());
    }

    /// A name has become another one.
    pub(crate) fn rename(&mut self, from: Leaf<'_>, to: Leaf<'_>) {
        self.renamed(&from.owned(), to.owned());
    }

    /// Two names have changed places.
    pub(crate) fn exchange(&mut self, one: Leaf<'_>, other: Leaf<'_>) {
        self.exchanged(one.owned(), other.owned());
    }

    /// A call has changed names past the kernel.
    pub(crate) fn follow(&mut self, call: &NameCall) {
        match call {
            NameCall::Unlink { path } | NameCall::RemoveDir { path } => {
                self.find(path).iter().for_each(|name| self.removed(name));
            }
            NameCall::Link { from, to } => {
                if let Some((from, to)) = self.find(from).zip(self.find(to)) {
                    self.linked(&from, to);
                }
            }
            NameCall::Rename { from, to, flags } => {
                let is_exchange = *flags & RenameFlags::EXCHANGE.bits() != 0;
                match (self.find(from), self.find(to)) {
                    (Some(from), Some(to)) if is_exchange => self.exchanged(from, to),
                    (Some(from), Some(to)) => self.renamed(&from, to),
                    (None, Some(name)) | (Some(name), None) => self.removed(&name),
                    (None, None) => {}
                }
            }
            _ => {}
        }
    }

    /// The name that a path is, in the last of its folders that the kernel knows.
    fn find(&self, path: &CStr) -> Option<Name> {
        let mut rest = path.to_bytes().strip_prefix(&self.top[..])?.strip_prefix(b"/")?;
        let mut folder = ROOT;
        while let Some(len) = rest.iter().position(|byte| *byte == b'/') {
            let (name, behind) = rest.split_at(len);
            let Some(next) = self.by_name.get(&(folder, name.to_vec())) else { break };
            (folder, rest) = (*next, behind.strip_prefix(b"/")?);
        }
        Some((folder, rest.to_vec()))
    }

    fn removed(&mut self, name: &Name) {
        if let Some(node) = self.by_name.remove(name) {
            self.unname(node, name);
        }
    }

    fn renamed(&mut self, from: &Name, to: Name) {
        self.removed(&to);
        if let Some(number) = self.by_name.remove(from) {
            self.name(number, Some(from), to);
        }
    }

    fn exchanged(&mut self, one: Name, other: Name) {
        let [first, second] = [&one, &other].map(|name| self.by_name.remove(name));
        for (node, from, to) in [(first, &one, &other), (second, &other, &one)] {
            if let Some(number) = node {
                self.name(number, Some(from), to.clone());
            }
        }
    }

    fn linked(&mut self, from: &Name, to: Name) {
        self.removed(&to);
        if let Some(number) = self.by_name.get(from) {
            self.name(*number, None, to);
        }
    }

    /// Gives a node a name, perhaps for another one.
    fn name(&mut self, number: u64, former: Option<&Name>, name: Name) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.names.retain(|known| Some(known) != former);
            node.names.push(name.clone());
            self.by_name.insert(name, number);
        }
    }

    fn unname(&mut self, number: u64, name: &Name) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        node.names.retain(|other| other != name);
        if node.names.is_empty() {
            // Its number may become that of a file that is made later.
            let identity = node.identity;
            self.strip(identity, number);
        }
    }

    fn strip(&mut self, identity: Identity, number: u64) {
        if self.by_identity.get(&identity) == Some(&number) {
            self.by_identity.remove(&identity);
        }
    }

    /// True if a node is the file of this status; the root always is.
    pub(crate) fn is(&self, node: u64, status: &Status) -> bool {
        let Some(node) = self.nodes.get(&node) else { return true };
        // Servers of one file system may number its device apart.
        let (inode, other) = (node.identity.1, status.inode);
        is_same(((0, inode), node.born), ((0, other), status.born))
    }

    /// Nodes that the kernel knows, but for the root.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.nodes.len()
    }
}

fn is_folder(status: &Status) -> bool {
    FileType::from_raw_mode(status.mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> Status {
        Status { device: 8, inode, mode: 0o100_644, born: inode, ..Status::default() }
    }

    fn folder(inode: u64) -> Status {
        Status { mode: 0o040_755, ..file(inode) }
    }

    fn path(nodes: &Nodes, node: u64) -> Option<String> {
        nodes.path(node).map(|path| path.into_string().expect("ASCII"))
    }

    #[test]
    fn node_follows_its_folder_and_its_own_renames() {
        let mut nodes = Nodes::new(b"/top");
        let sub = nodes.look_up(ROOT, c"sub", &folder(2));
        let leaf = nodes.look_up(sub, c"leaf", &file(3));
        assert_eq!(path(&nodes, leaf).as_deref(), Some("/top/sub/leaf"));
        nodes.rename(Leaf { folder: ROOT, name: c"sub" }, Leaf { folder: ROOT, name: c"other" });
        nodes.rename(Leaf { folder: sub, name: c"leaf" }, Leaf { folder: ROOT, name: c"up" });
        assert_eq!(path(&nodes, leaf).as_deref(), Some("/top/up"));
        assert_eq!(path(&nodes, sub).as_deref(), Some("/top/other"));
        assert_eq!(nodes.look_up(ROOT, c"up", &file(3)), leaf);
    }

    #[test]
    fn node_follows_what_is_done_with_its_names_past_the_kernel() {
        let mut nodes = Nodes::new(b"/top");
        let call = |nodes: &mut Nodes, call: &NameCall| nodes.follow(call);
        let (sub, leaf) = (nodes.look_up(ROOT, c"sub", &folder(2)), 3);
        let leaf = nodes.look_up(sub, c"leaf", &file(leaf));
        let rename = |from: &CStr, to: &CStr, flags: RenameFlags| NameCall::Rename {
            from: from.to_owned().into(),
            to: to.to_owned().into(),
            flags: flags.bits(),
        };
        let none = RenameFlags::empty();
        call(&mut nodes, &rename(c"/top/sub", c"/top/other", none));
        assert_eq!(path(&nodes, leaf).as_deref(), Some("/top/other/leaf"));
        call(&mut nodes, &rename(c"/top/other/leaf", c"/top/not/known", none));
        assert_eq!(path(&nodes, leaf).as_deref(), Some("/top/not/known"));
        let (from, to): (CallPath, CallPath) =
            (c"/top/not/known".to_owned().into(), c"/top/up".to_owned().into());
        call(&mut nodes, &NameCall::Link { from: from.clone(), to });
        call(&mut nodes, &NameCall::Unlink { path: from });
        assert_eq!(path(&nodes, leaf).as_deref(), Some("/top/up"));
        call(&mut nodes, &rename(c"/top/up", c"/top/other", RenameFlags::EXCHANGE));
        assert_eq!(path(&nodes, leaf).as_deref(), Some("/top/other"));
        assert_eq!(path(&nodes, sub).as_deref(), Some("/top/up"));
        call(&mut nodes, &rename(c"/top/new", c"/top/other", none));
        assert_eq!(path(&nodes, leaf), None, "it was replaced");
        call(&mut nodes, &NameCall::RemoveDir { path: c"/top/up".to_owned().into() });
        assert_eq!(path(&nodes, sub), None);
    }

    #[test]
    fn file_with_two_names_is_one_node_until_both_are_gone() {
        let mut nodes = Nodes::new(b"/top");
        let node = nodes.look_up(ROOT, c"a", &file(3));
        assert_eq!(nodes.look_up(ROOT, c"b", &file(3)), node);
        nodes.remove(ROOT, c"a");
        assert_eq!(path(&nodes, node).as_deref(), Some("/top/b"));
        nodes.remove(ROOT, c"b");
        assert_eq!(path(&nodes, node), None);
        assert_ne!(nodes.look_up(ROOT, c"a", &file(3)), node, "its number was given to another");
    }

    #[test]
    fn name_that_leads_to_another_file_gets_another_node() {
        let mut nodes = Nodes::new(b"/top");
        let old = nodes.look_up(ROOT, c"a", &file(3));
        let new = nodes.look_up(ROOT, c"a", &file(4));
        assert_ne!(old, new);
        assert_eq!((path(&nodes, old), path(&nodes, new).as_deref()), (None, Some("/top/a")));
        nodes.rename(Leaf { folder: ROOT, name: c"a" }, Leaf { folder: ROOT, name: c"b" });
        let third = nodes.look_up(ROOT, c"a", &file(5));
        nodes.exchange(Leaf { folder: ROOT, name: c"a" }, Leaf { folder: ROOT, name: c"b" });
        assert_eq!(path(&nodes, third).as_deref(), Some("/top/b"));
        assert_eq!(path(&nodes, new).as_deref(), Some("/top/a"));
    }

    #[test]
    fn file_that_others_have_renamed_is_reached_by_the_name_it_was_found_by_last() {
        let mut nodes = Nodes::new(b"/top");
        let node = nodes.look_up(ROOT, c"a", &file(3));
        assert_eq!(nodes.look_up(ROOT, c"b", &file(3)), node);
        assert_eq!(path(&nodes, node).as_deref(), Some("/top/b"));
        nodes.look_up(ROOT, c"a", &file(3));
        nodes.mistrust(node);
        assert_eq!(path(&nodes, node).as_deref(), Some("/top/b"));
        nodes.mistrust(node);
        assert_eq!(path(&nodes, node), None);
    }

    #[test]
    fn node_is_gone_when_all_its_lookups_are_forgotten() {
        let mut nodes = Nodes::new(b"/top");
        let node = nodes.look_up(ROOT, c"a", &file(3));
        nodes.look_up(ROOT, c"a", &file(3));
        nodes.forget(Lookups { node, count: 1 });
        assert_eq!(nodes.count(), 1);
        nodes.forget(Lookups { node, count: 1 });
        assert_eq!((nodes.count(), nodes.by_name.len(), nodes.by_identity.len()), (0, 0, 0));
    }
}
