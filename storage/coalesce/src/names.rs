//! Calls on the names of a multifile.

use std::{
    cell::Cell,
    ffi::{CStr, CString},
    io,
    rc::Rc,
};

use multifile::catalogue::{Change, Node, ROOT, Time};
use rustix::io::Errno;
use storage::{
    Storage as _,
    names::{Answer, CallPath, FileCall, NameCall},
};
use wire::{ListingWriter, NewMode, Status, Uses};

use super::{
    file::{set, truncate},
    intake::Intake,
    opening::now,
    places::Disturbed,
    tree::{FOLDER, Found, Tree, Wish},
    volume::Volume,
};

/// Block of `stat(2)`, bytes.
const BLOCK_LEN: u64 = 512;
/// Bytes that are best read at a time.
const READ_LEN: u64 = 4096;
/// Bytes of the shortest name in a listing.
const NAME_LEN_MIN: usize = 11;

/// Executes a call whose paths start at the root of a multifile.
pub(super) async fn execute(
    volume: &Rc<Volume>,
    call: NameCall,
    intake: Option<&Intake>,
) -> io::Result<Answer> {
    match call {
        NameCall::Stat { path, follow } => {
            let inode = volume.tree.borrow().find_at(&path, follow)?.inode()?;
            return Ok(Answer::status(&status(volume, inode)?));
        }
        NameCall::ReadDir { path, from, room } => {
            let tree = volume.tree.borrow();
            let folder = tree.find_at(&path, true)?.inode()?;
            return Ok(Answer::counted(listing(&tree, folder, from, room)?));
        }
        NameCall::ReadLink { path } => {
            let tree = volume.tree.borrow();
            let node = tree.node(tree.find_at(&path, false)?.inode()?).ok_or(Errno::NOENT)?;
            let text = node.is_link().then(|| node.text.clone()).ok_or(Errno::INVAL)?;
            return Ok(Answer::counted(text));
        }
        NameCall::FileSystem { path } => {
            volume.tree.borrow().find_at(&path, true)?.inode()?;
            let physical = volume.physical()?;
            return volume.machine().on(&physical, FileCall::FileSystem).await;
        }
        NameCall::Access { path, mode } => {
            let (tree, wish) = (volume.tree.borrow(), Wish::of_access(mode));
            let inode = tree.find_at(&path, true)?.inode()?;
            if wish.writes() && !volume.is_writable {
                return Err(Errno::ROFS.into());
            }
            tree.may(inode, wish)?;
        }
        NameCall::SyncFolder { path } => {
            volume.tree.borrow().find_at(&path, true)?.inode()?;
            volume.sync(None, true).await?;
        }
        NameCall::Truncate { path, len } => {
            let inode = volume.tree.borrow().find_at(&path, true)?.inode()?;
            truncate(volume, inode, len).await?;
        }
        NameCall::Lease { path, session, uses } => {
            return lease(volume, &path, session, uses, intake);
        }
        NameCall::Set { path, follow, what } => {
            let mut inode = volume.tree.borrow().find_at(&path, follow)?.inode()?;
            let is_folder = volume.tree.borrow().node(inode).is_some_and(Node::is_folder);
            if let Some(intake) = intake.filter(|_| is_folder) {
                drop(intake.prepare(volume, &[], true).await);
                inode = volume.tree.borrow().find_at(&path, follow)?.inode()?;
            }
            set(volume, inode, what).await?;
        }
        call => {
            let now = now();
            // What changes nothing leaves the multifile closed: a folder that is there already.
            if changes(&volume.tree.borrow(), &call, now)?.is_empty() {
                return Ok(Answer::default());
            }
            change(volume, &call, now, intake).await?;
        }
    }
    Ok(Answer::default())
}

