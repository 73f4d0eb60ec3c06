//! One file operation, and the list of addresses it gives the kernel.

use std::{fmt, io, os::fd::OwnedFd, ptr, sync::Arc};

use crate::memory::{BUFFER_COUNT_MAX, Buffer, Buffers};

/// A blocking function for an engine thread.
pub type Call = Box<dyn FnOnce() -> io::Result<u64> + Send>;

/// A file operation. Owns all it needs until its completion is reaped.
///
/// Completes with the bytes transferred, which may be fewer than asked: at the end of the file,
/// when the disk is full, and where an engine bounds its calls. Offsets are bytes from the start.
pub enum Operation {
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
            Self::Read { file, at, into: buffers } | Self::Write { file, at, from: buffers } => {
                Some((file, *at, buffers))
            }
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

/// Addresses and lengths of buffers, as the kernel takes them.
///
/// Valid while the buffers it was made from live; making it keeps nothing alive.
pub(crate) struct Vectors {
    list: [libc::iovec; BUFFER_COUNT_MAX],
    count: usize,
}

impl Vectors {
    /// The first `limit` bytes of `buffers`.
    pub(crate) fn of(buffers: &Buffers, limit: usize) -> Self {
        Self::collect(buffers.as_slice().iter(), limit)
    }

    /// `len` bytes, up to [`FETCH_LEN_MAX`], all into `sink`.
    pub(crate) fn repeated(sink: &Buffer, len: usize) -> Self {
        Self::collect(std::iter::repeat(sink), len)
    }

    pub(crate) fn as_slice(&self) -> &[libc::iovec] {
        self.list.get(..self.count).unwrap_or_default()
    }

    /// The first `limit` bytes of all these buffers; what lies together is one vector.
    pub(crate) fn collect<'a>(buffers: impl Iterator<Item = &'a Buffer>, limit: usize) -> Self {
        let empty = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut vectors = Self { list: [empty; BUFFER_COUNT_MAX], count: 0 };
        let mut left = limit;
        for buffer in buffers {
            if left == 0 {
                break;
            }
            let bytes = buffer.bytes();
            let iov_base: *mut libc::c_void = bytes.as_ptr().cast_mut().cast();
            let iov_len = bytes.len().min(left);
            left -= iov_len;
            if let Some(last) = vectors.list.get_mut(..vectors.count).and_then(<[_]>::last_mut) {
                if last.iov_base.wrapping_byte_add(last.iov_len) == iov_base {
                    last.iov_len += iov_len;
                    continue;
                }
            }
            let Some(vector) = vectors.list.get_mut(vectors.count) else { break };
            *vector = libc::iovec { iov_base, iov_len };
            vectors.count += 1;
        }
        vectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Heap;

    #[test]
    fn what_lies_together_is_one_vector() {
        let (one, other) = (Heap::buffer(100), Heap::buffer(50));
        let parts = [one.prefix(10), one.suffix(10).prefix(20), one.suffix(31), other.prefix(5)];
        let lens = |limit| -> Vec<_> {
            let vectors = Vectors::collect(parts.iter(), limit);
            vectors.as_slice().iter().map(|vector| vector.iov_len).collect()
        };
        assert_eq!(lens(usize::MAX), [30, 69, 5]);
        assert_eq!(lens(99), [30, 69]);
        assert_eq!(lens(15), [15]);
    }

    #[test]
    fn memory_that_is_named_again_is_another_vector() {
        let sink = Heap::buffer(SINK_LEN);
        let vectors = Vectors::repeated(&sink, FETCH_LEN_MAX + 1);
        assert_eq!(vectors.as_slice().len(), BUFFER_COUNT_MAX);
    }
}
