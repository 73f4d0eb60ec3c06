//! The poll lists: sources that any core may poll, one list per core, each under its own lock.
//!
//! A core that runs visits its own list every turn. Before it blocks it says who attends to the
//! list meanwhile: the *poller*, one idle core that visits the lists of all that sleep, or else
//! nobody, and then every source on it is armed and its next event wakes somebody. So while one
//! core polls, the others sleep, and nobody has to ring for them.
//!
//! # How a new source asks to be polled
//!
//! Implement [`SharedSource`] and hand it to [`PollLists::register`], from any thread, whenever it
//! comes into being; it goes to the shortest list, and some core polls it until the
//! [`Registration`] is dropped. A source whose work only one core can do is given to
//! [`PollLists::bind`] and answers [`Found::ForItsCore`]: then that core is woken.
//!
//! # No event is lost
//!
//! All changes of a list's attendance are made under its lock, and `poller` is written before the
//! locks are taken that its readers hold. A core that goes to sleep looks at `poller` with its own
//! list locked. A poller that resigns clears `poller` and then goes through the lists: either it
//! finds the sleeper's list left to it, and arms it, or the sleeper comes after, and sees that
//! nobody polls. A core that takes the office writes `poller` and then goes through the lists in
//! the same way. Whoever arms looks for events once more after that.

use std::{fmt, sync::Arc};

use crate::{
    park::Unpark,
    savings::Savings,
    source::Armed,
    sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock},
};

/// Sources a visit to a list looks at; in a longer list it goes on where the last one ended, so
/// that a visit takes the same time however long the list is.
pub(crate) const VISITS_MAX: usize = 64;

/// Nobody polls for those that sleep.
const NOBODY: usize = usize::MAX;

/// Something that any core may poll.
///
/// Both methods are called by one core at a time, under the list's lock: they must not register
/// or withdraw sources, and must not block.
pub trait SharedSource: Send + Sync {
    /// Looks for events and handles up to `budget` of them, on whichever core calls.
    fn poll(&self, budget: usize) -> Found;

    /// Says who looks at this source from now on.
    ///
    /// For [`Attendant::Nobody`] the source is armed on return, or says that it is busy: look for
    /// events *after* arming. Otherwise the answer counts only as a hint.
    fn attend(&self, by: Attendant<'_>) -> Armed;
}

/// Result of a visit to a [`SharedSource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// So many events, which were handled here.
    Handled(usize),
    /// Something that only the core can handle that the source is bound to.
    ForItsCore,
}

/// Visitor of a [`SharedSource`].
#[derive(Clone, Copy)]
pub enum Attendant<'a> {
    /// The core of its list, which runs.
    ItsCore,
    /// Another core, while that of its list sleeps.
    Poller,
    /// Nobody: the next event must wake the core of its list, by this or in any other way.
    Nobody(&'a Arc<dyn Unpark>),
}

/// The poll lists of executors that work together. Cheap to clone.
#[derive(Clone)]
pub struct PollLists(Arc<Shared>);

struct Shared {
    lists: Box<[List]>,
    /// Index of the core that polls for those that sleep, or [`NOBODY`].
    poller: AtomicUsize,
    savings: Savings,
    next_id: AtomicUsize,
    /// Held by who withdraws a source. What it moves is on no list for a moment, in which another
    /// withdrawal would not find it.
    withdrawal: Mutex<()>,
}

#[derive(Default)]
struct List {
    state: Mutex<State>,
    /// A hint: the list is left to the poller.
    is_left: AtomicBool,
    /// A hint: sources on the list, so that an empty one costs no lock.
    count: AtomicUsize,
}

#[derive(Default)]
struct State {
    attendance: Attendance,
    core: Option<Arc<dyn Unpark>>,
    entries: Vec<Entry>,
    /// Where the next visit begins.
    next: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Attendance {
    #[default]
    ItsCore,
    Poller,
    Nobody,
}

struct Entry {
    id: usize,
    is_bound: bool,
    source: Arc<dyn SharedSource>,
}

/// Result of a visit to the lists of sleeping cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// Events handled here.
    pub(crate) events: u64,
    /// Cores woken for events that are theirs.
    pub(crate) woken: u64,
}

impl PollLists {
    /// The lists of `core_count` cores, without sources.
    #[must_use]
    pub fn new(core_count: usize) -> Self {
        let lists = (0..core_count.max(1)).map(|_| List::default()).collect();
        let (poller, next_id) = (AtomicUsize::new(NOBODY), AtomicUsize::new(0));
        let (savings, withdrawal) = (Savings::default(), Mutex::default());
        Self(Arc::new(Shared { lists, poller, savings, next_id, withdrawal }))
    }

