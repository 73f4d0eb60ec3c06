//! Calls on locks, as requests and storages exchange them.

use std::io;

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use uring::RecordLock;
use wire::{FoundLock, LockKind, LockOwner, LockTerms};

/// A lock that is asked for, or is to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockCall {
    /// The kind of lock, and its owner.
    pub terms: LockTerms,
    /// First byte.
    pub start: u64,
    /// Bytes; zero: all from `start` on.
    pub len: u64,
}

impl LockCall {
    /// The call of a request.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the terms mean nothing.
    pub fn new(terms: u32, start: u64, len: u64) -> Result<Self, Errno> {
        let terms = LockTerms::decode(terms).ok_or(Errno::INVAL)?;
        Ok(Self { terms, start, len })
    }

    /// Gives up everything that an owner has.
    pub const fn unlock_all(owner: LockOwner, process: u16) -> Self {
        let kind = LockKind::Unlocked;
        let terms = LockTerms { kind, owner, waits: false, reclaims: false, process };
        Self { terms, start: 0, len: 0 }
    }

    /// Gives up what this one has taken.
    pub const fn undone(self) -> Self {
        debug_assert!(!self.is_unlock(), "what is undone was taken");
        let terms = LockTerms { kind: LockKind::Unlocked, waits: false, ..self.terms };
        Self { terms, ..self }
    }

    /// True if it gives up a lock.
    pub const fn is_unlock(&self) -> bool {
        matches!(self.terms.kind, LockKind::Unlocked)
    }

    fn record(self) -> RecordLock {
        let kind = match self.terms.kind {
            LockKind::Unlocked => uring::LockKind::Unlocked,
            LockKind::Shared => uring::LockKind::Shared,
            LockKind::Exclusive => uring::LockKind::Exclusive,
        };
        RecordLock { kind, start: self.start, len: self.len }
    }

    /// Has the kernel do it for an open file.
    ///
    /// # Errors
    ///
    /// Those of `fcntl` or `flock`; `EAGAIN`: somebody else's lock is in the way.
    pub fn set(self, file: &uring::File) -> io::Result<()> {
        let operation = match (self.terms.owner, self.terms.kind) {
            (LockOwner::Process | LockOwner::OpenFile, _) => return self.record().set(file),
            (_, LockKind::Unlocked) => FlockOperation::NonBlockingUnlock,
            (_, LockKind::Shared) => FlockOperation::NonBlockingLockShared,
            (_, LockKind::Exclusive) => FlockOperation::NonBlockingLockExclusive,
        };
        Ok(flock(file, operation)?)
    }

    /// A lock that is in the way of this one, of an open file.
    ///
    /// # Errors
    ///
    /// Those of `fcntl`; `EINVAL`: it is a lock of the whole file.
    pub fn obstacle(self, file: &uring::File) -> io::Result<Option<FoundLock>> {
        let found = match self.terms.owner {
            LockOwner::Process | LockOwner::OpenFile => self.record().obstacle(file)?,
            LockOwner::Whole => return Err(Errno::INVAL.into()),
        };
        Ok(found.map(|RecordLock { kind, start, len }| {
            let kind = match kind {
                uring::LockKind::Unlocked => LockKind::Unlocked,
                uring::LockKind::Shared => LockKind::Shared,
                uring::LockKind::Exclusive => LockKind::Exclusive,
            };
            FoundLock { kind, start, len }
        }))
    }
}

/// The number of a session's process on the wire.
///
/// # Panics
///
/// If there is no such session.
pub fn process_of(session: u32) -> u16 {
    u16::try_from(session).expect("there are fewer sessions")
}
