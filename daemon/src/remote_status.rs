//! A daemon's servers, and what it serves as one, for its status.

use std::{
    collections::BTreeMap,
    sync::{
        Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::Serialize;
use wire::Request;

/// Which servers' folders a daemon has, for whoever wants to share it.
#[derive(Debug, Serialize)]
pub(crate) struct RemoteStatus {
    pub(crate) servers: String,
    /// The folders of servers by those here.
    pub(crate) maps: BTreeMap<String, String>,
}

/// Where a daemon listens for daemons elsewhere, and who is connected.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) address: String,
    /// Held once by the server, and once for each connection.
    pub(crate) traffic: Weak<Traffic>,
}

/// Requests of clients so far.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) requests: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

impl Traffic {
    pub(crate) fn add(&self, request: &Request, value: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let moved = match request {
            Request::Read { .. } => &self.bytes_read,
            Request::Write { .. } => &self.bytes_written,
            _ => return,
        };
        moved.fetch_add(value, Ordering::Relaxed);
    }
}
