//! Files, folders, and records that outlive the server, and stop obeying one that was killed.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    ffi::CStr,
    io,
    rc::Rc,
    time::Duration,
};

use executor::{Handle, Instant};
use fastrand::Rng;
use rustix::{fs::OFlags, io::Errno};
use shm::copy::{copy_in, copy_out};
use storage::{
    Locking, Storage,
    lock_call::LockCall,
    names::{Answer, FileCall, NameCall, OpenCall},
};
use uring::Buffers;
use wire::{ROOT_LEN, SESSION_LEN, Status};

use crate::server::ledger::{Ledger, LocksNoted, RECORDS, Record, Shelf, State};

const LATENCY_MAX_US: u64 = 60;
const SIZE_MAX: usize = 1 << 20;
const REGULAR: u32 = 0o100_644;

/// A server's node.
#[derive(Default)]
pub(super) struct Disk {
    names: RefCell<BTreeMap<Vec<u8>, u64>>,
    content: RefCell<HashMap<u64, Vec<u8>>>,
    next_inode: Cell<u64>,
    /// Times that an inode's number was given to another file.
    replaced: RefCell<HashMap<u64, u64>>,
    /// Its name.
    pub(super) root: Cell<[u8; ROOT_LEN]>,
    ledgers: RefCell<HashMap<[u8; SESSION_LEN], Vec<Option<Record>>>>,
    /// Sessions that have had locks: the server that has them, and since when they are awaited.
    lockers: RefCell<HashMap<[u8; SESSION_LEN], Locker>>,
    /// By inode: the open file that has it locked.
    locks: RefCell<HashMap<u64, u64>>,
    next_open: Cell<u64>,
    /// Reads under way, and the most there have been.
    reads: Cell<u32>,
    pub(super) reads_max: Cell<u32>,
    /// Times that a ledger was made to look young.
    pub(super) renewals: Cell<u64>,
    /// Times that old ledgers were removed.
    pub(super) removals: Cell<u64>,
    /// How much longer everything takes.
    pub(super) delay: Cell<Duration>,
    /// True if nothing can be opened: others have all descriptors.
    pub(super) is_short: Cell<bool>,
    /// True if it tells at a close that there is no space.
    pub(super) is_full: Cell<bool>,
    /// No record says any more that its request was done.
    pub(super) is_broken: Cell<bool>,
    /// Counts servers; the last one lives while it is odd.
    life: Cell<u64>,
}

type Locker = (u64, Option<Instant>);

impl Disk {
    pub(super) fn begin_life(&self) -> u64 {
        self.life.set(self.life.get() | 1);
        self.life.get()
    }

    pub(super) fn end_life(&self) {
        self.locks.borrow_mut().clear();
        self.life.set(self.life.get() + 1);
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.names.borrow().contains_key(name.as_bytes())
    }

    pub(super) fn content(&self, name: &str) -> Option<Vec<u8>> {
        let inode = *self.names.borrow().get(name.as_bytes())?;
        self.content.borrow().get(&inode).cloned()
    }

    /// Removes a file, and makes another that gets its number.
    pub(super) fn replace(&self, name: &str) {
        let inode = *self.names.borrow().get(name.as_bytes()).expect("is there");
        self.content.borrow_mut().insert(inode, Vec::new());
        *self.replaced.borrow_mut().entry(inode).or_default() += 1;
    }

    fn make(&self, path: &CStr) -> u64 {
        let inode = self.next_inode.get() + 1;
        self.next_inode.set(inode);
        self.names.borrow_mut().insert(path.to_bytes().to_vec(), inode);
        self.content.borrow_mut().insert(inode, Vec::new());
        inode
    }

    fn find(&self, path: &CStr) -> Option<u64> {
        self.names.borrow().get(path.to_bytes()).copied()
    }

    fn status(&self, inode: u64) -> Status {
        let size = self.content.borrow().get(&inode).map_or(0, |bytes| bytes.len() as u64);
        let born = 1 + self.replaced.borrow().get(&inode).copied().unwrap_or_default();
        Status { device: 7, inode, mode: REGULAR, size, born, ..Status::default() }
    }

    fn execute(&self, call: &NameCall) -> Result<Answer, Errno> {
        match call {
            NameCall::Stat { path, .. } => {
                return Ok(Answer::status(&self.status(self.find(path).ok_or(Errno::NOENT)?)));
            }
            NameCall::Unlink { path } => {
                self.names.borrow_mut().remove(path.to_bytes()).ok_or(Errno::NOENT)?;
            }
            NameCall::Rename { from, to, .. } => {
                let inode = self.names.borrow_mut().remove(from.to_bytes());
                let inode = inode.ok_or(Errno::NOENT)?;
                self.names.borrow_mut().insert(to.to_bytes().to_vec(), inode);
            }
            NameCall::MakeDir { path, .. } => {
                if self.find(path).is_some() {
                    return Err(Errno::EXIST);
                }
                self.make(path);
            }
            _ => return Err(Errno::NOSYS),
        }
        Ok(Answer::default())
    }
}

