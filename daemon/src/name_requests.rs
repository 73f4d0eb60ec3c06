//! Requests on names, and opening by name: the `delegate` policy.
//!
//! Paths lie at the start of the lane's buffer. They are copied out once and checked as copies.

use std::rc::Rc;

use executor::lock;
use rustix::{
    fs::{Access, OFlags, RenameFlags},
    io::Errno,
};
use shm::{LANE_BUFFER_LEN, copy};
use storage::{
    names::{CallPath, Identity, NameCall, OpenCall},
    verdict::{Verdict, errno},
};
use wire::{FileFlags, Request, Status};

use crate::{
    core::Core,
    file::{Log, Origin},
    registration,
    session::{Session, Ticket},
    session_storage::SessionStorage,
    settle,
};

/// `W_OK`.
const MAY_WRITE: u32 = Access::WRITE_OK.bits();

/// A checked request.
pub(crate) enum Call {
    /// Opens a path into a slot.
    Open {
        slot: u32,
        open: OpenCall,
    },
    Name(NameCall),
}

/// Copies what came with a request on `lane`, and checks it.
pub(crate) fn check<S: SessionStorage>(
    session: &Session<S>,
    lane: usize,
    request: &Request,
) -> Result<Call, Errno> {
    match *request {
        Request::Open { file, .. } => {
            may_fill(session, file)?;
            let open = OpenCall::decode(request, &payload(session, lane, request)?)?;
            Ok(Call::Open { slot: file, open })
        }
        _ => {
            let payload = payload(session, lane, request)?;
            NameCall::decode(request, &payload, LANE_BUFFER_LEN).map(Call::Name)
        }
    }
}

/// A copy of what came with a request on `lane`: the client may change what lies in the lane's
/// buffer at any time.
pub(crate) fn payload<S: SessionStorage>(
    session: &Session<S>,
    lane: usize,
    request: &Request,
) -> Result<Vec<u8>, Errno> {
    let len = request.names_len().ok_or(Errno::NOSYS)?;
    let len = usize::try_from(len).map_err(|_| Errno::NAMETOOLONG)?;
    let shared = session.segment.lane_buffer(lane).get(..len).ok_or(Errno::NAMETOOLONG)?;
    let mut bytes = vec![0; len];
    copy::copy_out(&mut bytes, shared);
    Ok(bytes)
}

fn may_fill<S: SessionStorage>(session: &Session<S>, slot: u32) -> Result<(), Errno> {
    if session.is_free(slot) { Ok(()) } else { Err(Errno::BADF) }
}

/// Executes a checked request.
pub(crate) async fn run<S: SessionStorage>(
    core: &Rc<Core<S>>,
    ticket: &Ticket<S>,
    call: Call,
) -> Verdict {
    match call {
        Call::Open { slot, mut open } => {
            locate(core, &mut open.path)?;
            open_into(core, ticket, slot, open).await
        }
        Call::Name(mut call) => {
            for path in call.paths_mut().into_iter().flatten() {
                locate(core, path)?;
            }
            if let NameCall::Lease { session, .. } = &mut call {
                *session = ticket.session.id;
                core.node.clients.bundles.add(*session, &ticket.session.segment)?;
            }
            if let NameCall::Rename { from, to, flags } = &call {
                let is_exchange = RenameFlags::from_bits_retain(*flags) == RenameFlags::EXCHANGE;
                // Without its bytes none takes another one's name, which may be that of a good one.
                for path in [from].into_iter().chain(Some(to).filter(|_| is_exchange)) {
                    if let Some(identity) = open_inode(core, path, false).await {
                        settle::drain_for(core, identity, None).await?;
                    }
                }
            }
            // What was written before must be seen by this, and not undo it afterwards.
            if let NameCall::Truncate { path, .. }
            | NameCall::Stat { path, .. }
            | NameCall::Set { path, .. } = &call
            {
                if let Some(identity) = open_inode(core, path, true).await {
                    settle::drain_inode(core, identity).await;
                    truncate_staged(core, identity, &call).await?;
                }
            }
            let storage = core.storage.seen_by(ticket.session.id, ticket.session.rank);
            let change = call.is_once().then(|| call.clone());
            let answer = storage.name(call).await.map_err(errno)?;
            if let Some(change) = change {
                lock(&core.node.viewed).iter().for_each(|nodes| lock(nodes).follow(&change));
            }
            ticket.put(&answer.bytes);
            Ok(answer.value)
        }
    }
}

