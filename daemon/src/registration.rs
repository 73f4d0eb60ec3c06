//! Files that come and go: handed over on the control socket, opened by request, closed.
//!
//! A client hands a file over and stages at once, so an entry or a mark may be seen before the
//! message it needs. The socket is therefore read dry whenever a slot turns out to be unknown, and
//! when the client is gone.

use std::{rc::Rc, sync::Arc};

use executor::{Class, lock};
use storage::{names::is_of_view, verdict::errno};
use wire::{FileFlags, Registration};

use crate::{
    core::{Core, Departure},
    drain,
    file::{Log, OpenFile, Origin},
    locks,
    peer::Incoming,
    registry::Opener,
    session::Session,
    session_storage::SessionStorage,
    settle,
};

/// Messages read at a time; the rest is announced again by the socket.
const MESSAGES_MAX: usize = 1024;

/// Reads a session's control socket until nothing is left.
pub(crate) fn hear<S: SessionStorage>(core: &Rc<Core<S>>, session: &Session<S>) {
    for _ in 0..MESSAGES_MAX {
        match session.peer.receive() {
            Incoming::Nothing => return,
            Incoming::Doorbell => {}
            Incoming::Gone => return core.end(session, Departure::Gone),
            Incoming::Nonsense => return core.end(session, Departure::Protocol("message")),
            Incoming::File(registration, Ok(file)) => {
                if let Err(what) = register(core, session, registration, file) {
                    return core.end(session, Departure::Protocol(what));
                }
            }
            Incoming::File(_, Err(_)) => {
                return core.end(session, Departure::Protocol("unusable descriptor"));
            }
        }
    }
}

/// The file in a session's slot. Its registration may still be on the way: then looks there.
pub(crate) fn find_file<S: SessionStorage>(
    core: &Rc<Core<S>>,
    session: &Session<S>,
    slot: u32,
) -> Option<Rc<OpenFile<S>>> {
    session.file(slot).or_else(|| {
        hear(core, session);
        session.file(slot)
    })
}

/// Checks a file that was handed over and takes it in.
fn register<S: SessionStorage>(
    core: &Rc<Core<S>>,
    session: &Session<S>,
    registration: Registration,
    file: S::File,
) -> Result<(), &'static str> {
    let Registration { file: slot, flags, log_at, log_len } = registration;
    let Some(identity) = core.storage.identify(&file) else {
        return refuse(core, file, "not a regular file");
    };
    if is_of_view(identity.0) {
        // To drain it this daemon would wait for itself. Its client has another root, or other
        // mounts, and did not know it: it asks before it writes on, and finds no such file here.
        if let Some(shared) = session.segment.slot(slot) {
            shared.demote();
        }
        refuse(core, file, "file of a view").ok();
        return Ok(());
    }
    let log = Log { at: log_at, len: log_len };
    if !may_have_log(session, slot, log) {
        return refuse(core, file, "log out of place");
    }
    let session_id = session.id;
    let origin =
        Origin { session: session_id, slot, flags, identity, is_ours: false, has_descriptor: true };
    admit(core, session, origin, file, log)
}

/// Takes a checked file in, and deals with others that have its inode open.
pub(crate) fn admit<S: SessionStorage>(
    core: &Rc<Core<S>>,
    session: &Session<S>,
    origin: Origin,
    file: S::File,
    log: Log,
) -> Result<(), &'static str> {
    if !session.is_free(origin.slot) {
        return refuse(core, file, "slot in use");
    }
    if origin.has_descriptor && !session.may_hold_one_more() {
        return refuse(core, file, "too many files");
    }
    let (slot, identity, flags) = (origin.slot, origin.identity, origin.flags);
    let permits = core.storage.permits(&file);
    let open = OpenFile::new(origin, Arc::clone(&session.segment), file, permits, log)
        .ok_or("no such slot")?;
    session.insert(Rc::new(open));
    let opener = Opener {
        core: core.index,
        session: session.id,
        slot,
        can_write: flags.has(FileFlags::WRITABLE),
        segment: Arc::clone(&session.segment),
        demoted_at: None,
    };
    let others = lock(&core.node.registry).add(identity, opener, &core.handle);
    if !others.is_empty() {
        let core = Rc::clone(core);
        let handle = core.handle.clone();
        handle.spawn(Class::Latency, async move { settle::drain_all(&core, &others).await });
    }
    Ok(())
}

/// Closes a file that is not taken in: who has opened it may have it take long.
fn refuse<S: SessionStorage>(
    core: &Rc<Core<S>>,
    file: S::File,
    why: &'static str,
) -> Result<(), &'static str> {
    let storage = core.storage.clone();
    let closed = async move { storage.close(file).await.unwrap_or_default() };
    core.handle.spawn(Class::Latency, closed);
    Err(why)
}

/// True if `log` lies in what is granted of the arena, beside the logs of the session's other
/// files.
pub(crate) fn may_have_log<S: SessionStorage>(session: &Session<S>, slot: u32, log: Log) -> bool {
    let is_apart = |file: &Rc<OpenFile<S>>| file.slot == slot || !file.log().overlaps(log);
    let is_valid = session.may_use(log.at, log.len) && log.is_valid(&session.segment);
    is_valid && session.files().iter().all(is_apart)
}

/// Drains a file and lets go of it: on return the daemon has no descriptor of it and no operation
/// on it, and its slot is free.
pub(crate) async fn discard<S: SessionStorage>(
    core: &Rc<Core<S>>,
    session: &Session<S>,
    file: &Rc<OpenFile<S>>,
) {
    file.begin_close();
    if let Err(error) = drain::drain_to(core, file, file.head()).await {
        // What is refused now is given up; the close tells.
        drain::owe(core, file, error);
    }
    drop(file.turn().await);
    core.forget(file);
    locks::closing(core, session, file).await;
    if let Some(descriptor) = file.let_go().await {
        // What the file system tells of an open file it tells whoever closes it first, once.
        match core.storage.close(descriptor).await.map_err(errno) {
            Err(error) if file.can_write => drain::owe(core, file, error),
            // Its close tells, but nothing was refused.
            Err(error) => file.shared().owe(error.raw_os_error().unsigned_abs()),
            Ok(()) => {}
        }
    }
    lock(&core.node.registry).remove(file.identity, session.id, file.slot);
    session.remove(file.slot);
    if file.is_ours {
        core.node.shared().inodes.remove(file.identity.0, file.identity.1);
    }
}
