//! Decoding of a client's request: paths are taken out of the payload and checked.

use std::rc::Rc;

use rustix::io::Errno;
use storage::{
    lock_call::LockCall,
    names::{NameCall, OpenCall},
};
use uring::Buffers;
use wire::{Request, Subject, TRANSFER_LEN_MAX};

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) id: u64,
    pub(crate) record: Option<u32>,
    pub(crate) request: Request,
    /// A copy of paths and the like.
    pub(crate) payload: Rc<[u8]>,
    /// Data to write, or room for data to read.
    pub(crate) data: Buffers,
}

/// A decoded request.
#[derive(Debug)]
pub(crate) enum Asked {
    Open(u32, OpenCall),
    Close(u32),
    Lock(u32, LockCall),
    FindLock(u32, LockCall),
    OnFile(u32),
    Name(NameCall),
    Reclaimed,
}

impl Received {
    /// Decodes and checks the request.
    pub(crate) fn asked(&self) -> Result<Asked, Errno> {
        Ok(match (self.request.subject(), self.request) {
            (Subject::Session, Request::Reclaimed) => Asked::Reclaimed,
            (Subject::Session, _) => return Err(Errno::NOSYS),
            (Subject::File(file), Request::Close { .. }) => Asked::Close(file),
            (Subject::File(file), Request::Lock { terms, start, len, .. }) => {
                Asked::Lock(file, LockCall::new(terms, start, len)?)
            }
            (Subject::File(file), Request::FindLock { terms, start, len, .. }) => {
                Asked::FindLock(file, LockCall::new(terms, start, len)?)
            }
            (Subject::File(file), _) => Asked::OnFile(file),
            (Subject::Names, Request::Open { file, .. }) => {
                Asked::Open(file, OpenCall::decode(&self.request, &self.payload)?)
            }
            (Subject::Names, _) => {
                Asked::Name(NameCall::decode(&self.request, &self.payload, TRANSFER_LEN_MAX)?)
            }
        })
    }
}
