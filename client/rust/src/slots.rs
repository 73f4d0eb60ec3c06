//! Which file slots of the session are taken.
//!
//! A slot is its file's, and each request's of a queue that names it: it gets no other file before
//! the daemon has answered all of those.

use core::sync::atomic::{AtomicU32, Ordering};

use shm::FILES;

/// Side that has the file of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The daemon, by a descriptor: there are as many as the session's credit.
    Daemon,
    /// A server, or the multifile that the file is in: there are as many as slots.
    Server,
}

/// The free file slots. Of files that the daemon has descriptors for there are no more than the
/// session's credit.
///
/// Nothing is locked: a signal handler may interrupt any of this, and open and close files.
///
/// # Memory ordering
///
/// A count is stored with `Release` when a slot is given back, and loaded with `Acquire` when it is
/// taken, which orders uses of what the slot stands for.
#[derive(Debug)]
pub(crate) struct Slots {
    /// How many use each, and [`HELD`].
    used: [AtomicU32; FILES],
    /// How many are the daemon's.
    held_count: AtomicU32,
    credit: AtomicU32,
}

/// Set beside the users of a slot whose file the daemon holds.
const HELD: u32 = 1 << 31;

impl Slots {
    pub(crate) const fn new(credit: u32) -> Self {
        Self {
            used: [const { AtomicU32::new(0) }; FILES],
            held_count: AtomicU32::new(0),
            credit: AtomicU32::new(credit),
        }
    }

    /// The session has so many.
    pub(crate) fn credit(&self, credit: u32) {
        self.credit.store(credit, Ordering::Relaxed);
    }

    /// Takes the lowest free slot; `None` when there is none, or the credit is used up.
    pub(crate) fn take(&self, of: Holder) -> Option<u32> {
        match of {
            Holder::Server => self.take_as(1),
            Holder::Daemon if self.hold_one_more() => self.take_as(HELD | 1).or_else(|| {
                self.held_count.fetch_sub(1, Ordering::Relaxed);
                None
            }),
            Holder::Daemon => None,
        }
    }

    /// Counts one more file that the daemon holds, if there is credit for it.
    fn hold_one_more(&self) -> bool {
        let credit = self.credit.load(Ordering::Relaxed);
        let more = |count| (count < credit).then_some(count + 1);
        self.held_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn take_as(&self, first: u32) -> Option<u32> {
        let (ok, err) = (Ordering::Acquire, Ordering::Relaxed);
        let is_taken = |used: &AtomicU32| {
            used.load(Ordering::Relaxed) == 0 && used.compare_exchange(0, first, ok, err).is_ok()
        };
        (0..).zip(&self.used).find_map(|(slot, used)| is_taken(used).then_some(slot))
    }

    /// Keeps a slot that is taken for one more user.
    pub(crate) fn hold(&self, slot: u32) {
        if let Some(used) = self.used.get(slot as usize) {
            let before = used.fetch_add(1, Ordering::Relaxed);
            debug_assert!(before & !HELD > 0, "slot {slot} is in use");
        }
    }

    /// Gives a slot back; it is free once all its users have.
    pub(crate) fn give(&self, slot: u32) {
        let Some(used) = self.used.get(slot as usize) else { return };
        // First: who takes the slot has credit for it.
        if used.load(Ordering::Relaxed) == HELD | 1 {
            self.held_count.fetch_sub(1, Ordering::Relaxed);
        }
        let less = |used: u32| Some(if used & !HELD > 1 { used - 1 } else { 0 });
        let before = used.fetch_update(Ordering::Release, Ordering::Relaxed, less).unwrap_or(0);
        debug_assert!(before & !HELD > 0, "slot {slot} is in use");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_slots_than_credit() {
        let slots = Slots::new(2);
        let taken = [(); 3].map(|()| slots.take(Holder::Daemon));
        assert_eq!(taken, [Some(0), Some(1), None]);
        slots.give(0);
        assert_eq!(slots.take(Holder::Daemon), Some(0));
    }

    #[test]
    fn files_of_servers_take_no_credit() {
        let slots = Slots::new(1);
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
        let slots = Slots::new(1);
        let slot = slots.take(Holder::Daemon).expect("free");
        slots.hold(slot);
        slots.give(slot); // The file is closed.
        assert_eq!(slots.take(Holder::Daemon), None);
        slots.give(slot);
        assert_eq!(slots.take(Holder::Daemon), Some(slot));
    }
}
