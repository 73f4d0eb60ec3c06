//! The ranks that open a multifile together, and the four things they do together.
//!
//! Everything parallel in this crate is written against [`Group`], so one core serves threads,
//! MPI of any make, and programs that bring their own callbacks. Rank 0 is the root of every
//! operation. All ranks call the same operations in the same order; how often they do is part of
//! what `parallel` promises.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::{
    codec::narrow,
    error::{Error, Result},
};

/// A group of ranks, seen from one of them.
///
/// An operation returns [`Error::Group`] when the group can no longer work together; a rank that
/// gets one calls no further operation.
#[expect(clippy::missing_errors_doc, reason = "the one error is said above")]
pub trait Group {
    /// This rank, from 0.
    fn rank(&self) -> u32;

    /// Number of ranks; positive.
    fn size(&self) -> u32;

    /// Collects `mine`, equally long on all ranks, on the root: returns all of them there in the
    /// order of ranks, and nothing elsewhere.
    fn gather(&self, mine: &[u8]) -> Result<Vec<u8>>;

    /// Cuts `all` of the root into equal parts and fills every rank's `mine` with its own.
    fn scatter(&self, all: &[u8], mine: &mut [u8]) -> Result<()>;

    /// Fills `bytes`, equally long on all ranks, with what the root has in it.
    fn broadcast(&self, bytes: &mut [u8]) -> Result<()>;

    /// Returns when all ranks have called it.
    fn barrier(&self) -> Result<()>;
}

/// A group of one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Group for Alone {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn gather(&self, mine: &[u8]) -> Result<Vec<u8>> {
        Ok(mine.to_vec())
    }

    fn scatter(&self, all: &[u8], mine: &mut [u8]) -> Result<()> {
        take_part(all, 0, mine)
    }

    fn broadcast(&self, _bytes: &mut [u8]) -> Result<()> {
        Ok(())
    }

    fn barrier(&self) -> Result<()> {
        Ok(())
    }
}

/// Threads of one process. A rank that is dropped ends the group for the others: they get
/// [`Error::Group`] instead of waiting for it.
#[derive(Debug)]
pub struct Threads {
    shared: Arc<Shared>,
    rank: u32,
}

#[derive(Debug)]
struct Shared {
    size: u32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Contributions of the ranks to the current operation.
    brought: Vec<Vec<u8>>,
    arrived: u32,
    /// Operations completed so far.
    completed: u64,
    /// Contributions of the ranks to the last completed one.
    last: Arc<Vec<Vec<u8>>>,
    broken: bool,
}

/// Code of [`Error::Group`] when a thread left its group.
pub const RANK_GONE: i32 = 1;
/// Code of [`Error::Group`] when lengths passed to one operation differ.
pub const LENGTHS_DIFFER: i32 = 2;

impl Threads {
    /// A group of `size` ranks, one for each thread.
    #[must_use]
    pub fn new(size: u32) -> Vec<Self> {
        let state = State { brought: vec![Vec::new(); narrow(size.into())], ..State::default() };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { size, state, changed });
        (0..size).map(|rank| Self { shared: Arc::clone(&shared), rank }).collect()
    }

    /// Brings `mine` and returns what every rank brought, when all did.
    fn meet(&self, mine: &[u8]) -> Result<Arc<Vec<Vec<u8>>>> {
        let mut state = self.lock();
        if state.broken {
            return Err(Error::Group { code: RANK_GONE });
        }
        if let Some(slot) = state.brought.get_mut(narrow(self.rank.into())) {
            *slot = mine.to_vec();
        }
        state.arrived += 1;
        debug_assert!(state.arrived <= self.shared.size, "a rank arrives once");
        if state.arrived == self.shared.size {
            let empty = vec![Vec::new(); state.brought.len()];
            state.last = Arc::new(std::mem::replace(&mut state.brought, empty));
            state.arrived = 0;
            state.completed += 1;
            self.shared.changed.notify_all();
            return Ok(Arc::clone(&state.last));
        }
        let now = state.completed;
        while state.completed == now && !state.broken {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // No later operation can have completed: it would have needed this rank.
        if state.completed == now {
            return Err(Error::Group { code: RANK_GONE });
        }
        Ok(Arc::clone(&state.last))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.lock().broken = true;
        self.shared.changed.notify_all();
    }
}

impl Group for Threads {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.shared.size
    }

    fn gather(&self, mine: &[u8]) -> Result<Vec<u8>> {
        let all = self.meet(mine)?;
        Ok(if self.rank == 0 { all.concat() } else { Vec::new() })
    }

    fn scatter(&self, all: &[u8], mine: &mut [u8]) -> Result<()> {
        let all = self.meet(if self.rank == 0 { all } else { &[] })?;
        take_part(all.first().map_or(&[], Vec::as_slice), self.rank, mine)
    }

    fn broadcast(&self, bytes: &mut [u8]) -> Result<()> {
        let all = self.meet(if self.rank == 0 { bytes } else { &[] })?;
        take_part(all.first().map_or(&[], Vec::as_slice), 0, bytes)
    }

    fn barrier(&self) -> Result<()> {
        self.meet(&[]).map(|_| ())
    }
}

/// Collective operations given as functions: the shape of a table of C callbacks. Each returns 0
/// for success; anything else becomes the code of [`Error::Group`].
pub struct Callbacks<'a> {
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// Collects the first argument of all ranks in the second of the root, which is empty
    /// elsewhere.
    pub gather: Box<Exchange<'a>>,
    /// Spreads the first argument of the root, empty elsewhere, over the second of all ranks.
    pub scatter: Box<Exchange<'a>>,
    /// Copies the root's bytes to all ranks.
    pub broadcast: Box<Spread<'a>>,
    /// Waits for all ranks.
    pub barrier: Box<dyn Fn() -> i32 + 'a>,
}

/// A collective operation on bytes in place.
pub type Spread<'a> = dyn Fn(&mut [u8]) -> i32 + 'a;

/// A collective operation from bytes to bytes.
pub type Exchange<'a> = dyn Fn(&[u8], &mut [u8]) -> i32 + 'a;

impl fmt::Debug for Callbacks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Callbacks");
        shown.field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Group for Callbacks<'_> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn gather(&self, mine: &[u8]) -> Result<Vec<u8>> {
        let ranks = if self.rank == 0 { narrow(self.size.into()) } else { 0 };
        let mut all = vec![0; mine.len().checked_mul(ranks).ok_or(Error::TooLarge)?];
        code((self.gather)(mine, &mut all)).map(|()| all)
    }

    fn scatter(&self, all: &[u8], mine: &mut [u8]) -> Result<()> {
        code((self.scatter)(all, mine))
    }

    fn broadcast(&self, bytes: &mut [u8]) -> Result<()> {
        code((self.broadcast)(bytes))
    }

    fn barrier(&self) -> Result<()> {
        code((self.barrier)())
    }
}

const fn code(code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::Group { code }) }
}

/// Copies part `rank` of `all`, cut into parts as long as `mine`.
fn take_part(all: &[u8], rank: u32, mine: &mut [u8]) -> Result<()> {
    if mine.is_empty() {
        return Ok(());
    }
    let part = all.chunks_exact(mine.len()).nth(narrow(rank.into()));
    mine.copy_from_slice(part.ok_or(Error::Group { code: LENGTHS_DIFFER })?);
    Ok(())
}
