//! Answers to requests: the value of a completion, and the data in the lane's buffer, or behind the
//! value in a frame (`docs/reference/protocol.md`, sections 3 to 5 and 8).

use crate::{
    lock::LockKind,
    words::{Reader, WORD_LEN, bytes_of, narrow, signed, unsigned},
};

/// The value word of a completion: a count or the like, or the number of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(pub Result<u64, i32>);

impl Value {
    /// The word: an error is its negated number.
    #[must_use]
    pub fn encode(self) -> u64 {
        self.0.unwrap_or_else(|errno| unsigned(-i64::from(errno)))
    }

    /// Decodes a word.
    #[must_use]
    pub fn decode(word: u64) -> Self {
        match i32::try_from(word.wrapping_neg()) {
            Ok(errno @ 1..4096) => Self(Err(errno)),
            _ => Self(Ok(word)),
        }
    }
}

/// Status of a file, in the words of `stat(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of `struct stat`; times in seconds and nanoseconds")]
pub struct Status {
    pub device: u64,
    pub inode: u64,
    pub mode: u32,
    pub link_count: u64,
    pub user: u32,
    pub group: u32,
    pub special_device: u64,
    pub size: u64,
    pub block_size: u64,
    pub block_count: u64,
    pub accessed: (i64, u32),
    pub modified: (i64, u32),
    pub changed: (i64, u32),
    /// When it was made, in nanoseconds; 0: its file system does not say.
    pub born: u64,
}

impl Status {
    /// Its length in bytes.
    pub const LEN: usize = 17 * WORD_LEN;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let [accessed, modified, changed] = [self.accessed, self.modified, self.changed]
            .map(|(seconds, nanoseconds)| (unsigned(seconds), u64::from(nanoseconds)));
        bytes_of(&[
            self.device,
            self.inode,
            u64::from(self.mode),
            self.link_count,
            u64::from(self.user),
            u64::from(self.group),
            self.special_device,
            self.size,
            self.block_size,
            self.block_count,
            accessed.0,
            accessed.1,
            modified.0,
            modified.1,
            changed.0,
            changed.1,
            self.born,
        ])
    }

    /// The status that `bytes` begin with; `None` when they are too few.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = Reader(bytes);
        Some(Self {
            device: words.word()?,
            inode: words.word()?,
            mode: narrow(words.word()?),
            link_count: words.word()?,
            user: narrow(words.word()?),
            group: narrow(words.word()?),
            special_device: words.word()?,
            size: words.word()?,
            block_size: words.word()?,
            block_count: words.word()?,
            accessed: (signed(words.word()?), narrow(words.word()?)),
            modified: (signed(words.word()?), narrow(words.word()?)),
            changed: (signed(words.word()?), narrow(words.word()?)),
            born: words.word()?,
        })
    }

    /// Device and inode.
    #[must_use]
    pub const fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// When anything of it was changed last, in nanoseconds; wraps.
    #[must_use]
    pub fn changed_at(&self) -> u64 {
        let (seconds, nanoseconds) = self.changed;
        unsigned(seconds).wrapping_mul(1_000_000_000).wrapping_add(u64::from(nanoseconds))
    }
}

/// Properties of a file system, in the words of `statfs(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSystem {
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks.
    pub block_count: u64,
    /// Of these free.
    pub free: u64,
    /// And free to anybody.
    pub available: u64,
    /// Inodes.
    pub inode_count: u64,
    /// Of these free.
    pub inodes_free: u64,
    /// Bytes of the longest name.
    pub name_len_max: u64,
    /// Which kind it is.
    pub magic: u64,
}

