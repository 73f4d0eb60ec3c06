//! Effects of requests that must not happen twice: the state before, and the outcome after a server
//! died in the middle.
//!
//! | request | seen before | done if | not done if |
//! |---|---|---|---|
//! | append | size | the file has grown by it | it has no part of it |
//! | collapse, insert | size | it has changed by just that | it is the same |
//! | truncate | last change | | nothing has changed or is to be cut |
//! | unlink, rmdir | inode of the name, birth | it is gone or another's | it is there |
//! | rename | inode of the source, birth | the target is that file | the source is there |
//! | link | is the name taken? | it is the source's inode | it is free |
//! | mkdir, symlink, exclusive open | is the name taken? | | it is free |
//!
//! An open that truncates is a truncate, too.
//!
//! Whatever is neither has an unknown outcome: somebody else may have made that name, or written to
//! that file. The size that tells of an append is the one it had before another client appended
//! (see `doubts`); programs on the server's machine may have appended, too ([`doubt`]).

use std::{fmt, io, ops::Range, rc::Rc};

use rustix::{fs::FallocateFlags, io::Errno};
use shm::staging::doubt::{self, GROWN_MAX, Record};
use storage::{
    Storage, grown,
    names::{CallPath, FileCall, Identity, NameCall, OpenCall, is_same},
};
use wire::Status;

use super::ledger::Before;

/// A request that must not happen twice.
#[derive(Clone, Debug)]
pub(crate) enum Effect<F> {
    /// To this file.
    Append {
        file: F,
        identity: Identity,
        data: Rc<[u8]>,
    },
    /// Cuts the file, or moves the bytes behind a range of it.
    OnFile(F, FileCall),
    /// Makes a file that must not be there, or cuts what is; the handle is the file's from then on.
    Open(u32, OpenCall),
    Name(NameCall),
}

impl<F> Effect<F> {
    /// The value of the reply when all was done: the bytes appended.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Append { data, .. } => data.len() as u64,
            _ => 0,
        }
    }
}

impl<F> fmt::Display for Effect<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append { data, .. } => write!(f, "append of {} bytes", data.len()),
            Self::OnFile(_, call) => write!(f, "{call:?}"),
            Self::Open(_, call) => write!(f, "creation or truncation of {:?}", call.path),
            Self::Name(call) => write!(f, "{call:?}"),
        }
    }
}

/// Outcome of a request that was begun.
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
    let Some(status) = look(storage, effect).await? else { return Ok(Before::default()) };
    let mark = match effect {
        Effect::OnFile(_, FileCall::Truncate { .. }) | Effect::Name(NameCall::Truncate { .. }) => {
            status.changed_at()
        }
        Effect::Append { .. } | Effect::OnFile(..) => status.size,
        Effect::Open(_, call) if !call.is_exclusive() => status.changed_at(),
        Effect::Open(..) | Effect::Name(_) => status.born,
    };
    let is_append = matches!(effect, Effect::Append { .. });
    Ok(Before { mark, identity: status.identity(), is_append })
}

/// Finds out what has become of a request that was begun by a server that has died; `seen` is the
/// size of the file it appends to, if that was written down.
pub(crate) async fn resolve<S: Storage>(
    storage: &S,
    effect: &Effect<S::File>,
    before: Before,
    seen: Option<u64>,
) -> io::Result<Outcome> {
    let now = look(storage, effect).await?;
    let size = now.as_ref().map_or(0, |status| status.size);
    let call = match effect {
        Effect::Append { file, data, .. } => {
            let end = seen.unwrap_or(size);
            return Ok(match appended(storage, file, data, before.mark..end).await {
                // Others have appended since: what is missing can no longer follow.
                Outcome::Partly(len) if size != end => Outcome::Short(len),
                outcome => outcome,
            });
        }
        Effect::OnFile(_, FileCall::Allocate { mode, len, .. }) => {
            return Ok(shifted(before.mark, *mode, *len, size));
        }
        Effect::OnFile(_, FileCall::Truncate { len })
        | Effect::Name(NameCall::Truncate { len, .. }) => {
            return Ok(cut(before, now.as_ref(), *len));
        }
        // No other call on a file is an effect.
        Effect::OnFile(..) => return Ok(Outcome::NotDone),
        Effect::Open(_, call) if !call.is_exclusive() => return Ok(cut(before, now.as_ref(), 0)),
        Effect::Open(..) => None,
        Effect::Name(call) => Some(call),
    };
    let was_there = before.identity != (0, 0);
    let (was, now) = ((before.identity, before.mark), which(now));
    Ok(match call {
        Some(NameCall::Unlink { .. } | NameCall::RemoveDir { .. }) => match was_there {
            // It found nothing to remove, and will again.
            false => Outcome::NotDone,
            true if is_same(now, was) => Outcome::NotDone,
            true => Outcome::Done,
        },
        Some(NameCall::Rename { to, .. }) => {
            if !was_there || is_same(now, was) {
                Outcome::NotDone
            } else if is_same(which(stat(storage, to, false).await?), was) {
                Outcome::Done
            } else {
                Outcome::Unknown
            }
        }
        _ if was_there || now == which(None) => Outcome::NotDone,
        Some(NameCall::Link { from, .. })
            if is_same(which(stat(storage, from, false).await?), now) =>
        {
            Outcome::Done
        }
        _ => Outcome::Unknown,
    })
}