    /// Has any core poll `source`, until the registration is dropped.
    #[must_use = "the source is withdrawn when the registration is dropped"]
    pub fn register(&self, source: Arc<dyn SharedSource>) -> Registration {
        let lengths = self.0.lists.iter().map(|list| list.count.load(Ordering::Relaxed));
        let shortest = lengths.enumerate().min_by_key(|(_, count)| *count);
        self.add(shortest.map_or(0, |(core, _)| core), source, false)
    }

    /// Has `source` polled for core `core`, which alone can handle what it finds.
    #[must_use = "the source is withdrawn when the registration is dropped"]
    pub fn bind(&self, core: usize, source: Arc<dyn SharedSource>) -> Registration {
        self.add(core, source, true)
    }

    /// True if some core polls for those that sleep.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        self.0.poller.load(Ordering::Relaxed) != NOBODY
    }

    /// Sources on the list of each core.
    #[must_use]
    pub fn source_counts(&self) -> Vec<usize> {
        self.0.lists.iter().map(|list| list.count.load(Ordering::Relaxed)).collect()
    }

    fn add(&self, core: usize, source: Arc<dyn SharedSource>, is_bound: bool) -> Registration {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        if let Some(list) = self.0.lists.get(core) {
            list.put(Entry { id, is_bound, source });
        }
        Registration { lists: self.clone(), id }
    }

    /// Withdraws a source, and moves another into the gap if one list has become too short.
    fn withdraw(&self, id: usize) {
        let alone = lock(&self.0.withdrawal);
        let found = self.0.lists.iter().find_map(|list| Some((list, list.remove(id)?)));
        if let Some((gap, _)) = &found {
            self.fill(gap);
        }
        drop(alone);
        drop(found); // Now that nothing is locked: a source may own the registration of another.
    }

    /// Moves a source from the longest list to `gap`, if they differ by more than one.
    fn fill(&self, gap: &List) {
        let longest = self.0.lists.iter().max_by_key(|list| list.count.load(Ordering::Relaxed));
        let Some(longest) = longest else { return };
        let lengths = [longest, gap].map(|list| list.count.load(Ordering::Relaxed));
        if lengths[0] > lengths[1] + 1 {
            if let Some(entry) = longest.remove_any() {
                gap.put(entry);
            }
        }
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

    /// Visits the core's own list; returns the events handled.
    pub(crate) fn visit(&self, core: usize, budget: usize) -> u64 {
        let list = self.0.lists.get(core);
        let Some(list) = list.filter(|list| list.count.load(Ordering::Relaxed) > 0) else {
            return 0;
        };
        // What only this core can handle it finds without the list.
        lock(&list.state).visit(budget).events
    }

    /// Visits the lists of all that sleep, for the poller. Whoever has to handle something itself
    /// is woken.
    pub(crate) fn visit_sleepers(&self, budget: usize) -> Round {
        let mut round = Round::default();
        for list in self.0.lists.iter().filter(|list| list.is_left.load(Ordering::Relaxed)) {
            let mut state = lock(&list.state);
            if state.attendance != Attendance::Poller {
                continue;
            }
            let found = state.visit(budget);
            round.events += found.events;
            if found.woken > 0 {
                let core = list.attend(&mut state, Attendance::ItsCore);
                debug_assert_eq!(core, Armed::Waits, "its core looks anyway");
                let core = state.core.clone();
                drop(state);
                core.inspect(|core| core.unpark());
                round.woken += 1;
            }
        }
        round
    }

    /// Leaves the list of core `core`, which is about to block, to the poller or to nobody.
    ///
    /// Returns whether the core may block; if not, the list is its own again.
    pub(crate) fn sleep(&self, core: usize) -> bool {
        let Some(list) = self.0.lists.get(core) else { return true };
        let mut state = lock(&list.state);
        let armed = list.attend(&mut state, self.attendance_of_sleepers());
        if armed == Armed::Busy {
            list.attend(&mut state, Attendance::ItsCore);
        }
        armed == Armed::Waits
    }

    /// Takes the list of core `core` back, which runs again.
    pub(crate) fn wake(&self, core: usize) {
        let Some(list) = self.0.lists.get(core) else { return };
        let mut state = lock(&list.state);
        if state.attendance != Attendance::ItsCore {
            list.attend(&mut state, Attendance::ItsCore);
        }
    }

    /// Makes `core` the poller unless another one is; returns whether it is.
    pub(crate) fn take_office(&self, core: usize) -> bool {
        let poller = &self.0.poller;
        let taken = poller.compare_exchange(NOBODY, core, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            self.change_sleepers(Attendance::Nobody);
        }
        taken.map_or_else(|found| found == core, |_| true)
    }

    /// Ends the office of the poller, which `core` is. Every list left to it is armed; a core for
    /// which something has come is woken.
    pub(crate) fn resign(&self) {
        self.0.poller.store(NOBODY, Ordering::Release);
        self.change_sleepers(Attendance::Poller);
    }

    /// Brings every list that has attendance `from` to what it is to be now.
    fn change_sleepers(&self, from: Attendance) {
        for list in &self.0.lists {
            let mut state = lock(&list.state);
            if state.attendance != from {
                continue;
            }
            let armed = list.attend(&mut state, self.attendance_of_sleepers());
            if armed == Armed::Busy && state.attendance == Attendance::Nobody {
                list.attend(&mut state, Attendance::ItsCore);
                state.core.iter().for_each(|core| core.unpark());
            }
        }
    }

    /// To be called with the list locked that is changed.
    fn attendance_of_sleepers(&self) -> Attendance {
        if self.is_polled() { Attendance::Poller } else { Attendance::Nobody }
    }
}

