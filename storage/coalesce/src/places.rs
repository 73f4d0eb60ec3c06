//! Files at rest, which clients of this node read without asking: the table of places
//! (`docs/reference/protocol.md`, section 10).
//!
//! A file is at rest while no call is about it and nobody has it open to be written. Whoever is
//! about to change a file [disturbs](Volume::disturb) it first, for as long as that takes: its
//! entry is hidden before anything changes, and shown again once nobody disturbs it and everything
//! that was changed is written. Clients that read by the entry then ask; their files are kept for
//! them, also without a name.

mod known;

use std::{
    cell::{Cell, OnceCell, Ref, RefCell},
    collections::{HashMap, HashSet},
    hint, io,
    os::fd::{AsRawFd as _, OwnedFd},
    rc::Rc,
    sync::Arc,
};

use executor::yield_now;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use shm::NameHash;
use storage::names::{Identity, device_of};
use wire::{Place, PlaceName};

use self::known::Known;
use super::{
    dense::Small,
    inodes::Live,
    streams::Streams,
    tree::{Found, NamedFile, Tree},
    volume::Volume,
};
use crate::{bundles::Entry, clients::Clients};

/// Physical files that clients read; bytes in others are asked for.
const SOURCES_MAX: usize = wire::SOURCES_MAX;
/// Files that are shown together.
const BATCH: usize = 64;
/// Entries that get memory at a time, and in all, before they are asked for: 64 KiB, and 8 MiB.
const POPULATED: usize = 512;
const POPULATED_MAX: usize = 1 << 16;
/// Address space that a table leaves for everything else, bytes.
const LEFT_MIN: usize = 64 << 20;

/// The table, and what is in it.
pub(super) struct Places {
    clients: Arc<Clients>,
    table: shm::Places,
    known: RefCell<Known>,
    /// Files of clients that read by entries which were hidden meanwhile.
    kept: RefCell<Vec<Kept>>,
    /// Numbers of physical files, by multifile and place in that; `None`: it cannot be shared.
    sources: RefCell<HashMap<Physical, Option<u8>>>,
    /// The one that was looked for last.
    last_source: Cell<Option<(Physical, Option<u8>)>>,
}

/// A folder whose files are shown.
struct Shown<'a> {
    volume: &'a Volume,
    tree: &'a Tree,
    streams: Ref<'a, Streams>,
    folder: u64,
    /// As clients know the multifile.
    device: u64,
    /// Key of the hashes of its names.
    key: u64,
}

impl<'a> Shown<'a> {
    fn new(volume: &'a Volume, tree: &'a Tree, folder: u64) -> Self {
        let (device, key) = (device_of(tree.number()), tree.key_of(folder));
        Self { volume, tree, streams: volume.streams.borrow(), folder, device, key }
    }
}

/// A physical file, by its multifile and its place in that.
type Physical = (u64, u32);

/// A file that a client reads.
struct Kept {
    client: Arc<Entry>,
    slot: u32,
    entry: u32,
    live: Rc<Live>,
}

/// Files of one multifile that are at rest, and that are not.
#[derive(Default)]
pub(super) struct Resting {
    places: OnceCell<Rc<Places>>,
    /// Folders whose files are shown.
    folders: RefCell<HashSet<u64>>,
    /// How many calls and open files disturb an inode.
    disturbed: RefCell<HashMap<u64, usize>>,
    /// Inodes that nobody disturbs any more, with a name if they have got one.
    calm: RefCell<Vec<(u64, Option<Name>)>>,
    /// As long as there are some, nothing is shown.
    pauses: Cell<usize>,
}

/// A folder, and a name in it.
pub(super) type Name = (u64, Vec<u8>);

/// Keeps an inode from being shown.
pub(super) struct Disturbed {
    resting: Rc<Resting>,
    inode: u64,
    name: Option<Name>,
}

/// Keeps inodes from being shown: files are made that nobody knows of yet.
pub(super) struct Paused<'a>(&'a Resting);

