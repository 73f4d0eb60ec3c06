//! What a request that must not happen twice looked at before it began, and what can be said after
//! a server died in the middle of it.
//!
//! | request | seen before | done if | not done if |
//! |---|---|---|---|
//! | append | size | the file has grown by just these bytes | the size is the same |
//! | unlink, rmdir | inode of the name | the name is gone or another's | the inode is there |
//! | rename | inode of the source | the target is that inode | the source is still |
//! | link | whether the name is taken | the name is the source's inode | the name is free |
//! | mkdir, symlink, exclusive open | whether the name is taken | | the name is free |
//!
//! Whatever is neither has an unknown outcome: somebody else may have made that name. The size that
//! tells of an append is the one it had before anybody else appended (see `doubts`).

use std::{ffi::CString, fmt, io, ops::Range, rc::Rc};

use rustix::io::Errno;
use shm::copy::copy_out;
use uring::Heap;

use super::ledger::Before;
use crate::{
    names::{NameCall, OpenCall, Status},
    storage::Storage,
};

/// A request that must not happen twice.
#[derive(Clone, Debug)]
pub(crate) enum Effect<F> {
    /// To the file of this device and inode.
    Append {
        file: F,
        identity: (u64, u64),
        data: Rc<[u8]>,
    },
    Create(OpenCall),
    Name(NameCall),
}

impl<F> Effect<F> {
    /// The value of the reply when all was done: the bytes appended.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Append { data, .. } => data.len() as u64,
            Self::Create(_) | Self::Name(_) => 0,
        }
    }
}

impl<F> fmt::Display for Effect<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append { data, .. } => write!(f, "append of {} bytes", data.len()),
            Self::Create(call) => write!(f, "creation of {:?}", call.path),
            Self::Name(call) => write!(f, "{call:?}"),
        }
    }
}

/// What has become of a request that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    NotDone,
    /// Of an append, so many bytes are there, at the end of the file.
    Partly(u64),
    /// Of an append, so many bytes are there, and others behind them.
    Short(u64),
    Unknown,
}

/// Looks at what stands there before a request begins.
pub(crate) async fn observe<S: Storage>(
    storage: &S,
    effect: &Effect<S::File>,
) -> io::Result<Before> {
    if let Effect::Append { file, identity, .. } = effect {
        let size = storage.status(file).await?.size();
        return Ok(Before { size, identity: *identity, is_append: true });
    }
    let identity = match subject(effect) {
        Some(path) => identity(storage, path).await?,
        None => (0, 0),
    };
    Ok(Before { size: 0, identity, is_append: false })
}

/// Finds out what has become of a request that was begun by a server that has died; `seen` is the
/// size of the file it appends to, if that was written down.
pub(crate) async fn resolve<S: Storage>(
    storage: &S,
    effect: &Effect<S::File>,
    before: Before,
    seen: Option<u64>,
) -> io::Result<Outcome> {
    let call = match effect {
        Effect::Append { file, data, .. } => {
            let size = storage.status(file).await?.size();
            let end = seen.unwrap_or(size);
            return match appended(storage, file, data, before.size..end).await? {
                // Others have appended since: what is missing can no longer follow.
                Outcome::Partly(len) if size != end => Ok(Outcome::Short(len)),
                outcome => Ok(outcome),
            };
        }
        Effect::Create(_) => None,
        Effect::Name(call) => Some(call),
    };
    let was_there = before.identity != (0, 0);
    let now = match subject(effect) {
        Some(path) => identity(storage, path).await?,
        None => return Ok(Outcome::Unknown),
    };
    Ok(match call {
        Some(NameCall::Unlink { .. } | NameCall::RemoveDir { .. }) => match was_there {
            // It found nothing to remove, and will again.
            false => Outcome::NotDone,
            true if now == before.identity => Outcome::NotDone,
            true => Outcome::Done,
        },
        Some(NameCall::Rename { to, .. }) => {
            if !was_there || now == before.identity {
                Outcome::NotDone
            } else if identity(storage, to).await? == before.identity {
                Outcome::Done
            } else {
                Outcome::Unknown
            }
        }
        _ if was_there || now == (0, 0) => Outcome::NotDone,
        Some(NameCall::Link { from, .. }) if identity(storage, from).await? == now => Outcome::Done,
        _ => Outcome::Unknown,
    })
}

/// The name that tells whether the request was done.
fn subject<F>(effect: &Effect<F>) -> Option<&CString> {
    match effect {
        Effect::Append { .. } => None,
        Effect::Create(call) => Some(&call.path),
        Effect::Name(call) => match call {
            NameCall::Unlink { path }
            | NameCall::RemoveDir { path }
            | NameCall::MakeDir { path, .. }
            | NameCall::Rename { from: path, .. }
            | NameCall::Link { to: path, .. }
            | NameCall::Symlink { name: path, .. } => Some(path),
            _ => None,
        },
    }
}

/// Device and inode of a name; zeros when there is none.
async fn identity<S: Storage>(storage: &S, path: &CString) -> io::Result<(u64, u64)> {
    let call = NameCall::Stat { path: path.clone(), follow: false };
    match storage.name(call).await {
        Ok(answer) => {
            Ok(Status::from_bytes(&answer.bytes).map_or((0, 0), |status| status.identity()))
        }
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok((0, 0)),
        Err(error) => Err(error),
    }
}

/// How much of `data` is there when a file has grown by the range `grown`.
async fn appended<S: Storage>(
    storage: &S,
    file: &S::File,
    data: &[u8],
    grown: Range<u64>,
) -> io::Result<Outcome> {
    let len = grown.end.checked_sub(grown.start).and_then(|len| usize::try_from(len).ok());
    let Some(expected) = len.and_then(|len| data.get(..len)) else {
        return Ok(Outcome::Unknown); // Cut, or grown by more than this.
    };
    let buffer = Heap::buffer(expected.len());
    let mut done = 0;
    while done < expected.len() {
        let at = grown.start + done as u64;
        match storage.read(file, at, buffer.suffix(done).into()).await {
            Ok(len) if len > 0 => done += len,
            // A descriptor that may only write cannot be read through.
            _ => return Ok(Outcome::Unknown),
        }
    }
    let mut found = vec![0; expected.len()];
    copy_out(&mut found, buffer.bytes());
    Ok(match expected.len() {
        _ if expected != found => Outcome::Unknown,
        0 => Outcome::NotDone,
        len if len == data.len() => Outcome::Done,
        len => Outcome::Partly(len as u64),
    })
}
