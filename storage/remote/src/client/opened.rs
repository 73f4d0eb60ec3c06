//! The files that a server has open for a session, so that a server that was started anew can be
//! asked to open them again.

use std::{collections::HashMap, mem};

use rustix::{
    fs::{OFlags, RenameFlags},
    io::Errno,
};
use storage::names::{Identity, NameCall, is_same};
use wire::Status;

/// Open files by handle, and what may be happening to their names.
pub(super) struct Opened {
    files: HashMap<u32, File>,
    next_handle: u32,
    /// Renames and links that are under way, in the order they were asked for.
    moves: Vec<Move>,
}

struct File {
    path: Vec<u8>,
    /// Other names, by links.
    others: Vec<Vec<u8>>,
    flags: u32,
    identity: Identity,
    /// When it was made, as its [`Status`] tells.
    born: u64,
    /// Number of the process it is open for.
    process: Option<u16>,
    /// Why it can no longer be used: `ESTALE`, it could not be opened again, or is another file by
    /// now; `EIO`, a lock on it is lost.
    gone: Option<Errno>,
}

/// A file that is to be opened again.
pub(super) struct Lost {
    pub(super) handle: u32,
    pub(super) flags: u32,
    identity: Identity,
    born: u64,
    /// Where it may be: under one of its names, or under what a rename has made of it whose answer
    /// was lost.
    pub(super) names: Vec<Vec<u8>>,
}

impl Lost {
    /// True if it is this file, and no later one that has got its number.
    pub(super) fn is(&self, status: &Status) -> bool {
        is_same((self.identity, self.born), (status.identity(), status.born))
    }
}

/// Names that are kept of a file besides the one it was opened by.
const OTHERS_MAX: usize = 8;

/// Change of names by a rename or a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    from: Vec<u8>,
    to: Vec<u8>,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Renames,
    /// Swaps `from` and `to`; neither is replaced.
    Exchanges,
    /// Keeps `from`.
    Links,
}

impl Move {
    /// That of a call, if it is one of these.
    pub(super) fn of(call: &NameCall) -> Option<Self> {
        let (from, to, how) = match call {
            NameCall::Rename { from, to, flags } if exchanges(*flags) => (from, to, How::Exchanges),
            NameCall::Rename { from, to, .. } => (from, to, How::Renames),
            NameCall::Link { from, to } => (from, to, How::Links),
            _ => return None,
        };
        Some(Self { from: from.to_bytes().to_vec(), to: to.to_bytes().to_vec(), how })
    }

    /// Returns the new form of a name; `None`: it stays.
    fn moved(&self, name: &[u8]) -> Option<Vec<u8>> {
        let exchanges = self.how == How::Exchanges;
        let back = || exchanges.then(|| moved(name, &self.to, &self.from)).flatten();
        moved(name, &self.from, &self.to).or_else(back)
    }

    /// Gives a file the names that it has then.
    fn apply(&self, file: &mut File) {
        if self.how == How::Links {
            let made = file.others.iter().chain([&file.path]).find_map(|name| self.moved(name));
            file.others.extend(made);
            let surplus = file.others.len().saturating_sub(OTHERS_MAX);
            file.others.drain(..surplus);
            return;
        }
        for name in file.others.iter_mut().chain([&mut file.path]) {
            if let Some(moved) = self.moved(name) {
                *name = moved;
            }
        }
    }
}

/// True if a rename with these flags exchanges names.
pub(super) fn exchanges(flags: u32) -> bool {
    RenameFlags::from_bits_retain(flags).contains(RenameFlags::EXCHANGE)
}

impl Opened {
    pub(super) fn new() -> Self {
        Self { files: HashMap::new(), next_handle: 1, moves: Vec::new() }
    }

    /// A handle that no file has.
    pub(super) fn new_handle(&mut self) -> u32 {
        loop {
            let handle = self.next_handle;
            self.next_handle = handle.wrapping_add(1);
            if !self.files.contains_key(&handle) {
                return handle;
            }
        }
    }