/// Has a path that is relative to an open folder begin with the path that this has now.
///
/// # Errors
///
/// `ENOENT`: it has none any more.
fn locate<S: SessionStorage>(core: &Rc<Core<S>>, path: &mut CallPath) -> Result<(), Errno> {
    if path.base.is_some() {
        let viewed = lock(&core.node.viewed);
        let found = viewed.iter().find_map(|nodes| lock(nodes).locate(path));
        *path = found.transpose()?.unwrap_or_else(|| path.text.clone().into());
    }
    Ok(())
}

/// Opens a file and registers it without a log; the value is its flags.
async fn open_into<S: SessionStorage>(
    core: &Rc<Core<S>>,
    ticket: &Ticket<S>,
    slot: u32,
    open: OpenCall,
) -> Verdict {
    let flags = file_flags(OFlags::from_bits_retain(open.flags));
    let is_by_number = open.inode != 0;
    if !is_by_number {
        if let Some(identity) = open_inode(core, &open.path, true).await {
            settle::settle(core, identity).await;
        }
    }
    let storage = core.storage.seen_by(ticket.session.id, ticket.session.rank);
    let (file, status) = storage.open(open).await.map_err(errno)?;
    let identity = status.identity();
    let filled = fill(core, ticket, slot, flags, file, status);
    if is_by_number && lock(&core.node.registry).count_of(identity) > 1 {
        // Whoever has it open, too, did not know that somebody writes it.
        settle::settle(core, identity).await;
    }
    filled
}

/// Registers an open file without a log, and puts its status into the lane's buffer; the value is
/// its flags.
fn fill<S: SessionStorage>(
    core: &Rc<Core<S>>,
    ticket: &Ticket<S>,
    slot: u32,
    flags: FileFlags,
    file: S::File,
    status: Status,
) -> Verdict {
    ticket.put(&status.encode());
    let (session, identity) = (ticket.session.id, status.identity());
    // Where it is elsewhere there is nothing to identify here.
    let has_descriptor = core.storage.identify(&file).is_some();
    if has_descriptor && !ticket.session.may_hold_one_more() {
        return Err(Errno::MFILE); // An honest client has counted.
    }
    core.node.shared().inodes.add(identity.0, identity.1);
    let origin = Origin { session, slot, flags, identity, is_ours: true, has_descriptor };
    registration::admit(core, &ticket.session, origin, file, Log::default()).map_err(|_| {
        // Another request has taken the slot meanwhile.
        core.node.shared().inodes.remove(identity.0, identity.1);
        Errno::BADF
    })?;
    core.node.shared().inodes.tell(identity.0, identity.1);
    Ok(u64::from(flags.0))
}

/// Before a truncation by name: has none of the staged bytes that are refused come behind it.
async fn truncate_staged<S: SessionStorage>(
    core: &Rc<Core<S>>,
    identity: Identity,
    call: &NameCall,
) -> Result<(), Errno> {
    let NameCall::Truncate { path, len } = call else { return Ok(()) };
    if settle::is_staged(core, identity) {
        // By an open file, which the caller may not be allowed to write.
        let access = NameCall::Access { path: path.clone(), mode: MAY_WRITE };
        core.storage.name(access).await.map_err(errno)?;
        settle::truncate_staged(core, identity, *len).await?;
    }
    Ok(())
}

/// The inode that a path leads to, if anything may be staged for it.
async fn open_inode<S: SessionStorage>(
    core: &Rc<Core<S>>,
    path: &CallPath,
    follow: bool,
) -> Option<Identity> {
    if core.node.shared().inodes.is_empty() {
        return None;
    }
    let call = NameCall::Stat { path: path.clone(), follow };
    // Why there is none the call itself will say.
    let answer = core.storage.name(call).await.ok()?;
    Status::decode(&answer.bytes).as_ref().map(Status::identity)
}

fn file_flags(flags: OFlags) -> FileFlags {
    let access = match flags & OFlags::RWMODE {
        OFlags::WRONLY => FileFlags::WRITABLE,
        OFlags::RDWR => FileFlags::READABLE.with(FileFlags::WRITABLE),
        _ => FileFlags::READABLE,
    };
    if flags.contains(OFlags::APPEND) { access.with(FileFlags::APPEND) } else { access }
}
