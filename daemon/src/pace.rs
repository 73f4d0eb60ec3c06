//! When staged bytes are drained that nobody waits for.
//!
//! A client marks a file dirty when it publishes to it and finds it unmarked. The daemon takes the
//! mark, and from then on the file is *active*: looked at by a tick every [`TICK`], until it has
//! been found empty for [`QUIET_TICKS`]. While ticks run, further marks wait for the next one, so
//! a client raises at most once a tick, and not at all while its files stay active and marked.
//!
//! A tick drains what was there at the tick before, or when the mark was taken, and whatever has
//! much staged. Bytes are therefore on their way at most two ticks after they were published.

use std::{cell::Cell, rc::Rc, time::Duration};

use executor::Class;
use shm::staging::DrainClaim;

use crate::{core::Core, drain, file::OpenFile, session::Session, session_storage::SessionStorage};

/// Time between two looks at the active files.
pub(crate) const TICK: Duration = Duration::from_millis(2);
/// How many ticks must find a file empty before it is no longer active: 10 ms. A wake-up by its
/// next write costs less than more ticks.
const QUIET_TICKS: u32 = 5;
/// Refused bytes are tried again every so many ticks: 100 ms.
const RETRY_TICKS: u32 = 50;
/// This much staged is drained at once, where the client does not drain a full log itself.
const MUCH: u64 = drain::UNIT_LEN;
/// Or this part of the log.
const MUCH_OF_LOG: u64 = 4;

/// State that ticks keep of a file.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    is_active: Cell<bool>,
    /// Head of the log at the last tick.
    seen: Cell<u64>,
    /// Ticks in a row that found the log empty.
    quiet_ticks: Cell<u32>,
    /// Log position up to which the background shall drain.
    wanted: Cell<u64>,
    /// Holder that kept the background from draining when it last tried.
    pub(crate) last_holder: Cell<Option<DrainClaim>>,
    /// The kernel has refused the oldest staged bytes when they were last tried.
    pub(crate) is_refused: Cell<bool>,
    /// Ticks since the background has tried refused bytes.
    refused_ticks: Cell<u32>,
}

impl Pace {
    /// Has the background drain up to `position`.
    pub(crate) fn want(&self, position: u64) {
        self.wanted.set(position);
    }

    /// Counts a tick that finds refused bytes; whether they are to be tried again.
    fn is_retry_due(&self) -> bool {
        let ticks = self.refused_ticks.get() + 1;
        debug_assert!(ticks <= RETRY_TICKS, "a retry starts the count again");
        self.refused_ticks.set(ticks % RETRY_TICKS);
        ticks == RETRY_TICKS
    }
}

impl<S: SessionStorage> OpenFile<S> {
    /// True if so much is staged that it is drained whatever its age.
    pub(crate) fn has_much(&self) -> bool {
        if self.shared().is_drained_by_client() || self.pace.is_refused.get() {
            return false;
        }
        let staged = self.staged();
        staged >= MUCH || staged != 0 && staged >= self.log().len / MUCH_OF_LOG
    }

    /// True if the background shall drain another unit.
    pub(crate) fn wants_drain(&self) -> bool {
        !self.is_drained_to(self.pace.wanted.get()) || self.has_much()
    }
}

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
            drain::enqueue(core, &file, file.head());
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
            let found = u32::try_from(slot).ok().and_then(|slot| core.find_file(session, slot));
            if let Some(file) = found {
                activate(core, &file);
            }
        }
    }
}

/// Has the ticks look at a file that has something staged.
fn activate<S: SessionStorage>(core: &Rc<Core<S>>, file: &Rc<OpenFile<S>>) {
    if file.staged() == 0 {
        return; // The mark of what has been drained since.
    }
    if !file.pace.is_active.replace(true) {
        file.pace.quiet_ticks.set(0);
        file.pace.seen.set(file.head());
        core.active.borrow_mut().push(Rc::clone(file));
    }
    if file.has_much() {
        drain::enqueue(core, file, file.head());
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
        if pace.is_refused.get() && !pace.is_retry_due() {
            return;
        }
        if pace.seen.get() > file.tail() || file.has_much() {
            drain::enqueue(core, file, file.head());
        }
        pace.seen.set(file.head());
        return;
    }
    pace.quiet_ticks.set(pace.quiet_ticks.get() + 1);
    if pace.quiet_ticks.get() >= QUIET_TICKS || file.is_closing() {
        forget(core, file);
        // Clears the file's mark; what was published before the mark was cleared is seen now.
        if let Some(session) = core.session(file.session) {
            take_marks(core, &session);
            activate(core, file);
        }
    }
}

/// Takes a file off the list of active ones.
pub(crate) fn forget<S: SessionStorage>(core: &Core<S>, file: &Rc<OpenFile<S>>) {
    if file.pace.is_active.replace(false) {
        core.active.borrow_mut().retain(|other| !Rc::ptr_eq(other, file));
    }
}

/// Takes a session's files off the list of active ones.
pub(crate) fn forget_session<S: SessionStorage>(core: &Core<S>, session: u32) {
    core.active.borrow_mut().retain(|file| file.session != session);
}

/// Drains the active files that have much staged, whoever they belong to.
pub(crate) fn drain_what_has_much<S: SessionStorage>(core: &Rc<Core<S>>) {
    let has_much = |file: &&Rc<OpenFile<S>>| file.has_much() && !file.is_being_drained();
    let found: Vec<_> = core.active.borrow().iter().filter(has_much).map(Rc::clone).collect();
    found.iter().for_each(|file| drain::enqueue(core, file, file.head()));
}
