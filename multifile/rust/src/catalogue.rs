//! The names of files whose data is in the tasks of a multifile (format section 11).
//!
//! They are kept as SIONlib's tools keep any data: in the stream of a task, the first one, as
//! records that are only ever appended. A record holds what changes together, and is whole or
//! counts for nothing: so a writer that dies leaves the names as they were before or after a call.
//! Where most records say what is no more, the names are written anew elsewhere in the stream, and
//! its head then says where.
//!
//! Nothing here does I/O. A stream may say anything; what makes no sense is refused.

mod names;
mod nodes;
mod reading;
mod record;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem,
};

pub use self::{
    names::Names,
    reading::{End, Reading},
    record::{Encoder, encode, unmake_files},
};
use self::{
    nodes::Nodes,
    record::{NAME_LEN, NODE_LEN},
};

use crate::codec::{Fields, put_u32, put_u64, wide};

/// The task whose stream holds the names.
pub const TASK: usize = 0;
/// The number of the folder that all names start at.
pub const ROOT: u64 = 1;
/// Longest name in a folder, bytes, as in Linux.
pub const NAME_LEN_MAX: usize = 255;
/// Longest text of a symbolic link, bytes.
pub const TEXT_LEN_MAX: usize = 4095;
/// Longest path that can be said to the kernel, bytes.
const PATH_LEN_MAX: usize = 4095;
/// Bytes before the first record of a stream that was never written anew.
pub const HEAD_LEN: usize = MAGIC.len() + 12;
/// The most bytes that a head has, and that no record is in once it has them.
pub const HEAD_LEN_MAX: usize = HEAD_LEN + 8;
/// Ends the records where others may follow that do not count any more.
pub const END: [u8; 8] = [0; 8];

const MAGIC: [u8; 12] = *b"kakehi names";
/// Records follow the head.
const VERSION: u32 = 1;
/// The head says where they are.
const PLACED: u32 = 2;
/// Type bits of a mode, and the types there are.
const TYPE: u32 = 0o170_000;
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// Seconds and nanoseconds since 1970.
pub type Time = (i64, u32);

/// A file, a folder, or a symbolic link, whatever its names are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
    /// The task with its data, counted over the whole set; `None` of what has none (yet).
    pub task: Option<u64>,
    /// Last access, last modification, last change of anything.
    pub times: [Time; 3],
    /// Text of a symbolic link.
    pub text: Vec<u8>,
}

/// Change in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node is this from now on.
    Node(u64, Node),
    /// A name in a folder is this node's from now on.
    Name(u64, Vec<u8>, u64),
    /// A name in a folder is nobody's any more.
    NoName(u64, Vec<u8>),
    /// A node is gone.
    Gone(u64),
}

/// All names and nodes.
#[derive(Clone, Debug)]
pub struct Catalogue {
    number: u64,
    nodes: Nodes,
    folders: BTreeMap<u64, Names>,
    /// Folders in each folder that has any.
    inner: HashMap<u64, u64>,
    next: u64,
}

/// A node, and how many names it has.
#[derive(Clone, Debug, Default)]
struct Named {
    node: Node,
    count: u64,
}

/// State of what a change replaces.
enum Was {
    Node(u64, Option<Node>),
    Name(Option<u64>),
    NoName(u64, Vec<u8>, u64),
}

/// The stream holds no names, or names that make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It does not begin as a stream of names does.
    NoNames,
    /// A later version of this format.
    Version,
    /// A record is whole and yet impossible.
    Damaged,
}

impl Node {
    /// True if it is a folder.
    #[must_use]
    pub const fn is_folder(&self) -> bool {
        self.mode & TYPE == FOLDER
    }

    /// True if it is a symbolic link.
    #[must_use]
    pub const fn is_link(&self) -> bool {
        self.mode & TYPE == LINK
    }

    /// True if it is a regular file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        self.mode & TYPE == FILE
    }
}

impl Catalogue {
    /// A catalogue with nothing but its root; `number` tells it from all others.
    #[must_use]
    pub fn new(number: u64, root: Node) -> Self {
        let folders = BTreeMap::from([(ROOT, Names::default())]);
        let mut nodes = Nodes::default();
        nodes.insert(ROOT, Named { node: root, count: 0 });
        Self { number, nodes, folders, inner: HashMap::new(), next: ROOT + 1 }
    }

