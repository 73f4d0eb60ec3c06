//! Clients that read files at rest by the table of places, beside everybody else.

use std::{
    cell::{Cell, RefCell},
    os::fd::AsFd as _,
    time::Duration,
};

use executor::Class;
use rustix::io::pread;
use shm::{PlacesView, places::Seen};
use storage::{Storage, names::device_of};
use wire::Place;

use super::*;

/// A client that reads by the table.
pub(super) struct Table {
    node: Arc<Clients>,
    view: PlacesView,
}

/// A file that a client has open to read it.
pub(super) struct Reader {
    maker: usize,
    slot: u32,
    seen: Seen,
    inode: u64,
    /// `None`: somebody has removed it, when it was this.
    name: Result<String, Vec<u8>>,
}

impl Table {
    pub(super) fn of(node: &Arc<Clients>) -> Self {
        let fd = node.shares.get(0).expect("a kernel that seals it");
        Self { node: Arc::clone(node), view: PlacesView::open(&*fd).expect("sealed") }
    }

    fn find(&self, device: u64, lease: Lease, name: &str) -> Option<(Seen, Place)> {
        let hash = NameHash::new(lease.key, name.as_bytes());
        let is_it = |words: &_| Place::is_of(words, device, lease.folder, name.as_bytes());
        let (seen, words) = self.view.shared().find(hash.word(), is_it)?;
        Some((seen, Place::decode(&words)))
    }

    /// The bytes of a file, if it is still what was seen.
    fn read(&self, seen: Seen) -> Option<Vec<u8>> {
        let place = Place::decode(&self.view.shared().words(seen)?);
        let mut bytes = vec![0; usize::try_from(place.size).expect("short")];
        if !bytes.is_empty() {
            let source = self.node.shares.get(u32::from(place.source) + 1).expect("shared");
            assert_eq!(pread(source.as_fd(), &mut bytes, place.at), Ok(bytes.len()));
        }
        self.view.shared().is_still(seen).then_some(bytes)
    }
}

impl Bundles {
    fn table(&self) -> &Table {
        self.table.as_ref().expect("a daemon")
    }

    /// A name as clients look for it, if they have a lease of its folder.
    fn look(&self, file: &str) -> Option<(Seen, Place)> {
        let (folder, last) = file.rsplit_once('/').unwrap_or(("", file));
        let lease = self.makers.iter().find_map(|maker| maker.leases.get(folder))?;
        let device = device_of(self.world.files.volumes[0].1.tree.borrow().number());
        self.table().find(device, *lease, last)
    }

    /// Whatever the table says is so.
    pub(super) fn check_table(&mut self) {
        for file in NAMES {
            let Some((seen, place)) = self.look(file) else { continue };
            let expected = self.world.model.get(file).expect("shown and not there").clone();
            assert!(self.table().read(seen).expect("nobody is here") == expected, "{file}");
            let open = self.world.open(file, OFlags::RDONLY).expect("there");
            let status = self.world.status(&open);
            let said = Status { device: status.device, ..place.status() };
            assert_eq!(said, status, "{file}");
        }
    }

    /// Begins to read a file that is at rest.
    pub(super) fn open_by_table(&mut self, file: &str) {
        let Some((seen, place)) = self.look(file) else { return };
        let maker = self.world.rng.usize(..self.makers.len());
        let taken: Vec<u32> = self.readers.iter().map(|reader| reader.slot).collect();
        let slot = (0..).find(|slot| !taken.contains(slot)).expect("few");
        self.makers[maker].segment.shared().reading.begin(slot, seen);
        assert!(self.table().view.shared().is_still(seen), "nobody is here");
        let name = Ok(file.to_owned());
        self.readers.push(Reader { maker, slot, seen, inode: place.inode, name });
    }

    /// Reads a file that was opened so, by the table if it is still at rest, and closes it.
    pub(super) fn read_by_table(&mut self) {
        let Some(Reader { maker, slot, seen, inode, name }) = self.readers.pop() else { return };
        let expected = match name {
            Ok(name) => self.world.model[&name].clone(),
            Err(removed) => removed,
        };
        let found = self.table().read(seen).unwrap_or_else(|| {
            let path = super::name("d");
            let call = OpenCall { path, flags: OFlags::RDONLY.bits(), mode: 0, inode };
            let opened = self.world.executor.run_until(self.world.files.clone().open(call));
            self.unsure.clear();
            self.world.read(&opened.expect("kept").0)
        });
        assert!(found == expected, "a file that is read has changed");
        self.makers[maker].segment.shared().reading.end(slot);
    }

