//! Clients that make files by their bundles, beside calls, and beside a model.

mod claims;
mod open;
mod readers;
mod together;

use std::{collections::HashMap, sync::Arc};

use shm::{
    NAME_SLOTS, NameHash,
    bundle::{ALIGNMENT, Logs, Ring},
    copy::copy_in,
};
use simulated::seeds;
use storage::segment::Segment;
use wire::{CreateFlags, Record, Uses};

use self::readers::{Reader, Table};
use crate::clients::Clients;

use super::*;

const ARENA_LEN: usize = 128 << 10;
const LOGS: Logs = Logs { index_at: 0, index_len: 8 << 10, data_at: 64 << 10, data_len: 64 << 10 };
/// Bytes of a file at most, so that the data log is short of room at times.
const FILE_LEN_MAX: usize = 12_000;

/// A client, honest as far as it goes.
struct Maker {
    session: u32,
    segment: Arc<Segment>,
    head: u64,
    data_head: u64,
    leases: HashMap<String, Lease>,
    open: Vec<Bundled>,
}

#[derive(Clone, Copy)]
struct Lease {
    folder: u64,
    key: u64,
    next: u64,
    epoch: u64,
}

/// A file that a client has open.
struct Bundled {
    inode: u64,
    /// `None`: somebody has removed it.
    name: Option<String>,
    len: usize,
    recalled: u32,
    torn: u32,
}

/// The daemon, its clients, and what is to be there.
struct Bundles {
    world: World,
    node: Arc<Clients>,
    makers: Vec<Maker>,
    readers: Vec<Reader>,
    /// That of this daemon.
    table: Option<Table>,
    next_session: u32,
    /// Names published since the last call: a daemon that dies may not have them.
    unsure: Vec<String>,
    name_slots: usize,
    /// True if makers ask for `O_EXCL`.
    is_exclusive: bool,
}

impl Bundles {
    fn new(seed: u64) -> Self {
        Self::of(seed, NAME_SLOTS)
    }

    /// With a set of so many names.
    fn of(seed: u64, name_slots: usize) -> Self {
        // Half of them have dense files.
        let world = World::shaped(seed, if seed % 2 == 0 { SHAPE } else { SMALL });
        let (makers, readers, node, unsure) = (Vec::new(), Vec::new(), node(), Vec::new());
        let (table, next_session, is_exclusive) = (None, 0, true);
        let mut all = Self {
            world,
            node,
            makers,
            readers,
            table,
            next_session,
            unsure,
            name_slots,
            is_exclusive,
        };
        all.begin();
        all
    }

    /// A daemon that takes in what clients make, and its clients.
    fn begin(&mut self) {
        self.node = node();
        let handle = self.world.executor.handle();
        let intake = Intake::knowing(&self.node, &handle, self.name_slots);
        self.world.files = self.world.files.clone().taking_in_by(intake);
        self.table = Some(Table::of(&self.node));
        self.makers = (0..3).map(|_| self.maker()).collect();
        self.forget_readers(None);
        self.unsure.clear();
    }

    fn maker(&mut self) -> Maker {
        let (segment, _) = Segment::create(ARENA_LEN).expect("memory");
        let (segment, session) = (Arc::new(segment), self.next_session);
        segment.shared().bundle.place(LOGS);
        self.node.bundles.add(session, &segment).expect("in its place");
        self.next_session += 1;
        let (leases, open) = (HashMap::new(), Vec::new());
        Maker { session, segment, head: 0, data_head: 0, leases, open }
    }

    /// Ends the daemon in order, or has it die, and starts the next one.
    fn restart(&mut self, in_order: bool) {
        if in_order {
            let files = self.world.files.clone();
            assert!(self.world.executor.run_until(files.close()).0.is_empty());
        }
        self.world.files.intake.take().expect("it takes in").forget();
        self.world.restart(false);
        if !in_order {
            self.learn();
        }
        self.begin();
    }

    /// Learns what a daemon that died has lost: files, and the ends of those that were not closed.
    fn learn(&mut self) {
        for name in std::mem::take(&mut self.unsure) {
            let mut open = self.makers.iter().flat_map(|maker| &maker.open);
            let is_open = open.any(|file| file.name.as_ref() == Some(&name));
            let Some(expected) = self.world.model.remove(&name) else { continue };
            if let Ok(open) = self.world.open(&name, OFlags::RDONLY) {
                let found = self.world.read(&open);
                assert!(expected.starts_with(&found), "{name}");
                assert!(is_open || found.len() == expected.len(), "a part of {name}");
                self.world.model.insert(name, found);
            }
        }
    }

