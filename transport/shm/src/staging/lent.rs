//! The mark by which a slot says that the client's child has the file, and with it the position.
//!
//! The daemon says so before it answers the child. Whoever knows that the child has the file knows
//! it by way of that message, so no order is needed here.

use super::FileSlot;
use crate::sync::Ordering;

impl FileSlot {
    /// The position is a child's from now on.
    pub fn lend(&self) {
        self.control.0.lent.store(1, Ordering::Relaxed);
    }

    /// True if it became a child's, and nobody has taken that in yet.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.control.0.lent.load(Ordering::Relaxed) != 0
    }

    /// True if it became a child's since somebody last asked.
    #[must_use]
    pub fn take_lent(&self) -> bool {
        self.is_lent() && self.control.0.lent.swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_loan_is_told_once_and_not_of_the_next_file() {
        let slot = FileSlot::default();
        assert!(!slot.take_lent());
        slot.lend();
        assert!(slot.take_lent() && !slot.take_lent());
        slot.lend();
        slot.reset();
        assert!(!slot.take_lent());
    }
}
