//! Files in memory that take their time, finish in any order, and sometimes fail.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    rc::Rc,
    time::Duration,
};

use executor::{Credits, Handle};
use fastrand::Rng;
use rustix::{fs::SeekFrom, io::Errno};
use shm::copy;
use storage::{
    Locking, Storage,
    lock_call::LockCall,
    names::{Answer, FileCall, Identity, NameCall, OpenCall},
};
use uring::Buffers;
use wire::Status;

use crate::session_storage::SessionStorage;

/// Longest time an operation takes before, and after, it has its effect.
const LATENCY_MAX_US: u64 = 60;
pub(super) const DEVICE: u64 = 7;
const REGULAR: u32 = 0o100_644;

/// The storage of one simulated machine, seen from one executor.
#[derive(Clone)]
pub(super) struct SimStorage {
    pub(super) disk: Rc<Disk>,
    pub(super) handle: Handle,
    /// As of a server, if transfers need any.
    pub(super) permits: Option<Credits>,
}

/// Stored data, and injected faults.
pub(super) struct Disk {
    pub(super) files: RefCell<HashMap<u64, Stored>>,
    pub(super) rng: RefCell<Rng>,
    /// Inodes, and the locks on them.
    pub(super) locks: RefCell<Vec<(u64, LockCall)>>,
    /// One in this many writes fails, and one is short; none when zero.
    pub(super) fault_odds: u32,
}

impl Disk {
    /// Of the locks here none overlaps another in part.
    fn set_lock(&self, inode: u64, call: LockCall) {
        let whose = |call: &LockCall| (call.terms.owner, call.terms.process);
        let is_all = (call.start, call.len) == (0, 0);
        let mut locks = self.locks.borrow_mut();
        locks.retain(|(of, held)| {
            let is_there = is_all || (held.start, held.len) == (call.start, call.len);
            *of != inode || whose(held) != whose(&call) || !is_there
        });
        if !call.is_unlock() {
            locks.push((inode, call));
        }
    }
}

/// A file.
#[derive(Default)]
pub(super) struct Stored {
    pub(super) bytes: Vec<u8>,
    /// Content at the last sync.
    pub(super) durable: Vec<u8>,
    /// Bytes whose write failed: what stands there is not promised.
    pub(super) tainted: Vec<bool>,
}

/// An open file.
pub(super) struct Open {
    pub(super) inode: u64,
    pub(super) appends: bool,
    /// A write is under way.
    writing: Cell<bool>,
    /// The kernel's position, which the client's own writes move.
    pub(super) position: Cell<u64>,
    /// No write ends.
    pub(super) is_stalled: Cell<bool>,
    /// Writes that failed.
    pub(super) failures: Cell<u32>,
}

impl Open {
    pub(super) fn new(inode: u64, appends: bool) -> Rc<Self> {
        Rc::new(Self {
            inode,
            appends,
            writing: Cell::new(false),
            position: Cell::new(0),
            is_stalled: Cell::new(false),
            failures: Cell::new(0),
        })
    }
}

impl SimStorage {
    async fn pause(&self) {
        let us = self.disk.rng.borrow_mut().u64(0..LATENCY_MAX_US);
        self.handle.sleep(Duration::from_micros(us)).await;
    }

    pub(super) fn size_of(&self, file: &Open) -> u64 {
        let files = self.disk.files.borrow();
        files.get(&file.inode).map_or(0, |stored| stored.bytes.len() as u64)
    }

    /// Writes at the kernel's position, which is set, or at the end, as a client itself does.
    pub(super) async fn write_at_position(
        &self,
        file: &Open,
        at: u64,
        bytes: &[u8],
    ) -> io::Result<usize> {
        assert!(!file.writing.replace(true), "two writes to one file at a time");
        self.pause().await;
        let result = self.put(file, at, bytes);
        if let Ok(len) = result {
            let at = if file.appends { self.size_of(file) } else { at + len as u64 };
            file.position.set(at);
        }
        file.writing.set(false);
        result
    }

    fn happens(&self) -> bool {
        let odds = self.disk.fault_odds;
        odds > 0 && self.disk.rng.borrow_mut().u32(0..odds) == 0
    }

