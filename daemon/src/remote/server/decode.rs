//! What a request from a client asks for, its paths taken out of the payload and checked.

use std::{ffi::CString, rc::Rc};

use rustix::{
    fs::{FallocateFlags, OFlags},
    io::Errno,
};
use uring::Buffers;
use wire::{PIECE_LEN_MAX, PathPair, Request, Times};

use crate::{
    locks::LockCall,
    names::{Attributes, NameCall, OpenCall},
};

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) record: Option<u32>,
    pub(crate) request: Request,
    /// A copy of paths and the like.
    pub(crate) payload: Rc<[u8]>,
    /// What is to be written, or room for what is read.
    pub(crate) data: Buffers,
}

/// What a request asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    Open(u32, OpenCall),
    Close(u32),
    Lock(u32, LockCall),
    FindLock(u32, LockCall),
    OnFile(u32),
    Name(NameCall),
    Nothing,
}

impl Job {
    /// What is asked for, checked.
    pub(crate) fn asked(&self) -> Result<Asked, Errno> {
        Ok(match self.request {
            Request::Open { file, flags, mode, .. } => {
                Asked::Open(file, OpenCall { path: path(&self.payload)?, flags, mode })
            }
            Request::Close { file } => Asked::Close(file),
            Request::Lock { file, terms, start, len } => {
                Asked::Lock(file, LockCall::new(terms, start, len)?)
            }
            Request::FindLock { file, terms, start, len } => {
                Asked::FindLock(file, LockCall::new(terms, start, len)?)
            }
            Request::Nothing => Asked::Nothing,
            Request::Read { file, .. }
            | Request::Write { file, .. }
            | Request::Sync { file }
            | Request::Datasync { file }
            | Request::SetPosition { file, .. }
            | Request::FileStat { file }
            | Request::Allocate { file, .. }
            | Request::Truncate { file, path_len: 0, .. }
            | Request::SetMode { file, path_len: 0, .. }
            | Request::SetOwner { file, path_len: 0, .. }
            | Request::SetTimes { file, path_len: 0, .. }
            | Request::FileSystem { file, path_len: 0 } => Asked::OnFile(file),
            _ => Asked::Name(self.name_call()?),
        })
    }

    fn name_call(&self) -> Result<NameCall, Errno> {
        let payload = &self.payload;
        let one = || path(payload);
        Ok(match self.request {
            Request::Stat { follow, .. } => NameCall::Stat { path: one()?, follow },
            Request::Truncate { len, .. } => NameCall::Truncate { path: one()?, len },
            Request::Unlink { .. } => NameCall::Unlink { path: one()? },
            Request::MakeDir { mode, .. } => NameCall::MakeDir { path: one()?, mode },
            Request::RemoveDir { .. } => NameCall::RemoveDir { path: one()? },
            Request::ReadDir { from, .. } => {
                NameCall::ReadDir { path: one()?, from, room: PIECE_LEN_MAX }
            }
            Request::Rename { paths, flags } => {
                let (from, to) = two(payload, paths)?;
                NameCall::Rename { from: path(from)?, to: path(to)?, flags }
            }
            Request::Link { paths } => {
                let (from, to) = two(payload, paths)?;
                NameCall::Link { from: path(from)?, to: path(to)? }
            }
            Request::Symlink { paths } => {
                let (text, name) = two(payload, paths)?;
                NameCall::Symlink { text: text_of(text)?, name: path(name)? }
            }
            Request::ReadLink { .. } => NameCall::ReadLink { path: one()? },
            Request::SetMode { mode, .. } => {
                NameCall::Set { path: one()?, follow: true, what: Attributes::Mode(mode) }
            }
            Request::SetOwner { user, group, follow, .. } => {
                NameCall::Set { path: one()?, follow, what: Attributes::Owner(user, group) }
            }
            Request::SetTimes { path_len, follow, .. } => {
                let (name, rest) =
                    payload.split_at_checked(path_len as usize).ok_or(Errno::INVAL)?;
                let what = Attributes::Times(Times::decode(rest).ok_or(Errno::INVAL)?);
                NameCall::Set { path: path(name)?, follow, what }
            }
            Request::Access { mode, .. } => NameCall::Access { path: one()?, mode },
            Request::FileSystem { .. } => NameCall::FileSystem { path: one()? },
            _ => return Err(Errno::NOSYS),
        })
    }
}

/// Whether opening makes a file that must not be there.
pub(crate) fn is_exclusive(call: &OpenCall) -> bool {
    OFlags::from_bits_retain(call.flags).contains(OFlags::CREATE | OFlags::EXCL)
}

/// Whether opening a file may not happen twice: it makes one that must not be there, or cuts one
/// that others may write to as soon as it is cut.
pub(crate) fn is_once(call: &OpenCall) -> bool {
    is_exclusive(call) || OFlags::from_bits_retain(call.flags).contains(OFlags::TRUNC)
}

/// Whether `fallocate` of this mode moves bytes, which it would do twice.
pub(crate) const fn shifts(mode: u32) -> bool {
    let shifting = FallocateFlags::COLLAPSE_RANGE.union(FallocateFlags::INSERT_RANGE);
    mode & shifting.bits() != 0
}

/// Whether a request changes a file, though it may be executed twice.
pub(crate) const fn changes(request: &Request) -> bool {
    matches!(
        request,
        Request::Write { .. }
            | Request::Allocate { .. }
            | Request::SetMode { .. }
            | Request::SetOwner { .. }
            | Request::SetTimes { .. }
    )
}

/// Whether a call may not be executed twice.
pub(crate) const fn has_effect(call: &NameCall) -> bool {
    matches!(
        call,
        NameCall::Truncate { .. }
            | NameCall::Unlink { .. }
            | NameCall::Rename { .. }
            | NameCall::MakeDir { .. }
            | NameCall::RemoveDir { .. }
            | NameCall::Link { .. }
            | NameCall::Symlink { .. }
    )
}

fn two(payload: &[u8], paths: PathPair) -> Result<(&[u8], &[u8]), Errno> {
    payload.split_at_checked(paths.from_len as usize).ok_or(Errno::INVAL)
}

fn path(bytes: &[u8]) -> Result<CString, Errno> {
    if bytes.first() == Some(&b'/') { text_of(bytes) } else { Err(Errno::INVAL) }
}

fn text_of(bytes: &[u8]) -> Result<CString, Errno> {
    if bytes.is_empty() {
        return Err(Errno::NOENT);
    }
    CString::new(bytes).map_err(|_| Errno::INVAL)
}
