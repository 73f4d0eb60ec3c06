//! Which file slots of the session are taken.

use shm::FILES;

/// The free file slots, up to the session's credit.
#[derive(Debug)]
pub(crate) struct Slots {
    used: [bool; FILES],
    credit: u32,
}

impl Slots {
    pub(crate) const fn new(credit: u32) -> Self {
        Self { used: [false; FILES], credit }
    }

    /// Takes the lowest free slot; `None` when the credit is used up.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let (slot, used) = (0..self.credit).zip(&mut self.used).find(|(_, used)| !**used)?;
        *used = true;
        Some(slot)
    }

    /// Gives a slot back.
    pub(crate) fn give(&mut self, slot: u32) {
        if let Some(used) = self.used.get_mut(slot as usize) {
            *used = false;
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
}
