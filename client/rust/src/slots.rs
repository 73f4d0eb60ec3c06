//! Which file slots of the session are taken.
//!
//! A slot is its file's, and each request's of a queue that names it: it gets no other file before
//! the daemon has answered all of those.

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
    pub(crate) fn take(&mut self, of: Holder) -> Option<u32> {
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
    pub(crate) fn hold(&mut self, slot: u32) {
        if let Some(used) = self.used.get_mut(slot as usize) {
            debug_assert!(*used > 0, "slot {slot} is in use");
            *used += 1;
        }
    }

    /// Gives a slot back; it is free once all its users have.
    pub(crate) fn give(&mut self, slot: u32) {
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
