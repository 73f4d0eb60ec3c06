//! Whether the server is still there.

use std::{cell::Cell, io, time::Duration};

use executor::Instant;

use super::{ATTEMPT_MAX, Client, Network, Outbox};

/// Between two questions whether the server is there.
const BEAT: Duration = Duration::from_secs(1);
/// Beats without a byte from the server, after which the connection is given up.
const SILENT_BEATS_MAX: u32 = 5;

impl<N: Network> Client<N> {
    /// The server says that it is there.
    pub(super) fn hears(&self) {
        self.heard_at.set(self.handle.now());
    }

    /// Waits until `end`, and for as long as the server goes on saying that it is there.
    pub(super) async fn listen<T>(&self, end: Instant) -> io::Result<T> {
        loop {
            let end = end.max(self.heard_at.get() + ATTEMPT_MAX.min(self.timeout));
            if self.handle.now() >= end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.handle.sleep_until(end).await;
        }
    }

    /// While something is to come from the server, asks every now and then whether it is there, and
    /// gives up when it is silent. Where nothing is, nothing is sent, and nobody wakes: the kernel
    /// notices a machine that has vanished.
    pub(super) async fn beat(&self, outbox: &Outbox, heard: &Cell<bool>) -> io::Result<()> {
        let mut silent = 0;
        loop {
            let is_waiting = || {
                let state = self.state.borrow();
                state.is_leaving || !state.pending.is_empty()
            };
            if !is_waiting() {
                self.news.until(is_waiting).await;
                silent = 0;
            }
            self.handle.sleep(BEAT).await;
            silent = if heard.take() { 0 } else { silent + 1 };
            if silent >= SILENT_BEATS_MAX {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // A stream that takes nothing is asked already.
            outbox.ping();
        }
    }
}
