//! How many transfers are under way at a server; what would be more stays in its lane.
//!
//! A server grants so many requests. Each transfer that is taken beyond those would be a task that
//! waits, and of thousands none is in the cache any more when its turn comes. So every transfer to
//! a server needs a permit. One that gets none waits in line, and *blocks* its lane: what comes
//! next there is not read. When its turn has come it has permits for a batch, and what is behind it
//! in the lane is served with it, out of memory that lies together. The lane then goes to the end
//! of the line.
//!
//! Whatever else a client asks for needs no permit, but waits behind a transfer of its own lane.
//! That is none of another thread's, and who waits for several requests of a lane waits for them in
//! order: the one in front is taken, and acknowledged, however long its turn takes to come. Who has
//! a permit waits for the server, or for others to be done with the file, never for a lane.

use std::rc::Rc;

use executor::{Class, Credits, yield_now};

use super::{Transfer, visit};
use crate::session_storage::SessionStorage;

/// A lane whose turn has come takes one of so many parts of all permits.
const PARTS: u64 = 4;

/// Has a transfer wait in line for its permit, and its lane for the transfer.
pub(crate) fn wait<S: SessionStorage>(line: Credits, transfer: Transfer<S>) {
    let (core, session) = (Rc::clone(&transfer.on.core), Rc::clone(&transfer.on.ticket.session));
    let (handle, lane) = (core.handle.clone(), transfer.on.ticket.lane);
    debug_assert!(!session.is_blocked(lane), "a lane waits for one transfer");
    session.block(lane, true);
    handle.start(Class::Latency, async move {
        let mut permits = line.take((line.total() / PARTS).max(1)).await;
        session.block(lane, false);
        transfer.begin(Some(permits.split(1)));
        let mut permits = Some(permits);
        while let (_, true) = visit(&core, &session, lane, &mut permits) {
            yield_now().await;
        }
    });
}
