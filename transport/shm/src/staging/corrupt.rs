//! Values in a staging log that an honest client never writes.

use core::{error, fmt};

/// The client published something no honest client can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Corrupt {
    /// `head` is behind `tail` or further ahead than the log is long.
    Head {
        /// Bytes the client claims are waiting.
        claimed: u64,
    },
    /// `tail` is behind where it was.
    Tail {
        /// Position the client claims.
        claimed: u64,
    },
    /// More extents than there are slots, or none for published bytes.
    Extents {
        /// Extents the client claims.
        claimed: u32,
    },
    /// An extent that does not start where the one before it ends, or leaves the file's range.
    Extent {
        /// Log position it claims to start at.
        start: u64,
        /// File offset it claims to go to.
        file_at: u64,
    },
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head { claimed } => write!(f, "{claimed} staged bytes do not fit the log"),
            Self::Tail { claimed } => write!(f, "tail ran backwards to position {claimed}"),
            Self::Extents { claimed } => write!(f, "{claimed} extents for the staged bytes"),
            Self::Extent { start, file_at } => {
                write!(f, "extent at position {start} for file offset {file_at} is out of place")
            }
        }
    }
}

impl error::Error for Corrupt {}
