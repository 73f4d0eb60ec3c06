//! Timers of one executor: an ordered map from deadline to waker.
//!
//! A dropped [`Sleep`] removes its entry, so the map holds waiting tasks only.

use std::{
    collections::BTreeMap,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use crate::{handle::Handle, time::Instant};

/// Deadline, and a number that tells equal deadlines apart in order of registration.
type Key = (Instant, u64);

#[derive(Debug, Default)]
pub(crate) struct Timers {
    waiting: BTreeMap<Key, Waker>,
    next_number: u64,
}

impl Timers {
    pub(crate) fn next(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes the earliest timer if its deadline has come.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Waker> {
        let entry = self.waiting.first_entry()?;
        if entry.key().0 <= now { Some(entry.remove()) } else { None }
    }

    fn register(&mut self, key: &mut Option<Key>, at: Instant, waker: &Waker) {
        let key = *key.get_or_insert_with(|| {
            self.next_number += 1;
            (at, self.next_number)
        });
        self.waiting.insert(key, waker.clone());
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
            self.handle.timers().borrow_mut().waiting.remove(&key);
        }
    }
}
