//! The end of a session: what it has staged is drained, and everything it was granted comes back.

use std::rc::Rc;

use executor::Class;

use crate::{core::Core, drain, registration, session::Session, session_storage::SessionStorage};

/// Begins to reap a session that takes no request any more.
pub(crate) fn reap<S: SessionStorage>(core: &Rc<Core<S>>, session: Rc<Session<S>>) {
    core.handle.spawn(Class::Latency, drain_and_release(Rc::clone(core), session));
}

/// Drains a session and gives back its grants.
async fn drain_and_release<S: SessionStorage>(core: Rc<Core<S>>, session: Rc<Session<S>>) {
    debug_assert!(session.is_ending(), "session {} takes no requests", session.id);
    // A file that was handed over is drained, even if nothing has been heard of it yet.
    registration::hear(&core, &session);
    session.quiet().await;
    drain::drain_session(&core, &session).await;
    for file in session.files() {
        registration::discard(&core, &session, &file).await;
        if !file.is_ours {
            core.node.shared().inodes.remove(file.identity.0, file.identity.1);
        }
    }
    if session.has_locks.get() {
        core.node.locker_ended();
        session.news.notify_all();
    }
    core.node.clients.bundles.end(session.id);
    core.node.count_ended(core.index, &session.count_up());
    core.remove(session.id);
    let (id, grant) = (session.id, session.grant.get());
    drop(session);
    core.node.leave(id, grant);
}
