//! Opening files, and how many a client may have open.
//!
//! Of the descriptors that the server's limit allows, half are for its clients' files, and for what
//! has the locks of their processes; the others are for connections, and for itself. A client may
//! have one more as long as it has fewer than are left. So one alone gets half of them, of several
//! that want all of them each gets an equal part, and there is one for who comes next. Who had
//! files open at an earlier server has them opened again, whoever has come before.

use std::{cell::Cell, io, rc::Rc};

use rustix::{fs::OFlags, io::Errno};
use storage::{
    Locking,
    names::{Answer, OpenCall},
    verdict::errno,
};
use wire::Status;

use super::{Open, Service, Session};

/// Files that a session has open at a time, however many descriptors there are.
const FILES_MAX: usize = 4096;

impl<S: Locking> Service<S> {
    pub(super) async fn open(
        &self,
        session: &Session<S>,
        handle: u32,
        call: OpenCall,
    ) -> Result<Answer, Errno> {
        let known = session.files.borrow().get(&handle).cloned();
        if let Some(open) = known {
            // Replayed: it was opened before the answer was lost.
            let status = self.storage.status(&open.file).await.map_err(errno)?;
            return Ok(Answer::status(&status));
        }
        if session.files.borrow().len() >= FILES_MAX {
            return Err(Errno::MFILE);
        }
        self.admit_one(session)?;
        let flags = OFlags::from_bits_retain(call.flags);
        let (file, status) = self.open_readable(call).await.map_err(errno)?;
        let appends = Rc::new(Cell::new(flags.contains(OFlags::APPEND)));
        let open = Open { file, appends, identity: status.identity(), born: status.born };
        session.files.borrow_mut().insert(handle, open);
        Ok(Answer::status(&status))
    }

    /// Opens a file; one to append to so that it can be seen what was appended.
    async fn open_readable(&self, call: OpenCall) -> io::Result<(S::File, Status)> {
        let flags = OFlags::from_bits_retain(call.flags);
        if !flags.contains(OFlags::APPEND) || flags & OFlags::RWMODE != OFlags::WRONLY {
            return self.storage.open(call).await;
        }
        let readable = OpenCall {
            flags: flags.difference(OFlags::RWMODE).union(OFlags::RDWR).bits(),
            ..call.clone()
        };
        match self.storage.open(readable).await {
            Err(error) if errno(&error) == Errno::ACCESS => self.storage.open(call).await,
            opened => opened,
        }
    }

    /// Checks that a session may have one more descriptor.
    ///
    /// # Errors
    ///
    /// `EMFILE`: it has its part; `ENFILE`: none is left.
    pub(crate) fn admit_one(&self, session: &Session<S>) -> Result<(), Errno> {
        let taken = self.sessions.borrow().values().map(|session| session.descriptors()).sum();
        match self.descriptors.saturating_sub(taken) {
            0 => Err(Errno::NFILE),
            left if session.descriptors() >= left && session.locks.is_settled.get() => {
                Err(Errno::MFILE)
            }
            _ => Ok(()),
        }
    }
}

impl<S: Locking> Session<S> {
    fn descriptors(&self) -> usize {
        self.files.borrow().len() + self.locks.processes.borrow().len()
    }
}