    fn call(&mut self, call: NameCall) -> io::Result<Vec<u8>> {
        let done = self.world.name(call);
        self.unsure.clear();
        done
    }

    fn step(&mut self) {
        let file = *self.world.rng.choice(NAMES).as_ref().expect("names");
        let maker = self.world.rng.usize(..self.makers.len());
        match self.world.rng.u8(..50) {
            0 => self.restart(true),
            1 => self.restart(false),
            2 => self.kill(maker),
            3..=4 => self.tick(),
            5 => self.unlink(file),
            6 => self.rename(file),
            7 => self.open_and_read(file),
            8 => self.promote(maker),
            9..=10 => self.world.check(),
            40..=43 => self.open_by_table(file),
            44..=47 => self.read_by_table(),
            48 => self.rewrite_beside_readers(file),
            11..=24 => self.create(maker, file),
            25..=34 => self.write(maker),
            _ => self.close(maker),
        }
    }

    fn tick(&mut self) {
        let files = self.world.files.clone();
        let intake = files.intake.clone().expect("it takes in");
        self.world.executor.run_until(intake.take(false));
    }

    /// Makes a file by the bundle if its name can be claimed, else by asking.
    fn create(&mut self, maker: usize, file: &str) {
        let (folder, last) = file.rsplit_once('/').unwrap_or(("", file));
        let names = &self.node.clone();
        let names = &names.shared().names;
        let before = names.epochs();
        let holds = |lease: &Lease| lease.epoch == before.folders;
        if !self.makers[maker].leases.get(folder).is_some_and(holds) {
            self.lease(maker, folder);
        }
        let before = names.epochs();
        let lease = *self.makers[maker].leases.get(folder).expect("leased");
        let is_there = self.world.model.contains_key(file);
        if !names.claim(NameHash::new(lease.key, last.as_bytes())) {
            // A name that is not there may be one that somebody has claimed in vain: none here.
            assert!(is_there, "{file} cannot be claimed");
            return;
        }
        assert!(!is_there, "{file} is there and can be claimed");
        let maker = &mut self.makers[maker];
        let how = if self.is_exclusive { CreateFlags::EXCLUSIVE } else { CreateFlags::default() };
        let (inode, time, name) = (lease.next, (1, 2), last.as_bytes());
        let record = Record::Create { inode, folder: lease.folder, mode: 0o644, how, time, name };
        maker.leases.get_mut(folder).expect("leased").next += 1;
        maker.push(&record);
        maker.publish();
        assert!(names.are_still(before), "nobody has called");
        let shared = &maker.segment.shared().bundle;
        let (recalled, torn, name) = (shared.recalled(), shared.torn(), Some(file.to_owned()));
        maker.open.push(Bundled { inode, name, len: 0, recalled, torn });
        self.world.model.insert(file.to_owned(), Vec::new());
        self.unsure.push(file.to_owned());
    }

    fn lease(&mut self, maker: usize, folder: &str) {
        let session = self.makers[maker].session;
        let path = name(folder);
        let uses = Uses { reads: self.world.rng.u8(..4) > 0, makes: true };
        let answer = self.call(NameCall::Lease { path, session, uses }).expect("a folder");
        let words = &answer[Status::LEN..];
        let word = |index: usize| {
            u64::from_le_bytes(words[index * 8..][..8].try_into().expect("eight bytes"))
        };
        let inode = Status::decode(&answer).expect("a status").inode;
        let lease = Lease { folder: inode, key: word(3), next: word(0), epoch: word(2) };
        self.makers[maker].leases.insert(folder.to_owned(), lease);
    }

    fn write(&mut self, maker: usize) {
        let count = self.makers[maker].open.len();
        if count == 0 {
            return;
        }
        let index = self.world.rng.usize(..count);
        let len = self.world.rng.usize(1..FILE_LEN_MAX / 3);
        let bytes = self.world.bytes(len);
        let file = &self.makers[maker].open[index];
        let (inode, is_first, recalled) = (file.inode, file.len == 0, file.recalled);
        if file.len + len > FILE_LEN_MAX {
            return;
        }
        while !self.makers[maker].has_room(len) {
            self.call(NameCall::Access { path: name("d"), mode: 0 }).expect("a folder");
        }
        let maker_ref = &mut self.makers[maker];
        maker_ref.push_data(&bytes, is_first);
        maker_ref.push(&Record::Data { inode, len: u32::try_from(len).expect("short") });
        maker_ref.publish();
        maker_ref.open[index].len += len;
        if let Some(name) = maker_ref.open[index].name.clone() {
            self.world.model.get_mut(&name).expect("open").extend(bytes);
            self.unsure.push(name);
        }
        if self.makers[maker].segment.shared().bundle.recalled() != recalled {
            self.promote_file(maker, index);
        }
    }

