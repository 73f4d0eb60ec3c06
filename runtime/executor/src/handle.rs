//! Handles by which tasks and sources reach their executor.

use std::{
    cell::{Cell, RefCell},
    fmt,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    class::Class,
    idle::Idle,
    poll_list::PollLists,
    source::{Source, SourceId, Sources},
    task::{Slot, Tasks},
    time::{Clock, Instant},
    timers::{Key, Timers},
    wakes::Wakes,
};

/// A way to one executor, for its own thread. Cheap to clone.
#[derive(Clone)]
pub struct Handle(Rc<Inner>);

/// State shared by an executor and its handles.
pub(crate) struct Inner {
    pub(crate) clock: Rc<dyn Clock>,
    /// When the executor looked at the clock last.
    pub(crate) looked_at: Cell<Instant>,
    /// The last slice left tasks ready.
    pub(crate) has_backlog: Cell<bool>,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) idle: Idle,
    pub(crate) lists: PollLists,
    pub(crate) tasks: RefCell<Tasks>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) sources: RefCell<Sources>,
    pub(crate) counters: RefCell<Counters>,
}

impl Inner {
    /// Looks at the clock.
    pub(crate) fn look(&self) -> Instant {
        let now = self.clock.now();
        self.looked_at.set(now);
        now
    }

    fn add(&self, class: Class, future: impl Future<Output = ()> + 'static) -> Rc<Slot> {
        self.tasks.borrow_mut().add(class, Box::pin(future), &self.wakes)
    }

    /// Polls the task that has a slot, if there is one.
    pub(crate) fn poll(&self, slot: Rc<Slot>) {
        slot.task.begin_poll();
        let Some(body) = slot.body.take() else { return };
        let mut end = End { tasks: &self.tasks, slot: &slot, goes_on: false };
        let mut body = body; // Dropped before `end`, which borrows the table: its drop may spawn.
        if body.as_mut().poll(&mut Context::from_waker(&slot.waker)).is_pending() {
            slot.body.set(Some(body));
            end.goes_on = true;
        }
    }
}

/// Frees the slot of a task that has ended, by finishing or by a panic.
struct End<'a> {
    tasks: &'a RefCell<Tasks>,
    slot: &'a Rc<Slot>,
    goes_on: bool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if !self.goes_on {
            self.tasks.borrow_mut().release(Rc::clone(self.slot));
        }
    }
}

impl Handle {
    pub(crate) fn new(inner: Rc<Inner>) -> Self {
        Self(inner)
    }

    /// Starts a task. It is first polled in a later slice, never inside this call.
    ///
    /// The task runs until it finishes or the executor is dropped. A panic in it drops its future,
    /// unwinds out of [`Executor::turn`](crate::Executor::turn), and ends this task alone: the
    /// executor may be used again.
    pub fn spawn(&self, class: Class, future: impl Future<Output = ()> + 'static) {
        self.0.add(class, future).waker.wake_by_ref();
    }

    /// Starts a task and polls it once, inside this call: for work on what the caller has just
    /// brought into the cache. Otherwise as [`spawn`](Self::spawn).
    ///
    /// That poll is part of the caller's, and so of what bounds the caller's polls.
    ///
    /// # Panics
    ///
    /// When the task does; that ends it alone.
    pub fn start(&self, class: Class, future: impl Future<Output = ()> + 'static) {
        self.0.poll(self.0.add(class, future));
    }

    /// Waits until the clock has reached `at`.
    pub fn sleep_until(&self, at: Instant) -> Sleep {
        Sleep::new(self.clone(), at)
    }

    /// Waits for `duration`, counted from this call.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// The present moment of the executor's clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.clock.now()
    }

    /// When the executor looked at its clock last: at its last block's end, at the start of this
    /// turn, or before the last latency task that it polled. Reads no clock.
    #[must_use]
    pub fn lately(&self) -> Instant {
        self.0.looked_at.get()
    }

    /// True if the last slice left tasks ready: then the executor does not block before the next.
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        self.0.has_backlog.get()
    }

    /// Puts a source on the poll list; it is visited from this or the next turn on.
    pub fn add_source(&self, source: Box<dyn Source>) -> SourceId {
        self.0.sources.borrow_mut().add(source)
    }

    /// Takes a source off the poll list and drops it; a source being visited is dropped after.
    pub fn remove_source(&self, id: SourceId) {
        let source = self.0.sources.borrow_mut().remove(id);
        drop(source); // Not while the list is borrowed: its drop may use this handle.
    }

    /// The poll lists this executor takes part in.
    #[must_use]
    pub fn poll_lists(&self) -> &PollLists {
        &self.0.lists
    }

    /// Returns the executor's idle policy. Doorbells depend on it.
    #[must_use]
    pub fn idle(&self) -> Idle {
        self.0.idle
    }

    /// Returns the executor's counters, without the present turn.
    #[must_use]
    pub fn counters(&self) -> Counters {
        *self.0.counters.borrow()
    }

    /// Tasks that have not finished.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.0.tasks.borrow().count()
    }

    pub(crate) fn timers(&self) -> &RefCell<Timers> {
        &self.0.timers
    }
}

impl Clock for Handle {
    fn now(&self) -> Instant {
        self.0.clock.now()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("idle", &self.0.idle).finish_non_exhaustive()
    }
}

/// Ends the present poll and lets every other ready task of the class, and every source, go first.
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// Future of [`yield_now`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Waits until a moment has come; see [`Handle::sleep_until`]. Dropping it cancels the timer.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    handle: Handle,
    at: Instant,
    key: Option<Key>,
}

impl Sleep {
    pub(crate) fn new(handle: Handle, at: Instant) -> Self {
        Self { handle, at, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.handle.now() >= this.at {
            return Poll::Ready(());
        }
        this.handle.timers().borrow_mut().register(&mut this.key, this.at, context.waker());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.handle.timers().borrow_mut().remove(&key);
        }
    }
}

/// Counters of an executor since its start.
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
    /// Source events found right after a block; all others were found by polling.
    pub doorbell_events: u64,
    /// Executors woken because this one found something for them.
    pub handed_over: u64,
    /// Times it ceased polling because another thread wanted the core.
    pub gave_way: u64,
    /// Time spent in turns that found something.
    pub working: Duration,
    /// Time spent in turns that found nothing.
    pub polling: Duration,
    /// Time spent blocked.
    pub parked: Duration,
}
