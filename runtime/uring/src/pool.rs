//! Buffers of one length for what arrives: the permits of admission.
//!
//! A buffer taken from a pool *is* the permit: it returns when its last clone is gone. An operation
//! owns a clone until its completion is reaped, so a buffer that the kernel may still read is never
//! handed out again, whatever became of the future. The first that is free is taken: few are in
//! use and stay in the cache, and those taken one after the other lie in order, so that a device
//! gets few long segments.
//!
//! # Shares
//!
//! A [member](Pool::join) holds at most an equal part of the buffers, and always at least one. So
//! a peer that lets its buffers lie keeps nobody else from theirs, as long as no more join than
//! there are buffers. Who waits is served in order of asking, but for those that hold their part.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use executor::Vacancies;

use crate::memory::{Buffer, Heap, Memory, PAGE_LEN};

/// A pool of buffers, or a member's part of it. Cheap to clone.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
    member: Option<Arc<Member>>,
}

struct Shared {
    heap: Arc<Heap>,
    buffer_len: usize,
    /// Where in its pages a buffer begins.
    lead: usize,
    buffer_count: usize,
    state: Mutex<State>,
}

struct State {
    /// Indices of the buffers nobody holds.
    free: Vacancies,
    members: usize,
    /// Waiters, by number: in order of asking.
    waiting: VecDeque<Waiting>,
    next_number: u64,
}

struct Waiting {
    number: u64,
    waker: Waker,
    member: Option<Arc<Member>>,
}

/// One that shares the pool with others.
struct Member {
    shared: Arc<Shared>,
    /// Buffers it holds; changed under the pool's lock.
    held: AtomicUsize,
}

impl Pool {
    /// `buffer_count` page-aligned buffers of `buffer_len` bytes, all resident from the start.
    #[must_use]
    pub fn new(buffer_len: usize, buffer_count: usize) -> Self {
        let pool =
            Self::of(Heap::huge(room(buffer_len, buffer_count)), 0, buffer_len, buffer_count);
        let heap = &pool.shared.heap;
        // Fresh zero pages are not there before they are written.
        heap.bytes().iter().step_by(PAGE_LEN).for_each(|byte| byte.store(0, Ordering::Relaxed));
        pool
    }

    /// The same, with pages that are there once they were used; fewer buffers where the address
    /// space has no room for all.
    #[must_use]
    pub fn reserve(buffer_len: usize, buffer_count: usize) -> Self {
        Self::reserve_aligned_at(0, buffer_len, buffer_count)
    }

    /// The same; byte `aligned_at` of each buffer, within its first page, begins a page.
    #[must_use]
    pub fn reserve_aligned_at(aligned_at: usize, buffer_len: usize, buffer_count: usize) -> Self {
        let lead = aligned_at.next_multiple_of(PAGE_LEN) - aligned_at;
        match Heap::try_new(room(lead + buffer_len, buffer_count)) {
            Some(heap) => Self::of(heap, lead, buffer_len, buffer_count),
            None if buffer_count > 1 => {
                Self::reserve_aligned_at(aligned_at, buffer_len, buffer_count / 2)
            }
            None => Self::of(Heap::new(room(lead + buffer_len, 1)), lead, buffer_len, 1),
        }
    }

    fn of(heap: Heap, lead: usize, buffer_len: usize, buffer_count: usize) -> Self {
        let heap = Arc::new(heap);
        let free = Vacancies::new(buffer_count);
        let state = State { free, members: 0, waiting: VecDeque::new(), next_number: 0 };
        let state = Mutex::new(state);
        let shared = Arc::new(Shared { heap, lead, buffer_len, buffer_count, state });
        Self { shared, member: None }
    }

    /// The same buffers, of which whoever has this takes at most an equal part; until it and its
    /// clones are dropped and their buffers are back.
    #[must_use]
    pub fn join(&self) -> Self {
        // Who waits in front may get less by that than it has, and another one is the first then.
        self.shared.change(|state| state.members += 1);
        let (shared, held) = (Arc::clone(&self.shared), AtomicUsize::new(0));
        let member = Some(Arc::new(Member { shared: Arc::clone(&shared), held }));
        Self { shared, member }
    }

    /// A buffer, unless there is none for this member, or one that may have it waits.
    #[must_use]
    pub fn try_take(&self) -> Option<Buffer> {
        let mut state = self.shared.lock();
        if self.shared.first_waiting(&state).is_some() {
            return None;
        }
        self.pop(&mut state)
    }

