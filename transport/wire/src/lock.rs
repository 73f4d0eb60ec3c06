//! Terms of a lock, as they lie in an entry's length word (`docs/reference/protocol.md`, section
//! 3).
//!
//! Bits 0–1: [`LockKind`]; 2–3: [`LockOwner`]; 4: wait a while; 5: it was held before; 16–31:
//! number of the process. The others are zero.

/// Kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Nothing: an unlock.
    Unlocked = 0,
    /// Together with others that only share it.
    Shared = 1,
    /// Alone.
    Exclusive = 2,
}

/// To whom a lock belongs, and with what it goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockOwner {
    /// A process: when it closes any descriptor of the file, or ends (`F_SETLK`).
    Process = 0,
    /// An open file: when its last descriptor is closed (`F_OFD_SETLK`).
    OpenFile = 1,
    /// The same, for the file as a whole, and apart from the other two (`flock`).
    Whole = 2,
}

/// All of a lock but its file and its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockTerms {
    /// Kind.
    pub kind: LockKind,
    /// Owner.
    pub owner: LockOwner,
    /// True if the answer may wait a while for others to unlock. It says `EAGAIN` all the same when
    /// that was too short.
    pub waits: bool,
    /// True if the owner had the lock of a server that is gone.
    pub reclaims: bool,
    /// The process's number at its daemon, which sets it.
    pub process: u16,
}

const WAITS: u32 = 1 << 4;
const RECLAIMS: u32 = 1 << 5;

impl LockTerms {
    /// The word.
    #[must_use]
    pub const fn encode(self) -> u32 {
        let flags = if self.waits { WAITS } else { 0 } | if self.reclaims { RECLAIMS } else { 0 };
        self.kind as u32 | (self.owner as u32) << 2 | flags | (self.process as u32) << 16
    }

    /// The terms in a word; `None` when it means nothing.
    #[must_use]
    pub fn decode(word: u32) -> Option<Self> {
        let kind = match word & 3 {
            0 => LockKind::Unlocked,
            1 => LockKind::Shared,
            2 => LockKind::Exclusive,
            _ => return None,
        };
        let owner = match word >> 2 & 3 {
            0 => LockOwner::Process,
            1 => LockOwner::OpenFile,
            2 => LockOwner::Whole,
            _ => return None,
        };
        let process = u16::try_from(word >> 16).ok()?;
        let (waits, reclaims) = (word & WAITS != 0, word & RECLAIMS != 0);
        let terms = Self { kind, owner, waits, reclaims, process };
        (terms.encode() == word).then_some(terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_means_itself_or_nothing() {
        let mut valid = 0;
        for low in 0..1 << 16 {
            for process in [0, 7, u16::MAX] {
                let word = u32::from(process) << 16 | low;
                let Some(terms) = LockTerms::decode(word) else { continue };
                assert_eq!((terms.encode(), terms.process), (word, process));
                valid += 1;
            }
        }
        assert_eq!(valid, 3 * 3 * 3 * 4);
    }
}
