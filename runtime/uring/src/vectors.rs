//! The list of addresses that an operation gives the kernel.

use std::iter;

use crate::memory::{BUFFER_COUNT_MAX, Buffer, Buffers};

/// Addresses and lengths of buffers, as the kernel takes them; at most [`BUFFER_COUNT_MAX`].
///
/// Valid while the buffers it was made from live; making it keeps nothing alive.
pub(crate) enum Vectors {
    /// The common case allocates nothing.
    One([libc::iovec; 1]),
    Many(Vec<libc::iovec>),
}

impl Vectors {
    /// The first `limit` bytes of `buffers`.
    pub(crate) fn of(buffers: &Buffers, limit: usize) -> Self {
        match buffers.as_slice() {
            [one] => Self::One([place(one, limit)]),
            many => Self::collect(many.iter(), limit),
        }
    }

    /// `len` bytes, up to [`FETCH_LEN_MAX`](crate::FETCH_LEN_MAX), all into `sink`.
    pub(crate) fn repeated(sink: &Buffer, len: usize) -> Self {
        Self::collect(iter::repeat(sink), len)
    }

    /// The first `limit` bytes of all these buffers.
    pub(crate) fn collect<'a>(buffers: impl Iterator<Item = &'a Buffer>, limit: usize) -> Self {
        let mut places = places(buffers, limit);
        let Some(first) = places.next() else { return Self::Many(Vec::new()) };
        let Some(second) = places.next() else { return Self::One([first]) };
        let mut list = Vec::with_capacity(BUFFER_COUNT_MAX);
        list.extend([first, second].into_iter().chain(places).take(BUFFER_COUNT_MAX));
        Self::Many(list)
    }

    pub(crate) fn as_slice(&self) -> &[libc::iovec] {
        match self {
            Self::One(one) => one,
            Self::Many(list) => list,
        }
    }
}

/// The places in memory of the first `limit` bytes; what lies together is one.
pub(crate) fn places<'a>(
    buffers: impl Iterator<Item = &'a Buffer>,
    limit: usize,
) -> impl Iterator<Item = libc::iovec> {
    let mut left = limit;
    let parts = buffers.map_while(move |buffer| {
        if left == 0 {
            return None;
        }
        let place = place(buffer, left);
        left -= place.iov_len;
        Some(place)
    });
    let mut parts = parts.peekable();
    iter::from_fn(move || {
        let mut place = parts.next()?;
        let continues = |place: &libc::iovec, next: &libc::iovec| {
            place.iov_base.wrapping_byte_add(place.iov_len) == next.iov_base
        };
        while let Some(next) = parts.next_if(|next| continues(&place, next)) {
            place.iov_len += next.iov_len;
        }
        Some(place)
    })
}

/// The place of the first `limit` bytes.
fn place(buffer: &Buffer, limit: usize) -> libc::iovec {
    let bytes = buffer.bytes();
    let iov_base = bytes.as_ptr().cast_mut().cast();
    libc::iovec { iov_base, iov_len: bytes.len().min(limit) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        memory::Heap,
        operation::{FETCH_LEN_MAX, SINK_LEN},
    };

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
