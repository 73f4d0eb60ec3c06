//! The open folder that a path is relative to, as it lies before the path
//! (`docs/reference/protocol.md`, section 3).

use crate::words::{Reader, WORD_LEN, bytes_of};

/// Identity of the folder that a path begins with. The path is found in this folder, or nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// To a daemon, the folder's node in its view; to a server, its inode.
    pub number: u64,
    /// When the folder was made, as [`Status`](crate::Status) has it; to a daemon, zero.
    pub born: u64,
    /// Bytes of the path behind the folder's own.
    pub rest_len: u16,
    /// To a daemon, how many folders it is above that node; to a server, zero.
    pub ups: u8,
}

impl Base {
    /// Its length in bytes.
    pub const LEN: usize = 3 * WORD_LEN;

    /// The first byte, with which no path begins.
    const MARK: u8 = 1;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let [low, high] = self.rest_len.to_le_bytes();
        let first = u64::from_le_bytes([Self::MARK, self.ups, low, high, 0, 0, 0, 0]);
        bytes_of(&[first, self.number, self.born])
    }

    /// The folder that `bytes` begin with, and the path behind it; no folder: they are the path.
    /// `None`: they are neither.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<(Option<Self>, &[u8])> {
        if bytes.first() != Some(&Self::MARK) {
            return Some((None, bytes));
        }
        let (head, path) = bytes.split_at_checked(Self::LEN)?;
        let mut words = Reader(head);
        let [_, ups, low, high, ..] = words.word()?.to_le_bytes();
        let rest_len = u16::from_le_bytes([low, high]);
        let (number, born) = (words.word()?, words.word()?);
        let base = Self { number, born, rest_len, ups };
        base.len_in(path).map(|_| (Some(base), path))
    }

    /// Length of the folder's own path, which `path` begins with.
    #[must_use]
    pub fn len_in(&self, path: &[u8]) -> Option<usize> {
        path.len().checked_sub(self.rest_len.into())
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn path_is_told_from_one_that_begins_with_a_folder() {
        let base = Base { number: 7, born: u64::MAX, rest_len: 300, ups: 2 };
        let path = [b'/'; 302];
        let bytes: Vec<u8> = [&base.encode()[..], &path].concat();
        assert_eq!(Base::decode(&bytes), Some((Some(base), &path[..])));
        assert_eq!(base.len_in(&path), Some(2));
        assert_eq!(Base::decode(&path), Some((None, &path[..])));
        for len in 1..Base::LEN + 300 {
            assert_eq!(Base::decode(&bytes[..len]), None, "{len}");
        }
    }
}
