//! Locks on files that the daemon has open: those of remote files, which no kernel here knows.
//!
//! Before a lock is taken or given up, what anybody of this node has staged for the file is in it:
//! so whoever gets the lock next finds what was written under it.
//!
//! Before a lock is said to be taken, those of every client of this node that has ended are given
//! up, however it ended: whoever has waited for that end finds the lock free, as with the kernel's.

use std::rc::Rc;

use executor::first;
use rustix::io::Errno;
use storage::{
    lock_call::{LockCall, process_of},
    verdict::{Verdict, errno},
};
use wire::{LockOwner, LockTerms};

use crate::{
    core::Core,
    file::{OpenFile, Use},
    node::Mail,
    session::{Session, Ticket},
    session_storage::SessionStorage,
    settle,
};

/// Takes a lock for a client, or gives it up.
pub(crate) async fn lock<S: SessionStorage>(
    core: &Rc<Core<S>>,
    session: &Session<S>,
    file: &Rc<OpenFile<S>>,
    call: LockCall,
) -> Verdict {
    settle::drain_inode(core, file.identity).await;
    let descriptor = file.descriptor()?;
    note(session, file);
    let call = of_client(session, call);
    let ended = core.node.lockers_ended();
    let mut done = core.storage.lock(&descriptor.file, call).await;
    let is_taken = done.as_ref().is_err_and(|error| errno(error) == Errno::AGAIN);
    // Whoever waits asks again by himself.
    if is_taken && !call.terms.waits && has_ended_since(core, session, ended).await {
        done = core.storage.lock(&descriptor.file, call).await;
    }
    if done.is_ok() && !call.is_unlock() && file.is_closing() {
        // Closing it has given up what there was before; an open file's goes with its descriptor.
        // As in the kernel this one alone is undone: another thread may have got others since.
        if call.terms.owner == LockOwner::Process {
            give_up(core, &descriptor, call.undone()).await;
        }
        return Err(Errno::BADF);
    }
    done.map(|()| 0).map_err(errno)
}

/// Looks for a lock that is in a client's way.
pub(crate) async fn find<S: SessionStorage>(
    core: &Rc<Core<S>>,
    ticket: &Ticket<S>,
    file: &Rc<OpenFile<S>>,
    call: LockCall,
) -> Verdict {
    let descriptor = file.descriptor()?;
    note(&ticket.session, file);
    let call = of_client(&ticket.session, call);
    let ended = core.node.lockers_ended();
    let mut found = core.storage.find_lock(&descriptor.file, call).await;
    if matches!(found, Ok(Some(_))) && has_ended_since(core, &ticket.session, ended).await {
        found = core.storage.find_lock(&descriptor.file, call).await;
    }
    match found.map_err(errno)? {
        Some(found) => {
            ticket.put(&found.encode());
            Ok(1)
        }
        None => Ok(0),
    }
}

/// Has all that have ended give up their locks; whether anybody has done so since there were
/// `ended`.
async fn has_ended_since<S: SessionStorage>(
    core: &Core<S>,
    session: &Session<S>,
    ended: u64,
) -> bool {
    let all_reaped = async { drop(core.node.ask_all(Mail::Reap).await) };
    // A session that ends waits for its requests, which must not wait for it, or for one like it.
    first(all_reaped, session.news.until(|| session.is_ending())).await;
    core.node.lockers_ended() != ended
}

/// From now on there may be locks to give up.
fn note<S: SessionStorage>(session: &Session<S>, file: &OpenFile<S>) {
    file.is_locked.set(true);
    session.has_locks.set(true);
}

/// A client closes a file: no lock of its process on it is left.
pub(crate) async fn closing<S: SessionStorage>(
    core: &Rc<Core<S>>,
    session: &Session<S>,
    file: &Rc<OpenFile<S>>,
) {
    if !session.has_locks.get() {
        return;
    }
    let is_its = |other: &Rc<OpenFile<S>>| other.identity == file.identity && other.is_locked.get();
    let locked: Vec<_> = session.files().into_iter().filter(is_its).collect();
    if locked.is_empty() {
        return;
    }
    settle::drain_inode(core, file.identity).await;
    // By those that were locked: what is opened otherwise may be at another server.
    for other in locked {
        if let Ok(descriptor) = other.descriptor() {
            let all = of_client(session, LockCall::unlock_all(LockOwner::Process, 0));
            give_up(core, &descriptor, all).await;
        }
    }
}

/// Gives up locks of a client's process on a file.
async fn give_up<S: SessionStorage>(core: &Core<S>, descriptor: &Use<S>, call: LockCall) {
    if let Err(error) = core.storage.lock(&descriptor.file, call).await {
        tracing::debug!("the locks of a file that was closed are gone already: {error}");
    }
}

/// The call with its client's number; nothing else of what only daemons may say.
fn of_client<S: SessionStorage>(session: &Session<S>, call: LockCall) -> LockCall {
    let process = process_of(session.id);
    LockCall { terms: LockTerms { reclaims: false, process, ..call.terms }, ..call }
}
