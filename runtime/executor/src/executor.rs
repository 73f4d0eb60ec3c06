//! The loop of one core.

use std::{
    cell::{Cell, RefCell},
    hint, mem,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::{
    class::Class,
    handle::{Counters, Handle, Inner},
    idle::{Idle, Offer, Pace, Rest},
    park::Park,
    poll_list::PollLists,
    source::{Armed, Source, Sources},
    task::{MAIN, Task, Tasks},
    time::{Clock, Instant},
    timers::Timers,
    wakes::{Ready, Wakes},
};

/// How long the last executor polls on at most while nothing happens, unless somebody decides
/// otherwise.
pub const QUIET: Duration = Duration::from_secs(1);

/// Bounds of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Idle policy.
    pub idle: Idle,
    /// How long the last executor that polls goes on at most while nothing happens, and only if
    /// its polls have found enough before.
    pub quiet: Duration,
    /// Most polls of latency tasks in one slice.
    pub slice_polls: u32,
    /// A slice starts no poll later than this after its start.
    pub slice: Duration,
    /// Most events a source handles in one visit.
    pub source_budget: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            idle: Idle::default(),
            quiet: QUIET,
            slice_polls: 64,
            slice: Duration::from_micros(50),
            source_budget: 16,
        }
    }
}

/// Runs tasks and sources on one thread.
pub struct Executor {
    inner: Rc<Inner>,
    park: Box<dyn Park>,
    config: Config,
    /// Taken from `inner.wakes`, not yet polled.
    ready: Ready,
    /// The future of `run_until` was woken.
    main_woken: bool,
    /// Index of this executor's poll list.
    core: usize,
    pace: Pace,
    is_poller: bool,
    /// When the last turn began, or the last block ended.
    since: Instant,
    /// The last turn found nothing.
    was_idle: bool,
    /// This is the first turn after a block.
    was_parked: bool,
}

/// Outcome of a turn that found something.
struct Busy {
    /// It found something that a timer does not explain.
    has_found: bool,
    /// It left nothing to do.
    is_over: bool,
}

impl Executor {
    /// An executor without tasks and sources, that works alone.
    #[must_use]
    pub fn new(clock: Rc<dyn Clock>, park: Box<dyn Park>, config: Config) -> Self {
        Self::join(clock, park, config, &PollLists::new(1), 0)
    }

    /// An executor without tasks and sources, with list `core` of these poll lists.
    #[must_use]
    pub fn join(
        clock: Rc<dyn Clock>,
        park: Box<dyn Park>,
        config: Config,
        lists: &PollLists,
        core: usize,
    ) -> Self {
        lists.join(core, park.unparker());
        let wakes = Arc::new(Wakes::new(park.unparker()));
        let since = clock.now();
        let inner = Rc::new(Inner {
            clock,
            looked_at: Cell::new(since),
            has_backlog: Cell::new(false),
            wakes,
            idle: config.idle,
            lists: lists.clone(),
            tasks: RefCell::new(Tasks::default()),
            timers: RefCell::new(Timers::default()),
            sources: RefCell::new(Sources::default()),
            counters: RefCell::default(),
        });
        Self {
            inner,
            park,
            config,
            ready: Ready::default(),
            main_woken: false,
            core,
            pace: Pace::new(config.quiet),
            is_poller: false,
            since,
            was_idle: false,
            was_parked: false,
        }
    }

