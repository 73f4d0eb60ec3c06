//! Times to set, as they lie behind the path of a request (`docs/reference/protocol.md`, section
//! 3).

use crate::words::{Reader, WORD_LEN, bytes_of, signed, unsigned};

/// Seconds and nanoseconds of access and of modification, as `utimensat(2)` takes them: nanoseconds
/// may also say "now", or "as it is".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "described at the type")]
pub struct Times {
    pub accessed: (i64, i64),
    pub modified: (i64, i64),
}

impl Times {
    /// Their length in bytes.
    pub const LEN: usize = 4 * WORD_LEN;

    /// Their bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let (accessed, modified) = (self.accessed, self.modified);
        bytes_of(&[accessed.0, accessed.1, modified.0, modified.1].map(unsigned))
    }

    /// The times that `bytes` begin with; `None` when they are too few.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = Reader(bytes);
        let mut next = || words.word().map(signed);
        Some(Self { accessed: (next()?, next()?), modified: (next()?, next()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_four_words_in_their_order() {
        let times = Times { accessed: (1, 2), modified: (-3, (1 << 30) - 1) };
        let bytes = times.encode();
        assert_eq!(bytes, bytes_of(&[1, 2, u64::MAX - 2, (1 << 30) - 1]));
        assert_eq!(Times::decode(&bytes), Some(times));
        assert_eq!(Times::decode(&bytes[1..]), None);
    }
}