impl List {
    fn put(&self, entry: Entry) {
        let mut state = lock(&self.state);
        let busy = state.attendance.tell(state.core.as_ref(), &*entry.source) == Armed::Busy;
        state.entries.push(entry);
        self.count.store(state.entries.len(), Ordering::Relaxed);
        if busy && state.attendance == Attendance::Nobody {
            state.core.iter().for_each(|core| core.unpark());
        }
    }

    fn remove(&self, id: usize) -> Option<Entry> {
        self.remove_where(|entry| entry.id == id)
    }

    fn remove_any(&self) -> Option<Entry> {
        self.remove_where(|entry| !entry.is_bound)
    }

    fn remove_where(&self, is_it: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let mut state = lock(&self.state);
        let index = state.entries.iter().position(is_it)?;
        let entry = state.entries.swap_remove(index);
        self.count.store(state.entries.len(), Ordering::Relaxed);
        Some(entry)
    }

    /// Tells every source who attends to it now.
    fn attend(&self, state: &mut State, by: Attendance) -> Armed {
        state.attendance = by;
        self.is_left.store(by == Attendance::Poller, Ordering::Relaxed);
        let mut armed = Armed::Waits;
        for entry in &state.entries {
            if by.tell(state.core.as_ref(), &*entry.source) == Armed::Busy {
                armed = Armed::Busy;
            }
        }
        if by == Attendance::ItsCore { Armed::Waits } else { armed }
    }
}

impl State {
    fn visit(&mut self, budget: usize) -> Round {
        let (len, mut round) = (self.entries.len(), Round::default());
        for _ in 0..len.min(VISITS_MAX) {
            self.next = if self.next < len { self.next } else { 0 };
            let Some(entry) = self.entries.get(self.next) else { break };
            self.next += 1;
            match entry.source.poll(budget) {
                Found::Handled(count) => round.events += count as u64,
                Found::ForItsCore => round.woken = 1,
            }
        }
        round
    }
}

impl Attendance {
    fn tell(self, core: Option<&Arc<dyn Unpark>>, source: &dyn SharedSource) -> Armed {
        match (self, core) {
            (Self::Poller, _) => source.attend(Attendant::Poller),
            (Self::Nobody, Some(core)) => source.attend(Attendant::Nobody(core)),
            // A core that has not joined yet does not sleep.
            (Self::ItsCore, _) | (Self::Nobody, None) => source.attend(Attendant::ItsCore),
        }
    }
}

/// Keeps a source on a poll list.
///
/// Once it is dropped nobody polls the source any more. Not to be dropped by a source's own
/// methods.
#[derive(Debug)]
pub struct Registration {
    lists: PollLists,
    id: usize,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.lists.withdraw(self.id);
    }
}

impl fmt::Debug for PollLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollLists")
            .field("source_counts", &self.source_counts())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Attendant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ItsCore => "ItsCore",
            Self::Poller => "Poller",
            Self::Nobody(_) => "Nobody",
        })
    }
}