    /// Runs turns until `future` is ready, and blocks by the idle policy when nothing is.
    ///
    /// Other tasks keep their state and go on in the next call.
    pub fn run_until<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let task = Arc::new(Task::new(MAIN, Class::Latency, Arc::clone(&self.inner.wakes)));
        let waker = Waker::from(Arc::clone(&task));
        self.main_woken = true;
        loop {
            if mem::take(&mut self.main_woken) {
                task.begin_poll();
                if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    self.resign(); // It may not run again.
                    return value;
                }
            }
            match self.take_turn() {
                Some(busy) => self.go_on(busy),
                None => self.rest(),
            }
        }
    }

    /// Runs one turn and returns whether anything was ready. Never blocks.
    ///
    /// In order: timers that are due, latency tasks for one slice, every source once with the
    /// configured budget, one poll of a throughput task. After a block the sources come first, too:
    /// what has ended it is mostly theirs.
    pub fn turn(&mut self) -> bool {
        self.take_turn().is_some()
    }

    fn take_turn(&mut self) -> Option<Busy> {
        let was_parked = mem::take(&mut self.was_parked);
        // Right after a block its end is now.
        let now = if was_parked { self.since } else { self.inner.look() };
        self.account(now);
        let timers = self.fire_timers(now);
        let doorbell_events = if was_parked { self.visit() } else { 0 };
        let latency_polls = self.slice(now);
        let source_events = self.visit();
        let throughput_polls = u64::from(self.collect_ready(Class::Throughput));
        self.poll_next(Class::Throughput);

        // Sources have seen what tasks did. The look for throughput tasks may have brought in
        // latency tasks, woken just now.
        let is_over =
            source_events + throughput_polls == 0 && self.ready.is_empty() && !self.main_woken;
        let found = doorbell_events + source_events + throughput_polls;
        let idle = is_over && timers + found + latency_polls == 0;
        let has_found = found > 0 || latency_polls > 0 && timers == 0;
        let mut counters = self.inner.counters.borrow_mut();
        counters.turns += 1;
        counters.idle_turns += u64::from(idle);
        counters.timers += timers;
        counters.latency_polls += latency_polls;
        counters.doorbell_events += doorbell_events;
        counters.source_events += doorbell_events + source_events;
        counters.throughput_polls += throughput_polls;
        self.was_idle = idle;
        (!idle).then_some(Busy { has_found, is_over })
    }

    /// A handle for tasks and sources.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::new(Rc::clone(&self.inner))
    }

    /// Returns the idle policy of this executor.
    #[must_use]
    pub fn idle(&self) -> Idle {
        self.config.idle
    }

    /// Returns the counters of this executor since its start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        *self.inner.counters.borrow()
    }

    fn fire_timers(&self, now: Instant) -> u64 {
        let mut count = 0;
        loop {
            let due = self.inner.timers.borrow_mut().pop_due(now);
            let Some(waker) = due else { return count };
            waker.wake();
            count += 1;
        }
    }

    /// Polls latency tasks until the slice that began at `start` is over; returns how many.
    fn slice(&mut self, start: Instant) -> u64 {
        let mut polls = 0;
        let has_backlog = loop {
            if !self.collect_ready(Class::Latency) {
                break !self.ready.is_empty() || self.main_woken;
            }
            // The first is polled, however late it is.
            if polls == u64::from(self.config.slice_polls)
                || polls > 0 && self.inner.look().saturating_since(start) >= self.config.slice
            {
                break true;
            }
            self.poll_next(Class::Latency);
            polls += 1;
        };
        self.inner.has_backlog.set(has_backlog);
        polls
    }

    /// Visits every source once and, as the poller, those of all that sleep; returns the events
    /// handled here.
    fn visit(&mut self) -> u64 {
        let mut events = 0;
        self.each_source(|source| {
            events += source.poll(self.config.source_budget) as u64;
            true
        });
        let woken = if self.is_poller { self.inner.lists.visit_sleepers() } else { 0 };
        if woken > 0 {
            // Whoever has something to do is the one to poll for everybody from now on.
            self.inner.counters.borrow_mut().handed_over += woken;
            self.resign();
            self.pace.relieved(self.inner.lists.savings());
        }
        events
    }

    /// After a turn that found something: who does not poll blocks at once if nothing is left.
    fn go_on(&mut self, busy: Busy) {
        if busy.has_found {
            self.pace.found(self.since, self.inner.lists.savings());
        }
        if self.pace.worked(self.since) && self.is_poller {
            self.resign();
        }
        if busy.is_over && matches!(self.config.idle, Idle::Interrupt | Idle::Park) {
            self.block();
        }
    }

    /// After a turn that found nothing: blocks, or not, by the idle policy.
    fn rest(&mut self) {
        match self.config.idle {
            Idle::Spin => hint::spin_loop(),
            Idle::Interrupt | Idle::Park => self.block(),
            Idle::PollIdle => match self.next_rest() {
                Rest::Poll => hint::spin_loop(),
                Rest::Offer => self.offer_core(),
                Rest::Block => {
                    self.resign();
                    self.block();
                }
            },
        }
    }

    fn next_rest(&mut self) -> Rest {
        let Self { pace, inner, is_poller, core, park, .. } = self;
        let may_poll = || {
            *is_poller = *is_poller || inner.lists.take_office(*core);
            *is_poller
        };
        pace.rested(self.since, inner.lists.savings(), may_poll, || park.is_crowded())
    }

    /// Lets go of the core if somebody else wants it.
    fn offer_core(&mut self) {
        let from = self.inner.clock.now();
        let is_wanted = match self.pace.offer(from, || self.park.is_crowded()) {
            Offer::Yield => {
                self.park.give_way();
                self.pace.yielded(from, self.inner.clock.now())
            }
            Offer::Nothing => false,
            Offer::Block => true,
        };
        self.inner.counters.borrow_mut().gave_way += u64::from(is_wanted);
    }

    /// Polls for nobody else from now on.
    fn resign(&mut self) {
        if mem::take(&mut self.is_poller) {
            self.inner.lists.resign();
        }
    }

    /// Adds the time since the last turn to what the executor did in it.
    fn account(&mut self, now: Instant) {
        let time = now.saturating_since(mem::replace(&mut self.since, now));
        let mut counters = self.inner.counters.borrow_mut();
        *(if self.was_idle { &mut counters.polling } else { &mut counters.working }) += time;
    }

    /// Takes in what was woken, unless a task of `class` is ready. True if one is then.
    fn collect_ready(&mut self, class: Class) -> bool {
        if self.ready.of(class).is_empty() {
            self.inner.wakes.take(&mut self.ready);
        }
        !self.ready.of(class).is_empty()
    }

    /// Polls the next task of `class` that [`collect_ready`](Self::collect_ready) found, if there
    /// is one.
    fn poll_next(&mut self, class: Class) {
        let Some(index) = self.ready.of(class).pop_front() else { return };
        let slot = self.inner.tasks.borrow().slot(index);
        match slot {
            Some(slot) => self.inner.poll(slot),
            None => self.main_woken = true, // `MAIN`.
        }
    }

    /// Blocks until something may be ready, unless something is ready already.
    fn block(&mut self) {
        let mut waits = true;
        self.each_source(|source| {
            waits = source.arm() == Armed::Waits;
            waits
        });
        if waits && self.inner.wakes.announce_park() {
            if self.inner.lists.sleep(self.core) {
                self.park();
            }
            self.inner.wakes.withdraw_park();
        }
    }

    fn park(&mut self) {
        let now = self.inner.look();
        self.account(now);
        let next = self.inner.timers.borrow().next();
        self.park.park(next.map(|at| at.saturating_since(now)));
        self.inner.lists.wake(self.core);
        let now = self.inner.look();
        let mut counters = self.inner.counters.borrow_mut();
        counters.parked += now.saturating_since(mem::replace(&mut self.since, now));
        counters.parks += 1;
        drop(counters);
        self.was_parked = true;
    }

    /// Calls `visit` with every source, in order, until it returns `false`.
    fn each_source(&self, mut visit: impl FnMut(&mut dyn Source) -> bool) {
        let (mut index, mut goes_on) = (0, true);
        while goes_on {
            let Some(entry) = self.inner.sources.borrow().at(index) else { return };
            let Some(visited) = entry.visit(&mut visit) else {
                self.inner.sources.borrow_mut().remove(entry.id);
                continue;
            };
            goes_on = visited;
            index = self.inner.sources.borrow().behind(index, &entry);
        }
    }
}

impl Drop for Executor {
    /// Drops tasks and sources, which may hold handles and would otherwise keep themselves alive.
    fn drop(&mut self) {
        self.resign();
        loop {
            let tasks = self.inner.tasks.borrow_mut().take_all();
            if tasks.is_empty() {
                break;
            }
            drop(tasks); // Not while the table is borrowed: their drops may spawn.
        }
        drop(self.inner.sources.take());
        drop(self.inner.timers.take());
    }
}
