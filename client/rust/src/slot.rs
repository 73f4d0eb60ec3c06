//! One file's slot at the daemon: taken for a file that is about to be opened, and the open file's
//! link to the daemon from then on.

use core::{fmt, mem::ManuallyDrop};

use shm::staging::FileSlot;

use crate::{connection::Connection, recorder::At, slots::Holder};

/// A slot that no other file gets until this is dropped.
pub(crate) struct Slot {
    connection: &'static Connection,
    number: u32,
    shared: &'static FileSlot,
}

impl Slot {
    /// Takes a slot, for a file of which nothing is staged, and `of` which there are so many.
    pub(crate) fn take(connection: &'static Connection, of: Holder) -> Option<Self> {
        let number = connection.slots.take(of)?;
        let shared = connection.session.shared().file(number as usize)?;
        shared.reset();
        Some(Self { connection, number, shared })
    }

    pub(crate) fn connection(&self) -> &'static Connection {
        self.connection
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn shared(&self) -> &'static FileSlot {
        self.shared
    }

    /// Makes it an open file's, until the link is [ended](Link::end).
    pub(crate) fn into_link(self, is_counted: bool) -> Link {
        let Self { connection, number, shared } = *ManuallyDrop::new(self);
        Link { connection, slot: number, shared, is_counted }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connection.slots.give(self.number);
    }
}

/// A file's slot at the daemon.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) connection: &'static Connection,
    pub(crate) slot: u32,
    pub(crate) shared: &'static FileSlot,
    /// True if this side counts the file in the table of inodes; else the daemon does.
    pub(crate) is_counted: bool,
}

impl Link {
    /// The slot, as a trace names it.
    pub(crate) fn at(self) -> At {
        At { session: self.connection.number(), place: self.slot as usize }
    }

    /// Keeps the slot for a request that is made while its file, which is locked now, is not: if
    /// another thread ends the link meanwhile the request is refused with `EBADF`.
    pub(crate) fn keep(self) -> Slot {
        self.connection.slots.hold(self.slot);
        self.as_slot()
    }

    /// The daemon has let go of the file: its slot may be another one's.
    pub(crate) fn end(self) {
        drop(self.as_slot());
    }

    fn as_slot(self) -> Slot {
        let Self { connection, slot, shared, .. } = self;
        Slot { connection, number: slot, shared }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("slot", &self.slot).finish_non_exhaustive()
    }
}
