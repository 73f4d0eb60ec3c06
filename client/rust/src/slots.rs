//! Which file slots of the session are taken.
//!
//! A slot is its file's, and each request's of a queue that names it: it gets no other file before
//! the daemon has answered all of those.

use shm::{FILES, staging::FileSlot};

use crate::{connection::Connection, file::Link};

/// Side that has the file of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The daemon, by a descriptor: there are as many as the session's credit.
    Daemon,
    /// A server, or the multifile that the file is in: there are as many as slots.
    Server,
}

/// A slot that no other file gets until this is dropped.
pub(crate) struct Slot {
    connection: &'static Connection,
    number: u32,
    shared: &'static FileSlot,
    /// True if this is one of its users.
    is_held: bool,
}

impl Slot {
    /// Takes a slot, for a file of which nothing is staged, and `of` which there are so many.
    pub(crate) fn take(connection: &'static Connection, of: Holder) -> Option<Self> {
        let number = connection.slots.lock().ok()?.take(of)?;
        let shared = connection.session.shared().file(number as usize)?;
        shared.reset();
        Some(Self { connection, number, shared, is_held: true })
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

    /// True if it stays taken. Else this thread's code was interrupted while it had the slots, and
    /// none changes hands before that goes on.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Makes it an open file's, until the link is [ended](Link::end).
    pub(crate) fn into_link(mut self, is_counted: bool) -> Link {
        debug_assert!(self.is_held, "slot {} was taken", self.number);
        self.is_held = false;
        let Self { connection, number, shared, .. } = self;
        Link { connection, slot: number, shared, is_counted }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.is_held {
            if let Ok(mut slots) = self.connection.slots.lock() {
                slots.give(self.number);
            }
        }
    }
}

impl Link {
    /// Keeps the slot for a request that is made while its file, which is locked now, is not: if
    /// another thread ends the link meanwhile the request is refused with `EBADF`.
    pub(crate) fn keep(self) -> Slot {
        let slots = self.connection.slots.lock();
        let is_held = slots.map(|mut slots| slots.hold(self.slot)).is_ok();
        self.slot(is_held)
    }

    /// The daemon has let go of the file: its slot may be another one's.
    pub(crate) fn end(self) {
        drop(self.slot(true));
    }

    fn slot(self, is_held: bool) -> Slot {
        let Self { connection, slot, shared, .. } = self;
        Slot { connection, number: slot, shared, is_held }
    }
}

/// The free file slots. Of files that the daemon has descriptors for there are no more than the
/// session's credit.
#[derive(Debug)]
pub(crate) struct Slots {
    /// How many use each.
    used: [u32; FILES],
    /// Slots of files that the daemon holds, a bit each.
    held: [u64; FILES / 64],
    credit: u32,
}

impl Slots {
    pub(crate) const fn new(credit: u32) -> Self {
        Self { used: [0; FILES], held: [0; FILES / 64], credit }
    }

    /// The session has so many.
    pub(crate) fn credit(&mut self, credit: u32) {
        self.credit = credit;
    }

    /// Takes the lowest free slot; `None` when there is none, or the credit is used up.
    fn take(&mut self, of: Holder) -> Option<u32> {
        let held = || self.held.iter().map(|word| word.count_ones()).sum::<u32>();
        if of == Holder::Daemon && held() >= self.credit {
            return None;
        }
        let (slot, used) = (0..).zip(&mut self.used).find(|(_, used)| **used == 0)?;
        *used = 1;
        self.mark(slot, of == Holder::Daemon);
        Some(slot)
    }

    fn mark(&mut self, slot: u32, is_held: bool) {
        let (at, bit) = (slot as usize / 64, 1 << (slot % 64));
        if let Some(word) = self.held.get_mut(at) {
            *word = if is_held { *word | bit } else { *word & !bit };
        }
    }

    /// Keeps a slot that is taken for one more user.
    fn hold(&mut self, slot: u32) {
        if let Some(used) = self.used.get_mut(slot as usize) {
            debug_assert!(*used > 0, "slot {slot} is in use");
            *used += 1;
        }
    }

    /// Gives a slot back; it is free once all its users have.
    fn give(&mut self, slot: u32) {
        let Some(used) = self.used.get_mut(slot as usize) else { return };
        debug_assert!(*used > 0, "slot {slot} is in use");
        *used = used.saturating_sub(1);
        if *used == 0 {
            self.mark(slot, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_slots_than_credit() {
        let mut slots = Slots::new(2);
        let taken = [(); 3].map(|()| slots.take(Holder::Daemon));
        assert_eq!(taken, [Some(0), Some(1), None]);
        slots.give(0);
        assert_eq!(slots.take(Holder::Daemon), Some(0));
    }

    #[test]
    fn files_of_servers_take_no_credit() {
        let mut slots = Slots::new(1);
        assert_eq!(slots.take(Holder::Daemon), Some(0));
        assert_eq!(slots.take(Holder::Daemon), None);
        let count = (0..).take_while(|_| slots.take(Holder::Server).is_some()).count();
        assert_eq!(count, FILES - 1);
        slots.give(1);
        assert_eq!(slots.take(Holder::Daemon), None);
        slots.give(0);
        assert_eq!(slots.take(Holder::Daemon), Some(0));
    }

    #[test]
    fn slot_of_a_closed_file_is_free_when_its_last_request_is_answered() {
        let mut slots = Slots::new(1);
        let slot = slots.take(Holder::Daemon).expect("free");
        slots.hold(slot);
        slots.give(slot); // The file is closed.
        assert_eq!(slots.take(Holder::Daemon), None);
        slots.give(slot);
        assert_eq!(slots.take(Holder::Daemon), Some(slot));
    }
}
