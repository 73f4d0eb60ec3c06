//! Processes that wait in a circle for each other's record locks: who closes the circle is refused
//! (`EDEADLK`), as natively.
//!
//! Only the locks and the waits of this server's clients count. Open files and whole files
//! have no part in it, as with the kernel. A client that waits asks again and again; while it does
//! not, its wait is not known, so a circle is found by whoever asks next.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashSet},
};

use rustix::io::Errno;
use storage::{Locking, names::Identity};
use wire::SESSION_LEN;

use super::service::Service;
use crate::ranges::Range;

/// A process, by its session and its number there.
pub(super) type Owner = ([u8; SESSION_LEN], u16);

/// The lock a process waits for.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) identity: Identity,
    pub(super) range: Range,
}

/// The waits there are, of each process with a number.
#[derive(Default)]
pub(super) struct Waits {
    wanted: RefCell<BTreeMap<(Owner, u64), Wanted>>,
    next: Cell<u64>,
}

/// A wait, which ends when this is dropped.
pub(super) struct Waiting<'a> {
    waits: &'a Waits,
    key: (Owner, u64),
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waits.wanted.borrow_mut().remove(&self.key);
    }
}

impl<S: Locking> Service<S> {
    /// A process begins to wait.
    ///
    /// # Errors
    ///
    /// `EDEADLK`: for itself.
    pub(super) fn wait(&self, owner: Owner, wanted: Wanted) -> Result<Waiting<'_>, Errno> {
        if self.closes_circle(owner, wanted) {
            return Err(Errno::DEADLK);
        }
        let number = self.waits.next.get();
        self.waits.next.set(number + 1);
        let key = (owner, number);
        self.waits.wanted.borrow_mut().insert(key, wanted);
        Ok(Waiting { waits: &self.waits, key })
    }

    fn closes_circle(&self, owner: Owner, wanted: Wanted) -> bool {
        let waits = self.waits.wanted.borrow();
        let (mut open, mut seen) = (vec![(owner, wanted)], HashSet::new());
        while let Some((waiter, wanted)) = open.pop() {
            for holder in self.holders(wanted).filter(|holder| *holder != waiter) {
                if holder == owner {
                    return true;
                }
                if seen.insert(holder) {
                    let its = waits.range((holder, 0)..=(holder, u64::MAX));
                    open.extend(its.map(|(_, wanted)| (holder, *wanted)));
                }
            }
        }
        false
    }

    /// The processes whose locks are in the way, the one that waits perhaps among them.
    fn holders(&self, wanted: Wanted) -> impl Iterator<Item = Owner> {
        let mut holders = Vec::new();
        for (name, session) in &*self.sessions.borrow() {
            let Wanted { identity, range } = wanted;
            let processes = session.locks.processes.borrow();
            let of_file = processes.range((identity, 0)..=(identity, u16::MAX));
            let in_the_way = of_file.filter(|(_, holder)| holder.ranges.conflict_with(range));
            holders.extend(in_the_way.map(|((_, process), _)| (*name, *process)));
        }
        holders.into_iter()
    }
}