    fn close(&mut self, maker: usize) {
        let maker = &mut self.makers[maker];
        let Some(file) = maker.open.pop() else { return };
        maker.push(&Record::Close { inode: file.inode });
        maker.publish();
        if maker.segment.shared().bundle.torn() != file.torn {
            self.call(NameCall::Access { path: name("d"), mode: 0 }).expect("a folder");
        }
    }

    fn promote(&mut self, maker: usize) {
        if let Some(index) = self.makers[maker].open.len().checked_sub(1) {
            self.promote_file(maker, index);
        }
    }

    /// Has a file handed over, and writes to it as to any other.
    fn promote_file(&mut self, maker: usize, index: usize) {
        let file = self.makers[maker].open.remove(index);
        let files = self.world.files.clone();
        let (path, flags) = (name("d"), OFlags::RDWR.bits());
        let call = OpenCall { path, flags, mode: 0, inode: file.inode };
        let (open, status) = self.world.executor.run_until(files.open(call)).expect("promoted");
        assert_eq!((status.inode, status.size), (file.inode, file.len as u64));
        let bytes = self.world.bytes(10);
        self.world.write(&open, 0, &bytes);
        if let Some(name) = file.name {
            let there = self.world.model.get_mut(&name).expect("open");
            there.resize(there.len().max(10), 0);
            there[..10].copy_from_slice(&bytes);
            let expected = there.clone();
            assert!(self.world.read(&open) == expected, "{name}");
        }
    }

    fn unlink(&mut self, file: &str) {
        let done = self.call(NameCall::Unlink { path: name(file) });
        self.read_on(file, None);
        assert_eq!(done.is_ok(), self.world.model.remove(file).is_some(), "{file}");
        self.renamed(file, None);
    }

    fn rename(&mut self, file: &str) {
        let to = *self.world.rng.choice(NAMES).as_ref().expect("names");
        let done = self.call(NameCall::Rename { from: name(file), to: name(to), flags: 0 });
        if done.is_ok() && file != to {
            self.read_on(to, None);
            self.read_on(file, Some(to));
        }
        let bytes = self.world.model.remove(file);
        assert_eq!(done.is_ok(), bytes.is_some(), "{file} to {to}");
        if let Some(bytes) = bytes {
            self.world.model.insert(to.to_owned(), bytes);
            if file != to {
                self.renamed(to, None);
                self.renamed(file, Some(to));
            }
        }
    }

    /// Open files keep their names, and lose them.
    fn renamed(&mut self, from: &str, to: Option<&str>) {
        for file in self.makers.iter_mut().flat_map(|maker| &mut maker.open) {
            if file.name.as_deref() == Some(from) {
                file.name = to.map(str::to_owned);
            }
        }
    }

    fn open_and_read(&mut self, file: &str) {
        let opened = self.world.open(file, OFlags::RDONLY);
        self.unsure.clear();
        let expected = self.world.model.get(file).cloned();
        assert_eq!(opened.is_ok(), expected.is_some(), "{file}");
        if let Some((open, expected)) = opened.ok().zip(expected) {
            assert!(self.world.read(&open) == expected, "{file}");
        }
    }

    /// A client dies: what it has published is there.
    fn kill(&mut self, maker: usize) {
        let gone = self.makers[maker].session;
        self.node.bundles.end(gone);
        self.forget_readers(Some(maker));
        self.makers[maker] = self.maker();
    }
}

impl Maker {
    fn put(&self, ring: Ring, position: u64, mut bytes: &[u8]) {
        for (at, len) in ring.stretches(position, bytes.len() as u64) {
            let (at, len) = (usize::try_from(at).unwrap(), usize::try_from(len).unwrap());
            copy_in(&self.segment.arena()[at..at + len], &bytes[..len]);
            bytes = &bytes[len..];
        }
    }

    fn has_room(&self, len: usize) -> bool {
        let (_, tail) = self.segment.shared().bundle.tails();
        self.data_head - tail + len as u64 + ALIGNMENT <= LOGS.data_len
    }

