//! The large tables of a connection. It is there before the connection is, which is made on
//! whatever stack the first write comes from, and that may be a signal handler's.

use shm::{LANES, Lock, lane::Requester};

use super::{Bundle, HeldFolders, Shares};
use crate::{arena::Arena, slots::Slots};

/// The large parts of one connection.
pub(crate) struct Tables {
    pub(crate) slots: Slots,
    pub(crate) arena: Lock<Arena>,
    pub(crate) bundle: Lock<Bundle>,
    pub(crate) folders: HeldFolders,
    pub(crate) lanes: [Lock<Requester, false>; LANES],
    pub(crate) shares: Shares,
}

impl Tables {
    /// Those of a connection that is yet to be made.
    pub(crate) const fn new() -> Self {
        Self {
            slots: Slots::new(0),
            arena: Lock::new(Arena::new(0)),
            bundle: Lock::new(Bundle::new()),
            folders: HeldFolders::new(),
            lanes: [const { Lock::new_interruptible(Requester::new()) }; LANES],
            shares: Shares::new(),
        }
    }

    /// Frees them for the child of a fork, which may look at those of its parent.
    pub(crate) fn break_open(&self) {
        self.lanes.iter().for_each(Lock::break_open);
        self.arena.break_open();
        self.bundle.break_open();
    }
}
