//! Messages that stay where UCX received them, until they are given back.
//!
//! Each is lent by a worker, which alone may take it back, on its own thread: what is given back on
//! any thread waits here for its next visit. As long as something is lent the worker is not
//! destroyed.

use std::{
    mem,
    ptr::NonNull,
    slice,
    sync::{Mutex, PoisonError, atomic::AtomicU8},
};

/// Loans of one worker.
#[derive(Debug, Default)]
pub(crate) struct Loans(Mutex<Ledger>);

#[derive(Debug, Default)]
struct Ledger {
    /// Given back, and not taken back by UCX.
    back: Vec<Lent>,
    /// With somebody, or given back.
    count: usize,
}

/// Data of a message, in memory of UCX.
#[derive(Debug)]
pub(crate) struct Lent {
    start: NonNull<AtomicU8>,
    len: usize,
}

// SAFETY: it owns the bytes until it is given back, and its address says so to UCX.
unsafe impl Send for Lent {}
// SAFETY: the bytes are atomics.
unsafe impl Sync for Lent {}

impl Lent {
    /// # Safety
    ///
    /// `start` are `len` bytes that stay there until UCX is told that they are released.
    pub(crate) unsafe fn new(start: NonNull<AtomicU8>, len: usize) -> Self {
        Self { start, len }
    }

    pub(crate) fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: so many bytes, says who made this, as long as this is there. Whoever else has
        // them may change them, as atomics.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// As UCX knows it.
    pub(crate) fn start(&self) -> NonNull<AtomicU8> {
        self.start
    }
}

impl Loans {
    pub(crate) fn lend(&self, data: Lent) -> Lent {
        self.with(|ledger| ledger.count += 1);
        data
    }

    pub(crate) fn give_back(&self, data: Lent) {
        self.with(|ledger| ledger.back.push(data));
    }

    /// Takes the returned loans, for UCX.
    pub(crate) fn take_back(&self) -> Vec<Lent> {
        self.with(|ledger| {
            ledger.count -= ledger.back.len();
            mem::take(&mut ledger.back)
        })
    }

    /// How many are with somebody, or were given back and not taken back.
    pub(crate) fn count(&self) -> usize {
        self.with(|ledger| ledger.count)
    }

    fn with<T>(&self, action: impl FnOnce(&mut Ledger) -> T) -> T {
        action(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_out_until_it_is_taken_back() {
        let (loans, bytes) = (Loans::default(), [const { AtomicU8::new(7) }; 3]);
        // SAFETY: the array stays until the end.
        let lent = unsafe { Lent::new(NonNull::from(&bytes[0]), 3) };
        let lent = loans.lend(lent);
        assert_eq!((lent.bytes().len(), loans.count()), (3, 1));
        assert!(loans.take_back().is_empty() && loans.count() == 1);
        loans.give_back(lent);
        assert_eq!(loans.count(), 1);
        assert_eq!((loans.take_back().len(), loans.count()), (1, 0));
    }
}
