//! Locks at the server. The kernel has them, so that every other program on the server's file
//! system, and every other server of it, sees them too.
//!
//! A lock of an open file is set on the descriptor of its handle. The record locks of a process are
//! set on a descriptor of its own for each inode, since all its open files share them. Nothing
//! blocks: whoever waits tries again when a lock of this server's clients was given up, and every
//! [`POLL`] for those of others. A wait ends after [`WAIT_MAX`], and the client asks again: so what
//! it has under way stays bounded, and a connection that breaks leaves no wait behind.
//!
//! # After a server's death
//!
//! Its locks are gone. For a time, or until all sessions that had any have come back, the next
//! server gives locks to none but those who had them; and only in that time (see
//! [`grace`](super::grace)). So a lock is got again with nobody having had it meanwhile, or it is
//! lost, which its owner is told.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashSet},
    io,
    rc::Rc,
    time::Duration,
};

use executor::{Notify, first};
use rustix::io::Errno;
use storage::{
    Locking,
    lock_call::LockCall,
    names::{Answer, Identity},
    verdict::errno,
};
use wire::{LockKind, LockOwner};

use super::{
    deadlock::Wanted,
    service::{Service, Session, nothing},
};
use crate::ranges::{Range, Ranges};

/// Longest that a request waits for a lock before it says that it is taken.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// Between two looks at the locks of others.
const POLL: Duration = Duration::from_millis(10);
/// Processes of a session that may have record locks, counted for each file.
const OWNERS_MAX: usize = 4096;
/// Places in which unlocks are counted, by inode: one for several costs a vain try.
const PLACES: usize = 64;

/// Descriptor that has the record locks of a process in a file.
pub(super) struct Holder<S: Locking> {
    file: Rc<S::File>,
    /// Ranges that the kernel has locked, without their owners.
    pub(super) ranges: Ranges,
}

/// By inode and process.
type Holders<S> = BTreeMap<(Identity, u16), Holder<S>>;

/// Locks of a session's clients.
pub(super) struct Locks<S: Locking> {
    pub(super) processes: RefCell<Holders<S>>,
    /// Handles that have locks of their own.
    handles: RefCell<HashSet<u32>>,
    /// True if the ledger says that there were any.
    pub(super) is_noted: Cell<bool>,
    /// The session has had all back, though it may not have heard so, and ask again.
    pub(super) is_settled: Cell<bool>,
}

impl<S: Locking> Default for Locks<S> {
    fn default() -> Self {
        let (processes, handles) = (RefCell::default(), RefCell::default());
        Self { processes, handles, is_noted: Cell::new(false), is_settled: Cell::new(false) }
    }
}

impl<S: Locking> Locks<S> {
    /// Returns the descriptors of processes' record locks, to close them.
    pub(super) fn holders(&self) -> impl Iterator<Item = S::File> + use<S> {
        let holders = self.processes.take().into_values();
        holders.filter_map(|holder| Rc::into_inner(holder.file))
    }
}

/// Tells those who wait that something was unlocked.
pub(super) struct Unlocks {
    counts: [Cell<u64>; PLACES],
    news: Notify,
}

impl Unlocks {
    pub(super) fn new() -> Self {
        Self { counts: [const { Cell::new(0) }; PLACES], news: Notify::new() }
    }

    fn count(&self, (_, inode): Identity) -> &Cell<u64> {
        let place = usize::try_from(inode % PLACES as u64).unwrap_or_default();
        self.counts.get(place).expect("within the places")
    }

    fn happened(&self, identity: Identity) {
        let count = self.count(identity);
        count.set(count.get() + 1);
        self.news.notify_all();
    }
}

impl<S: Locking> Service<S> {
    /// Takes a lock, or gives it up.
    pub(super) async fn lock(
        &self,
        session: &Session<S>,
        handle: u32,
        call: LockCall,
    ) -> Result<Answer, Errno> {
        if call.is_unlock() {
            return self.unlock(session, handle, call).await;
        }
        let is_grace = || self.grace.expire(self.handle.now(), &*self.shelf);
        // While others are awaited, too, one that is not may have lost its locks to somebody.
        let is_awaited = || is_grace() && self.grace.awaits(session.name());
        if call.terms.reclaims && !is_awaited() && !session.locks.is_settled.get() {
            return Err(Errno::NOLCK);
        }
        let end = self.handle.now() + WAIT_MAX;
        let (mut waiting, mut is_tried) = (None, false);
        loop {
            let identity = session.file(handle)?.identity();
            let count = self.unlocks.count(identity);
            let seen = count.get();
            let tried = if is_grace() && !call.terms.reclaims {
                Err(Errno::AGAIN)
            } else {
                self.try_lock(session, handle, call).await
            };
            let now = self.handle.now();
            if tried == Err(Errno::AGAIN) && call.terms.owner == LockOwner::Whole && !is_tried {
                self.unlocks.happened(identity); // It may have been shared, and is not any more.
            }
            is_tried = true;
            match tried {
                Err(Errno::AGAIN) if call.terms.waits && now < end => {}
                Err(errno) => return Err(errno),
                Ok(()) => {
                    if call.terms.kind == LockKind::Shared {
                        self.unlocks.happened(identity); // It may have been exclusive.
                    }
                    return Ok(Answer::default());
                }
            }
            if call.terms.owner == LockOwner::Process && waiting.is_none() {
                let owner = (*session.name(), call.terms.process);
                waiting = Some(self.wait(owner, Wanted { identity, range: Range::of(call) })?);
            }
            // Sessions that are gone for good may have it.
            self.forget_old();
            let unlocked = self.unlocks.news.until(|| count.get() != seen);
            first(unlocked, self.handle.sleep_until((now + POLL).min(end))).await;
        }
    }