/// Makes a change of names that is known to be one, after whatever clients have published.
async fn change(
    volume: &Rc<Volume>,
    call: &NameCall,
    now: Time,
    intake: Option<&Intake>,
) -> io::Result<()> {
    let Some(intake) = intake else {
        return volume.change(|tree| Ok(((), changes(tree, call, now)?))).await;
    };
    loop {
        let concerned = Concerned::by(&volume.tree.borrow(), call)?;
        let reserved = intake.prepare(volume, &concerned.made, concerned.leads_elsewhere);
        let reserved = reserved.await;
        let disturbed = concerned.disturb(volume);
        let is_other = Cell::new(false);
        let changed = volume.change(|tree| {
            is_other.set(Concerned::by(tree, call)? != concerned);
            Ok(((), if is_other.get() { Vec::new() } else { changes(tree, call, now)? }))
        });
        let changed = changed.await;
        drop((reserved, disturbed));
        // Else what was published since, or another call, has made something else of the names.
        if !is_other.get() {
            intake.settle(volume, &concerned.made);
            // Who found it gone took nothing, and a client may have claimed the name since.
            if changed.is_ok() {
                intake.settle(volume, &concerned.lost);
            }
            return changed;
        }
    }
}

/// The names that a call makes, and those that it takes.
#[derive(Debug, PartialEq, Eq)]
struct Concerned {
    made: Vec<Found>,
    lost: Vec<Found>,
    /// A file that gets another name.
    linked: Option<u64>,
    /// A path may lead elsewhere afterwards that leads to a folder now.
    leads_elsewhere: bool,
}

impl Concerned {
    fn by(tree: &Tree, call: &NameCall) -> Result<Self, Errno> {
        let find = |path: &CallPath| tree.find_at(path, false);
        let linked = match call {
            NameCall::Link { from, .. } => Some(find(from)?.inode()?),
            _ => None,
        };
        let (made, lost) = match call {
            NameCall::Unlink { path } | NameCall::RemoveDir { path } => (vec![], vec![find(path)?]),
            NameCall::MakeDir { path, .. } => (vec![find(path)?], vec![]),
            NameCall::Rename { from, to, .. } => {
                // Of an exchange both are made.
                (vec![find(to)?, find(from)?], vec![])
            }
            NameCall::Link { to, .. } => (vec![find(to)?], vec![]),
            NameCall::Symlink { name, .. } => (vec![find(name)?], vec![]),
            _ => (vec![], vec![]),
        };
        let is_file = |inode: u64| tree.node(inode).is_none_or(Node::is_file);
        let all = made.iter().chain(&lost).filter_map(|found| found.inode);
        let leads_elsewhere = !all.into_iter().all(is_file);
        Ok(Self { made, lost, linked, leads_elsewhere })
    }

    /// Keeps all files that have, or get, these names from being shown.
    fn disturb(&self, volume: &Volume) -> Vec<Disturbed> {
        let all = self.made.iter().chain(&self.lost).filter_map(|found| found.inode);
        let inodes: Vec<u64> = all.chain(self.linked).collect();
        // Which of them has which name then the tree says.
        let names = inodes.iter().flat_map(|inode| self.made.iter().map(move |to| (inode, to)));
        let disturbed = names.map(|(inode, to)| volume.disturb(*inode, Some(to)));
        let all = inodes.iter().map(|inode| volume.disturb(*inode, None));
        disturbed.chain(all).collect()
    }
}

/// Has a client make files in a folder by its bundle.
fn lease(
    volume: &Rc<Volume>,
    path: &CallPath,
    session: u32,
    uses: Uses,
    intake: Option<&Intake>,
) -> io::Result<Answer> {
    let intake = intake.ok_or(Errno::OPNOTSUPP)?;
    let folder = volume.tree.borrow().find_at(path, true)?.inode()?;
    let words = intake.lease(volume, folder, session, uses)?;
    let status = status(volume, folder)?.encode();
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    Ok(Answer { value: 0, bytes: status.into_iter().chain(words).collect() })
}

