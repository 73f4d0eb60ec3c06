//! A server that is on the very executor of its client, which coalesces the files of its own node:
//! what is asked of it needs no connection.
//!
//! There is one all the same: it begins the session, and ends it. When it breaks, the next one
//! begins once nothing that was asked is under way, so that nothing is asked again over it.

use std::{cell::OnceCell, rc::Rc};

use wire::SESSION_LEN;

use super::{dial::Dial, file::RemoteFile};
use crate::{
    coalesce::Coalesced,
    remote::server::{
        decode::Job,
        service::{Answer, Service, Session},
    },
};

/// The server, if it is here. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Own(Rc<OnceCell<Rc<Service<Coalesced>>>>);

impl Own {
    /// The server is this one.
    pub(crate) fn set(&self, service: &Rc<Service<Coalesced>>) {
        self.0.set(Rc::clone(service)).ok(); // There is one for a daemon's life.
    }

    /// The path of an open file. One that was opened by its number has that of the folder that it
    /// was in then.
    pub(super) fn path_of(&self, file: &RemoteFile<Dial>) -> Option<Vec<u8>> {
        let path = file.path()?;
        let name = self.0.get().zip(file.inode());
        let name = name.and_then(|(service, inode)| service.storage.name_in(&path, inode));
        Some(name.map_or_else(|| path.clone(), |name| [&path[..], b"/", &name].concat()))
    }

    /// The server, with a session that it knows.
    pub(super) fn neighbour(&self, session: &[u8; SESSION_LEN]) -> Option<Neighbour> {
        let service = Rc::clone(self.0.get()?);
        Some(Neighbour { session: service.session(session)?, service })
    }
}

/// A session at a server of this executor.
pub(crate) struct Neighbour {
    service: Rc<Service<Coalesced>>,
    session: Rc<Session<Coalesced>>,
}

impl Neighbour {
    /// Has the server execute a request; `answer` gets what it has come to.
    pub(super) fn ask(&self, job: Job, answer: impl FnOnce(u64, Answer) + 'static) {
        self.service.start(&self.session, job, answer);
    }
}
