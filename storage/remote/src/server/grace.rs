//! How long a new server gives locks to nobody but those who had them.
//!
//! It waits for the sessions that had locks when their server died. Of each it waits until that
//! has all of them again, at this server or at another of the root, and for [`GRACE`] at most: from
//! when a server has first waited for it, or has last seen it come. That is written down, since one
//! server may die after the other; a session that is gone for good holds up locks once.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io,
    time::Duration,
};

use executor::Instant;
use wire::SESSION_LEN;

use super::ledger::{LocksNoted, Shelf};

/// How long sessions of an earlier server are waited for: as long as they wait for a server.
const GRACE: Duration = Duration::from_secs(30);
/// Between two looks at who has come back to another server.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The time in which locks of an earlier server are given to their owners only.
pub(super) struct Grace {
    end: Instant,
    /// Sessions that have not come back, and until when they are waited for.
    awaited: RefCell<BTreeMap<[u8; SESSION_LEN], Instant>>,
    look_at: Cell<Instant>,
}

impl Grace {
    /// The time that begins when a server finds this on its shelf.
    pub(super) fn after(shelf: &dyn Shelf, now: Instant) -> io::Result<Self> {
        let mut awaited = BTreeMap::new();
        for session in shelf.sessions()? {
            let Some(ledger) = shelf.find(&session)? else { continue };
            if let LocksNoted::Awaited(waited) = ledger.locks()? {
                if let Some(rest) = GRACE.checked_sub(waited) {
                    awaited.insert(session, now + rest);
                }
            }
        }
        let (awaited, look_at) = (RefCell::new(awaited), Cell::new(now));
        Ok(Self { end: now + GRACE, awaited, look_at })
    }

    /// A session has come, and will ask for what it had.
    pub(super) fn comes(&self, session: &[u8; SESSION_LEN]) {
        if let Some(end) = self.awaited.borrow_mut().get_mut(session) {
            *end = self.end;
        }
    }

    /// A session has all that it wanted back, or is over.
    pub(super) fn settle(&self, session: &[u8; SESSION_LEN]) {
        self.awaited.borrow_mut().remove(session);
    }

    /// True if a session has yet to ask for all that it had.
    pub(super) fn awaits(&self, session: &[u8; SESSION_LEN]) -> bool {
        self.awaited.borrow().contains_key(session)
    }

    /// Forgets sessions that have had their time, or have nothing to ask for. True while others are
    /// awaited.
    pub(super) fn expire(&self, now: Instant, shelf: &dyn Shelf) -> bool {
        let mut awaited = self.awaited.borrow_mut();
        awaited.retain(|_, end| now < *end);
        if !awaited.is_empty() && now >= self.look_at.get() {
            self.look_at.set(now + LOOK_EVERY);
            awaited.retain(|session, _| {
                let locks = || shelf.find(session)?.map(|ledger| ledger.locks()).transpose();
                // What cannot be read says nothing.
                !matches!(locks(), Ok(None | Some(LocksNoted::Settled)))
            });
        }
        !awaited.is_empty()
    }
}
