//! The server's side: it serves one folder to the daemons that have the key.
//!
//! `connections` takes requests off a stream; `received` checks them; `service` executes them. What
//! must not happen twice is in the `ledger` before it begins, and `effects` and `doubts` find out
//! what has become of it; `locks`, `grace`, and `deadlock` stand for the kernel's locks.

pub(super) mod boot;
pub(super) mod connections;
pub(super) mod deadlock;
pub(super) mod doubts;
pub(super) mod effects;
pub(super) mod grace;
pub(super) mod ledger;
mod limit;
pub(super) mod locks;
pub(super) mod published;
pub(super) mod received;
mod root;
pub(super) mod service;
pub(crate) mod traffic;

use std::{io, rc::Rc};

use executor::Handle;
use storage::Locking;

use self::{ledger::Folder, service::Service};

impl<S: Locking> Service<S> {
    /// A service of these files whose records are in a folder, and which may have so many
    /// descriptors.
    ///
    /// # Errors
    ///
    /// Those of reading what earlier ones have left there.
    pub fn recording_in(
        folder: Folder,
        handle: Handle,
        storage: S,
        limit: u64,
    ) -> io::Result<Rc<Self>> {
        Self::new(handle, storage, Box::new(folder), limit)
    }
}