    /// A buffer, as soon as there is one and those that asked earlier have theirs.
    ///
    /// Dropping the future gives up the place in the line.
    pub async fn take(&self) -> Buffer {
        Take { pool: self, number: None }.await
    }

    /// Length of its buffers in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        self.shared.buffer_len
    }

    /// Buffers nobody holds.
    #[must_use]
    pub fn available(&self) -> usize {
        self.shared.lock().free.count()
    }

    /// The memory that all its buffers are in.
    #[must_use]
    pub fn memory(&self) -> Arc<dyn Memory> {
        Arc::clone(&self.shared.heap) as Arc<dyn Memory>
    }

    fn pop(&self, state: &mut State) -> Option<Buffer> {
        if !self.shared.has_share(state, self.member.as_deref()) {
            return None;
        }
        let index = state.free.take()?;
        if let Some(member) = &self.member {
            member.held.fetch_add(1, Ordering::Relaxed);
        }
        let (shared, member) = (Arc::clone(&self.shared), self.member.clone());
        Some(Buffer::whole(Arc::new(Slot { shared, member, index })))
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("buffer_len", &self.buffer_len())
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// No code that holds the lock can panic half-way.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a member may have one more; who is none may always.
    fn has_share(&self, state: &State, member: Option<&Member>) -> bool {
        let share = (self.buffer_count / state.members.max(1)).max(1);
        member.is_none_or(|member| member.held.load(Ordering::Relaxed) < share)
    }

    /// The first of those that wait and may have the next buffer, if there is one.
    fn first_waiting<'a>(&self, state: &'a State) -> Option<&'a Waiting> {
        let may_take = |waiting: &&Waiting| self.has_share(state, waiting.member.as_deref());
        if state.free.count() == 0 { None } else { state.waiting.iter().find(may_take) }
    }

    /// Changes the state, and wakes who may take a buffer then.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let next = self.first_waiting(&state).map(|waiting| waiting.waker.clone());
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shared.change(|state| state.members -= 1);
    }
}

/// Bytes that so many buffers take.
const fn room(buffer_len: usize, buffer_count: usize) -> usize {
    buffer_len.next_multiple_of(PAGE_LEN) * buffer_count
}

/// Waits for a buffer.
struct Take<'a> {
    pool: &'a Pool,
    /// Its place in the line, once it waits.
    number: Option<u64>,
}

impl Future for Take<'_> {
    type Output = Buffer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Buffer> {
        let this = self.get_mut();
        let mut state = this.pool.shared.lock();
        let first = this.pool.shared.first_waiting(&state).map(|waiting| waiting.number);
        if first.is_none() || first == this.number {
            if let Some(buffer) = this.pool.pop(&mut state) {
                drop(state);
                this.leave();
                return Poll::Ready(buffer);
            }
        }
        let number = *this.number.get_or_insert_with(|| {
            state.next_number += 1;
            state.next_number
        });
        let waker = context.waker().clone();
        match state.waiting.iter_mut().find(|waiting| waiting.number == number) {
            Some(waiting) => waiting.waker = waker,
            None => {
                let member = this.pool.member.clone();
                state.waiting.push_back(Waiting { number, waker, member });
            }
        }
        Poll::Pending
    }
}

impl Take<'_> {
    /// Leaves the line; there may be a buffer for the next in it.
    fn leave(&mut self) {
        if let Some(number) = self.number.take() {
            let mut gone = None;
            self.pool.shared.change(|state| {
                let place = state.waiting.iter().position(|waiting| waiting.number == number);
                gone = place.and_then(|place| state.waiting.remove(place));
            });
            drop(gone); // Not under the lock: it may be the last to know its member.
        }
    }
}

impl Drop for Take<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// One buffer's bytes, and its way back.
struct Slot {
    shared: Arc<Shared>,
    member: Option<Arc<Member>>,
    index: usize,
}

impl Memory for Slot {
    fn bytes(&self) -> &[AtomicU8] {
        let Shared { lead, buffer_len, .. } = *self.shared;
        let start = self.index * (lead + buffer_len).next_multiple_of(PAGE_LEN) + lead;
        let rest = self.shared.heap.bytes().get(start..).unwrap_or_default();
        rest.get(..self.shared.buffer_len).unwrap_or(rest)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.free.give_back(self.index);
            if let Some(member) = &self.member {
                member.held.fetch_sub(1, Ordering::Relaxed);
            }
        });
    }
}
