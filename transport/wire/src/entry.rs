//! An entry: 64 bytes of a lane, as copied out of the segment.
//!
//! Word 0 holds what makes an entry an entry: its number (bits 0–31) and its kind (32–39). The
//! number is the lane's, which puts it in: the consumer waits for it, so a request crosses in one
//! cache line, without a shared index. Word 1 holds the file slot (0–31) and a length (32–63); the
//! others belong to the kind: an argument `a` in word 2 and `b` in word 3, the rest are zero.

use core::{error, fmt};

/// Words of eight bytes in an entry.
pub const ENTRY_WORDS: usize = 8;

/// A request as it lies in a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry(pub [u64; ENTRY_WORDS]);

/// Why bytes from a peer mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalid {
    /// No request has this kind.
    Kind(u8),
    /// A message does not start with the magic.
    Magic,
    /// A message has a kind or role that does not exist.
    Message(u32),
    /// A message has the wrong length in bytes.
    Length(usize),
    /// A frame is not as it was sent.
    Checksum,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "unknown request kind {kind}"),
            Self::Magic => write!(f, "the peer does not speak this protocol"),
            Self::Message(kind) => write!(f, "unknown message kind {kind}"),
            Self::Length(len) => write!(f, "a message of {len} bytes"),
            Self::Checksum => write!(f, "a frame arrived with a wrong checksum"),
        }
    }
}

impl error::Error for Invalid {}

impl Entry {
    pub(crate) const fn new(kind: u8) -> Self {
        let mut words = [0; ENTRY_WORDS];
        words[0] = (kind as u64) << 32;
        Self(words)
    }

    /// The request's kind as numbered on the wire.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        split(self.0[0]).1.to_le_bytes()[0]
    }
}

pub(crate) const fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

#[expect(clippy::cast_possible_truncation, reason = "takes a word apart into its halves")]
pub(crate) const fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}
