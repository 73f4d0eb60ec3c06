//! Files that clients have made, written, and closed by their bundles, on the way to the multifile.
//!
//! Before anything is executed that somebody waits for, all that any client has published is
//! [taken in](Intake::take_all): so a call sees whatever was done before it, by whomever. Between
//! calls a tick takes in what has been closed. One that is still open is made when somebody may
//! look at it, when it gets old, and when the data log has no room left behind it. All are made
//! together ([`batch`]), but for those whose names may be others' by then, made one by one.
//!
//! Names are different ones, because clients [claim](shm::Names) them. Where one is there all the
//! same, its client has been asked to ask: the file that is there is opened then, or `EEXIST` is
//! what it is told.

mod batch;
mod claims;
mod making;
mod source;

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use executor::{Class, Handle, Instant, first, yield_now};
use shm::{NAME_SLOTS, NameHash, Names};

use self::{
    batch::Batch,
    source::{Making, Source, Stand, State},
};
use super::{file::Packed, places::Places, stream::Turn, volume::Volume};
use crate::clients::Clients;

/// Time between two looks at published records. A file found at a look gets its name some
/// milliseconds later, so that no byte is older than about 10 ms. Fewer looks take in more by as
/// many calls.
const TICK: Duration = Duration::from_millis(4);
/// The same while a batch waits for more files: it is made once no file has arrived.
const SHORT_TICK: Duration = Duration::from_millis(2);
/// Looks in vain after which clients have to announce what they publish.
const QUIET_TICKS: u32 = 3;
/// Age from which a file that is still open is made: it was found by the last look.
const OLD: Duration = Duration::from_millis(3);
/// Least time after which a look tries again to make an open file that waits for room.
const RETRY: Duration = Duration::from_millis(100);
/// Slots that the set of names begins with, and by what it grows: a small one stays in all caches,
/// and each page of it costs each client a fault.
const FIRST_SLOTS: usize = if cfg!(test) { 64 } else { 1 << 16 };
const GROWTH: usize = 4;
/// Inode numbers that a client is granted at a time.
const NUMBERS: u64 = 1 << 20;

/// A look takes in at most one of so many parts of a data log: the client fills the rest meanwhile.
const AT_A_TIME: u64 = 2;

/// Result of a look at all bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Found {
    Nothing,
    /// All records were taken in.
    All,
    /// Records are left: look again at once.
    More,
}

/// The way of bundles into multifiles.
pub(crate) struct Intake {
    clients: Arc<Clients>,
    handle: Handle,
    sources: RefCell<Vec<Rc<RefCell<Source>>>>,
    /// Files that are being collected, one batch a multifile.
    batches: RefCell<Vec<Batch>>,
    /// Of bundles that were known when they were last looked at.
    known: Cell<u64>,
    /// Where clients find files at rest, if the kernel lets them.
    pub(super) places: Option<Rc<Places>>,
    turn: Turn,
    /// Names that calls are about to make.
    making: RefCell<HashMap<NameHash, usize>>,
    /// Names that a call was to make while a client that had claimed them had not published. It
    /// may do so when the name is free again: nobody else claims it until the set is begun anew.
    contested: RefCell<HashSet<NameHash>>,
    /// Folders all of whose names are in the set.
    listed: RefCell<HashMap<(u64, u64), Rc<Volume>>>,
    /// Slots of the set of names, and the most that it may have.
    slots: Cell<usize>,
    slots_max: usize,
}

impl Intake {
    /// That of a daemon, which takes in what it is told to.
    pub(super) fn new(clients: &Arc<Clients>, handle: &Handle) -> Rc<Self> {
        Self::knowing(clients, handle, NAME_SLOTS)
    }

    /// The same with room for so many names.
    pub(super) fn knowing(clients: &Arc<Clients>, handle: &Handle, slots_max: usize) -> Rc<Self> {
        let slots = FIRST_SLOTS.min(slots_max);
        clients.shared().names.offer(slots);
        let places = Places::new(clients).inspect_err(|why| {
            tracing::info!("clients ask for every file that they read: {why}");
        });
        Rc::new(Self {
            clients: Arc::clone(clients),
            handle: handle.clone(),
            sources: RefCell::default(),
            batches: RefCell::default(),
            known: Cell::new(0),
            places: places.ok(),
            turn: Turn::default(),
            making: RefCell::default(),
            contested: RefCell::default(),
            listed: RefCell::default(),
            slots: Cell::new(slots),
            slots_max,
        })
    }

