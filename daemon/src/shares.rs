//! Descriptors that clients get for the asking: see [`Request::Share`](wire::Request::Share).

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
};

use crate::mail::lock;

/// The descriptors, by number.
#[derive(Debug, Default)]
pub(crate) struct Shares(Mutex<Vec<Arc<OwnedFd>>>);

impl Shares {
    /// Adds the next one.
    pub(crate) fn add(&self, fd: OwnedFd) {
        lock(&self.0).push(Arc::new(fd));
    }

    /// That of a number.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<OwnedFd>> {
        lock(&self.0).get(number as usize).cloned()
    }
}