    pub(super) fn insert(&mut self, handle: u32, path: Vec<u8>, flags: u32, status: &Status) {
        let (identity, born) = (status.identity(), status.born);
        let (others, process, gone) = (Vec::new(), None, None);
        self.files.insert(handle, File { path, others, flags, identity, born, process, gone });
    }

    pub(super) fn set_append(&mut self, handle: u32, appends: bool) {
        if let Some(file) = self.files.get_mut(&handle) {
            let mut flags = OFlags::from_bits_retain(file.flags);
            flags.set(OFlags::APPEND, appends);
            file.flags = flags.bits();
        }
    }

    pub(super) fn remove(&mut self, handle: u32) {
        self.files.remove(&handle);
    }

    /// Why a file can no longer be used.
    pub(super) fn why_gone(&self, handle: u32) -> Option<Errno> {
        self.files.get(&handle)?.gone
    }

    /// The path of an open file from the server's root.
    pub(super) fn path(&self, handle: u32) -> Option<Vec<u8>> {
        self.files.get(&handle).map(|file| file.path.clone())
    }

    /// Device and inode of an open file.
    pub(super) fn identity(&self, handle: u32) -> Option<Identity> {
        self.files.get(&handle).map(|file| file.identity)
    }

    /// A file is open for this process.
    pub(super) fn assign(&mut self, handle: u32, process: Option<u16>) {
        if let Some(file) = self.files.get_mut(&handle) {
            file.process = process;
        }
    }

    /// The handles by which a process has a file open.
    pub(super) fn of_process(&self, process: u16, identity: Identity) -> Vec<u32> {
        let is_its = |file: &File| file.process == Some(process) && file.identity == identity;
        let its = self.files.iter().filter(|(_, file)| is_its(file));
        its.map(|(handle, _)| *handle).collect()
    }

    /// The file is found under none of its names.
    pub(super) fn give_up(&mut self, handle: u32) {
        if let Some(file) = self.files.get_mut(&handle) {
            tracing::warn!("a remote file is gone: {}", file.path.escape_ascii());
            file.gone = Some(Errno::STALE);
        }
    }

    /// A lock on the file is lost.
    pub(super) fn lose_lock(&mut self, handle: u32) {
        if let Some(file) = self.files.get_mut(&handle) {
            tracing::error!("a lock is lost: {}; the file fails", file.path.escape_ascii());
            file.gone = Some(Errno::IO);
        }
    }

    /// Returns the files that a restarted server has to open, by handle.
    pub(super) fn lost(&self) -> Vec<Lost> {
        let files = self.files.iter().filter(|(_, file)| file.gone.is_none());
        let lost = |(handle, file): (&u32, &File)| Lost {
            handle: *handle,
            flags: file.flags,
            identity: file.identity,
            born: file.born,
            names: self.names_of(file),
        };
        let mut lost: Vec<_> = files.map(lost).collect();
        lost.sort_unstable_by_key(|file| file.handle);
        lost
    }

    fn names_of(&self, file: &File) -> Vec<Vec<u8>> {
        let mut names: Vec<_> = [&file.path].into_iter().chain(&file.others).cloned().collect();
        for change in &self.moves {
            for index in 0..names.len() {
                let moved = names.get(index).and_then(|name| change.moved(name));
                if let Some(moved) = moved.filter(|moved| !names.contains(moved)) {
                    names.push(moved);
                }
            }
        }
        names
    }

    /// Something was asked for, of this server or of another that serves the same folder, by which
    /// names may change.
    pub(super) fn begin_move(&mut self, change: &Move) {
        self.moves.push(change.clone());
    }

    /// A name is removed. Who has a file open by it may have it by another one.
    pub(super) fn unlink(&mut self, name: &[u8]) {
        for file in self.files.values_mut() {
            file.others.retain(|other| other != name);
            if file.path == name {
                file.path = file.others.pop().unwrap_or_else(|| mem::take(&mut file.path));
            }
        }
    }