impl FileSystem {
    /// Its length in bytes, which is the value of the request.
    pub const LEN: usize = 8 * WORD_LEN;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        bytes_of(&[
            self.block_size,
            self.block_count,
            self.free,
            self.available,
            self.inode_count,
            self.inodes_free,
            self.name_len_max,
            self.magic,
        ])
    }

    /// Decodes the start of `bytes`; `None` when they are too few.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = Reader(bytes);
        Some(Self {
            block_size: words.word()?,
            block_count: words.word()?,
            free: words.word()?,
            available: words.word()?,
            inode_count: words.word()?,
            inodes_free: words.word()?,
            name_len_max: words.word()?,
            magic: words.word()?,
        })
    }
}

/// A lock that somebody has. Never [`LockKind::Unlocked`] where it was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundLock {
    /// Kind.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Bytes; zero: all from `start` on.
    pub len: u64,
}

impl FoundLock {
    /// Its length in bytes.
    pub const LEN: usize = 3 * WORD_LEN;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        bytes_of(&[self.kind as u64, self.start, self.len])
    }

    /// The lock that `bytes` begin with; `None` when they are too few, or no lock.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = Reader(bytes);
        let kind = match words.word()? {
            1 => LockKind::Shared,
            2 => LockKind::Exclusive,
            _ => return None,
        };
        Some(Self { kind, start: words.word()?, len: words.word()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words 1, 2, 3, and so on.
    fn counting<const LEN: usize>() -> [u8; LEN] {
        let words: [u64; 17] = core::array::from_fn(|index| index as u64 + 1);
        bytes_of(&words)
    }

    #[test]
    fn errors_are_negative_values() {
        assert_eq!(Value(Ok(7)).encode(), 7);
        assert_eq!(Value(Err(28)).encode(), u64::MAX - 27);
        for said in [Ok(0), Ok(u64::MAX >> 1), Ok(u64::MAX - 4095), Err(1), Err(28), Err(4095)] {
            assert_eq!(Value::decode(Value(said).encode()), Value(said));
        }
    }

    #[test]
    fn a_status_is_its_seventeen_words_in_their_order() {
        let status = Status {
            device: 1,
            inode: 2,
            mode: 3,
            link_count: 4,
            user: 5,
            group: 6,
            special_device: 7,
            size: 8,
            block_size: 9,
            block_count: 10,
            accessed: (11, 12),
            modified: (13, 14),
            changed: (15, 16),
            born: 17,
        };
        assert_eq!(status.encode(), counting());
        assert_eq!(Status::decode(&status.encode()), Some(status));
        assert_eq!(status.changed_at(), 15_000_000_016);
        let old = Status { changed: (-1, 999_999_999), ..status };
        assert_eq!(Status::decode(&old.encode()), Some(old));
        assert_eq!(Status::decode(&counting::<{ Status::LEN - 1 }>()), None);
    }

    #[test]
    fn a_file_system_is_its_eight_words_in_their_order() {
        let found = FileSystem {
            block_size: 1,
            block_count: 2,
            free: 3,
            available: 4,
            inode_count: 5,
            inodes_free: 6,
            name_len_max: 7,
            magic: 8,
        };
        assert_eq!(found.encode(), counting());
        assert_eq!(FileSystem::decode(&found.encode()), Some(found));
        assert_eq!(FileSystem::decode(&counting::<{ FileSystem::LEN - 1 }>()), None);
    }

    #[test]
    fn a_lock_that_is_found_is_its_three_words_and_no_other_kind_is_one() {
        let found = FoundLock { kind: LockKind::Shared, start: 2, len: 3 };
        assert_eq!(found.encode(), counting());
        assert_eq!(FoundLock::decode(&found.encode()), Some(found));
        let found = FoundLock { kind: LockKind::Exclusive, start: u64::MAX, len: 0 };
        assert_eq!(FoundLock::decode(&found.encode()), Some(found));
        for kind in [0, 3, u64::MAX] {
            assert_eq!(FoundLock::decode(&bytes_of::<24>(&[kind, 2, 3])), None);
        }
        assert_eq!(FoundLock::decode(&counting::<{ FoundLock::LEN - 1 }>()), None);
    }
}