    fn push(&mut self, record: &Record<'_>) {
        let mut space = [0; Record::LEN_MAX];
        let bytes = record.encode(&mut space).expect("room");
        self.put(LOGS.index(), self.head, bytes);
        self.head += bytes.len() as u64;
    }

    fn push_data(&mut self, bytes: &[u8], is_first: bool) {
        if is_first {
            self.data_head = self.data_head.next_multiple_of(ALIGNMENT);
        }
        self.put(LOGS.data(), self.data_head, bytes);
        self.data_head += bytes.len() as u64;
    }

    fn publish(&self) {
        let shared = &self.segment.shared().bundle;
        shared.publish(self.head);
        let (index_tail, _) = shared.tails();
        assert!(self.head - index_tail <= LOGS.index_len, "the test has too few calls");
    }
}

fn node() -> Arc<Clients> {
    let (job, _) = shm::Job::create().expect("memory");
    Arc::new(Clients::new(job))
}

#[test]
fn bundles_come_to_what_calls_would_under_every_seed() {
    for seed in seeds(1_000) {
        let outcome = std::panic::catch_unwind(|| {
            let mut bundles = Bundles::new(seed);
            for _ in 0..40 {
                bundles.step();
                if bundles.world.rng.u8(..4) == 0 {
                    bundles.check_table();
                }
            }
            bundles.world.check();
            bundles.restart(true);
            bundles.world.check();
        });
        assert!(outcome.is_ok(), "SEED={seed}");
    }
}

/// A client that publishes nonsense is owed an error, and loses what it has not got into files yet;
/// others lose nothing.
#[test]
fn nonsense_in_a_bundle_harms_nobody_else() {
    for seed in seeds(300) {
        let mut all = Bundles::new(seed);
        for _ in 0..15 {
            let file = *all.world.rng.choice(NAMES).as_ref().expect("names");
            all.create(0, file);
            all.write(0);
        }
        all.world.check();
        let hostile = &all.makers[1];
        let (rng, mut log) = (&mut all.world.rng, vec![0; 8 << 10]);
        rng.fill(&mut log);
        // Some of it looks like records.
        for at in (0..log.len()).step_by(16) {
            if rng.bool() {
                log[at..at + 2].copy_from_slice(&[rng.u8(1..4), rng.u8(2..7)]);
            }
        }
        hostile.put(LOGS.index(), 0, &log);
        let head = if rng.bool() { rng.u64(1..8 << 10) } else { rng.u64(..) };
        hostile.segment.shared().bundle.publish(head);
        all.world.check();
        let bundle = &all.makers[1].segment.shared().bundle;
        assert!(bundle.take_error().is_some());
        // It goes on: it is told again, and waits for no room.
        bundle.publish(head.wrapping_add(100));
        all.world.check();
        let bundle = &all.makers[1].segment.shared().bundle;
        assert!(bundle.take_error().is_some());
        assert_eq!(bundle.tails(), (head.wrapping_add(100), u64::MAX));
        all.write(0);
        all.restart(true);
        all.world.check();
    }
}

/// A name that a call makes while a client makes it by its bundle is one file.
#[test]
fn client_that_a_call_comes_before_is_told_by_its_verdict() {
    for is_exclusive in [false, true] {
        let mut all = Bundles::new(7);
        all.lease(0, "");
        let Lease { folder, key, next: inode, .. } = all.makers[0].leases[""];
        let names = all.node.clone();
        let names = &names.shared().names;
        let before = names.epochs();
        // As if it had been claimed and lost its core.
        assert!(names.claim(NameHash::new(key, b"b")));
        let open = all.world.open("b", OFlags::CREATE | OFlags::RDWR).expect("made");
        all.world.write(&open, 0, b"the call's");
        let how = if is_exclusive { CreateFlags::EXCLUSIVE } else { CreateFlags::default() };
        let (time, name_of) = ((1, 2), &b"b"[..]);
        let record = Record::Create { inode, folder, mode: 0o600, how, time, name: name_of };
        all.makers[0].push(&record);
        all.makers[0].publish();
        assert!(!names.are_still(before));
        let call = OpenCall { path: name("d"), flags: OFlags::RDWR.bits(), mode: 0, inode };
        let opened = all.world.executor.run_until(all.world.files.clone().open(call));
        match opened {
            Err(why) => assert!(is_exclusive && errno(&why) == Errno::EXIST),
            Ok((open, _)) => {
                assert!(!is_exclusive);
                assert_eq!(all.world.read(&open), b"the call's");
            }
        }
        assert_eq!(all.world.read(&open), b"the call's");
    }
}
