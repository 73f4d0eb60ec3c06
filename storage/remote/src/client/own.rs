//! A server that is on the very executor of its client, which coalesces the files of its own node:
//! what is asked of it needs no connection.
//!
//! There is one all the same: it begins the session, and ends it. When it breaks, the next one
//! begins once nothing that was asked is under way, so that nothing is asked again over it.

use std::{cell::OnceCell, rc::Rc};

use rustix::io::Errno;
use storage::{Locking, names::Answer};
use wire::SESSION_LEN;

use crate::server::{
    received::Received,
    service::{Service, Session},
};

/// The server, if it is here. Cheap to clone.
pub struct Own<S: Locking>(Rc<OnceCell<Rc<Service<S>>>>);

impl<S: Locking> Clone for Own<S> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<S: Locking> Default for Own<S> {
    fn default() -> Self {
        Self(Rc::default())
    }
}

impl<S: Locking> Own<S> {
    /// The server is this one.
    pub fn set(&self, service: &Rc<Service<S>>) {
        let is_set = self.0.set(Rc::clone(service));
        debug_assert!(is_set.is_ok(), "there is one for a daemon's life");
    }

    /// The files of the server.
    #[must_use]
    pub fn storage(&self) -> Option<&S> {
        self.0.get().map(|service| &service.storage)
    }

    /// The server, with a session that it knows.
    pub(super) fn neighbour(&self, session: &[u8; SESSION_LEN]) -> Option<Neighbour<S>> {
        let service = Rc::clone(self.0.get()?);
        Some(Neighbour { session: service.session(session)?, service })
    }
}

/// A session at a server of this executor.
pub(crate) struct Neighbour<S: Locking> {
    service: Rc<Service<S>>,
    session: Rc<Session<S>>,
}

impl<S: Locking> Neighbour<S> {
    /// Has the server execute a request; `answer` gets what it has come to.
    pub(super) fn ask(
        &self,
        received: Received,
        answer: impl FnOnce(u64, Result<Answer, Errno>) + 'static,
    ) {
        self.service.start(&self.session, received, answer);
    }
}
