//! Tasks of one executor: a table of slots, each with a future while it has a task, and its waker.
//!
//! Futures stay on the executor's thread. A slot and its waker are made once and serve one task
//! after another; a waker holds a [`Task`]: an index, a flag, and the way to the ready queue. A
//! slot has the class of its first task for ever, so that a wake knows its queue.
//!
//! # Stale wakes
//!
//! A waker may outlive its task. Its wake then polls the task that has the slot now once more, as
//! the contract of [`Future`] allows, or finds the slot empty. That too counts as a poll: `queued`
//! left set would keep the slot's next task from ever being queued. When the executor is gone, a
//! wake queues its slot, at most once, in a queue that nobody empties.
//!
//! # Memory ordering
//!
//! `queued` is set by a wake and cleared before a poll, both by `AcqRel` swaps. A wake that finds
//! it set pushes nothing; its swap releases what the waker wrote, and the clearing swap acquires
//! it, so the poll that follows sees it. A plain store could not: it would not read the wake's
//! swap. `loom_tests::later_wake_is_seen_by_the_poll_it_joins` fails when either is weakened.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Wake, Waker},
};

use crate::{
    class::{Class, PerClass},
    sync::{AtomicBool, Ordering},
    wakes::Wakes,
};

/// The future given to `run_until`: in no slot, since it may borrow and return a value.
pub(crate) const MAIN: u32 = u32::MAX;

/// Content of a waker.
pub(crate) struct Task {
    index: u32,
    class: Class,
    queued: AtomicBool,
    wakes: Arc<Wakes>,
}

impl Task {
    pub(crate) fn new(index: u32, class: Class, wakes: Arc<Wakes>) -> Self {
        Self { index, class, queued: AtomicBool::new(false), wakes }
    }

    /// Lets wakes from here on queue the task again. Call right before polling it.
    pub(crate) fn begin_poll(&self) {
        self.queued.swap(false, Ordering::AcqRel);
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.wakes.push(self.class, self.index);
        }
    }
}

/// Future of a task.
pub(crate) type Body = Pin<Box<dyn Future<Output = ()>>>;

/// Room for a task.
pub(crate) struct Slot {
    pub(crate) task: Arc<Task>,
    /// Wakes `task`.
    pub(crate) waker: Waker,
    /// `None` while the task is being polled, and when the slot is free.
    pub(crate) body: Cell<Option<Body>>,
}

/// The unfinished tasks of one executor.
#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<Rc<Slot>>,
    free: PerClass<Vec<Rc<Slot>>>,
}

impl Tasks {
    /// Adds a task.
    pub(crate) fn add(&mut self, class: Class, body: Body, wakes: &Arc<Wakes>) -> Rc<Slot> {
        let slot = self.free.of(class).pop().unwrap_or_else(|| self.add_slot(class, wakes));
        slot.body.set(Some(body));
        slot
    }

    fn add_slot(&mut self, class: Class, wakes: &Arc<Wakes>) -> Rc<Slot> {
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 tasks fit in memory");
        let task = Arc::new(Task::new(index, class, Arc::clone(wakes)));
        let waker = Waker::from(Arc::clone(&task));
        let slot = Rc::new(Slot { task, waker, body: Cell::default() });
        self.slots.push(Rc::clone(&slot));
        slot
    }

    /// The slot that a wake named.
    pub(crate) fn slot(&self, index: u32) -> Option<Rc<Slot>> {
        self.slots.get(index as usize).cloned()
    }

    /// Frees the slot of a finished task.
    pub(crate) fn release(&mut self, slot: Rc<Slot>) {
        self.free.of(slot.task.class).push(slot);
    }

    /// Takes out all tasks, for the end of the executor.
    pub(crate) fn take_all(&mut self) -> Vec<Body> {
        self.slots.iter().filter_map(|slot| slot.body.take()).collect()
    }

    /// Tasks that have not finished.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.latency.len() - self.free.throughput.len()
    }
}
