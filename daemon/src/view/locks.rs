//! Locks that are taken through a view: they are the server's, as those of clients are.
//!
//! A record lock belongs to a process, which the kernel names by a number of 64 bits and the wire
//! by one of 16. Numbers beyond those of sessions are given out here, to as many processes as have
//! locks.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
};

use executor::Notify;
use fuse::Lock;
use rustix::io::Errno;
use storage::{Locking as _, lock_call::LockCall, verdict::errno};
use wire::{LockKind, LockOwner, LockTerms};

use super::{View, files::OpenFile};
use crate::node::Mail;

/// The first number that no session has.
const FIRST: u16 = 1024;
const _: () = assert!(FIRST as usize >= shm::SESSIONS_MAX);

const READ: u32 = 0;
const WRITE: u32 = 1;
const UNLOCK: u32 = 2;

/// The locks, their owners, and those who wait for some.
#[derive(Default)]
pub(super) struct Locks {
    owners: RefCell<HashMap<u64, Owner>>,
    next: Cell<u16>,
    /// The requests that wait.
    waiting: RefCell<HashSet<u64>>,
    releases: Releases,
}

/// The releases of files that are under way, in the order in which the kernel told of them.
#[derive(Default)]
struct Releases {
    begun: Cell<u64>,
    /// The node that each is of, by its number.
    under_way: RefCell<HashMap<u64, u64>>,
    ended: Notify,
}

impl Releases {
    fn begin(&self, node: u64) -> u64 {
        let number = self.begun.get() + 1;
        self.begun.set(number);
        self.under_way.borrow_mut().insert(number, node);
        number
    }

    fn end(&self, number: u64) {
        self.under_way.borrow_mut().remove(&number);
        self.ended.notify_all();
    }

    /// Waits for those of a node that have begun.
    async fn until_ended(&self, node: u64) {
        let begun = self.begun.get();
        let is_earlier = |(number, of): (&u64, &u64)| *number <= begun && *of == node;
        self.ended.until(|| !self.under_way.borrow().iter().any(is_earlier)).await;
    }
}

/// A process that has locked files.
struct Owner {
    number: u16,
    nodes: HashSet<u64>,
}

impl Locks {
    /// Has a request wait no longer than until its server has answered once more.
    pub(super) fn interrupt(&self, unique: u64) {
        self.waiting.borrow_mut().remove(&unique);
    }

    /// The number of a process; one is given to it if it has none.
    fn number(&self, owner: u64, node: u64) -> Result<u16, Errno> {
        let mut owners = self.owners.borrow_mut();
        if let Some(known) = owners.get_mut(&owner) {
            known.nodes.insert(node);
            return Ok(known.number);
        }
        let taken: HashSet<_> = owners.values().map(|owner| owner.number).collect();
        for _ in FIRST..u16::MAX {
            let number = self.next.get().max(FIRST);
            self.next.set(number.checked_add(1).unwrap_or(FIRST));
            if !taken.contains(&number) {
                owners.insert(owner, Owner { number, nodes: HashSet::from([node]) });
                return Ok(number);
            }
        }
        Err(Errno::NOLCK)
    }

    /// A process closes a file; its number, if it had locked it.
    fn close(&self, owner: u64, node: u64) -> Option<u16> {
        let mut owners = self.owners.borrow_mut();
        let known = owners.get_mut(&owner)?;
        let number = known.nodes.remove(&node).then_some(known.number);
        if known.nodes.is_empty() {
            owners.remove(&owner);
        }
        number
    }
}

impl View {
    /// Closes a file that the kernel has released, and gives up its locks.
    pub(super) async fn release_locked(&self, file: &OpenFile) {
        let number = self.locks.releases.begin(file.node);
        self.close(file).await;
        self.locks.releases.end(number);
    }

    /// Takes a lock, or gives it up. `waits`: the request waits until it has it.
    pub(super) async fn set_lock(
        &self,
        handle: u64,
        owner: u64,
        lock: Lock,
        is_whole: bool,
        waits: Option<u64>,
    ) -> Result<(), Errno> {
        let file = self.handles.borrow().file(handle)?;
        let call = self.lock_call(&file, owner, lock, is_whole)?;
        if !is_whole {
            file.lockers.borrow_mut().insert(owner);
        }
        // The kernel says once that a request is to end, and then waits for its answer only.
        self.locks.waiting.borrow_mut().extend(waits);
        self.drain(file.identity).await;
        // A program's close returns before the kernel tells of it: what was locked may not be yet.
        self.locks.releases.until_ended(file.node).await;
        let done = loop {
            let terms = LockTerms { waits: waits.is_some() && !call.is_unlock(), ..call.terms };
            match self.try_lock(&file, LockCall { terms, ..call }).await {
                Err(Errno::AGAIN) if waits.is_some() => {}
                done => break done,
            }
            // A server answers after a while. A lock that it was asked for comes to it once.
            let is_waited = |unique: &u64| self.locks.waiting.borrow().contains(unique);
            if !waits.as_ref().is_some_and(is_waited) {
                break Err(Errno::INTR);
            }
        };
        if let Some(unique) = waits {
            self.locks.waiting.borrow_mut().remove(&unique);
        }
        done
    }

