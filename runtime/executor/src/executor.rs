//! The loop of one core.

use std::{
    cell::{Cell, RefCell},
    fmt, hint, mem,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::{
    handle::{Handle, Inner},
    park::Park,
    source::{Armed, Source, Sources},
    task::{Class, MAIN, Task, TaskId, Tasks},
    time::{Clock, Instant},
    timers::Timers,
    wakes::{Ready, Wakes},
};

/// What an executor does when nothing is ready.
///
/// A further policy, polling while nobody else wants the core, belongs in [`Executor::run_until`]
/// where the others are told apart: a turn stays the same under every policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Idle {
    /// Blocks at once, and peers ring for every event: the conventional baseline of measurements.
    ///
    /// Here the same as [`Park`](Self::Park); the doorbells differ.
    Interrupt,
    /// Blocks at once; peers ring only when it does.
    #[default]
    Park,
    /// Never blocks: for a core that has nothing else to do.
    Spin,
}

/// Bounds of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What happens when nothing is ready.
    pub idle: Idle,
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
            slice_polls: 64,
            slice: Duration::from_micros(50),
            source_budget: 16,
        }
    }
}

/// What an executor has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Turns of the loop.
    pub turns: u64,
    /// Turns in which nothing was ready.
    pub idle_turns: u64,
    /// Times it blocked.
    pub parks: u64,
    /// Polls of latency tasks.
    pub latency_polls: u64,
    /// Polls of throughput tasks.
    pub throughput_polls: u64,
    /// Events handled by sources.
    pub source_events: u64,
    /// Timers that came due.
    pub timers: u64,
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
    counters: Counters,
}

impl Executor {
    /// An executor without tasks and sources.
    #[must_use]
    pub fn new(clock: Rc<dyn Clock>, park: Box<dyn Park>, config: Config) -> Self {
        let wakes = Arc::new(Wakes::new(park.unparker()));
        let inner = Rc::new(Inner {
            clock,
            wakes,
            idle: config.idle,
            tasks: RefCell::new(Tasks::default()),
            timers: RefCell::new(Timers::default()),
            sources: RefCell::new(Sources::default()),
            counters: Cell::default(),
        });
        let (ready, counters) = (Ready::default(), Counters::default());
        Self { inner, park, config, ready, main_woken: false, counters }
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
                    return value;
                }
            }
            if !self.turn() {
                match self.config.idle {
                    Idle::Spin => hint::spin_loop(),
                    Idle::Interrupt | Idle::Park => self.wait(),
                }
            }
        }
    }

    /// Runs one turn and returns whether anything was ready. Never blocks.
    ///
    /// In order: timers that are due, latency tasks for one slice, every source once with the
    /// configured budget, one poll of a throughput task.
    pub fn turn(&mut self) -> bool {
        let now = self.inner.clock.now();
        let timers = self.fire_timers(now);
        let latency_polls = self.slice(now);
        let source_events = self.visit_sources();
        let throughput_polls = u64::from(self.poll_next(Class::Throughput));

        // A look for throughput tasks may have brought in latency tasks, woken just now.
        let idle =
            timers + latency_polls + source_events + throughput_polls == 0 && self.ready.is_empty();
        let counters = &mut self.counters;
        counters.turns += 1;
        counters.idle_turns += u64::from(idle);
        counters.timers += timers;
        counters.latency_polls += latency_polls;
        counters.source_events += source_events;
        counters.throughput_polls += throughput_polls;
        self.inner.counters.set(*counters);
        !idle
    }

    /// A handle for tasks and sources.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::new(Rc::clone(&self.inner))
    }

    /// What this executor does when nothing is ready.
    #[must_use]
    pub fn idle(&self) -> Idle {
        self.config.idle
    }

    /// What this executor has done since its start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
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
        while polls < u64::from(self.config.slice_polls) && self.poll_next(Class::Latency) {
            polls += 1;
            if self.inner.clock.now().saturating_since(start) >= self.config.slice {
                break;
            }
        }
        polls
    }

    /// Visits every source once; returns the events handled.
    fn visit_sources(&self) -> u64 {
        let mut events = 0;
        self.each_source(|source| {
            events += source.poll(self.config.source_budget) as u64;
            true
        });
        events
    }

    /// Polls the next ready task of `class`; `false` when there is none.
    fn poll_next(&mut self, class: Class) -> bool {
        if self.ready.queue(class).is_empty() {
            self.inner.wakes.take(&mut self.ready);
        }
        let Some(id) = self.ready.queue(class).pop_front() else { return false };
        if id == MAIN {
            self.main_woken = true;
        } else {
            self.poll(id);
        }
        true
    }

    fn poll(&self, id: TaskId) {
        let checked_out = self.inner.tasks.borrow_mut().check_out(id);
        let Some(mut running) = checked_out else { return };
        running.task.begin_poll();
        match running.future.as_mut().poll(&mut Context::from_waker(&running.waker)) {
            Poll::Pending => self.inner.tasks.borrow_mut().check_in(running),
            Poll::Ready(()) => {
                drop(running); // Not while the table is borrowed: its drop may spawn.
                self.inner.tasks.borrow_mut().remove(id);
            }
        }
    }

    /// Blocks until something may be ready, unless something is ready already.
    fn wait(&mut self) {
        let mut waits = true;
        self.each_source(|source| {
            waits = source.arm() == Armed::Waits;
            waits
        });
        if waits && self.inner.wakes.announce_park() {
            let next = self.inner.timers.borrow().next();
            let timeout = next.map(|at| at.saturating_since(self.inner.clock.now()));
            self.park.park(timeout);
            self.inner.wakes.withdraw_park();
            self.counters.parks += 1;
        }
        self.each_source(|source| {
            source.disarm();
            true
        });
    }

    /// Calls `visit` with every source, in order, until it returns `false`.
    fn each_source(&self, mut visit: impl FnMut(&mut dyn Source) -> bool) {
        let mut index = 0;
        loop {
            let checked_out = self.inner.sources.borrow_mut().check_out(index);
            let Some((id, mut source)) = checked_out else { return };
            let go_on = visit(&mut *source);
            let (next, removed) = self.inner.sources.borrow_mut().check_in(index, id, source);
            drop(removed); // Not while the list is borrowed: its drop may use a handle.
            if !go_on {
                return;
            }
            index = next;
        }
    }
}

impl Drop for Executor {
    /// Drops tasks and sources, which may hold handles and would otherwise keep themselves alive.
    fn drop(&mut self) {
        loop {
            let task = self.inner.tasks.borrow_mut().pop();
            if task.is_none() {
                break;
            }
        }
        drop(self.inner.sources.take());
        drop(self.inner.timers.take());
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("config", &self.config)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
