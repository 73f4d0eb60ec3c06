//! The ledger: a server's records of requests that must not happen twice, one small file per
//! session.
//!
//! A record is written before its request is executed (*begun*) and again when it is answered
//! (*done*); in between, when an append was left begun and another is to follow (*seen*). Records
//! are 64 bytes in fixed places, so a record never crosses a page, and the kernel copies a page's
//! part whole: a server that is killed leaves the old record or the new one. They are not synced:
//! they protect from the death of the server, not of its node. Behind them stands whether the
//! session has had locks, and since when servers wait for it to take them again; the server at
//! which it has them all has the file locked.

mod folder;

use std::{io, time::Duration};

use storage::names::Identity;
use wire::{ROOT_LEN, SESSION_LEN};

pub use self::folder::Folder;

/// Requests of a session that may be recorded at a time.
pub(crate) const RECORDS: u32 = 64;
const WORDS: usize = 8;
const RECORD_LEN: usize = WORDS * size_of::<u64>();
/// Stands in the last word, with all others, so that a torn or foreign record is none.
const SEAL: u64 = 0x6b61_6b65_6869_7265;

const BEGUN: u64 = 1;
const DONE: u64 = 2;
const SEEN: u64 = 3;

/// One request that must not happen twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The request's.
    pub(crate) id: u64,
    pub(crate) state: State,
    pub(crate) before: Before,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Begun,
    /// Begun by a server that was killed; the file had so many bytes before anybody appended again.
    Seen(u64),
    /// Answered with this value.
    Done(u64),
}

/// State before it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// Size of a file that is appended to or has bytes moved; of one that is cut, when it was
    /// changed last; else, and once a file is opened, when it was made.
    pub(crate) mark: u64,
    /// Of that file, or of the name; zeros when there was none. Once a file is opened, its own.
    pub(crate) identity: Identity,
    pub(crate) is_append: bool,
}

impl Record {
    /// True if it is of an append whose outcome nobody has looked into.
    pub(crate) fn is_begun_append(&self) -> bool {
        self.state == State::Begun && self.before.is_append
    }

    fn encode(&self) -> [u8; RECORD_LEN] {
        let (state, value) = match self.state {
            State::Begun => (BEGUN, 0),
            State::Seen(size) => (SEEN, size),
            State::Done(value) => (DONE, value),
        };
        let Before { mark, identity: (device, inode), is_append } = self.before;
        let words = [self.id, state, value, mark, device, inode, u64::from(is_append)];
        let seal = words.iter().fold(SEAL, |sum, word| sum.rotate_left(7) ^ word);
        let mut bytes = [0; RECORD_LEN];
        let chunks = bytes.chunks_exact_mut(size_of::<u64>());
        for (chunk, word) in chunks.zip(words.into_iter().chain([seal])) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; RECORD_LEN]) -> Option<Self> {
        let mut words = [0; WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
            *word = u64::from_le_bytes(*chunk.first_chunk()?);
        }
        let [id, state, value, mark, device, inode, append, seal] = words;
        let summed = [id, state, value, mark, device, inode, append];
        if seal != summed.iter().fold(SEAL, |sum, word| sum.rotate_left(7) ^ word) {
            return None;
        }
        let state = match state {
            BEGUN => State::Begun,
            SEEN => State::Seen(value),
            DONE => State::Done(value),
            _ => return None,
        };
        let before = Before { mark, identity: (device, inode), is_append: append == 1 };
        Some(Self { id, state, before })
    }
}

/// Locks of a session, as the ledger has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocksNoted {
    /// It has had none, or a server that lives has them all.
    Settled,
    /// They have been waited for for so long.
    Awaited(Duration),
}

/// Where a session's records outlive the server, as an input.
pub(crate) trait Ledger: 'static {
    /// The records there are.
    fn load(&self) -> io::Result<Vec<Option<Record>>>;

    /// Writes a record into its place.
    fn write(&self, slot: u32, record: &Record) -> io::Result<()>;

    /// Remembers that the session has had locks.
    fn note_locks(&self) -> io::Result<()>;

    /// Reads the note on locks. Who finds that they are to be waited for begins to.
    fn locks(&self) -> io::Result<LocksNoted>;

    /// The session has come; the wait for its locks begins anew.
    fn comes(&self);

    /// The session has all its locks, at this server, for as long as this value lives.
    fn have_locks(&self);

    /// The session has lost its locks.
    fn lose_locks(&self);

    /// The session lives: its ledger is not one of the very old.
    fn renew(&self);
}

/// Where ledgers are kept, as an input.
pub(crate) trait Shelf: 'static {
    /// The name of the root that it belongs to.
    fn root(&self) -> io::Result<[u8; ROOT_LEN]>;

    /// The ledger of a session, made if there is none.
    fn open(&self, session: &[u8; SESSION_LEN]) -> io::Result<Box<dyn Ledger>>;

    /// The ledger of a session, if there is one: another server of the root may have removed it.
    fn find(&self, session: &[u8; SESSION_LEN]) -> io::Result<Option<Box<dyn Ledger>>>;

    /// The sessions that have one.
    fn sessions(&self) -> io::Result<Vec<[u8; SESSION_LEN]>>;

    /// Removes the ledger of a session that is over.
    fn remove(&self, session: &[u8; SESSION_LEN]);

    /// Removes the ledgers that have not been written or renewed for very long.
    fn remove_old(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_with_any_bit_changed_is_none() {
        let record = Record { id: 7, state: State::Done(3), before: Before::default() };
        let bytes = record.encode();
        for bit in 0..RECORD_LEN * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(&changed), None, "bit {bit}");
        }
    }
}