impl Resting {
    /// Shows nothing until the result is dropped.
    pub(super) fn pause(&self) -> Paused<'_> {
        self.pauses.set(self.pauses.get() + 1);
        Paused(self)
    }

    /// Files to be shown once they are made.
    pub(super) fn to_show(&self, files: &[Small]) -> Vec<(u64, Option<Name>)> {
        let folders = self.folders.borrow();
        if folders.is_empty() {
            return Vec::new();
        }
        let shown = files.iter().filter(|file| !file.is_open && folders.contains(&file.folder));
        shown.map(|file| (file.inode, Some((file.folder, file.name.clone())))).collect()
    }

    /// Those are made.
    pub(super) fn calm_down(&self, files: Vec<(u64, Option<Name>)>) {
        self.calm.borrow_mut().extend(files);
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.pauses.set(self.0.pauses.get() - 1);
    }
}

impl Drop for Disturbed {
    fn drop(&mut self) {
        let mut disturbed = self.resting.disturbed.borrow_mut();
        match disturbed.get_mut(&self.inode) {
            Some(count @ 2..) => *count -= 1,
            Some(_) => drop(disturbed.remove(&self.inode)),
            None => return,
        }
        self.resting.calm.borrow_mut().push((self.inode, self.name.take()));
    }
}

impl Places {
    /// A table that clients are given.
    ///
    /// # Errors
    ///
    /// As [`shm::Places::create`]; `ENOMEM` also where the address space is short (`ulimit -v`).
    pub(super) fn new(clients: &Arc<Clients>) -> io::Result<Rc<Self>> {
        let mut left = Vec::<u8>::new();
        left.try_reserve_exact(LEFT_MIN).map_err(|_| Errno::NOMEM)?;
        let (table, fd) = shm::Places::create()?;
        // Never touched, it cost nothing but addresses.
        drop(hint::black_box(left));
        clients.shares.add(fd);
        table.shared().keep(true);
        let (known, sources, kept) = (RefCell::default(), RefCell::default(), RefCell::default());
        let (clients, last_source) = (Arc::clone(clients), Cell::new(None));
        Ok(Rc::new(Self { clients, table, known, kept, sources, last_source }))
    }

    /// Has memory for so many entries, a few at a time, so that whoever asks for the files waits
    /// for their entries alone.
    pub(super) async fn populate_ahead(self: Rc<Self>, count: usize) {
        let count = count.min(POPULATED_MAX);
        for start in (0..count).step_by(POPULATED) {
            self.table.populate(start..count.min(start + POPULATED));
            yield_now().await;
        }
    }

    /// Nothing in the table holds any more.
    pub(super) fn end(&self) {
        self.table.shared().keep(false);
    }

    /// Hides the entry of an inode, and keeps the file for those who read by it.
    fn hide(&self, volume: &Volume, inode: u64) {
        let known = self.known.borrow().get((number_of(volume), inode));
        let Some((entry, _)) = known else { return };
        if !self.table.shared().hide(entry) {
            return;
        }
        let readers = self.clients.bundles.readers(entry);
        let keep = |(client, slot)| Kept { client, slot, entry, live: volume.live(inode) };
        self.kept.borrow_mut().extend(readers.into_iter().map(keep));
    }

    /// Lets go of files whose readers have asked for them, or are gone.
    fn let_go(&self) {
        self.kept.borrow_mut().retain(|kept| {
            !kept.client.is_over()
                && kept.client.segment.shared().reading.reads(kept.slot, kept.entry)
        });
    }

    /// A file that a client reads by an entry.
    fn kept(&self, volume: &Volume, inode: u64) -> Option<Rc<Live>> {
        let kept = self.kept.borrow();
        let mut its = kept.iter().filter(|kept| kept.live.inode == inode);
        its.find(|kept| kept.live.is_of(&volume.users)).map(|kept| Rc::clone(&kept.live))
    }

    /// Shows an inode under its name, if it is at rest and clients can read it.
    fn show(&self, volume: &Volume, inode: u64, name: Option<Name>) {
        let key = (number_of(volume), inode);
        let known = self.known.borrow().get(key);
        // It may have got that name and lost it, and have another one.
        let was =
            || known.and_then(|(entry, _)| self.place_of(volume, inode, &self.name_in(entry)));
        let place = name.and_then(|name| self.place_of(volume, inode, &name)).or_else(was);
        let Some((place, hash)) = place else { return self.forget(key) };
        let entry = match known.filter(|(_, known_hash)| *known_hash == hash) {
            Some((entry, _)) => {
                self.table.shared().hide(entry);
                Some(entry)
            }
            None => {
                self.forget(key);
                self.make_room(1);
                self.enter(key, hash)
            }
        };
        if let Some(entry) = entry {
            self.table.shared().show(entry, &place.encode());
        }
    }

