//! Receive buffers: memory sized once, and the credits to use it.
//!
//! A [`Buffer`] is a credit: it owns one piece of the pool's memory until it is dropped, on
//! whatever thread. The first free piece is used next, so that a pool larger than needed costs no
//! cache and, until first used, no memory, and what came together lies together. A message that
//! UCX lends takes a piece too, and leaves it as it is.

use std::{
    fmt, ptr,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU8},
};

use executor::Vacancies;

use crate::{
    loans::{Lent, Loans},
    payload::payload,
};

/// Buffers start at page boundaries, as O_DIRECT wants it.
pub(crate) const PAGE_LEN: usize = 4096;

/// Bytes that stay in place while this value is shared, for receive buffers.
pub type Memory = dyn AsRef<[AtomicU8]> + Send + Sync;

/// The memory of all buffers of one worker.
pub(crate) struct Pool {
    memory: Arc<Memory>,
    /// The first page boundary in it.
    start: usize,
    /// Distance between buffers, in bytes.
    stride: usize,
    buffer_len: usize,
    /// Indices of free buffers.
    free: Mutex<Vacancies>,
    pub(crate) loans: Loans,
}

impl Pool {
    pub(crate) fn new(buffer_count: u32, buffer_len: usize) -> Arc<Self> {
        // A page longer than needed, so that an aligned start exists.
        let len = buffer_count as usize * stride(buffer_len) + PAGE_LEN;
        Self::within(Arc::new(payload(vec![0; len])), buffer_count, buffer_len)
    }

    /// As many buffers as fit in `memory`, at most `count_max`.
    pub(crate) fn within(memory: Arc<Memory>, count_max: u32, buffer_len: usize) -> Arc<Self> {
        let (bytes, stride) = ((*memory).as_ref(), stride(buffer_len));
        let start = bytes.as_ptr().align_offset(PAGE_LEN);
        let count = bytes.len().saturating_sub(start) / stride;
        let count = count.min(count_max as usize);
        let (free, loans) = (Mutex::new(Vacancies::new(count)), Loans::default());
        Arc::new(Self { memory, start, stride, buffer_len, free, loans })
    }

    /// Takes a free buffer, to hold `len` bytes. `None` when there is none, or it is too short.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Option<Buffer> {
        if len > self.buffer_len {
            return None;
        }
        let index = self.with_free(Vacancies::take)?;
        Some(Buffer { pool: Arc::clone(self), index, lent: None, len })
    }

    pub(crate) fn buffer_len(&self) -> usize {
        self.buffer_len
    }

    pub(crate) fn free_count(&self) -> usize {
        self.with_free(|free| free.count())
    }

    fn with_free<T>(&self, action: impl FnOnce(&mut Vacancies) -> T) -> T {
        action(&mut self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The bytes of a received message, and the credit for them.
///
/// May be dropped on any thread. Messages put off then get the buffer in the executor's next turn;
/// the drop does not end its park.
pub struct Buffer {
    pool: Arc<Pool>,
    /// No other buffer has this index until this one is dropped.
    index: usize,
    /// Where the bytes are, if not there.
    lent: Option<Lent>,
    len: usize,
}

impl Buffer {
    /// The bytes, for the kernel or another transfer to read.
    #[must_use]
    pub fn bytes(&self) -> &[AtomicU8] {
        if let Some(lent) = &self.lent {
            return lent.bytes();
        }
        let at = self.pool.start + self.index * self.pool.stride;
        (*self.pool.memory).as_ref().get(at..at + self.len).unwrap_or_default()
    }

    /// A copy of the bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let from = self.bytes();
        let mut copy = Vec::with_capacity(from.len());
        // SAFETY: both have room for so many bytes; those read may change under shared references.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr().cast(), copy.as_mut_ptr(), from.len()) };
        // SAFETY: just filled so far.
        unsafe { copy.set_len(from.len()) };
        copy
    }

    /// Has this buffer's bytes be those that UCX lends.
    pub(crate) fn borrow(&mut self, data: Lent) {
        self.lent = Some(self.pool.loans.lend(data));
    }

    /// Copies `bytes` to the start of this buffer, as many as fit.
    pub(crate) fn store(&self, bytes: &[u8]) {
        let to = self.bytes();
        let len = to.len().min(bytes.len());
        // SAFETY: both hold `len` bytes; those written may change under shared references, and
        // `bytes` cannot be among them, being borrowed as bytes that do not change.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr().cast_mut().cast(), len) }
    }

    /// Length of the message, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the message has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Distance between buffers that each start a page.
fn stride(buffer_len: usize) -> usize {
    buffer_len.next_multiple_of(PAGE_LEN).max(PAGE_LEN)
}

impl AsRef<[AtomicU8]> for Buffer {
    fn as_ref(&self) -> &[AtomicU8] {
        self.bytes()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(lent) = self.lent.take() {
            self.pool.loans.give_back(lent);
        }
        let index = self.index;
        self.pool.with_free(|free| free.give_back(index));
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("index", &self.index).field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_buffer_is_used_next() {
        let pool = Pool::new(3, 10);
        let (first, second) = (pool.take(10).unwrap(), pool.take(10).unwrap());
        let index = first.index;
        drop(first);
        assert_eq!(pool.take(10).unwrap().index, index);
        assert_eq!(pool.free_count(), 2);
        drop(second);
        assert_eq!(pool.free_count(), 3);
    }

    #[test]
    fn an_empty_pool_and_a_message_too_long_get_no_buffer() {
        let pool = Pool::new(1, 10);
        assert!(pool.take(11).is_none());
        let held = pool.take(0).unwrap();
        assert!(held.is_empty() && pool.take(0).is_none());
    }

    #[test]
    fn buffers_are_aligned_and_apart() {
        let pool = Pool::new(2, 5000);
        let (first, second) = (pool.take(5000).unwrap(), pool.take(5000).unwrap());
        assert!(first.bytes().as_ptr().addr() % PAGE_LEN == 0);
        first.store(&[1; 5000]);
        second.store(&[2; 6000]);
        assert_eq!((first.to_vec(), second.to_vec()), (vec![1; 5000], vec![2; 5000]));
    }

    #[test]
    fn memory_of_others_holds_as_many_buffers_as_begin_at_a_page_there() {
        for (pages, count_max, count) in [(0, 9, 0), (1, 9, 0), (4, 9, 2), (5, 9, 2), (9, 3, 3)] {
            // Its start may lie anywhere in a page.
            let memory = Arc::new(payload(vec![0; pages * PAGE_LEN + PAGE_LEN - 1]));
            let pool = Pool::within(memory, count_max, 5000);
            assert_eq!(pool.free_count(), count, "{pages} pages");
        }
    }
}
