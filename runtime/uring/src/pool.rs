//! Buffers of one length for what arrives: the permits of admission.
//!
//! A buffer taken from a pool *is* the permit: it returns when its last clone is gone. An operation
//! owns a clone until its completion is reaped, so a buffer that the kernel may still read is never
//! handed out again, whatever became of the future. Last in, first out: what was used last is still
//! in the cache.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    task::{Poll, Waker},
};

use crate::memory::{Buffer, Heap, Memory};

/// A pool of buffers. Cheap to clone.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    heap: Arc<Heap>,
    buffer_len: usize,
    state: Mutex<State>,
}

struct State {
    /// Indices of the buffers nobody holds.
    free: Vec<usize>,
    waiting: VecDeque<Waker>,
}

impl Pool {
    /// `buffer_count` page-aligned buffers of `buffer_len` bytes, all resident from the start.
    #[must_use]
    pub fn new(buffer_len: usize, buffer_count: usize) -> Self {
        let stride = buffer_len.next_multiple_of(PAGE_LEN);
        let heap = Arc::new(Heap::new(stride * buffer_count));
        heap.prefer_huge_pages();
        // Fresh zero pages are not there before they are written.
        heap.bytes().iter().step_by(PAGE_LEN).for_each(|byte| byte.store(0, Ordering::Relaxed));
        let free = (0..buffer_count).rev().collect();
        let state = Mutex::new(State { free, waiting: VecDeque::new() });
        Self(Arc::new(Shared { heap, buffer_len, state }))
    }

    /// A buffer, unless all are held.
    #[must_use]
    pub fn try_take(&self) -> Option<Buffer> {
        let index = self.0.lock().free.pop()?;
        let memory = Arc::new(Slot { pool: Arc::clone(&self.0), index });
        Buffer::new(memory, 0, self.0.buffer_len)
    }

    /// A buffer, as soon as there is one.
    pub async fn take(&self) -> Buffer {
        poll_fn(|context| match self.try_take() {
            Some(buffer) => Poll::Ready(buffer),
            None => {
                self.0.lock().waiting.push_back(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// Length of its buffers in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        self.0.buffer_len
    }

    /// Buffers nobody holds.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.lock().free.len()
    }

    /// The memory all its buffers are in, for [`Engines::register`](crate::Engines::register).
    #[must_use]
    pub fn memory(&self) -> Arc<dyn Memory> {
        Arc::clone(&self.0.heap) as Arc<dyn Memory>
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("buffer_len", &self.0.buffer_len)
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// No code that holds the lock can panic half-way.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One buffer's bytes, and its way back.
struct Slot {
    pool: Arc<Shared>,
    index: usize,
}

impl Memory for Slot {
    fn bytes(&self) -> &[AtomicU8] {
        let start = self.index * self.pool.buffer_len.next_multiple_of(PAGE_LEN);
        let rest = self.pool.heap.bytes().get(start..).unwrap_or_default();
        rest.get(..self.pool.buffer_len).unwrap_or(rest)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.free.push(self.index);
        // All look again: one that gave up must not keep the others from it.
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

const PAGE_LEN: usize = 4096;
