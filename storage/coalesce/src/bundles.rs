//! The bundles of all sessions, on whichever executor: the first one takes them in, which has the
//! multifiles (`intake`).

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use executor::{Mailbox, lock};
use rustix::io::Errno;
use shm::bundle::{Bundle, Logs};
use storage::segment::Segment;

/// The bundle of one session.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The session's number, as long as it is not over.
    session: u32,
    pub(crate) segment: Arc<Segment>,
    /// A copy, checked.
    pub(crate) logs: Logs,
    is_over: AtomicBool,
}

impl Entry {
    /// The bundle of a session in whose segment its place is said.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it is not in the arena.
    pub(crate) fn new(session: u32, segment: &Arc<Segment>) -> Result<Self, Errno> {
        let logs = segment.shared().bundle.logs();
        if !logs.fit(segment.arena().len() as u64) {
            return Err(Errno::INVAL);
        }
        Ok(Self { session, segment: Arc::clone(segment), logs, is_over: AtomicBool::new(false) })
    }

    pub(crate) fn shared(&self) -> &Bundle {
        &self.segment.shared().bundle
    }

    /// True if the client is gone: what it has published is all there will be.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// True if it belongs to the session of that number.
    pub(crate) fn is_of(&self, session: u32) -> bool {
        self.session == session && !self.is_over()
    }
}

/// All bundles of a daemon.
#[derive(Debug)]
pub struct Bundles {
    entries: Mutex<Vec<Arc<Entry>>>,
    /// Raised when there is another one.
    count: AtomicU64,
    is_announced: AtomicBool,
    news: Mailbox<()>,
}

impl Default for Bundles {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            count: AtomicU64::new(0),
            is_announced: AtomicBool::new(false),
            news: Mailbox::new(),
        }
    }
}

impl Bundles {
    /// Takes the bundle of a session in, once.
    ///
    /// # Errors
    ///
    /// As [`Entry::new`].
    pub fn add(&self, session: u32, segment: &Arc<Segment>) -> Result<(), Errno> {
        let mut entries = lock(&self.entries);
        if !entries.iter().any(|entry| entry.is_of(session)) {
            entries.push(Arc::new(Entry::new(session, segment)?));
            self.count.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// A session ends: its client publishes nothing more.
    pub fn end(&self, session: u32) {
        let entries = lock(&self.entries);
        let Some(entry) = entries.iter().find(|entry| entry.is_of(session)) else { return };
        entry.is_over.store(true, Ordering::Release);
        drop(entries);
        self.announce();
    }

    /// Forgets a bundle that is over and taken in.
    pub(crate) fn remove(&self, entry: &Arc<Entry>) {
        lock(&self.entries).retain(|other| !Arc::ptr_eq(other, entry));
    }

    /// How many there have been: as long as that stays [`all`](Self::all) has nothing new.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Readers by an entry of the table of places, which is hidden.
    pub(crate) fn readers(&self, entry: u32) -> Vec<(Arc<Entry>, u32)> {
        let entries = lock(&self.entries);
        let of = |client: &Arc<Entry>| {
            let slots = client.segment.shared().reading.readers(entry);
            slots.map(|slot| (Arc::clone(client), slot)).collect::<Vec<_>>()
        };
        entries.iter().flat_map(of).collect()
    }

    /// Those that are there.
    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        lock(&self.entries).clone()
    }

    /// Says that a client has published something while nobody looked, or a lot of it.
    pub fn announce(&self) {
        if !self.is_announced.swap(true, Ordering::AcqRel) {
            self.news.send(());
        }
    }

    /// Waits for an announcement. For one task at a time.
    pub(crate) async fn announced(&self) {
        self.news.receive().await;
        self.is_announced.store(false, Ordering::Release);
    }
}
