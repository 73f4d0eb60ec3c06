//! When staged bytes are drained that nobody waits for.
//!
//! A client marks a file dirty when it publishes to it and finds it unmarked. The daemon takes the
//! mark, and from then on the file is *active*: looked at by a tick every [`TICK`], until it has
//! been found empty for [`QUIET_TICKS`] since its mark was taken: who publishes has no fence, and
//! may still have found a mark that was just taken ([`SEEN_AFTER`]). While ticks run, further marks
//! wait for the next one, so a client raises at most once a tick.
//!
//! A tick drains what was there at the tick before, or when the mark was taken, and whatever has
//! much staged. Bytes are therefore on their way at most two ticks after they were published.

use std::{rc::Rc, time::Duration};

use executor::Class;
use shm::staging::SEEN_AFTER;

use crate::{
    core::Core, drain, file::OpenFile, registration, session::Session,
    session_storage::SessionStorage,
};

/// Time between two looks at the active files.
pub(crate) const TICK: Duration = Duration::from_millis(2);
/// How many ticks must find a file empty before it is no longer active: 10 ms. A wake-up by its
/// next write costs less than more ticks.
const QUIET_TICKS: u32 = 5;
const _: () = assert!(TICK.as_nanos() > SEEN_AFTER.as_nanos());

/// Follows up on a raised dirty bit: at once when no tick runs, else for what has much staged.
pub(crate) fn marked<S: SessionStorage>(core: &Rc<Core<S>>, session: &Session<S>) {
    if session.segment.shared().bundle.head() > 0 {
        core.node.clients.bundles.announce();
    }
    if core.is_ticking.get() {
        session.is_marked.set(true);
        drain_much(core, session);
    } else {
        take_marks(core, session);
    }
}

/// Drains the active files of a session that have much staged.
fn drain_much<S: SessionStorage>(core: &Rc<Core<S>>, session: &Session<S>) {
    for file in session.files() {
        if file.pace.is_active.get() && file.has_much() {
            drain::enqueue(core, &file);
        }
    }
}

/// Takes a session's marks and makes its marked files active.
fn take_marks<S: SessionStorage>(core: &Rc<Core<S>>, session: &Session<S>) {
    session.is_marked.set(false);
    for word in 0..shm::FILES / 64 {
        let mut bits = session.segment.shared().take_dirty(word);
        while bits != 0 {
            let slot = word * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let found = u32::try_from(slot)
                .ok()
                .and_then(|slot| registration::find_file(core, session, slot));
            if let Some(file) = found {
                activate(core, &file);
            }
        }
    }
}

/// Has the ticks look at a file whose mark was taken.
fn activate<S: SessionStorage>(core: &Rc<Core<S>>, file: &Rc<OpenFile<S>>) {
    file.pace.quiet_ticks.set(0);
    if !file.pace.is_active.replace(true) {
        file.pace.seen.set(file.head());
        core.active.borrow_mut().push(Rc::clone(file));
    }
    if file.has_much() {
        drain::enqueue(core, file);
    }
    if !core.is_ticking.replace(true) {
        core.handle.spawn(Class::Latency, tick(Rc::clone(core)));
    }
}

/// Looks at the active files until there are none.
async fn tick<S: SessionStorage>(core: Rc<Core<S>>) {
    while !core.active.borrow().is_empty() {
        debug_assert!(core.is_ticking.get(), "one tick task runs");
        core.handle.sleep(TICK).await;
        for session in core.sessions() {
            if session.is_marked.get() {
                take_marks(&core, &session);
            }
        }
        let active = core.active.borrow().clone();
        for file in &active {
            look(&core, file);
        }
    }
    core.is_ticking.set(false);
    // What was marked in the last tick's course would otherwise wait for the next mark.
    for session in core.sessions() {
        if session.is_marked.get() {
            take_marks(&core, &session);
        }
    }
}

/// One tick's look at one file.
fn look<S: SessionStorage>(core: &Rc<Core<S>>, file: &Rc<OpenFile<S>>) {
    let pace = &file.pace;
    if file.staged() > 0 {
        pace.quiet_ticks.set(0);
        if pace.is_refused.get() && !pace.tick_refused() {
            return;
        }
        if pace.seen.get() > file.tail() {
            drain::enqueue_to(core, file, pace.seen.get());
        } else if file.has_much() {
            drain::enqueue(core, file);
        }
        pace.seen.set(file.head());
        return;
    }
    pace.quiet_ticks.set(pace.quiet_ticks.get() + 1);
    if pace.quiet_ticks.get() >= QUIET_TICKS || file.is_closing() {
        core.forget(file);
    }
}

/// Drains the active files that have much staged, whoever they belong to.
pub(crate) fn drain_what_has_much<S: SessionStorage>(core: &Rc<Core<S>>) {
    let has_much = |file: &&Rc<OpenFile<S>>| file.has_much() && !file.is_being_drained();
    let found: Vec<_> = core.active.borrow().iter().filter(has_much).map(Rc::clone).collect();
    found.iter().for_each(|file| drain::enqueue(core, file));
}
