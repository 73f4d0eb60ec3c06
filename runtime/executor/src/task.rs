//! Tasks of one executor: a table of futures, and the wakers that name them.
//!
//! Futures stay on the executor's thread. A waker holds a [`Task`]: an id, a flag, and the way to
//! the ready queue. Ids carry a generation, so a wake of a finished task finds nothing.
//!
//! # Memory ordering
//!
//! `queued` is set by a wake and cleared before a poll, both by `AcqRel` swaps. A wake that finds
//! it set pushes nothing; its swap releases what the waker wrote, and the clearing swap acquires
//! it, so the poll that follows sees it. A plain store could not: it would not read the wake's
//! swap. `loom_tests::later_wake_is_seen_by_the_poll_it_joins` fails when either is weakened.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Wake, Waker},
};

use crate::{
    sync::{AtomicBool, Ordering},
    wakes::Wakes,
};

/// Scheduling class of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Requests somebody waits for: up to a slice of polls each turn.
    Latency,
    /// Drains, read-ahead: one poll each turn, whose length the task's author bounds.
    Throughput,
}

/// Names a task, also after it has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskId {
    index: u32,
    generation: u32,
}

/// The future given to `run_until`: not in the table, since it may borrow and return a value.
pub(crate) const MAIN: TaskId = TaskId { index: u32::MAX, generation: 0 };

/// What a waker holds.
pub(crate) struct Task {
    id: TaskId,
    class: Class,
    queued: AtomicBool,
    wakes: Arc<Wakes>,
}

impl Task {
    pub(crate) fn new(id: TaskId, class: Class, wakes: Arc<Wakes>) -> Self {
        Self { id, class, queued: AtomicBool::new(false), wakes }
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
            self.wakes.push(self.class, self.id);
        }
    }
}

/// A future in the table, taken out while it is polled.
pub(crate) struct Running {
    pub(crate) future: Pin<Box<dyn Future<Output = ()>>>,
    pub(crate) task: Arc<Task>,
    pub(crate) waker: Waker,
}

/// A task that has just been added.
pub(crate) struct Added {
    pub(crate) id: TaskId,
    pub(crate) waker: Waker,
}

/// The unfinished tasks of one executor.
#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    /// `None` while the task is being polled, and when the slot is free.
    running: Option<Running>,
}

impl Tasks {
    /// Adds a task.
    pub(crate) fn add(
        &mut self,
        class: Class,
        future: Pin<Box<dyn Future<Output = ()>>>,
        wakes: &Arc<Wakes>,
    ) -> Added {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 tasks fit in memory")
        });
        let slot = self.slots.get_mut(index as usize).expect("free indices are in the table");
        let id = TaskId { index, generation: slot.generation };
        let task = Arc::new(Task::new(id, class, Arc::clone(wakes)));
        let waker = Waker::from(Arc::clone(&task));
        slot.running = Some(Running { future, task, waker: waker.clone() });
        Added { id, waker }
    }

    /// Takes a task out to be polled; `None` when it has finished.
    pub(crate) fn check_out(&mut self, id: TaskId) -> Option<Running> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.running.take() } else { None }
    }

    /// Puts an unfinished task back after a poll.
    pub(crate) fn check_in(&mut self, running: Running) {
        if let Some(slot) = self.slots.get_mut(running.task.id.index as usize) {
            slot.running = Some(running);
        }
    }

    /// Frees the slot of a finished task.
    pub(crate) fn remove(&mut self, id: TaskId) {
        if let Some(slot) = self.slots.get_mut(id.index as usize) {
            slot.generation = slot.generation.wrapping_add(1);
            slot.running = None;
            self.free.push(id.index);
        }
    }

    /// Takes out any task, for the end of the executor.
    pub(crate) fn pop(&mut self) -> Option<Running> {
        self.slots.iter_mut().find_map(|slot| slot.running.take())
    }

    /// Tasks that have not finished.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("count", &self.count()).finish_non_exhaustive()
    }
}