    /// Shows files of one name that have no entries; there are slots for them. Returns those that
    /// have one now.
    fn show_new(&self, shown: &Shown<'_>, files: &[NamedFile<'_>]) -> Vec<(u64, u32)> {
        let (table, mut known) = (self.table.shared(), self.known.borrow_mut());
        let show = |file: &NamedFile<'_>| {
            let (place, hash) = self.place_in(shown, file)?;
            let entry = known.next(table.capacity())?;
            known.lead(hash, entry);
            table.show(entry, &place.encode());
            Some((file.inode, entry, hash))
        };
        // Each step for all of them: what they have in memory is fetched at once, not in turn.
        let shown: Vec<_> = files.iter().filter_map(show).collect();
        let enter = |(inode, entry, hash)| {
            let is_entered = table.enter(hash, entry);
            if !is_entered {
                table.hide(entry);
                known.give_back(entry);
            }
            is_entered.then_some((inode, entry))
        };
        shown.into_iter().filter_map(enter).collect()
    }

    /// The name that an entry has had.
    fn name_in(&self, entry: u32) -> Name {
        let place = Place::decode(&self.table.shared().known(entry));
        (place.folder, place.name.bytes(&mut [0; PlaceName::MAX]).to_vec())
    }

    /// An entry for a file that has none, to which this hash leads: hidden, or never shown.
    fn enter(&self, key: Identity, hash: u64) -> Option<u32> {
        let (mut known, table) = (self.known.borrow_mut(), self.table.shared());
        let entry = known.next(table.capacity())?;
        known.lead(hash, entry);
        if !table.enter(hash, entry) {
            known.give_back(entry);
            return None;
        }
        known.insert(key.0, [(key.1, entry)]);
        Some(entry)
    }

    /// Has slots for so many files more.
    fn make_room(&self, count: usize) {
        let (known, table) = (self.known.borrow(), self.table.shared());
        if table.make_room(known.count() + count) {
            let hashes = known.leading();
            for (entry, hash) in hashes {
                // One without a slot is asked for.
                table.enter(hash, entry);
            }
        }
    }

    /// Has memory for so many entries more.
    fn populate(&self, count: usize) {
        let used = self.known.borrow().used();
        self.table.populate(used..used + count);
    }

    /// Takes the entry of a file back.
    fn forget(&self, key: Identity) {
        let Some((entry, hash)) = self.known.borrow_mut().remove(key) else { return };
        self.table.shared().hide(entry);
        self.table.shared().leave(hash, entry);
    }

    /// What the table is to say of a file, and the hash of its name; `None`: it cannot.
    fn place_of(&self, volume: &Volume, inode: u64, name: &Name) -> Option<(Place, u64)> {
        let tree = volume.tree.borrow();
        let (folder, name) = (name.0, &name.1[..]);
        let found = tree.named_in(folder, name).filter(|found| *found == inode);
        found.filter(|_| volume.resting.folders.borrow().contains(&folder))?;
        let node = tree.file_of_one_name(inode)?;
        self.place_in(&Shown::new(volume, &tree, folder), &NamedFile { name, inode, node })
    }

    /// The same of a file of one name in a folder whose files are shown.
    fn place_in(&self, shown: &Shown<'_>, file: &NamedFile<'_>) -> Option<(Place, u64)> {
        let Shown { volume, tree, folder, .. } = *shown;
        let NamedFile { name, inode, node } = *file;
        let (_, _, size) = node.task.map_or(Some((0, 0, 0)), |task| shown.streams.reach(task))?;
        let (source, at) = match node.task.filter(|_| size > 0) {
            Some(task) => {
                let (member, at) = shown.streams.whole(task)?;
                (self.source(volume, member)?, at)
            }
            None => (0, 0),
        };
        let kept = if volume.is_writable { 7 } else { 5 };
        let rights = u8::try_from(tree.rights(node) & kept).ok()?;
        let place = Place {
            device: shown.device,
            folder,
            inode,
            mode: u16::try_from(node.mode).ok()?,
            user: node.user,
            group: node.group,
            rights,
            source,
            at,
            size,
            times: volume.users.times_now(inode, node.times),
            name: PlaceName::new(name)?,
        };
        Some((place, NameHash::new(shown.key, name).word()))
    }

    /// The number by which clients get a physical file, to read it.
    fn source(&self, volume: &Volume, member: &super::member::Member) -> Option<u8> {
        let key = (number_of(volume), member.number);
        if let Some((_, known)) = self.last_source.get().filter(|(last, _)| *last == key) {
            return known;
        }
        if let Some(known) = self.sources.borrow().get(&key) {
            self.last_source.set(Some((key, *known)));
            return *known;
        }
        let count = self.sources.borrow().values().flatten().count();
        let source = u8::try_from(count).ok().filter(|_| count < SOURCES_MAX);
        let source = source.filter(|_| {
            let shared = readable(member.data.fd()).map(|file| self.clients.shares.add(file));
            shared
                .inspect_err(|why| tracing::debug!("a physical file is not shared: {why}"))
                .is_ok()
        });
        self.sources.borrow_mut().insert(key, source);
        source
    }
}

