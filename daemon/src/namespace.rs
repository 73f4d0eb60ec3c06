//! Requests on names, and opening by name: the `delegate` policy.
//!
//! Paths lie at the start of the lane's buffer. They are copied out once and checked as copies.

use std::{ffi::CString, rc::Rc};

use rustix::{fs::OFlags, io::Errno};
use shm::{LANE_BUFFER_LEN, copy};
use wire::{FileFlags, PathPair, Request, Status, Times};

use crate::{
    core::Core,
    file::{Log, Origin},
    names::{Attributes, Identity, NameCall, OpenCall},
    registration,
    session::{Session, Ticket},
    settle,
    storage::Storage,
    verdict::{Verdict, errno},
};

/// A checked request.
pub(crate) enum Call {
    /// Opens a path into a slot.
    Open {
        slot: u32,
        open: OpenCall,
    },
    /// Puts the file that a stand-in stands for into a slot.
    Adopt {
        slot: u32,
        stand_in: Identity,
    },
    Name(NameCall),
}

/// Copies and checks the paths of a request that came on `lane`.
pub(crate) fn check<S: Storage>(
    session: &Session<S>,
    lane: usize,
    request: &Request,
) -> Result<Call, Errno> {
    let path = |len: u32| absolute(copy_of(session, lane, 0, len as usize)?);
    let pair = |paths: PathPair| -> Result<(Vec<u8>, Vec<u8>), Errno> {
        let (from_len, to_len) = (paths.from_len as usize, paths.to_len as usize);
        let from = copy_of(session, lane, 0, from_len)?;
        Ok((from, copy_of(session, lane, from_len, to_len)?))
    };
    Ok(Call::Name(match *request {
        Request::Adopt { file, device, inode } => {
            may_fill(session, file)?;
            return Ok(Call::Adopt { slot: file, stand_in: (device, inode) });
        }
        Request::Open { file, flags, mode, path_len } => {
            may_fill(session, file)?;
            let path = path(path_len)?;
            return Ok(Call::Open { slot: file, open: OpenCall { path, flags, mode } });
        }
        Request::Stat { path_len, follow } => NameCall::Stat { path: path(path_len)?, follow },
        Request::Truncate { path_len, len, .. } => {
            i64::try_from(len).map_err(|_| Errno::INVAL)?;
            NameCall::Truncate { path: path(path_len)?, len }
        }
        Request::Unlink { path_len } => NameCall::Unlink { path: path(path_len)? },
        Request::Rename { paths, flags } => {
            let (from, to) = pair(paths)?;
            NameCall::Rename { from: absolute(from)?, to: absolute(to)?, flags }
        }
        Request::MakeDir { path_len, mode } => NameCall::MakeDir { path: path(path_len)?, mode },
        Request::RemoveDir { path_len } => NameCall::RemoveDir { path: path(path_len)? },
        Request::ReadDir { path_len, from } => {
            NameCall::ReadDir { path: path(path_len)?, from, room: LANE_BUFFER_LEN }
        }
        Request::Link { paths } => {
            let (from, to) = pair(paths)?;
            NameCall::Link { from: absolute(from)?, to: absolute(to)? }
        }
        Request::Symlink { paths } => {
            let (text, name) = pair(paths)?;
            NameCall::Symlink { text: terminated(text)?, name: absolute(name)? }
        }
        Request::ReadLink { path_len } => NameCall::ReadLink { path: path(path_len)? },
        Request::SetMode { path_len, mode, .. } => {
            NameCall::Set { path: path(path_len)?, follow: true, what: Attributes::Mode(mode) }
        }
        Request::SetOwner { path_len, user, group, follow, .. } => {
            NameCall::Set { path: path(path_len)?, follow, what: Attributes::Owner(user, group) }
        }
        Request::SetTimes { path_len, follow, .. } => {
            let what = times_of(session, lane, path_len)?;
            NameCall::Set { path: path(path_len)?, follow, what }
        }
        Request::Access { path_len, mode } => NameCall::Access { path: path(path_len)?, mode },
        Request::FileSystem { path_len, .. } => NameCall::FileSystem { path: path(path_len)? },
        Request::Mirror { path_len } => NameCall::Mirror { path: path(path_len)? },
        _ => return Err(Errno::NOSYS),
    }))
}

fn may_fill<S: Storage>(session: &Session<S>, slot: u32) -> Result<(), Errno> {
    if !session.is_free(slot) {
        return Err(Errno::BADF);
    }
    if session.file_count() >= session.grant.file_credit {
        return Err(Errno::MFILE);
    }
    Ok(())
}