/// An open file.
#[derive(Clone, Copy)]
pub(super) struct Open {
    inode: u64,
    appends: bool,
    /// Tells open files apart.
    number: u64,
}

/// The disk as one server sees it.
#[derive(Clone)]
pub(super) struct SimDisk {
    pub(super) disk: Rc<Disk>,
    pub(super) handle: Handle,
    pub(super) rng: Rc<RefCell<Rng>>,
    pub(super) life: u64,
}

impl SimDisk {
    /// Takes a while; a server that is killed meanwhile never goes on.
    async fn pause(&self) {
        let us = self.rng.borrow_mut().u64(0..LATENCY_MAX_US);
        self.handle.sleep(Duration::from_micros(us) + self.disk.delay.get()).await;
        if self.disk.life.get() != self.life {
            std::future::pending::<()>().await;
        }
    }

    fn opened(&self, inode: u64, appends: bool) -> Open {
        let number = self.disk.next_open.get();
        self.disk.next_open.set(number + 1);
        Open { inode, appends, number }
    }

    fn put(&self, inode: u64, at: usize, bytes: &[u8]) {
        let mut content = self.disk.content.borrow_mut();
        let stored = content.entry(inode).or_default();
        if stored.len() < at + bytes.len() {
            stored.resize(at + bytes.len(), 0);
        }
        stored[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl Storage for SimDisk {
    type File = Open;

    async fn on(&self, file: &Open, call: FileCall) -> io::Result<Answer> {
        match call {
            FileCall::Status => {
                self.pause().await;
                Ok(Answer::status(&self.disk.status(file.inode)))
            }
            FileCall::Sync { .. }
            | FileCall::CloseDuplicate
            | FileCall::Set(_)
            | FileCall::Allocate { .. } => Ok(Answer::default()),
            _ => Err(Errno::NOSYS.into()),
        }
    }

    async fn read(&self, file: &Open, at: u64, into: Buffers) -> io::Result<usize> {
        let Disk { reads, reads_max, .. } = &*self.disk;
        reads.set(reads.get() + 1);
        reads_max.set(reads_max.get().max(reads.get()));
        self.pause().await;
        reads.set(reads.get() - 1);
        let content = self.disk.content.borrow();
        let stored = content.get(&file.inode).ok_or(Errno::IO)?;
        let rest = stored.get(usize::try_from(at).unwrap()..).unwrap_or_default();
        Ok(copy_in(into.as_slice()[0].bytes(), rest))
    }

    async fn write(&self, file: &Open, at: u64, from: Buffers) -> io::Result<usize> {
        self.pause().await;
        let mut bytes = vec![0; from.len()];
        copy_out(&mut bytes, from.as_slice()[0].bytes());
        let size = usize::try_from(self.disk.status(file.inode).size).unwrap();
        let at = if file.appends { size } else { usize::try_from(at).unwrap() };
        if at > SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        // A write can be cut where a server is killed, and can be short.
        let part = self.rng.borrow_mut().usize(1..=bytes.len());
        self.put(file.inode, at, &bytes[..part]);
        self.pause().await;
        if self.rng.borrow_mut().u32(0..4) == 0 {
            return Ok(part);
        }
        self.put(file.inode, at + part, &bytes[part..]);
        self.pause().await;
        Ok(bytes.len())
    }

    async fn open(&self, call: OpenCall) -> io::Result<(Open, Status)> {
        self.pause().await;
        let flags = OFlags::from_bits_retain(call.flags);
        if self.disk.is_short.get() {
            return Err(Errno::NFILE.into());
        }
        let found = self.disk.find(&call.path);
        let inode = match found {
            Some(_) if flags.contains(OFlags::CREATE | OFlags::EXCL) => {
                return Err(Errno::EXIST.into());
            }
            Some(inode) => inode,
            None if flags.contains(OFlags::CREATE) => self.disk.make(&call.path),
            None => return Err(Errno::NOENT.into()),
        };
        self.pause().await;
        let file = self.opened(inode, flags.contains(OFlags::APPEND));
        let status = self.status(&file).await?;
        Ok((file, status))
    }

    async fn close(&self, _: Open) -> io::Result<()> {
        if self.disk.is_full.get() { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    async fn name(&self, call: NameCall) -> io::Result<Answer> {
        self.pause().await;
        let answer = self.disk.execute(&call);
        self.pause().await;
        Ok(answer?)
    }
}

impl Locking for SimDisk {
    async fn another(&self, file: &Open) -> io::Result<Open> {
        self.pause().await;
        Ok(self.opened(file.inode, false))
    }

    /// Whole files only.
    async fn lock(&self, file: &Open, call: LockCall) -> io::Result<()> {
        self.pause().await;
        let taken = {
            let mut locks = self.disk.locks.borrow_mut();
            let holder = locks.get(&file.inode).copied();
            let is_other = holder.is_some_and(|holder| holder != file.number);
            match call.is_unlock() {
                true if !is_other => drop(locks.remove(&file.inode)),
                false if !is_other => drop(locks.insert(file.inode, file.number)),
                _ => {}
            }
            is_other && !call.is_unlock()
        };
        self.pause().await;
        if taken { Err(Errno::AGAIN.into()) } else { Ok(()) }
    }
}

/// The ledgers as one server sees them.
pub(super) struct SimShelf {
    pub(super) disk: Rc<Disk>,
    pub(super) handle: Handle,
    pub(super) life: u64,
}

impl Shelf for SimShelf {
    fn root(&self) -> io::Result<[u8; ROOT_LEN]> {
        Ok(self.disk.root.get())
    }

    fn open(&self, session: &[u8; SESSION_LEN]) -> io::Result<Box<dyn Ledger>> {
        let (disk, handle, session) = (Rc::clone(&self.disk), self.handle.clone(), *session);
        Ok(Box::new(SimLedger { disk, handle, session, life: self.life }))
    }

    fn find(&self, session: &[u8; SESSION_LEN]) -> io::Result<Option<Box<dyn Ledger>>> {
        let is_there = self.disk.ledgers.borrow().contains_key(session);
        is_there.then(|| self.open(session)).transpose()
    }

    fn sessions(&self) -> io::Result<Vec<[u8; SESSION_LEN]>> {
        let mut sessions: Vec<_> = self.disk.ledgers.borrow().keys().copied().collect();
        sessions.sort_unstable(); // A seed repeats everything.
        Ok(sessions)
    }

    fn remove(&self, session: &[u8; SESSION_LEN]) {
        self.disk.ledgers.borrow_mut().remove(session);
    }

    fn remove_old(&self) {
        assert!(self.disk.renewals.get() > self.disk.removals.get(), "the live are renewed first");
        self.disk.removals.set(self.disk.removals.get() + 1);
    }
}

struct SimLedger {
    disk: Rc<Disk>,
    handle: Handle,
    session: [u8; SESSION_LEN],
    life: u64,
}

impl SimLedger {
    /// Changes what is known of the session's locks, if it has had any and this server lives.
    fn change(&self, change: impl FnOnce(&mut Locker)) {
        if self.disk.life.get() == self.life {
            self.disk.lockers.borrow_mut().get_mut(&self.session).map(change);
        }
    }
}

impl Ledger for SimLedger {
    fn load(&self) -> io::Result<Vec<Option<Record>>> {
        let ledgers = self.disk.ledgers.borrow();
        Ok(ledgers.get(&self.session).cloned().unwrap_or(vec![None; RECORDS as usize]))
    }

    fn write(&self, slot: u32, record: &Record) -> io::Result<()> {
        assert_eq!(self.disk.life.get(), self.life, "a dead server writes");
        if self.disk.is_broken.get() && matches!(record.state, State::Done(_)) {
            return Err(Errno::ROFS.into());
        }
        let mut ledgers = self.disk.ledgers.borrow_mut();
        let ledger = ledgers.entry(self.session).or_insert(vec![None; RECORDS as usize]);
        ledger[slot as usize] = Some(*record);
        Ok(())
    }

    fn note_locks(&self) -> io::Result<()> {
        if self.disk.life.get() != self.life {
            return Err(Errno::IO.into()); // Of a dead server's task whose time to ask again came.
        }
        self.disk.lockers.borrow_mut().entry(self.session).or_default();
        self.disk.ledgers.borrow_mut().entry(self.session).or_insert(vec![None; RECORDS as usize]);
        Ok(())
    }

    fn locks(&self) -> io::Result<LocksNoted> {
        let (now, mut noted) = (self.handle.now(), LocksNoted::Settled);
        self.change(|(server, since)| {
            if *server != self.life {
                noted = LocksNoted::Awaited(now.saturating_since(*since.get_or_insert(now)));
            }
        });
        Ok(noted)
    }

    fn comes(&self) {
        self.change(|(_, since)| *since = since.map(|_| self.handle.now()));
    }

    fn have_locks(&self) {
        self.change(|known| *known = (self.life, None));
    }

    fn lose_locks(&self) {
        self.disk.lockers.borrow_mut().remove(&self.session);
    }

    fn renew(&self) {
        self.disk.renewals.set(self.disk.renewals.get() + 1);
    }
}
