//! The poll lists: for each core one source that any core may look at, under a lock of its own.
//!
//! Before a core blocks it says who attends to its source meanwhile: the *poller*, one idle core
//! that looks at the sources of all that sleep, or else nobody, and then the source is armed and
//! its next event wakes its core. So while one core polls, the others sleep, and nobody has to ring
//! for them. What a source has only its own core can handle: the poller wakes it.
//!
//! # No event is lost
//!
//! All changes of a source's attendant are made under its lock, and `poller` is written before the
//! locks are taken that its readers hold. A core that goes to sleep looks at `poller` with its own
//! lock held. A poller that resigns clears `poller` and then goes through the lists: either it
//! finds the sleeper's source left to it, and arms it, or the sleeper comes after, and sees that
//! nobody polls. A core that takes the office writes `poller` and then goes through the lists in
//! the same way. Whoever arms looks for events once more after that.

use std::sync::Arc;

use crate::{
    park::Unpark,
    savings::Savings,
    source::Armed,
    sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock},
};

/// Nobody polls for those that sleep.
const NOBODY: usize = usize::MAX;

/// Something of one core that any core may look at.
///
/// Both methods are called by one core at a time, under a lock: they must not block.
pub trait SharedSource: Send + Sync {
    /// True if its core has something to handle.
    fn is_ready(&self) -> bool;

    /// Says who looks at this source from now on.
    ///
    /// For [`Attendant::Nobody`] the source is armed on return, or says that it is busy: look for
    /// events *after* arming. Otherwise the answer counts only as a hint.
    fn attend(&self, by: Attendant) -> Armed;
}

/// Party that looks at a [`SharedSource`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attendant {
    /// Its core, which runs.
    #[default]
    ItsCore,
    /// Another core, while its own sleeps.
    Poller,
    /// Nobody: the next event must wake its core.
    Nobody,
}

/// The poll lists of executors that work together. Cheap to clone.
#[derive(Clone)]
pub struct PollLists(Arc<Shared>);

struct Shared {
    lists: Box<[List]>,
    /// Index of the core that polls for those that sleep, or [`NOBODY`].
    poller: AtomicUsize,
    savings: Savings,
}

#[derive(Default)]
struct List {
    state: Mutex<State>,
    /// A hint: the source is left to the poller.
    is_left: AtomicBool,
}

#[derive(Default)]
struct State {
    attendant: Attendant,
    core: Option<Arc<dyn Unpark>>,
    source: Option<Arc<dyn SharedSource>>,
}

impl PollLists {
    /// The lists of `core_count` cores, without sources.
    #[must_use]
    pub fn new(core_count: usize) -> Self {
        let lists = (0..core_count.max(1)).map(|_| List::default()).collect();
        let poller = AtomicUsize::new(NOBODY);
        Self(Arc::new(Shared { lists, poller, savings: Savings::default() }))
    }

    /// Has `source` polled for core `core`, which runs and alone can handle what it finds.
    pub fn bind(&self, core: usize, source: Arc<dyn SharedSource>) {
        if let Some(list) = self.0.lists.get(core) {
            let mut state = lock(&list.state);
            source.attend(state.attendant);
            state.source = Some(source);
        }
    }

    /// True if some core polls for those that sleep.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        self.0.poller.load(Ordering::Relaxed) != NOBODY
    }

    // ---- for executors

    /// Says what wakes core `core`.
    pub(crate) fn join(&self, core: usize, unparker: Arc<dyn Unpark>) {
        if let Some(list) = self.0.lists.get(core) {
            lock(&list.state).core = Some(unparker);
        }
    }

    /// Returns the savings of all polls.
    pub(crate) fn savings(&self) -> &Savings {
        &self.0.savings
    }

    /// Looks at the sources of all that sleep, for the poller, and wakes the cores that have
    /// something to handle; returns how many.
    pub(crate) fn visit_sleepers(&self) -> u64 {
        let mut woken = 0;
        for list in self.0.lists.iter().filter(|list| list.is_left.load(Ordering::Relaxed)) {
            let mut state = lock(&list.state);
            let is_ready = |source: &Arc<dyn SharedSource>| source.is_ready();
            if state.attendant == Attendant::Poller && state.source.as_ref().is_some_and(is_ready) {
                list.attend(&mut state, Attendant::ItsCore);
                let core = state.core.clone();
                drop(state);
                core.inspect(|core| core.unpark());
                woken += 1;
            }
        }
        woken
    }

    /// Leaves the source of core `core`, which is about to block, to the poller or to nobody.
    ///
    /// Returns whether the core may block; if not, the source is its own again.
    pub(crate) fn sleep(&self, core: usize) -> bool {
        let Some(list) = self.0.lists.get(core) else { return true };
        let mut state = lock(&list.state);
        let armed = list.attend(&mut state, self.attendant_of_sleepers());
        if armed == Armed::Busy {
            list.attend(&mut state, Attendant::ItsCore);
        }
        armed == Armed::Waits
    }

    /// Takes the source of core `core` back, which runs again.
    pub(crate) fn wake(&self, core: usize) {
        let Some(list) = self.0.lists.get(core) else { return };
        let mut state = lock(&list.state);
        if state.attendant != Attendant::ItsCore {
            list.attend(&mut state, Attendant::ItsCore);
        }
    }

    /// Makes `core` the poller unless another one is; returns whether it is.
    pub(crate) fn take_office(&self, core: usize) -> bool {
        let poller = &self.0.poller;
        let taken = poller.compare_exchange(NOBODY, core, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            self.change_sleepers(Attendant::Nobody);
        }
        taken.map_or_else(|found| found == core, |_| true)
    }

    /// Ends the office of the poller, which `core` is. Every source left to it is armed; a core for
    /// which something has come is woken.
    pub(crate) fn resign(&self) {
        self.0.poller.store(NOBODY, Ordering::Release);
        self.change_sleepers(Attendant::Poller);
    }

    /// Leaves every source that is left to `from` to whom it is to be left now.
    fn change_sleepers(&self, from: Attendant) {
        for list in &self.0.lists {
            let mut state = lock(&list.state);
            if state.attendant != from {
                continue;
            }
            let armed = list.attend(&mut state, self.attendant_of_sleepers());
            if armed == Armed::Busy && state.attendant == Attendant::Nobody {
                list.attend(&mut state, Attendant::ItsCore);
                state.core.iter().for_each(|core| core.unpark());
            }
        }
    }

    /// To be called with the list locked that is changed.
    fn attendant_of_sleepers(&self) -> Attendant {
        if self.is_polled() { Attendant::Poller } else { Attendant::Nobody }
    }
}

impl List {
    /// Tells the source who attends to it now.
    fn attend(&self, state: &mut State, by: Attendant) -> Armed {
        state.attendant = by;
        self.is_left.store(by == Attendant::Poller, Ordering::Relaxed);
        state.source.as_ref().map_or(Armed::Waits, |source| source.attend(by))
    }
}