/// Makes a folder, and those above it, that [nothing of this multifile](Tree::cover) is in: another
/// one has its files.
pub(super) async fn cover(volume: &Rc<Volume>, path: &CStr) -> io::Result<()> {
    let parts = path.to_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let (mut above, mut inode) = (Vec::new(), ROOT);
    for part in parts {
        above.extend([b"/", part].concat());
        let path = CString::new(above.clone())?;
        let found = volume.tree.borrow().find(&path, false)?;
        inode = match found.inode {
            Some(inode) => inode,
            None if volume.is_writable => {
                let make = |tree: &Tree| tree.make(&found, FOLDER, 0o755, now());
                volume.change(make).await?
            }
            None => volume.tree.borrow_mut().show(&found, now())?,
        };
    }
    volume.tree.borrow_mut().cover(inode).map_err(|_| {
        let path = path.to_string_lossy();
        let why = format!("it has files in {path}, which those of another multifile would hide");
        io::Error::new(io::ErrorKind::DirectoryNotEmpty, why)
    })
}

/// Returns a call's changes to the names.
fn changes(tree: &Tree, call: &NameCall, now: Time) -> Result<Vec<Change>, Errno> {
    let find = |path: &CallPath| tree.find_at(path, false);
    match call {
        NameCall::Unlink { path } => tree.unlink_file(&find(path)?, now),
        NameCall::RemoveDir { path } => tree.remove_folder(&find(path)?, now),
        NameCall::MakeDir { path, mode } => {
            let permissions = NewMode::decode(*mode).masked();
            Ok(tree.make(&find(path)?, FOLDER, permissions, now)?.1)
        }
        NameCall::Rename { from, to, flags } => tree.rename(&find(from)?, &find(to)?, *flags, now),
        NameCall::Link { from, to } => {
            let from = find(from)?;
            from.inode()?; // Before anything is said of the other name.
            tree.link(&from, &find(to)?, now)
        }
        NameCall::Symlink { text, name } => tree.symlink(text, &find(name)?, now),
        _ => Err(Errno::NOSYS),
    }
}

fn status(volume: &Volume, inode: u64) -> io::Result<Status> {
    let node = volume.named(inode)?;
    let links = volume.tree.borrow().link_count(inode);
    Ok(status_of(volume, inode, &node, links))
}

/// The status of an inode.
pub(super) fn status_of(volume: &Volume, inode: u64, node: &Node, links: u64) -> Status {
    // Of a folder that of a small one, as file systems say it.
    let size = if node.is_folder() { READ_LEN } else { volume.size(node) };
    let [accessed, modified, changed] = node.times;
    Status {
        device: volume.tree.borrow().number(),
        inode,
        mode: node.mode,
        link_count: links,
        user: node.user,
        group: node.group,
        special_device: 0,
        size,
        block_size: READ_LEN,
        block_count: size.div_ceil(BLOCK_LEN),
        accessed,
        modified,
        changed,
        born: 0, // No task's number is given to another file.
    }
}

/// As many names as fit into `room` bytes. They come in the order of a hash, which is also where
/// the next request goes on: so no name is missed or comes twice, whatever others make and remove
/// meanwhile.
fn listing(tree: &Tree, folder: u64, from: u64, room: usize) -> Result<Vec<u8>, Errno> {
    let hashed = tree.names(folder)?.map(|(name, inode)| (hash(name), (name, inode)));
    let mut names: Vec<_> = hashed.filter(|(hash, _)| *hash > from).collect();
    // Only so many have room, if they are as short as names can be.
    let most = room / NAME_LEN_MIN + 1;
    if most < names.len() {
        let (_, (last, _), _) = names.select_nth_unstable_by_key(most, |(hash, _)| *hash);
        let last = *last;
        names.retain(|(hash, _)| *hash <= last);
    }
    names.sort_unstable();
    let mut bytes = vec![0; room];
    let mut listing = ListingWriter::new(&mut bytes);
    for same in names.chunk_by(|(a, _), (b, _)| a == b) {
        let Some((next, _)) = same.first() else { continue };
        let same = same.iter().map(|(_, (name, inode))| tree.listed(name, *inode));
        if !listing.push(*next, same) {
            break;
        }
    }
    let len = listing.written();
    bytes.truncate(len);
    Ok(bytes)
}

/// FNV-1a, and never 0, where a listing begins.
fn hash(name: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, step).max(1)
}
