//! A limit of connections: where there are as many, the one whose holder has been silent longest is
//! given up for one more.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    time::Duration,
};

use executor::{Instant, Notify};

/// So many connections.
pub(super) struct ConnectionLimit {
    most: usize,
    /// A holder that was heard of since is not asked to give way.
    silent_min: Duration,
    /// When each holder was heard of last, by number.
    holders: RefCell<BTreeMap<u64, Instant>>,
    next: Cell<u64>,
    /// Signalled when one gives way.
    news: Notify,
}

/// One of them, until it is dropped.
pub(super) struct Admitted<'a> {
    limit: &'a ConnectionLimit,
    number: u64,
}

impl ConnectionLimit {
    pub(super) fn new(most: usize, silent_min: Duration) -> Self {
        let (holders, next, news) = (RefCell::default(), Cell::default(), Notify::new());
        Self { most, silent_min, holders, next, news }
    }

    /// Admits a connection, for which another one may have to give way; `None`: there are as many.
    pub(super) fn admit(&self, now: Instant) -> Option<Admitted<'_>> {
        let mut holders = self.holders.borrow_mut();
        if holders.len() >= self.most {
            // Of those that were heard of at the same time, the one that came first.
            let silent = holders.iter().min_by_key(|(number, heard_at)| (**heard_at, **number));
            let (number, heard_at) = silent.map(|(number, heard_at)| (*number, *heard_at))?;
            if now.saturating_since(heard_at) < self.silent_min {
                return None;
            }
            holders.remove(&number);
            self.news.notify_all();
        }
        let number = self.next.replace(self.next.get() + 1);
        holders.insert(number, now);
        Some(Admitted { limit: self, number })
    }
}

impl Admitted<'_> {
    /// Notes that the holder was heard of.
    pub(super) fn note_heard(&self, now: Instant) {
        if let Some(heard_at) = self.limit.holders.borrow_mut().get_mut(&self.number) {
            *heard_at = now;
        }
    }

    /// Waits until its right is another's.
    pub(super) async fn gives_way(&self) {
        let is_given = || !self.limit.holders.borrow().contains_key(&self.number);
        self.limit.news.until(is_given).await;
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.limit.holders.borrow_mut().remove(&self.number);
    }
}
