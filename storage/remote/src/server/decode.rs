//! Decoding of a client's request: paths are taken out of the payload and checked.

use std::rc::Rc;

use rustix::io::Errno;
use storage::{
    lock_call::LockCall,
    names::{NameCall, OpenCall},
};
use uring::Buffers;
use wire::{PIECE_LEN_MAX, Request};

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Job {
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

impl Job {
    /// Decodes and checks the request.
    pub(crate) fn asked(&self) -> Result<Asked, Errno> {
        Ok(match self.request {
            Request::Open { file, .. } => {
                Asked::Open(file, OpenCall::decode(&self.request, &self.payload)?)
            }
            Request::Close { file } => Asked::Close(file),
            Request::Lock { file, terms, start, len } => {
                Asked::Lock(file, LockCall::new(terms, start, len)?)
            }
            Request::FindLock { file, terms, start, len } => {
                Asked::FindLock(file, LockCall::new(terms, start, len)?)
            }
            Request::Reclaimed => Asked::Reclaimed,
            Request::Read { file, .. }
            | Request::Write { file, .. }
            | Request::Sync { file }
            | Request::Datasync { file }
            | Request::SetPosition { file, .. }
            | Request::FindData { file, .. }
            | Request::FindHole { file, .. }
            | Request::FileStat { file }
            | Request::Allocate { file, .. }
            | Request::Truncate { file, path_len: 0, .. }
            | Request::SetMode { file, path_len: 0, .. }
            | Request::SetOwner { file, path_len: 0, .. }
            | Request::SetTimes { file, path_len: 0, .. }
            | Request::FileSystem { file, path_len: 0 } => Asked::OnFile(file),
            _ => Asked::Name(NameCall::decode(&self.request, &self.payload, PIECE_LEN_MAX)?),
        })
    }
}
