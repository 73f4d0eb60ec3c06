//! Appends that a killed server has left begun.
//!
//! How much of one was done is told by the file's size, as long as nobody has appended since. So
//! whoever is first to append to such a file again has the size written into the records in doubt:
//! their clients may come back later, and are answered by it.

use std::{cell::RefCell, collections::HashMap, io};

use wire::SESSION_LEN;

use super::ledger::{Record, Shelf, State};
use crate::names::Identity;

/// A record that somebody may come back for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    pub(super) session: [u8; SESSION_LEN],
    pub(super) slot: u32,
    pub(super) record: Record,
}

/// Appends in doubt, by their files.
pub(super) struct Doubts(RefCell<HashMap<Identity, Vec<Doubt>>>);

impl Doubts {
    /// Those that earlier servers have left.
    ///
    /// # Errors
    ///
    /// Those of reading the ledgers.
    pub(super) fn load(shelf: &dyn Shelf) -> io::Result<Self> {
        let mut doubts: HashMap<_, Vec<_>> = HashMap::new();
        for session in shelf.sessions()? {
            for (slot, record) in (0..).zip(shelf.open(&session)?.load()?) {
                if let Some(record) = record.filter(Record::is_begun_append) {
                    let doubt = Doubt { session, slot, record };
                    doubts.entry(record.before.identity).or_default().push(doubt);
                }
            }
        }
        Ok(Self(RefCell::new(doubts)))
    }

    /// Those about a file.
    pub(super) fn about(&self, identity: Identity) -> Vec<Doubt> {
        self.0.borrow().get(&identity).cloned().unwrap_or_default()
    }

    /// What is in doubt about a file is written down.
    pub(super) fn settled(&self, identity: Identity) {
        self.0.borrow_mut().remove(&identity);
    }
}

impl Doubt {
    /// Writes into the ledger that the file was seen to have `size` bytes, unless another server
    /// of the root has gone on with the session since.
    ///
    /// # Errors
    ///
    /// Those of the ledger.
    pub(super) fn write_down(&self, shelf: &dyn Shelf, size: u64) -> io::Result<()> {
        let ledger = shelf.open(&self.session)?;
        let found = ledger.load()?.get(self.slot as usize).copied().flatten();
        if found == Some(self.record) { ledger.write(self.slot, &self.seen(size)) } else { Ok(()) }
    }

    /// The record once the file was seen to have `size` bytes.
    pub(super) fn seen(&self, size: u64) -> Record {
        Record { state: State::Seen(size), ..self.record }
    }
}
