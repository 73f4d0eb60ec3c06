//! The names of files whose data is in the tasks of a multifile (format section 11).
//!
//! They are kept as SIONlib's tools keep any data: in the stream of a task, the first one, as
//! records that are only ever appended. A record holds what changes together, and is whole or
//! counts for nothing: so a writer that dies leaves the names as they were before or after a call.
//!
//! Nothing here does I/O. A stream may say anything; what makes no sense is refused.

mod record;

use std::collections::{BTreeMap, BTreeSet, HashMap};

pub use self::record::encode;
use self::record::record;

use crate::codec::{Fields, put_u32, put_u64};

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
/// Bytes before the first record.
pub const HEAD_LEN: usize = MAGIC.len() + 12;

const MAGIC: [u8; 12] = *b"kakehi names";
const VERSION: u32 = 1;
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

/// What a record changes.
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
    nodes: BTreeMap<u64, Node>,
    folders: BTreeMap<u64, BTreeMap<Vec<u8>, u64>>,
    /// Names of each node that has any.
    links: HashMap<u64, u64>,
    next: u64,
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
    /// Whether it is a folder.
    #[must_use]
    pub const fn is_folder(&self) -> bool {
        self.mode & TYPE == FOLDER
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub const fn is_link(&self) -> bool {
        self.mode & TYPE == LINK
    }

    /// Whether it is a regular file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        self.mode & TYPE == FILE
    }
}

impl Catalogue {
    /// A catalogue with nothing but its root; `number` tells it from all others.
    #[must_use]
    pub fn new(number: u64, root: Node) -> Self {
        let folders = BTreeMap::from([(ROOT, BTreeMap::new())]);
        let (nodes, links) = (BTreeMap::from([(ROOT, root)]), HashMap::new());
        Self { number, nodes, folders, links, next: ROOT + 1 }
    }

    /// The names in a stream, and how many of its bytes count: a record at the end that is not
    /// whole does not.
    ///
    /// # Errors
    ///
    /// Why these are no names.
    pub fn read(stream: &[u8]) -> Result<(Self, usize), Unreadable> {
        let mut fields = Fields::little(stream);
        if fields.take() != Some(MAGIC) {
            return Err(Unreadable::NoNames);
        }
        let (version, number) = fields.u32().zip(fields.u64()).ok_or(Unreadable::NoNames)?;
        if version != VERSION {
            return Err(Unreadable::Version);
        }
        let mut catalogue = Self::new(number, Node::default());
        let mut read = HEAD_LEN;
        while let Some((changes, len)) = stream.get(read..).and_then(record) {
            for change in changes.ok_or(Unreadable::Damaged)? {
                catalogue.apply(change).ok_or(Unreadable::Damaged)?;
            }
            read += len;
        }
        Ok((catalogue, read))
    }

    /// The stream that says what this catalogue says.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = self.head();
        for (inode, node) in &self.nodes {
            bytes.extend(encode(&[Change::Node(*inode, node.clone())]));
        }
        for (folder, names) in &self.folders {
            for (name, inode) in names {
                bytes.extend(encode(&[Change::Name(*folder, name.clone(), *inode)]));
            }
        }
        bytes
    }

    fn head(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        put_u32(&mut bytes, VERSION);
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
        match change {
            Change::Node(inode, node) => {
                let was = self.nodes.get(&inode);
                if was.is_some_and(|was| was.is_folder() != node.is_folder() && inode != ROOT) {
                    return None;
                }
                if inode == ROOT && !node.is_folder() {
                    return None;
                }
                if node.is_folder() {
                    self.folders.entry(inode).or_default();
                }
                self.next = self.next.max(inode.checked_add(1)?);
                self.nodes.insert(inode, node);
            }
            Change::Name(folder, name, inode) => {
                if !is_name(&name) || !self.nodes.contains_key(&inode) || inode == ROOT {
                    return None;
                }
                let was = self.folders.get_mut(&folder)?.insert(name, inode);
                was.into_iter().for_each(|was| self.unlink(was));
                *self.links.entry(inode).or_default() += 1;
            }
            Change::NoName(folder, name) => {
                let was = self.folders.get_mut(&folder)?.remove(&name)?;
                self.unlink(was);
            }
            Change::Gone(inode) => {
                let has_names = self.folders.get(&inode).is_some_and(|names| !names.is_empty());
                if inode == ROOT || has_names || self.link_count(inode) > 0 {
                    return None;
                }
                self.nodes.remove(&inode)?;
                self.folders.remove(&inode);
            }
        }
        Some(())
    }

    fn unlink(&mut self, inode: u64) {
        match self.links.get_mut(&inode) {
            Some(links @ 2..) => *links -= 1,
            _ => drop(self.links.remove(&inode)),
        }
    }

    /// How many names a node has.
    #[must_use]
    pub fn link_count(&self, inode: u64) -> u64 {
        self.links.get(&inode).copied().unwrap_or(0)
    }

    /// A number that no node has had.
    #[must_use]
    pub const fn next_inode(&self) -> u64 {
        self.next
    }

    /// A node.
    #[must_use]
    pub fn node(&self, inode: u64) -> Option<&Node> {
        self.nodes.get(&inode)
    }

    /// All nodes by number.
    pub fn nodes(&self) -> impl Iterator<Item = (u64, &Node)> {
        self.nodes.iter().map(|(inode, node)| (*inode, node))
    }

    /// The names in a folder, in the order of their bytes; `None` if it is none.
    #[must_use]
    pub fn names(&self, folder: u64) -> Option<&BTreeMap<Vec<u8>, u64>> {
        self.folders.get(&folder)
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
            for (name, inode) in self.folders.get(&folder).into_iter().flatten() {
                let mut path = path.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
                if path.len() > PATH_LEN_MAX {
                    return None;
                }
                // A folder that is in itself is listed once.
                if self.folders.contains_key(inode) && seen.insert(*inode) {
                    below.push((path.clone(), *inode));
                }
                paths.push((path, *inode));
            }
            waiting.extend(below.into_iter().rev());
        }
        Some(paths)
    }
}