    /// The stream that says what this catalogue says.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        [self.head(VERSION), self.records()].concat()
    }

    /// The same as one record, which is as short as any stream that says it.
    #[must_use]
    pub fn write_short(&self) -> Vec<u8> {
        let changes: Vec<_> = self.changes().collect();
        [self.head(VERSION), encode(&changes)].concat()
    }

    /// Changes that make these nodes and names.
    fn changes(&self) -> impl Iterator<Item = Change> {
        let nodes = self.nodes().map(|(inode, node)| Change::Node(inode, node.clone()));
        nodes.chain(self.folders.iter().flat_map(|(folder, names)| {
            let names = names.sorted().into_iter();
            names.map(|(name, inode)| Change::Name(*folder, name.to_vec(), inode))
        }))
    }

    /// Records that say what this catalogue says, for any place in a stream.
    #[must_use]
    pub fn records(&self) -> Vec<u8> {
        let mut bytes: Vec<_> = self.changes().flat_map(|change| encode(&[change])).collect();
        // Who had the last number may be gone, and nobody is to have it again.
        let last = self.next - 1;
        if !self.nodes.contains(last) {
            let node = Node { mode: FILE, ..Node::default() };
            bytes.extend(encode(&[Change::Node(last, node), Change::Gone(last)]));
        }
        bytes
    }

    /// Length of [`records`](Self::records), bytes.
    #[must_use]
    pub fn records_len(&self) -> u64 {
        let nodes = self.nodes.iter().map(|(_, known)| NODE_LEN + known.node.text.len());
        let names = self.folders.values().flat_map(Names::iter);
        let names = names.map(|(name, _)| NAME_LEN + name.len());
        let last = if self.nodes.contains(self.next - 1) { 0 } else { NODE_LEN + 9 };
        wide(nodes.chain(names).sum::<usize>() + last)
    }

    /// The head of a stream whose records begin at `at`, [`HEAD_LEN_MAX`] bytes.
    #[must_use]
    pub fn head_at(&self, at: u64) -> Vec<u8> {
        let mut bytes = self.head(PLACED);
        put_u64(&mut bytes, at);
        bytes
    }

    fn head(&self, version: u32) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        put_u32(&mut bytes, version);
        put_u64(&mut bytes, self.number);
        bytes
    }

    /// The number that tells it from all others.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Makes a change; `None`, and nothing, if it makes no sense.
    pub fn apply(&mut self, change: Change) -> Option<()> {
        self.make(change).map(drop)
    }

    /// Makes a file of one name; `None`, and nothing, if it makes no sense: the name and the number
    /// have to be free.
    pub fn add_file(&mut self, folder: u64, name: Vec<u8>, inode: u64, node: Node) -> Option<()> {
        let (is_possible, next) = (node.is_file() && is_name(&name), inode.checked_add(1)?);
        let names = self.folders.get_mut(&folder).filter(|_| is_possible)?;
        let name = names.free(name)?;
        if !self.nodes.insert(inode, Named { node, count: 1 }) {
            return None;
        }
        name(inode);
        self.next = self.next.max(next);
        Some(())
    }

    /// Makes a change, and returns the one that undoes it; `None`, and nothing, if it makes no
    /// sense.
    pub fn replace(&mut self, change: Change) -> Option<Change> {
        let named = match &change {
            Change::Name(folder, name, _) => Some((*folder, name.clone())),
            _ => None,
        };
        Some(match (self.make(change)?, named) {
            (Was::Node(inode, Some(node)), _) => Change::Node(inode, node),
            (Was::Node(inode, None), _) => Change::Gone(inode),
            (Was::Name(Some(inode)), Some((folder, name))) => Change::Name(folder, name, inode),
            (Was::Name(_), named) => named.map(|(folder, name)| Change::NoName(folder, name))?,
            (Was::NoName(folder, name, inode), _) => Change::Name(folder, name, inode),
        })
    }

    fn make(&mut self, change: Change) -> Option<Was> {
        match change {
            Change::Node(inode, node) => self.set_node(inode, node),
            Change::Name(folder, name, inode) => {
                let is_possible = is_name(&name) && inode != ROOT;
                let names = self.folders.get_mut(&folder).filter(|_| is_possible)?;
                self.nodes.get_mut(inode)?.count += 1;
                let was = names.insert(name, inode);
                was.into_iter().for_each(|was| self.unlink(folder, was));
                if self.folders.contains_key(&inode) {
                    *self.inner.entry(folder).or_default() += 1;
                }
                Some(Was::Name(was))
            }
            Change::NoName(folder, name) => {
                let was = self.folders.get_mut(&folder)?.remove(&name)?;
                self.unlink(folder, was);
                Some(Was::NoName(folder, name, was))
            }
            Change::Gone(inode) => {
                let has_names = self.folders.get(&inode).is_some_and(|names| !names.is_empty());
                if inode == ROOT || has_names || self.link_count(inode) > 0 {
                    return None;
                }
                let Named { node, .. } = self.nodes.remove(inode)?;
                self.folders.remove(&inode);
                Some(Was::Node(inode, Some(node)))
            }
        }
    }

    fn set_node(&mut self, inode: u64, node: Node) -> Option<Was> {
        let (is_folder, next) = (node.is_folder(), inode.checked_add(1)?);
        if inode == ROOT && !is_folder {
            return None;
        }
        let was = match self.nodes.get_mut(inode) {
            Some(known) => {
                if known.node.is_folder() != is_folder && inode != ROOT {
                    return None;
                }
                Some(mem::replace(&mut known.node, node))
            }
            None => {
                self.nodes.insert(inode, Named { node, count: 0 });
                None
            }
        };
        if is_folder {
            self.folders.entry(inode).or_default();
        }
        self.next = self.next.max(next);
        Some(Was::Node(inode, was))
    }

    /// A name in a folder is not this node's any more.
    fn unlink(&mut self, folder: u64, inode: u64) {
        if let Some(known) = self.nodes.get_mut(inode) {
            debug_assert!(known.count > 0, "a name is counted once");
            known.count = known.count.saturating_sub(1);
        }
        if self.folders.contains_key(&inode) {
            match self.inner.get_mut(&folder) {
                Some(count @ 2..) => *count -= 1,
                _ => drop(self.inner.remove(&folder)),
            }
        }
    }

    /// How many folders are in a folder.
    #[must_use]
    pub fn folder_count(&self, folder: u64) -> u64 {
        self.inner.get(&folder).copied().unwrap_or(0)
    }

    /// How many names a node has.
    #[must_use]
    pub fn link_count(&self, inode: u64) -> u64 {
        self.nodes.get(inode).map_or(0, |known| known.count)
    }

    /// A number that no node has had.
    #[must_use]
    pub const fn next_inode(&self) -> u64 {
        self.next
    }

    /// Keeps so many numbers from all others that [`next_inode`](Self::next_inode) gives; returns
    /// the first of them.
    pub const fn reserve(&mut self, count: u64) -> u64 {
        let first = self.next;
        self.next = first.saturating_add(count);
        first
    }

    /// A node.
    #[must_use]
    pub fn node(&self, inode: u64) -> Option<&Node> {
        self.nodes.get(inode).map(|known| &known.node)
    }

    /// A file that has one name.
    #[must_use]
    pub fn file_of_one_name(&self, inode: u64) -> Option<&Node> {
        let known = self.nodes.get(inode).filter(|known| known.count == 1)?;
        Some(&known.node).filter(|node| node.is_file())
    }

    /// All nodes by number.
    pub fn nodes(&self) -> impl Iterator<Item = (u64, &Node)> {
        self.nodes.iter().map(|(inode, known)| (inode, &known.node))
    }

    /// The names in a folder; `None` if it is none.
    #[must_use]
    pub fn names(&self, folder: u64) -> Option<&Names> {
        self.folders.get(&folder)
    }

    /// A folder in which a node has a name, and that name.
    #[must_use]
    pub fn name_of(&self, inode: u64) -> Option<(u64, &[u8])> {
        let names = self.folders.iter().flat_map(|(folder, names)| {
            names.iter().map(move |(name, named)| (*folder, name, named))
        });
        let mut names = names.filter(|(_, _, named)| *named == inode);
        names.next().map(|(folder, name, _)| (folder, name))
    }

    /// How many names there are, in all folders.
    #[must_use]
    pub fn name_count(&self) -> usize {
        self.folders.values().map(Names::len).sum()
    }

    /// Every name below the root, `/` between its parts, each folder before what is in it. `None`:
    /// one is longer than any path may be, as by folders that were moved into others.
    #[must_use]
    pub fn paths(&self) -> Option<Vec<(Vec<u8>, u64)>> {
        let (mut paths, mut seen) = (Vec::new(), BTreeSet::from([ROOT]));
        // By a list and not by calls: folders may be as deep as a stream says.
        let mut waiting = vec![(Vec::new(), ROOT)];
        while let Some((path, folder)) = waiting.pop() {
            let mut below = Vec::new();
            for (name, inode) in self.folders.get(&folder).map(Names::sorted).unwrap_or_default() {
                let mut path = path.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
                if path.len() > PATH_LEN_MAX {
                    return None;
                }
                // A folder that is in itself is listed once.
                if self.folders.contains_key(&inode) && seen.insert(inode) {
                    below.push((path.clone(), inode));
                }
                paths.push((path, inode));
            }
            waiting.extend(below.into_iter().rev());
        }
        Some(paths)
    }
}

/// Where the records of a stream begin.
///
/// # Errors
///
/// Why there are none.
pub fn records_at(stream: &[u8]) -> Result<u64, Unreadable> {
    head(stream).map(|(_, at)| at)
}

/// The number of a stream, and where its records begin.
fn head(stream: &[u8]) -> Result<(u64, u64), Unreadable> {
    let mut fields = Fields::little(stream);
    if fields.take() != Some(MAGIC) {
        return Err(Unreadable::NoNames);
    }
    let (version, number) = fields.u32().zip(fields.u64()).ok_or(Unreadable::NoNames)?;
    match version {
        VERSION => Ok((number, wide(HEAD_LEN))),
        PLACED => {
            let at = fields.u64().filter(|at| *at >= wide(HEAD_LEN_MAX));
            at.map(|at| (number, at)).ok_or(Unreadable::Damaged)
        }
        _ => Err(Unreadable::Version),
    }
}

/// True if this can be a name in a folder.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    let is_plain = !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    is_plain && !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_LEN_MAX
}
