//! One file operation.

use std::{fmt, io, os::fd::OwnedFd, sync::Arc};

use crate::memory::{BUFFER_COUNT_MAX, Buffers};

/// A blocking function for an engine thread.
pub(crate) type Call = Box<dyn FnOnce() -> io::Result<u64> + Send>;

/// A file operation. Owns all it needs until its completion is reaped.
///
/// Completes with the bytes transferred, which may be fewer than asked: at the end of the file,
/// when the disk is full, and where an engine bounds its calls. Offsets are bytes from the start.
pub(crate) enum Operation {
    /// Reads at `at`.
    Read {
        /// The file.
        file: Arc<OwnedFd>,
        /// Where to start.
        at: u64,
        /// Where the bytes go.
        into: Buffers,
    },
    /// Writes at `at`.
    Write {
        /// The file.
        file: Arc<OwnedFd>,
        /// Where to start.
        at: u64,
        /// Where the bytes are.
        from: Buffers,
        /// By one call, however long it takes.
        is_whole: bool,
    },
    /// Makes the file durable. Completes with 0.
    Sync {
        /// The file.
        file: Arc<OwnedFd>,
        /// Leaves out what is not needed to read the data back.
        data_only: bool,
    },
    /// Brings up to [`FETCH_LEN_MAX`] bytes into the page cache. Completes with the bytes present.
    Fetch {
        /// The file.
        file: Arc<OwnedFd>,
        /// Where to start.
        at: u64,
        /// How many bytes.
        len: usize,
    },
    /// Runs on an engine thread. Completes with what it returns.
    Call(Call),
}

impl Operation {
    /// File, place, and buffers of a read or a write.
    pub(crate) fn transfer(&self) -> Option<(&Arc<OwnedFd>, u64, &Buffers)> {
        match self {
            Self::Read { file, at, into: buffers }
            | Self::Write { file, at, from: buffers, .. } => Some((file, *at, buffers)),
            Self::Sync { .. } | Self::Fetch { .. } | Self::Call(_) => None,
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { at, into, .. } => write!(f, "Read({} bytes at {at})", into.len()),
            Self::Write { at, from, .. } => write!(f, "Write({} bytes at {at})", from.len()),
            Self::Sync { data_only, .. } => write!(f, "Sync(data_only: {data_only})"),
            Self::Fetch { at, len, .. } => write!(f, "Fetch({len} bytes at {at})"),
            Self::Call(_) => f.write_str("Call"),
        }
    }
}

/// Most bytes one [`Operation::Fetch`] brings.
pub const FETCH_LEN_MAX: usize = BUFFER_COUNT_MAX * SINK_LEN;

/// Length of the memory that fetched bytes are copied to. Nobody reads it, so all fetches of an
/// engine share it, every vector of a fetch names it again, and it stays in a core's cache.
pub(crate) const SINK_LEN: usize = 64 * 1024;
