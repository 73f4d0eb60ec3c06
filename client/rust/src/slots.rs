//! Which file slots of the session are taken.
//!
//! A slot is its file's, and each request's of a queue that names it: it gets no other file before
//! the daemon has answered all of those.

use shm::FILES;

/// The free file slots, up to the session's credit.
#[derive(Debug)]
pub(crate) struct Slots {
    /// How many use each.
    used: [u32; FILES],
    credit: u32,
}

impl Slots {
    pub(crate) const fn new(credit: u32) -> Self {
        Self { used: [0; FILES], credit }
    }

    /// Takes the lowest free slot; `None` when the credit is used up.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let (slot, used) = (0..self.credit).zip(&mut self.used).find(|(_, used)| **used == 0)?;
        *used = 1;
        Some(slot)
    }

    /// Keeps a slot that is taken for one more user.
    pub(crate) fn hold(&mut self, slot: u32) {
        if let Some(used) = self.used.get_mut(slot as usize) {
            *used += 1;
        }
    }

    /// Gives a slot back; it is free once all its users have.
    pub(crate) fn give(&mut self, slot: u32) {
        if let Some(used) = self.used.get_mut(slot as usize) {
            *used = used.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_slots_than_credit() {
        let mut slots = Slots::new(2);
        assert_eq!([slots.take(), slots.take(), slots.take()], [Some(0), Some(1), None]);
        slots.give(0);
        assert_eq!(slots.take(), Some(0));
    }

    #[test]
    fn slot_of_a_closed_file_is_free_when_its_last_request_is_answered() {
        let mut slots = Slots::new(1);
        let slot = slots.take().expect("free");
        slots.hold(slot);
        slots.give(slot); // The file is closed.
        assert_eq!(slots.take(), None);
        slots.give(slot);
        assert_eq!(slots.take(), Some(slot));
    }
}