    async fn try_lock(&self, file: &OpenFile, call: LockCall) -> Result<(), Errno> {
        let located = file.located()?;
        let ended = self.core.node.lockers_ended();
        let done = self.core.storage.lock(&located, call).await.map_err(errno);
        if done != Err(Errno::AGAIN) || call.terms.waits {
            return done;
        }
        // Whoever has it may have ended.
        self.core.node.ask_all(Mail::Reap).await;
        if self.core.node.lockers_ended() == ended {
            return done;
        }
        self.core.storage.lock(&located, call).await.map_err(errno)
    }

    /// A lock that is in the way of this one, or an unlock.
    pub(super) async fn find_lock(
        &self,
        handle: u64,
        owner: u64,
        lock: Lock,
        is_whole: bool,
    ) -> Result<Lock, Errno> {
        let file = self.handles.borrow().file(handle)?;
        let call = self.lock_call(&file, owner, lock, is_whole)?;
        let found = self.core.storage.find_lock(&file.located()?, call).await.map_err(errno)?;
        Ok(match found {
            None => Lock { kind: UNLOCK, ..lock },
            Some(found) => Lock {
                start: found.start,
                end: match found.len {
                    0 => i64::MAX.unsigned_abs(),
                    len => found.start.saturating_add(len - 1),
                },
                kind: if found.kind == LockKind::Exclusive { WRITE } else { READ },
                process: 0,
            },
        })
    }

    /// A process closes a descriptor of a file: its record locks on that are gone.
    pub(super) async fn unlock_all(&self, file: &OpenFile, owner: u64) {
        let Some(process) = self.locks.close(owner, file.node) else { return };
        let call = LockCall::unlock_all(LockOwner::Process, process);
        let Ok(located) = file.located() else { return };
        if let Err(why) = self.core.storage.lock(&located, call).await {
            tracing::debug!("the locks of a file that was closed are gone already: {why}");
        }
    }

    fn lock_call(
        &self,
        file: &OpenFile,
        owner: u64,
        lock: Lock,
        is_whole: bool,
    ) -> Result<LockCall, Errno> {
        let kind = match lock.kind {
            READ => LockKind::Shared,
            WRITE => LockKind::Exclusive,
            UNLOCK => LockKind::Unlocked,
            _ => return Err(Errno::INVAL),
        };
        let (whose, process) = match is_whole {
            true => (LockOwner::Whole, 0),
            false => (LockOwner::Process, self.locks.number(owner, file.node)?),
        };
        let terms = LockTerms { kind, owner: whose, waits: false, reclaims: false, process };
        let is_open = is_whole || lock.end >= i64::MAX.unsigned_abs();
        let len = if is_open { 0 } else { lock.end - lock.start + 1 };
        let start = if is_whole { 0 } else { lock.start };
        Ok(LockCall { terms, start, len })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    #[test]
    fn lock_waits_for_the_releases_of_its_file_that_came_before() {
        let releases = Releases::default();
        let (first, other) = (releases.begin(2), releases.begin(3));
        let mut wait = pin!(releases.until_ended(2));
        let mut context = Context::from_waker(Waker::noop());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        let later = releases.begin(2);
        releases.end(other);
        assert!(wait.as_mut().poll(&mut context).is_pending());
        releases.end(first);
        assert!(wait.as_mut().poll(&mut context).is_ready(), "and not for {later}");
    }

    #[test]
    fn process_keeps_its_number_until_it_has_closed_all_it_locked() {
        let locks = Locks::default();
        let number = locks.number(77, 2).expect("free");
        assert!(number >= FIRST);
        assert_eq!(locks.number(77, 3), Ok(number));
        assert_ne!(locks.number(78, 2), Ok(number));
        assert_eq!(locks.close(77, 2), Some(number));
        assert_eq!(locks.close(77, 2), None);
        assert_eq!(locks.close(77, 3), Some(number));
        assert_ne!(locks.number(77, 2), Ok(number), "others are free for longer");
    }
}
