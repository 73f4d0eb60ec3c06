//! Exclusive right of one async task at a time, on one executor.

use std::cell::Cell;

use executor::Notify;

/// The right to do what one task at a time may do.
#[derive(Debug, Default)]
pub(super) struct Turn {
    is_taken: Cell<bool>,
    given_back: Notify,
}

/// The turn, until it is dropped.
pub(super) struct Taken<'a>(&'a Turn);

impl Turn {
    pub(super) fn is_free(&self) -> bool {
        !self.is_taken.get()
    }

    pub(super) async fn take(&self) -> Taken<'_> {
        self.given_back.until(|| !self.is_taken.get()).await;
        self.is_taken.set(true);
        Taken(self)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.is_taken.set(false);
        self.0.given_back.notify_all();
    }
}
