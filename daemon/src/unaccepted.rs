//! Connections that cannot be accepted, as by a process without a descriptor left. The reason may
//! stay for long, and each try fails with it: it is said seldom, and the tries have pauses.

use std::{io, time::Duration};

use executor::Handle;

use crate::throttle::Throttle;

/// Between a connection that could not be accepted and the next try.
const PAUSE: Duration = Duration::from_millis(10);

/// Back-off of a listener for connections that cannot be accepted.
#[derive(Debug)]
pub(crate) struct Unaccepted {
    handle: Handle,
    throttle: Throttle,
}

impl Unaccepted {
    pub(crate) fn new(handle: &Handle) -> Self {
        Self { handle: handle.clone(), throttle: Throttle::default() }
    }

    /// Returns when the next try may be made.
    pub(crate) async fn pause_after(&self, error: &io::Error) {
        if self.throttle.admits(self.handle.now()) {
            tracing::warn!("a connection could not be accepted: {error}");
        }
        self.handle.sleep(PAUSE).await;
    }
}