/// The file or the name that tells whether the request was done; `None`: there is none.
async fn look<S: Storage>(storage: &S, effect: &Effect<S::File>) -> io::Result<Option<Status>> {
    let (path, follow) = match effect {
        Effect::Append { file, .. } | Effect::OnFile(file, _) => {
            return storage.status(file).await.map(Some);
        }
        Effect::Open(_, call) => (&call.path, !call.is_exclusive()),
        Effect::Name(call) => match call {
            NameCall::Truncate { path, .. } => (path, true),
            NameCall::Unlink { path }
            | NameCall::RemoveDir { path }
            | NameCall::MakeDir { path, .. }
            | NameCall::Rename { from: path, .. }
            | NameCall::Link { to: path, .. }
            | NameCall::Symlink { name: path, .. } => (path, false),
            _ => return Ok(None),
        },
    };
    stat(storage, path, follow).await
}

/// Returns the status of a name, if it exists; why it cannot, the request says.
async fn stat<S: Storage>(
    storage: &S,
    path: &CallPath,
    follow: bool,
) -> io::Result<Option<Status>> {
    match storage.name(NameCall::Stat { path: path.clone(), follow }).await {
        Ok(answer) => Ok(Status::decode(&answer.bytes)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Which file it is, and when it was made; zeros of none.
fn which(status: Option<Status>) -> (Identity, u64) {
    status.map_or(((0, 0), 0), |status| (status.identity(), status.born))
}

/// Outcome of a `fallocate` that moves bytes, by the sizes before and now.
fn shifted(before: u64, mode: u32, len: u64, size: u64) -> Outcome {
    let is_collapse = mode & FallocateFlags::COLLAPSE_RANGE.bits() != 0;
    let after = if is_collapse { before.checked_sub(len) } else { before.checked_add(len) };
    match size {
        _ if size == before => Outcome::NotDone,
        _ if Some(size) == after => Outcome::Done,
        _ => Outcome::Unknown,
    }
}

/// Outcome of a truncation: a longer file that was changed may have been written since.
fn cut(before: Before, now: Option<&Status>, len: u64) -> Outcome {
    let is_same =
        |now: &Status| (now.identity(), now.changed_at()) == (before.identity, before.mark);
    match now {
        Some(now) if now.size > len && !is_same(now) => Outcome::Unknown,
        _ => Outcome::NotDone,
    }
}

/// How much of `data` is there when a file has grown by the range `grown`, others' bytes perhaps
/// among it.
async fn appended<S: Storage>(
    storage: &S,
    file: &S::File,
    data: &[u8],
    grown: Range<u64>,
) -> Outcome {
    let len = data.len() as u64;
    let done = match grown.end.checked_sub(grown.start) {
        Some(0) => Ok(0),
        Some(1..=GROWN_MAX) => match grown::read(storage, file, grown.clone()).await {
            Some(found) => doubt::appended(
                &mut grown::source(&found, grown.start),
                Record { read: &mut grown::source(data, 0), len, page_at: None },
                grown.clone(),
            ),
            None => Err(Errno::IO),
        },
        // Cut, or grown by more than is looked through.
        _ => Err(Errno::IO),
    };
    match done {
        Ok(0) => Outcome::NotDone,
        Ok(done) if done == len => Outcome::Done,
        Ok(done) => Outcome::Partly(done),
        Err(_) => Outcome::Unknown,
    }
}