/// Executes a checked request.
pub(crate) async fn run<S: Storage>(core: &Rc<Core<S>>, ticket: &Ticket<S>, call: Call) -> Verdict {
    match call {
        Call::Open { slot, open } => open_into(core, ticket, slot, open).await,
        Call::Adopt { slot, stand_in } => {
            let file = core.storage.adopt(stand_in).await.map_err(|error| errno(&error))?;
            fill(core, ticket, slot, FileFlags::default(), file).await.map(|_| 0)
        }
        Call::Name(call) => {
            // What was written before must be seen by this, and not undo it afterwards.
            if let NameCall::Truncate { path, .. }
            | NameCall::Stat { path, .. }
            | NameCall::Set { path, .. } = &call
            {
                settle_path(core, path, false).await;
            }
            let storage = core.storage.seen_by(ticket.session.id, ticket.session.rank);
            let answer = storage.name(call).await.map_err(|error| errno(&error))?;
            put(ticket, &answer.bytes);
            Ok(answer.value)
        }
    }
}

/// The times that lie `at` bytes into the lane's buffer.
pub(crate) fn times_of<S: Storage>(
    session: &Session<S>,
    lane: usize,
    at: u32,
) -> Result<Attributes, Errno> {
    let bytes = copy_of(session, lane, at as usize, Times::LEN)?;
    Times::decode(&bytes).map(Attributes::Times).ok_or(Errno::FAULT)
}

/// Puts an answer into the lane's buffer.
pub(crate) fn put<S: Storage>(ticket: &Ticket<S>, bytes: &[u8]) {
    copy::copy_in(ticket.session.segment.lane_buffer(ticket.lane), bytes);
}

/// Opens a file and registers it without a log; the value is its flags.
async fn open_into<S: Storage>(
    core: &Rc<Core<S>>,
    ticket: &Ticket<S>,
    slot: u32,
    open: OpenCall,
) -> Verdict {
    let flags = file_flags(OFlags::from_bits_retain(open.flags));
    settle_path(core, &open.path, true).await;
    let storage = core.storage.seen_by(ticket.session.id, ticket.session.rank);
    let file = storage.open(open).await.map_err(|error| errno(&error))?;
    fill(core, ticket, slot, flags, file).await
}

/// Registers an open file without a log, and puts its status into the lane's buffer; the value is
/// its flags.
async fn fill<S: Storage>(
    core: &Rc<Core<S>>,
    ticket: &Ticket<S>,
    slot: u32,
    flags: FileFlags,
    file: S::File,
) -> Verdict {
    let status = core.storage.status(&file).await.map_err(|error| errno(&error))?;
    put(ticket, &status.encode());
    let (session, identity) = (ticket.session.id, status.identity());
    core.node.shared().inodes.add(identity.0, identity.1);
    let origin = Origin { session, slot, flags, identity, is_ours: true };
    registration::admit(core, &ticket.session, origin, file, Log::default()).map_err(|_| {
        // Another request has taken the slot meanwhile.
        core.node.shared().inodes.remove(identity.0, identity.1);
        Errno::BADF
    })?;
    core.node.shared().inodes.tell(identity.0, identity.1);
    Ok(u64::from(flags.0))
}

/// Drains what is staged for the file a path leads to, if it leads to one; demotes its openers if
/// there is to be another.
async fn settle_path<S: Storage>(core: &Rc<Core<S>>, path: &CString, demote: bool) {
    if core.node.shared().inodes.is_empty() {
        return;
    }
    let call = NameCall::Stat { path: path.clone(), follow: true };
    let Ok(answer) = core.storage.name(call).await else {
        return; // The call itself will say why.
    };
    match Status::decode(&answer.bytes).as_ref().map(Status::identity) {
        Some(identity) if demote => settle::settle(core, identity).await,
        Some(identity) => settle::drain_inode(core, identity).await,
        None => {}
    }
}

fn file_flags(flags: OFlags) -> FileFlags {
    let access = match flags & OFlags::RWMODE {
        OFlags::WRONLY => FileFlags::WRITABLE,
        OFlags::RDWR => FileFlags::READABLE.with(FileFlags::WRITABLE),
        _ => FileFlags::READABLE,
    };
    if flags.contains(OFlags::APPEND) { access.with(FileFlags::APPEND) } else { access }
}

/// Copies `len` bytes at `at` of the lane's buffer.
fn copy_of<S: Storage>(
    session: &Session<S>,
    lane: usize,
    at: usize,
    len: usize,
) -> Result<Vec<u8>, Errno> {
    let end = at.checked_add(len).ok_or(Errno::NAMETOOLONG)?;
    let shared = session.segment.lane_buffer(lane).get(at..end).ok_or(Errno::NAMETOOLONG)?;
    let mut bytes = vec![0; len];
    copy::copy_out(&mut bytes, shared);
    Ok(bytes)
}

fn absolute(path: Vec<u8>) -> Result<CString, Errno> {
    match path.first() {
        None => Err(Errno::NOENT),
        Some(b'/') => terminated(path),
        Some(_) => Err(Errno::INVAL),
    }
}

fn terminated(bytes: Vec<u8>) -> Result<CString, Errno> {
    if bytes.is_empty() {
        return Err(Errno::NOENT);
    }
    CString::new(bytes).map_err(|_| Errno::INVAL)
}