    async fn try_lock(
        &self,
        session: &Session<S>,
        handle: u32,
        call: LockCall,
    ) -> Result<(), Errno> {
        if !session.locks.is_noted.get() {
            session.ledger.note_locks().map_err(|_| Errno::NOLCK)?;
            session.locks.is_noted.set(true);
            if !self.grace.awaits(session.name()) {
                session.ledger.have_locks();
            }
        }
        loop {
            let holder = self.holder(session, handle, call).await?;
            self.storage.lock(&holder, call).await.map_err(refusal)?;
            if session.is_holder(handle, call, &holder) {
                session.note(handle, call);
                return Ok(());
            }
            // The process has closed the file meanwhile, and with it given up all its locks.
        }
    }

    async fn unlock(
        &self,
        session: &Session<S>,
        handle: u32,
        call: LockCall,
    ) -> Result<Answer, Errno> {
        let open = session.file(handle)?;
        let identity = open.identity();
        let holder = match call.terms.owner {
            LockOwner::Process => {
                session.note(handle, call);
                let key = (identity, call.terms.process);
                let mut processes = session.locks.processes.borrow_mut();
                let holder = processes.get(&key).map(|holder| Rc::clone(&holder.file));
                if (call.start, call.len) == (0, 0) {
                    processes.remove(&key);
                }
                holder
            }
            LockOwner::OpenFile | LockOwner::Whole => Some(Rc::new(open.file)),
        };
        if let Some(holder) = holder {
            let done = self.storage.lock(&holder, call).await;
            self.unlocks.happened(identity);
            let is_process = call.terms.owner == LockOwner::Process;
            // None while it may have other locks.
            if let Some(last) = Rc::into_inner(holder).filter(|_| is_process) {
                self.storage.close(last).await.ok(); // Nothing was written to it.
            }
            done.map_err(errno)?;
        }
        Ok(Answer::default())
    }

    /// A session has asked for all that an earlier server had of it.
    pub(super) fn settle_locks(&self, session: &Session<S>) {
        session.locks.is_settled.set(true);
        session.ledger.have_locks();
        self.grace.settle(session.name());
    }

    /// Looks for a lock that is in the way.
    pub(super) async fn find_lock(
        &self,
        session: &Session<S>,
        handle: u32,
        call: LockCall,
    ) -> Result<Answer, Errno> {
        let holder = self.holder(session, handle, call).await?;
        let found = self.storage.find_lock(&holder, call).await;
        let found = found.map_err(errno)?;
        Ok(found.map_or_else(Answer::default, |found| Answer {
            value: 1,
            bytes: found.encode().to_vec(),
        }))
    }

    /// A handle is closed: its locks are gone on return.
    pub(super) async fn close(&self, session: &Session<S>, handle: u32) -> Result<Answer, Errno> {
        let Some(open) = session.remove(handle) else { return Ok(Answer::default()) };
        if session.locks.handles.borrow_mut().remove(&handle) {
            // Operations that have just ended may keep the descriptor open for a moment.
            for owner in [LockOwner::OpenFile, LockOwner::Whole] {
                let done = self.storage.lock(&open.file, LockCall::unlock_all(owner, 0)).await;
                if let Err(error) = done {
                    tracing::debug!("a lock ends with its descriptor only: {error}");
                }
            }
            self.unlocks.happened(open.identity());
        }
        nothing(self.storage.close(open.file).await)
    }

    /// The open file that has, or will have, the locks of an owner.
    async fn holder(
        &self,
        session: &Session<S>,
        handle: u32,
        call: LockCall,
    ) -> Result<Rc<S::File>, Errno> {
        let open = session.file(handle)?;
        if call.terms.owner != LockOwner::Process {
            session.locks.handles.borrow_mut().insert(handle);
            return Ok(Rc::new(open.file));
        }
        let key = (open.identity(), call.terms.process);
        if let Some(known) = session.locks.processes.borrow().get(&key) {
            return Ok(Rc::clone(&known.file));
        }
        self.admit_one(session).map_err(|_| Errno::NOLCK)?;
        let made = self.storage.another(&open.file).await.map_err(errno)?;
        let mut processes = session.locks.processes.borrow_mut();
        if processes.len() >= OWNERS_MAX {
            return Err(Errno::NOLCK);
        }
        let made = || Holder { file: Rc::new(made), ranges: Ranges::default() };
        Ok(Rc::clone(&processes.entry(key).or_insert_with(made).file))
    }
}

impl<S: Locking> Session<S> {
    /// True if `holder` is still what has the locks of an owner.
    fn is_holder(&self, handle: u32, call: LockCall, holder: &Rc<S::File>) -> bool {
        let Ok(open) = self.file(handle) else { return true };
        let key = (open.identity(), call.terms.process);
        let processes = self.locks.processes.borrow();
        call.terms.owner != LockOwner::Process
            || processes.get(&key).is_some_and(|now| Rc::ptr_eq(&now.file, holder))
    }

    /// Takes down what a process has locked or unlocked.
    fn note(&self, handle: u32, call: LockCall) {
        let Ok(open) = self.file(handle) else { return };
        let mut processes = self.locks.processes.borrow_mut();
        let holder = processes.get_mut(&(open.identity(), call.terms.process));
        if let Some(holder) = holder.filter(|_| call.terms.owner == LockOwner::Process) {
            holder.ranges.set(Range::of(call));
        }
    }
}

/// Some file systems say of a lock that is taken that access is denied.
fn refusal(error: io::Error) -> Errno {
    match errno(error) {
        Errno::ACCESS => Errno::AGAIN,
        errno => errno,
    }
}
