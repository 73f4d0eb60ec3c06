//! Timers of one executor: an ordered map from deadline to waker.
//!
//! A dropped [`Sleep`](crate::Sleep) removes its entry, so the map holds waiting tasks only.

use std::{collections::BTreeMap, task::Waker};

use crate::time::Instant;

/// Deadline, and a number that tells equal deadlines apart in order of registration.
pub(crate) type Key = (Instant, u64);

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

    pub(crate) fn register(&mut self, key: &mut Option<Key>, at: Instant, waker: &Waker) {
        let key = *key.get_or_insert_with(|| {
            self.next_number += 1;
            (at, self.next_number)
        });
        self.waiting.insert(key, waker.clone());
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        self.waiting.remove(key);
    }
}
