//! Ready queues, filled by wakers of any thread and emptied by the executor.
//!
//! One mutex guards the queues and the word that says the executor is about to block, so a wake
//! either lands before that word is set, and the executor does not block, or after, and the waker
//! ends the park. The executor's own wakes take the same lock: uncontended it costs less than
//! finding out which thread this is, and the executor empties the queues in one go.

use std::{collections::VecDeque, mem, sync::Arc};

use crate::{
    class::{Class, PerClass},
    park::Unpark,
    sync::{Mutex, lock},
};

/// Indices of ready tasks, a queue per class.
pub(crate) type Ready = PerClass<VecDeque<u32>>;

impl Ready {
    pub(crate) fn is_empty(&self) -> bool {
        self.latency.is_empty() && self.throughput.is_empty()
    }
}

/// The way from a waker to the executor.
pub(crate) struct Wakes {
    state: Mutex<State>,
    unparker: Arc<dyn Unpark>,
}

#[derive(Debug, Default)]
struct State {
    ready: Ready,
    /// The executor blocks, or is about to; the first wake clears it and ends the park.
    parked: bool,
}

impl Wakes {
    pub(crate) fn new(unparker: Arc<dyn Unpark>) -> Self {
        Self { state: Mutex::new(State::default()), unparker }
    }

    /// Queues a task and ends the park if there is one. For any thread.
    pub(crate) fn push(&self, class: Class, index: u32) {
        let mut state = lock(&self.state);
        state.ready.of(class).push_back(index);
        let parked = mem::take(&mut state.parked);
        drop(state);
        if parked {
            self.unparker.unpark();
        }
    }

    /// Moves everything queued behind what `ready` holds.
    pub(crate) fn take(&self, ready: &mut Ready) {
        let mut state = lock(&self.state);
        for class in [Class::Latency, Class::Throughput] {
            let (queued, taken) = (state.ready.of(class), ready.of(class));
            match (queued.is_empty(), taken.is_empty()) {
                (true, _) => {}
                (false, true) => mem::swap(queued, taken),
                (false, false) => taken.append(queued),
            }
        }
    }

    /// Announces a park; `false` when a task is ready and the executor must not block.
    pub(crate) fn announce_park(&self) -> bool {
        let mut state = lock(&self.state);
        state.parked = state.ready.is_empty();
        state.parked
    }

    /// Withdraws the announcement after a park.
    pub(crate) fn withdraw_park(&self) {
        lock(&self.state).parked = false;
    }
}