    /// Takes in what is announced, too, from now on.
    pub(super) fn start(self: Rc<Self>) -> Rc<Self> {
        self.handle.spawn(Class::Latency, Rc::clone(&self).run());
        self
    }

    /// Takes in what is announced, until nothing has come for a while.
    async fn run(self: Rc<Self>) {
        loop {
            self.clients.bundles.announced().await;
            let mut quiet = 0;
            while quiet < QUIET_TICKS {
                let found = self.take(false).await;
                quiet = if found == Found::Nothing { quiet + 1 } else { 0 };
                if found == Found::More {
                    yield_now().await;
                    continue;
                }
                let pause = if self.batches.borrow().is_empty() { TICK } else { SHORT_TICK };
                first(self.handle.sleep(pause), self.clients.bundles.announced()).await;
            }
            let sources = self.sources.borrow().clone();
            for source in &sources {
                source.borrow().entry.shared().sleep();
            }
            // What was published before it was said that nobody looks.
            if sources.iter().any(|source| !source.borrow().is_idle()) {
                self.clients.bundles.announce();
            }
        }
    }

    fn names(&self) -> &Names {
        &self.clients.shared().names
    }

    /// Has in the multifiles all that anybody has published, also of files that are still open.
    pub(super) async fn take_all(&self) {
        let is_known = self.known.get() == self.clients.bundles.count();
        let is_idle =
            |source: &Rc<RefCell<Source>>| source.try_borrow().is_ok_and(|source| source.is_idle());
        // Files that are open as any other are up to date once their records are read.
        let is_made = || self.batches.borrow().is_empty();
        if is_known && self.turn.is_free() && is_made() && self.sources.borrow().iter().all(is_idle)
        {
            return;
        }
        self.take(true).await;
    }

    /// Has in an open file all that clients have written to it by their bundles.
    pub(super) async fn take_of(&self, file: &Packed) {
        let writes = |source: &Rc<RefCell<Source>>| {
            source.try_borrow().is_ok_and(|source| source.has_open(file))
        };
        if self.sources.borrow().iter().any(writes) {
            self.take_all().await;
        }
    }

    /// Takes in published records: `all` of them, or a part of each log.
    pub(super) async fn take(&self, all: bool) -> Found {
        let _taken = self.turn.take().await;
        self.learn();
        let sources = self.sources.borrow().clone();
        let has_news = sources.iter().any(|source| source.borrow().has_news());
        // What gets old meanwhile is for the next time.
        let (now, mut found, mut open) = (self.handle.now(), Found::Nothing, Vec::new());
        for source in &sources {
            let is_idle = source.borrow().is_idle();
            let part = source.borrow().entry.logs.data_len.div_ceil(AT_A_TIME);
            let is_more = self.read_part(source, Some(part).filter(|_| !all));
            found = found.max(match (is_more, is_idle) {
                (true, _) => Found::More,
                (false, false) => Found::All,
                (false, true) => Found::Nothing,
            });
            let due = Self::due(source, all, now, Making::is_begun);
            if !due.is_empty() {
                // From here on its client hands each of these files over before a write returns.
                source.borrow().entry.shared().recall();
                self.read(source);
            }
            open.push(due);
        }
        self.keep_whole(&sources, &open).await;
        if all || !has_news || self.is_due(self.handle.now()) {
            self.make_kept().await;
        }
        for source in &sources {
            self.take_open(source, all, now).await;
            source.borrow_mut().release(self.handle.now());
        }
        self.forget_old();
        found
    }

    /// Takes up bundles that have come.
    fn learn(&self) {
        let count = self.clients.bundles.count();
        if self.known.get() == count {
            return;
        }
        let mut sources = self.sources.borrow_mut();
        for entry in self.clients.bundles.all() {
            let is_known = sources.iter().any(|known| Arc::ptr_eq(&known.borrow().entry, &entry));
            if !is_known {
                sources.push(Rc::new(RefCell::new(Source::new(entry))));
            }
        }
        self.known.set(count);
    }