/// Whether this can be a name in a folder.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    let is_plain = !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    is_plain && !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_LEN_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(task: Option<u64>) -> Node {
        Node {
            mode: FILE | 0o640,
            user: 7,
            task,
            times: [(-1, 5), (2, 0), (3, 9)],
            ..Node::default()
        }
    }

    fn folder() -> Node {
        Node { mode: FOLDER | 0o755, ..Node::default() }
    }

    fn sample() -> (Vec<u8>, Vec<usize>) {
        let catalogue = Catalogue::new(42, folder());
        let (mut stream, mut ends) = (catalogue.write(), Vec::new());
        let link = Node { mode: LINK | 0o777, text: b"a/b".to_vec(), ..Node::default() };
        for changes in [
            vec![Change::Node(2, folder()), Change::Name(ROOT, b"a".to_vec(), 2)],
            vec![Change::Node(3, file(None)), Change::Name(2, b"b".to_vec(), 3)],
            vec![Change::Node(3, file(Some(1)))],
            vec![Change::Node(4, link), Change::Name(ROOT, b"z\xff".to_vec(), 4)],
            vec![Change::Name(ROOT, b"moved".to_vec(), 3), Change::NoName(2, b"b".to_vec())],
            vec![Change::NoName(ROOT, b"a".to_vec()), Change::Gone(2)],
        ] {
            stream.extend(encode(&changes));
            ends.push(stream.len());
        }
        (stream, ends)
    }

    /// Format rules 11.1, 11.2 and 11.4.
    #[test]
    fn names_read_back_as_they_were_written() {
        let (stream, _) = sample();
        let (catalogue, read) = Catalogue::read(&stream).unwrap();
        assert_eq!((catalogue.number(), read), (42, stream.len()));
        let paths = catalogue.paths().unwrap();
        assert_eq!(paths, [(b"moved".to_vec(), 3), (b"z\xff".to_vec(), 4)]);
        assert_eq!(catalogue.node(3), Some(&file(Some(1))));
        assert_eq!(catalogue.node(4).unwrap().text, b"a/b");
        let (again, _) = Catalogue::read(&catalogue.write()).unwrap();
        assert_eq!(again.paths().unwrap(), paths);
        assert_eq!(again.next_inode(), 5);
    }

    /// Format rule 11.3.
    #[test]
    fn a_stream_that_ends_anywhere_has_the_names_of_its_whole_records() {
        let (stream, ends) = sample();
        for end in HEAD_LEN..stream.len() {
            let (cut, read) = Catalogue::read(&stream[..end]).unwrap();
            assert!(read <= end);
            let whole = ends.iter().copied().filter(|whole| *whole <= end).max();
            if let Some(whole) = whole {
                assert_eq!(read, whole, "{end}");
                let (expected, _) = Catalogue::read(&stream[..whole]).unwrap();
                assert_eq!(cut.paths().unwrap(), expected.paths().unwrap());
            }
            // What was reserved behind it reads as zeros, which may be what was cut off.
            let holed = [&stream[..end], &[0; 100]].concat();
            let read_on = Catalogue::read(&holed).unwrap().1;
            assert!(read_on == read || holed[..read_on] == stream[..read_on], "{end}");
        }
        assert_eq!(Catalogue::read(&stream[..HEAD_LEN - 1]).err(), Some(Unreadable::NoNames));
    }

    #[test]
    fn names_that_make_no_sense_are_refused() {
        let base = Catalogue::new(1, folder()).write();
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            let record =
                encode(&[Change::Node(2, file(None)), Change::Name(ROOT, name.to_vec(), 2)]);
            let stream = [base.clone(), record].concat();
            assert_eq!(Catalogue::read(&stream).err(), Some(Unreadable::Damaged), "{name:?}");
        }
        for change in [
            Change::Name(ROOT, b"a".to_vec(), 9),
            Change::Name(9, b"a".to_vec(), 2),
            Change::Gone(ROOT),
            Change::Gone(3),
            Change::NoName(ROOT, b"a".to_vec()),
            Change::Node(ROOT, file(None)),
            Change::Node(2, folder()),
            Change::Node(2, Node::default()),
        ] {
            let named = Change::Name(ROOT, b"named".to_vec(), 3);
            let record = encode(&[Change::Node(2, file(None)), Change::Node(3, file(None)), named]);
            let stream = [base.clone(), record, encode(std::slice::from_ref(&change))].concat();
            assert_eq!(Catalogue::read(&stream).err(), Some(Unreadable::Damaged), "{change:?}");
        }
    }

    #[test]
    fn a_folder_in_itself_is_listed_once() {
        let mut catalogue = Catalogue::new(1, folder());
        for change in [
            Change::Node(2, folder()),
            Change::Name(ROOT, b"a".to_vec(), 2),
            Change::Name(2, b"b".to_vec(), 2),
        ] {
            catalogue.apply(change).unwrap();
        }
        let paths: Vec<_> = catalogue.paths().unwrap().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, [&b"a"[..], b"a/b"]);
    }

    #[test]
    fn a_path_that_nobody_could_say_is_none() {
        let mut catalogue = Catalogue::new(1, folder());
        for inode in 2..20 {
            catalogue.apply(Change::Node(inode, folder())).unwrap();
            catalogue.apply(Change::Name(inode - 1, vec![b'x'; 255], inode)).unwrap();
            assert_eq!(catalogue.paths().is_some(), (inode - 1) * 256 - 1 <= 4095, "{inode}");
        }
    }

    /// Streams whose sums are right, and that say anything.
    #[test]
    fn any_changes_are_made_or_refused_and_read_back() {
        let mut read = 0;
        for seed in 0..3000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut stream = Catalogue::new(seed, folder()).write();
            for _ in 0..rng.usize(..40) {
                let (inode, other) = (rng.u64(..6), rng.u64(..6));
                let letters: &[u8] = if rng.u8(..50) == 0 { b"ab/" } else { b"ab" };
                let name = vec![*rng.choice(letters).unwrap()];
                let mut record = encode(&[match rng.u8(..6) {
                    0 => Change::Node(inode, folder()),
                    1 => Change::Node(inode, file(Some(other))),
                    2..=3 => Change::Name(inode, name, other),
                    4 => Change::NoName(inode, name),
                    _ => Change::Gone(inode),
                }]);
                let body = rng.usize(8..record.len());
                if rng.u8(..50) == 0 {
                    record[body] = rng.u8(..);
                    let sum = crc32c::crc32c(&record[8..]).to_le_bytes();
                    record[4..8].copy_from_slice(&sum);
                }
                // What makes no sense ends the stream, so most of it is to make some.
                let longer = [&stream[..], &record].concat();
                if Catalogue::read(&longer).is_ok() || rng.u8(..200) == 0 {
                    stream = longer;
                }
            }
            let Ok((catalogue, _)) = Catalogue::read(&stream) else { continue };
            read += 1;
            let (again, _) = Catalogue::read(&catalogue.write()).unwrap();
            assert_eq!(again.paths(), catalogue.paths(), "seed {seed}");
        }
        assert!(read > 2000, "{read}");
    }

    #[test]
    fn any_changed_byte_is_noticed_or_harmless() {
        let (stream, _) = sample();
        for at in 0..stream.len() {
            let mut changed = stream.clone();
            changed[at] ^= 0x55;
            // Refused, or the names up to the record it is in.
            if let Ok((catalogue, read)) = Catalogue::read(&changed) {
                assert!(read <= at || (MAGIC.len() + 4..HEAD_LEN).contains(&at), "{at}");
                assert!(catalogue.paths().unwrap().len() <= 3);
            }
        }
    }
}
