//! A server that is on the very executor of its client, which coalesces the files of its own node:
//! their bytes need no network.
//!
//! Everything else about them is asked over the connection, where it is what it is for all clients.
//! Nothing overtakes anything: whoever changes a file has its turn, and waits for the answer,
//! whichever way that comes. Appends go over the connection, too, for there they have an order.

use std::{cell::OnceCell, io, rc::Rc};

use uring::Buffers;

use super::{dial::Dial, file::RemoteFile, mounts::Mounts};
use crate::remote::server::service::Service;
use crate::{
    coalesce::{Coalesced, Open},
    storage::Storage as _,
};

/// The server, if it is here.
#[derive(Default)]
pub(crate) struct Own(OnceCell<Rc<Service<Coalesced>>>);

impl Own {
    /// The server is this one.
    pub(crate) fn set(&self, service: &Rc<Service<Coalesced>>) {
        self.0.set(Rc::clone(service)).ok(); // There is one for a daemon's life.
    }

    /// A file as the server has it open, and the files it is of.
    fn file(&self, file: &RemoteFile<Dial>) -> Option<(Coalesced, Open)> {
        let (service, (session, handle)) = self.0.get().zip(file.at_server())?;
        Some((service.storage.clone(), service.file_of(session, handle)?))
    }
}

impl Mounts {
    /// A remote file of this very executor.
    fn own(&self, file: &RemoteFile<Dial>) -> Option<(Coalesced, Open)> {
        self.server.as_ref()?.own.file(file)
    }

    /// Reads a remote file, behind what programs have written to pipes.
    pub(super) async fn read_there(
        &self,
        file: &RemoteFile<Dial>,
        at: u64,
        into: Buffers,
    ) -> io::Result<usize> {
        let file = self.settled(file).await;
        match self.own(file) {
            Some((files, open)) => files.read(&open, at, into).await,
            None => file.read(at, &into).await,
        }
    }

    /// Writes a remote file, behind what programs have written to pipes.
    pub(super) async fn write_there(
        &self,
        file: &RemoteFile<Dial>,
        at: u64,
        from: Buffers,
    ) -> io::Result<usize> {
        let file = self.settled(file).await;
        match self.own(file) {
            Some((files, open)) => files.write(&open, at, from).await,
            None => file.write(at, &from).await,
        }
    }
}
