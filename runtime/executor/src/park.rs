//! Blocking and being woken, as inputs: on a machine an epoll instance with an eventfd.

use std::{sync::Arc, time::Duration};

/// How an executor blocks.
pub trait Park {
    /// Blocks until `timeout` has passed, an armed source has an event, or an unpark.
    ///
    /// An unpark that came before this call, and after the last return from it, ends it at once.
    /// May return early for no reason. `None` waits without limit.
    fn park(&mut self, timeout: Option<Duration>);

    /// Lets every other thread that waits for this core have it first.
    ///
    /// Returns when this thread runs again, at once when no other waits. Where nobody can be let
    /// before, this does nothing.
    fn give_way(&mut self) {}

    /// True if more threads of the machine want to run than it has cores. Where that cannot be
    /// told, none do.
    fn is_crowded(&mut self) -> bool {
        false
    }

    /// Returns the handle that ends this park from any thread.
    fn unparker(&self) -> Arc<dyn Unpark>;
}

/// Ends a park from any thread.
pub trait Unpark: Send + Sync {
    /// Makes the present [`Park::park`], or else the next one, return.
    fn unpark(&self);
}