    fn read(&self, source: &Rc<RefCell<Source>>) {
        self.read_part(source, None);
    }

    /// As [`Source::read`].
    fn read_part(&self, source: &Rc<RefCell<Source>>, most: Option<u64>) -> bool {
        let mut source = source.borrow_mut();
        source.read(self.handle.now(), most).unwrap_or_else(|nonsense| {
            tracing::warn!("a client broke its bundle: {}", nonsense.0);
            self.count_errors(1);
            source.break_off();
            false
        })
    }

    /// Lets go of bundles whose clients are gone.
    fn forget_old(&self) {
        self.sources.borrow_mut().retain(|source| {
            let source = source.borrow();
            let is_over = source.entry.is_over() && source.files.is_empty() && !source.has_news();
            if is_over {
                self.clients.bundles.remove(&source.entry);
            }
            !is_over
        });
    }

    /// True if a batch waits for more files.
    #[cfg(test)]
    pub(super) fn has_kept(&self) -> bool {
        !self.batches.borrow().is_empty()
    }

    /// Lets go of all, as a daemon that dies.
    #[cfg(test)]
    pub(super) fn forget(&self) {
        self.sources.borrow_mut().clear();
        self.batches.borrow_mut().clear();
    }

    // ---- files that are open

    /// Makes files that are still open if `all`, or if it is time, and has their client hand them
    /// over: whoever dies then leaves no part of a file that was closed. Also writes what has come
    /// of those that are made, and forgets those that are closed.
    async fn take_open(&self, source: &Rc<RefCell<Source>>, all: bool, now: Instant) {
        let wanted = Self::due(source, all, now, |file| !matches!(file.state, State::Batched));
        if wanted.iter().any(|inode| source.borrow().is_new(*inode)) {
            // From here on its client waits, with each of these files, for what it has published.
            source.borrow().entry.shared().tear();
            self.read(source);
            // Closed before its client knew of that: who dies now is to leave all of it or nothing.
            self.make_whole(source).await;
        }
        for inode in wanted {
            self.advance(source, inode).await;
            let mut source = source.borrow_mut();
            let is_over = source.stand == Stand::Over;
            let is_done = |file: &Making| file.is_closed || is_over;
            if !source.files.get(&inode).is_some_and(is_done) {
                continue;
            }
            if let Some(State::Failed(why)) = source.files.remove(&inode).map(|file| file.state) {
                self.tell(&source, why);
            }
        }
    }

    /// Files that are to be made, or forgotten, by now, of those that `are_meant`.
    fn due(
        source: &Rc<RefCell<Source>>,
        all: bool,
        now: Instant,
        are_meant: impl Fn(&Making) -> bool,
    ) -> Vec<u64> {
        let source = source.borrow();
        let is_pressed = source.is_pressed();
        let is_due = |file: &Making| {
            if is_pressed || file.is_closed {
                return true;
            }
            if file.waits_until.is_some_and(|until| now < until) {
                return false;
            }
            let is_old = now.saturating_since(file.since) >= OLD;
            all || is_old || !file.state.is_new()
        };
        let due = source.files.iter().filter(|(_, file)| is_due(file) && are_meant(file));
        due.map(|(inode, _)| *inode).collect()
    }

    fn count_errors(&self, count: u64) {
        self.clients.count_errors(count);
    }

    /// Somebody has opened an inode. A client that still writes to it by its bundle hands the file
    /// over before its next write returns; what it has written is in there on return.
    pub(super) async fn recall(&self, volume: &Rc<Volume>, inode: u64) {
        let mut is_recalled = false;
        for source in &*self.sources.borrow() {
            let source = source.borrow();
            let is_it = |file: &Making| match &file.state {
                State::Open(open) => Rc::ptr_eq(&file.volume, volume) && open.inode() == inode,
                _ => false,
            };
            if source.files.values().any(is_it) {
                source.entry.shared().recall();
                is_recalled = true;
            }
        }
        if is_recalled {
            self.take(true).await;
        }
    }
}
