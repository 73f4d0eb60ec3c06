//! Counts of what clients have asked a server for.

use std::sync::atomic::{AtomicU64, Ordering};

use wire::Request;

/// Requests of clients so far.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Requests.
    pub requests: AtomicU64,
    /// Bytes they read.
    pub bytes_read: AtomicU64,
    /// Bytes they wrote.
    pub bytes_written: AtomicU64,
}

impl Traffic {
    pub(super) fn add(&self, request: &Request, value: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let moved = match request {
            Request::Read { .. } => &self.bytes_read,
            Request::Write { .. } => &self.bytes_written,
            _ => return,
        };
        moved.fetch_add(value, Ordering::Relaxed);
    }
}