    /// A name leads elsewhere from now on; before the model says so.
    pub(super) fn read_on(&mut self, from: &str, to: Option<&str>) {
        for reader in &mut self.readers {
            if reader.name.as_deref() == Ok(from) {
                reader.name = match to {
                    Some(to) => Ok(to.to_owned()),
                    None => Err(self.world.model[from].clone()),
                };
            }
        }
    }

    /// Leases to read end with the client that had them.
    pub(super) fn forget_readers(&mut self, gone: Option<usize>) {
        self.readers.retain(|reader| gone.is_some_and(|gone| reader.maker != gone));
    }

    /// Rewrites a file while others read it by the table: they see what it was, and then what it
    /// is, and nothing else.
    pub(super) fn rewrite_beside_readers(&mut self, file: &str) {
        if !self.world.model.contains_key(file) || self.makers.iter().any(|m| m.has_open(file)) {
            return;
        }
        let len = self.world.rng.usize(1..FILE_LEN_MAX);
        let (old, new) = (self.world.model[file].clone(), self.world.bytes(len));
        let (files, call) = (
            self.world.files.clone(),
            OpenCall {
                path: name(file),
                flags: (OFlags::WRONLY | OFlags::TRUNC).bits(),
                mode: 0,
                inode: 0,
            },
        );
        let buffer = Heap::buffer(len);
        buffer.store(&new);
        let is_done = Rc::new(Cell::new(false));
        let done = Rc::clone(&is_done);
        self.world.executor.handle().spawn(Class::Latency, async move {
            let (open, _) = files.open(call).await.expect("there");
            let mut written = 0;
            while written < len {
                let rest = buffer.suffix(written).into();
                written += files.write(&open, written as u64, rest).await.expect("room");
            }
            Storage::close(&files, open).await.expect("closed");
            done.set(true);
        });
        let has_new = RefCell::new(false);
        while !is_done.get() {
            let handle = self.world.executor.handle();
            self.world.executor.run_until(handle.sleep(Duration::from_micros(20)));
            let Some((seen, _)) = self.look(file) else { continue };
            let found = self.table().read(seen).expect("this thread is the daemon's");
            assert!(found == new || found == old && !*has_new.borrow(), "{file} between states");
            *has_new.borrow_mut() |= found == new;
        }
        self.unsure.clear();
        self.world.model.insert(file.to_owned(), new);
    }
}

impl Maker {
    fn has_open(&self, file: &str) -> bool {
        self.open.iter().any(|open| open.name.as_deref() == Some(file))
    }
}

#[test]
fn file_without_a_name_is_kept_for_who_reads_it_by_the_table() {
    let mut all = Bundles::new(3);
    all.create(0, "a");
    all.write(0);
    all.close(0);
    all.tick();
    let session = all.makers[0].session;
    let uses = Uses { reads: true, makes: false };
    let lease = all.call(NameCall::Lease { path: name(""), session, uses }).expect("a folder");
    assert_eq!(lease[Status::LEN..][..16], [0; 16], "no numbers for files that it does not make");
    all.open_by_table("a");
    assert_eq!(all.readers.len(), 1, "at rest");
    all.unlink("a");
    all.create(1, "a");
    all.write(1);
    all.close(1);
    all.tick();
    all.check_table();
    all.read_by_table();
    // From here on nobody keeps it.
    all.world.check();
    let volume = Rc::clone(&all.world.files.volumes[0].1);
    volume.show_calm();
    assert_eq!(volume.users.left_count(), 1, "its chunk is left");
}

#[test]
fn file_truncated_by_who_opens_it_to_read_is_shown_without_bytes() {
    let mut all = Bundles::new(3);
    all.create(0, "a");
    all.write(0);
    all.close(0);
    all.tick();
    let (session, uses) = (all.makers[0].session, Uses { reads: true, makes: false });
    all.call(NameCall::Lease { path: name(""), session, uses }).expect("a folder");
    let (_, place) = all.look("a").expect("at rest");
    assert!(place.size > 0);
    let open = all.world.open("a", OFlags::RDONLY | OFlags::TRUNC).expect("there");
    all.world.model.insert("a".to_owned(), Vec::new());
    all.check_table();
    let files = all.world.files.clone();
    all.world.executor.run_until(Storage::close(&files, open)).expect("closed");
    let (_, place) = all.look("a").expect("at rest");
    assert_eq!(place.size, 0);
}
