//! Exclusive right of one async task at a time, on one executor.

use std::cell::OnceCell;

use executor::{Credit, Credits};

/// The right to do what one task at a time may do, in the order in which they ask. There is one for
/// each stream, and most are never asked for.
#[derive(Debug, Default)]
pub(super) struct Turn(OnceCell<Credits>);

impl Turn {
    pub(super) fn is_free(&self) -> bool {
        self.0.get().is_none_or(|credits| credits.available() > 0)
    }

    /// Has the turn until the result is dropped.
    pub(super) async fn take(&self) -> Credit {
        self.0.get_or_init(|| Credits::new(1)).take(1).await
    }
}