impl Volume {
    /// Shows files at rest in this table from now on.
    pub(super) fn show_in(&self, places: &Rc<Places>) {
        self.resting.places.set(Rc::clone(places)).ok(); // There is one for a daemon's life.
    }

    /// Before an inode is changed, or opened to be written, and until that is over. It may get a
    /// name by that.
    pub(super) fn disturb(&self, inode: u64, name: Option<&Found>) -> Disturbed {
        let resting = Rc::clone(&self.resting);
        let name = name.map(|found| (found.folder, found.name.clone()));
        if let Some(places) = resting.places.get() {
            *resting.disturbed.borrow_mut().entry(inode).or_default() += 1;
            places.hide(self, inode);
        }
        Disturbed { resting, inode, name }
    }

    /// Shows what is at rest again.
    pub(super) fn show_calm(&self) {
        let Some(places) = self.resting.places.get() else { return };
        if !places.kept.borrow().is_empty() {
            places.let_go();
        }
        if self.resting.pauses.get() > 0 {
            return; // Whoever pauses shows what there is after that.
        }
        for (inode, name) in self.resting.calm.take() {
            if !self.resting.disturbed.borrow().contains_key(&inode) {
                places.show(self, inode, name);
            } else if name.is_some() {
                self.resting.calm.borrow_mut().push((inode, name));
            }
        }
    }

    /// Shows the files of a folder from now on.
    pub(super) fn show_folder(&self, folder: u64) {
        let Some(places) = self.resting.places.get() else { return };
        if !self.resting.folders.borrow_mut().insert(folder) {
            return;
        }
        let (tree, disturbed) = (self.tree.borrow(), self.resting.disturbed.borrow());
        let is_paused = self.resting.pauses.get() > 0;
        let (number, knows_none) = (tree.number(), places.known.borrow().count() == 0);
        let count = tree.name_count(folder);
        places.make_room(count);
        places.populate(count);
        let shown = Shown::new(self, &tree, folder);
        let is_known = |inode| !knows_none && places.known.borrow().get((number, inode)).is_some();
        let (mut entered, mut later) = (Vec::with_capacity(count), Vec::new());
        let mut batch = Vec::with_capacity(BATCH);
        for file in tree.files_of(folder) {
            if is_paused || is_known(file.inode) || disturbed.contains_key(&file.inode) {
                later.push((file.inode, Some((folder, file.name.to_vec()))));
                continue;
            }
            batch.push(file);
            if batch.len() == BATCH {
                entered.append(&mut places.show_new(&shown, &batch));
                batch.clear();
            }
        }
        entered.append(&mut places.show_new(&shown, &batch));
        places.known.borrow_mut().insert(number, entered);
        drop(shown);
        drop((tree, disturbed));
        self.resting.calm.borrow_mut().extend(later);
        self.show_calm();
    }

    /// The inode that a client reads by the table, also one without a name.
    pub(super) fn read_by_client(&self, inode: u64) -> Option<Rc<Live>> {
        let places = self.resting.places.get()?;
        let is_file = || self.tree.borrow().node(inode).is_some_and(|node| node.is_file());
        places.kept(self, inode).or_else(|| is_file().then(|| self.live(inode)))
    }
}

fn number_of(volume: &Volume) -> u64 {
    volume.tree.borrow().number()
}

/// The same file, opened to be read.
fn readable(file: &OwnedFd) -> io::Result<OwnedFd> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(link, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}
