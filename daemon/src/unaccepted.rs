//! Connections that cannot be accepted, as by a process without a descriptor left. The reason may
//! stay for long, and each try fails with it: it is said seldom, and the tries have pauses.

use std::{io, time::Duration};

use executor::{Handle, Instant};

/// Between a connection that could not be accepted and the next try.
const PAUSE: Duration = Duration::from_millis(10);
/// Between two times that this is said.
const SILENCE: Duration = Duration::from_secs(60);

/// What a listener does about them.
#[derive(Debug)]
pub(crate) struct Unaccepted {
    handle: Handle,
    said_at: Option<Instant>,
}

impl Unaccepted {
    pub(crate) fn new(handle: &Handle) -> Self {
        Self { handle: handle.clone(), said_at: None }
    }

    /// Returns when the next try may be made.
    pub(crate) async fn pause_after(&mut self, error: &io::Error) {
        let now = self.handle.now();
        if self.said_at.is_none_or(|at| now >= at + SILENCE) {
            self.said_at = Some(now);
            tracing::warn!("a connection could not be accepted: {error}");
        }
        self.handle.sleep(PAUSE).await;
    }
}