    /// It is over; if it `happened`, files have their new names.
    pub(super) fn end_move(&mut self, change: &Move, happened: bool) {
        if let Some(index) = self.moves.iter().position(|under_way| under_way == change) {
            self.moves.remove(index);
        }
        self.files.values_mut().filter(|_| happened).for_each(|file| change.apply(file));
    }
}

/// Returns the new form of a name when `from` becomes `to`.
fn moved(name: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let rest = name.strip_prefix(from).filter(|rest| matches!(rest, [] | [b'/', ..]))?;
    Some([to, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        Status { device: 1, inode: 2, born: 3, ..Status::default() }
    }

    fn names(opened: &Opened) -> Vec<Vec<u8>> {
        opened.lost().into_iter().flat_map(|file| file.names).collect()
    }

    fn rename(from: &str, to: &str) -> Move {
        Move { from: from.into(), to: to.into(), how: How::Renames }
    }

    #[test]
    fn file_is_looked_for_under_every_name_it_may_have() {
        let mut opened = Opened::new();
        let handle = opened.new_handle();
        opened.insert(handle, b"/a/file".to_vec(), 0, &status());
        let (folder, file) = (rename("/a", "/b"), rename("/b/file", "/c"));
        opened.begin_move(&folder);
        opened.begin_move(&file);
        assert_eq!(names(&opened), [&b"/a/file"[..], b"/b/file", b"/c"]);
        opened.end_move(&folder, true);
        assert_eq!(names(&opened), [&b"/b/file"[..], b"/c"]);
        opened.end_move(&file, false);
        assert_eq!(names(&opened), [&b"/b/file"[..]]);
        opened.give_up(handle);
        assert_eq!(opened.why_gone(handle), Some(Errno::STALE));
        assert!(opened.lost().is_empty());
    }

    #[test]
    fn names_that_are_exchanged_are_both_renamed() {
        let mut opened = Opened::new();
        for name in ["/a", "/b/file"] {
            let handle = opened.new_handle();
            opened.insert(handle, name.into(), 0, &status());
        }
        let exchange = Move { how: How::Exchanges, ..rename("/a", "/b") };
        opened.begin_move(&exchange);
        assert_eq!(names(&opened), [&b"/a"[..], b"/b", b"/b/file", b"/a/file"]);
        opened.end_move(&exchange, true);
        assert_eq!(names(&opened), [&b"/b"[..], b"/a/file"]);
    }

    /// And when the first name is removed it is found under the others.
    #[test]
    fn file_has_the_names_that_links_give_it_too() {
        let mut opened = Opened::new();
        let handle = opened.new_handle();
        opened.insert(handle, b"/a/file".to_vec(), 0, &status());
        let link = Move { how: How::Links, ..rename("/a/file", "/b") };
        opened.begin_move(&link);
        assert_eq!(names(&opened), [&b"/a/file"[..], b"/b"]);
        opened.end_move(&link, true);
        let again = Move { how: How::Links, ..rename("/b", "/c") };
        opened.begin_move(&again);
        opened.end_move(&again, false);
        let folder = rename("/a", "/d");
        opened.begin_move(&folder);
        opened.end_move(&folder, true);
        assert_eq!(names(&opened), [&b"/d/file"[..], b"/b"]);
        opened.unlink(b"/d/file");
        assert_eq!(names(&opened), [&b"/b"[..]]);
        opened.unlink(b"/b");
        assert_eq!(names(&opened), [&b"/b"[..]], "it may be there all the same");
    }

    #[test]
    fn only_whole_names_are_renamed() {
        assert_eq!(moved(b"/ab/c", b"/ab", b"/d"), Some(b"/d/c".to_vec()));
        assert_eq!(moved(b"/abc", b"/ab", b"/d"), None);
    }
}