    fn put(&self, open: &Open, at: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut files = self.disk.files.borrow_mut();
        let stored = files.entry(open.inode).or_default();
        let at = if open.appends { stored.bytes.len() } else { usize::try_from(at).unwrap() };
        if self.happens() {
            let end = at + bytes.len();
            if stored.tainted.len() < end {
                stored.tainted.resize(end, false);
            }
            stored.tainted[at..end].fill(true);
            open.failures.set(open.failures.get() + 1);
            return Err(if at % 2 == 0 { Errno::NOSPC } else { Errno::IO }.into());
        }
        let is_short = self.happens() && bytes.len() > 1;
        let len =
            if is_short { self.disk.rng.borrow_mut().usize(1..bytes.len()) } else { bytes.len() };
        if stored.bytes.len() < at + len {
            stored.bytes.resize(at + len, 0);
        }
        stored.bytes[at..at + len].copy_from_slice(&bytes[..len]);
        // What was refused there has been tried again, or is older; of an append it may be missing.
        let end = if open.appends { 0 } else { stored.tainted.len().min(at + len) };
        stored.tainted.get_mut(at..end).unwrap_or_default().fill(false);
        Ok(len)
    }
}

impl Storage for SimStorage {
    type File = Rc<Open>;

    async fn on(&self, file: &Rc<Open>, call: FileCall) -> io::Result<Answer> {
        match call {
            FileCall::Status => {
                let (inode, size) = (file.inode, self.size_of(file));
                let found =
                    Status { device: DEVICE, inode, mode: REGULAR, size, ..Status::default() };
                return Ok(Answer::status(&found));
            }
            FileCall::Sync { .. } => {
                self.pause().await;
                if let Some(stored) = self.disk.files.borrow_mut().get_mut(&file.inode) {
                    stored.durable.clone_from(&stored.bytes);
                }
                self.pause().await;
            }
            FileCall::Seek(to) => {
                assert_eq!(to, SeekFrom::Current(0));
                return Ok(Answer::value(file.position.get()));
            }
            _ => return Err(Errno::NOSYS.into()),
        }
        Ok(Answer::default())
    }

    async fn read(&self, file: &Rc<Open>, at: u64, into: Buffers) -> io::Result<usize> {
        self.pause().await;
        let at = usize::try_from(at).unwrap();
        let mut done = 0;
        for buffer in into.as_slice() {
            let files = self.disk.files.borrow();
            let bytes = files.get(&file.inode).map_or(&[][..], |stored| &stored.bytes);
            let rest = bytes.get(at + done..).unwrap_or_default();
            done += copy::copy_in(buffer.bytes(), rest);
        }
        self.pause().await;
        Ok(done)
    }

    async fn write(&self, file: &Rc<Open>, at: u64, from: Buffers) -> io::Result<usize> {
        assert!(!file.writing.replace(true), "two writes to one file at a time");
        self.pause().await;
        if file.is_stalled.get() {
            std::future::pending::<()>().await;
        }
        let mut bytes = vec![0; from.len()];
        let mut done = 0;
        for buffer in from.as_slice() {
            done += copy::copy_out(&mut bytes[done..], buffer.bytes());
        }
        let result = self.put(file, at, &bytes);
        self.pause().await;
        file.writing.set(false);
        result
    }

    async fn open(&self, _: OpenCall) -> io::Result<(Rc<Open>, Status)> {
        Err(Errno::NOSYS.into())
    }

    async fn name(&self, _: NameCall) -> io::Result<Answer> {
        Err(Errno::NOSYS.into())
    }
}

impl Locking for SimStorage {
    async fn lock(&self, file: &Rc<Open>, call: LockCall) -> io::Result<()> {
        self.pause().await;
        self.disk.set_lock(file.inode, call);
        self.pause().await;
        Ok(())
    }
}

impl SessionStorage for SimStorage {
    fn identify(&self, file: &Rc<Open>) -> Option<Identity> {
        Some((DEVICE, file.inode))
    }

    fn permits(&self, _: &Rc<Open>) -> Option<Credits> {
        self.permits.clone()
    }

    async fn fetch(&self, file: &Rc<Open>, at: u64, len: usize) -> io::Result<usize> {
        self.pause().await;
        let left = usize::try_from(self.size_of(file).saturating_sub(at)).unwrap();
        Ok(left.min(len))
    }

    fn describe(&self) -> String {
        "simulation".to_owned()
    }
}
