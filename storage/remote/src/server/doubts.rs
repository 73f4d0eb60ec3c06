//! Appends that a killed server has left begun.
//!
//! How much of one was done is told by the file's size, as long as nobody has appended since. So
//! whoever is first to append to such a file again has the size written into the records in doubt:
//! their clients may come back later, and are answered by it.

use std::{cell::RefCell, collections::HashMap, io};

use storage::names::Identity;
use wire::SESSION_LEN;

use super::ledger::{Record, Shelf, State};

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
    pub(super) fn load(shelf: &dyn Shelf) -> io::Result<Self> {
        let mut doubts: HashMap<_, Vec<_>> = HashMap::new();
        for session in shelf.sessions()? {
            let Some(ledger) = shelf.find(&session)? else { continue };
            for (slot, record) in (0..).zip(ledger.load()?) {
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

    /// Records that doubts about a file are settled.
    pub(super) fn settled(&self, identity: Identity) {
        self.0.borrow_mut().remove(&identity);
    }
}

impl Doubt {
    /// Writes into the ledger that the file was seen to have `size` bytes, unless another server
    /// of the root has gone on with the session since, or has ended it.
    pub(super) fn write_down(&self, shelf: &dyn Shelf, size: u64) -> io::Result<()> {
        let Some(ledger) = shelf.find(&self.session)? else { return Ok(()) };
        let found = ledger.load()?.get(self.slot as usize).copied().flatten();
        if found == Some(self.record) { ledger.write(self.slot, &self.seen(size)) } else { Ok(()) }
    }

    /// The record once the file was seen to have `size` bytes.
    pub(super) fn seen(&self, size: u64) -> Record {
        Record { state: State::Seen(size), ..self.record }
    }
}

#[cfg(test)]
mod tests {
    use executor::Instant;
    use wire::ROOT_LEN;

    use super::*;
    use crate::server::{
        grace::Grace,
        ledger::{Before, Folder, Ledger},
    };

    const SESSION: [u8; SESSION_LEN] = [5; SESSION_LEN];

    /// A shelf whose ledgers another server of the root removes as soon as they are listed.
    struct Raced(Folder);

    impl Shelf for Raced {
        fn root(&self) -> io::Result<[u8; ROOT_LEN]> {
            self.0.root()
        }

        fn open(&self, session: &[u8; SESSION_LEN]) -> io::Result<Box<dyn Ledger>> {
            self.0.open(session)
        }

        fn find(&self, session: &[u8; SESSION_LEN]) -> io::Result<Option<Box<dyn Ledger>>> {
            self.0.find(session)
        }

        fn sessions(&self) -> io::Result<Vec<[u8; SESSION_LEN]>> {
            let found = self.0.sessions()?;
            found.iter().for_each(|session| self.0.remove(session));
            Ok(found)
        }

        fn remove(&self, session: &[u8; SESSION_LEN]) {
            self.0.remove(session);
        }

        fn remove_old(&self) {
            self.0.remove_old();
        }
    }

    #[test]
    fn a_ledger_that_another_server_has_removed_does_not_come_back() {
        let root = tempfile::tempdir().expect("folder");
        let shelf = Raced(Folder::create(root.path(), true).expect("made"));
        let before = Before { mark: 3, identity: (8, 42), is_append: true };
        let record = Record { id: 7, state: State::Begun, before };
        let begin = || {
            let ledger = shelf.open(&SESSION).expect("made");
            ledger.write(0, &record).expect("written");
            ledger.note_locks().expect("written");
        };
        let is_gone = || shelf.0.find(&SESSION).expect("read").is_none();
        let now = Instant::from_nanos(0);

        begin();
        assert!(Doubts::load(&shelf).expect("read").about((8, 42)).is_empty() && is_gone());
        begin();
        assert!(!Grace::after(&shelf, now).expect("read").expire(now, &shelf) && is_gone());
        begin();
        let grace = Grace::after(&shelf.0, now).expect("read");
        shelf.remove(&SESSION);
        assert!(!grace.expire(now, &shelf.0) && is_gone());
        let doubt = Doubt { session: SESSION, slot: 0, record };
        doubt.write_down(&shelf, 5).expect("nothing to write");
        assert!(is_gone());
    }
}
