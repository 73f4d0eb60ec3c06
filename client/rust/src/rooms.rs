//! Room for paths, of which a call on names needs several of 4 KiB each: a thread may have little
//! stack, and a signal handler less.
//!
//! A thread takes a block of rooms with its first, and gives it back with its last. It waits for a
//! block only while it has none, so whoever has one finishes.
//!
//! # Memory ordering
//!
//! A block's owner is taken with `Acquire` and given up with `Release`, which orders uses of its
//! rooms. Only the owner's thread, and handlers that interrupt it, take rooms of a block.

use core::{
    ops::{Deref, DerefMut, Range},
    sync::atomic::{AtomicUsize, Ordering},
};

use rustix::thread::sched_yield;
use shm::{Guard, Lock, thread};

/// Bytes of a path, with its NUL.
pub(crate) const PATH_MAX: usize = 4096;
/// A path for the kernel, with its NUL.
pub type Path = [u8; PATH_MAX];

/// Threads that can be in calls on names at once; others wait.
const BLOCKS: usize = 64;
/// Rooms of a thread: what the longest call takes, and a handler's in the midst of it.
const ROOMS: usize = 16;
/// Bits of a thread's number below those that differ from the next thread's.
const STACK_BITS: u32 = 12;
/// Owner of a free block.
const NOBODY: usize = 0;

/// No block from this one on was ever taken.
static UNTOUCHED: AtomicUsize = AtomicUsize::new(0);
static OWNERS: [AtomicUsize; BLOCKS] = [const { AtomicUsize::new(NOBODY) }; BLOCKS];
/// Rooms of each block that are taken.
static TAKEN: [AtomicUsize; BLOCKS] = [const { AtomicUsize::new(0) }; BLOCKS];
static PATHS: [[Lock<Path, false>; ROOMS]; BLOCKS] =
    [const { [const { Lock::new_interruptible([0; size_of::<Path>()]) }; ROOMS] }; BLOCKS];

/// Room for a path, with any contents.
pub struct Room {
    path: Guard<'static, Path, false>,
    /// Dropped after the path.
    _block: Block,
}

/// The block that a room is in.
struct Block(usize);

impl core::fmt::Debug for Room {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

impl Room {
    /// Addresses of all rooms.
    #[must_use]
    pub fn memory() -> Range<usize> {
        let start = (&raw const PATHS).addr();
        start..start + size_of_val(&PATHS)
    }

    /// Takes a room. `None` if this thread has taken too many.
    #[must_use]
    pub fn take() -> Option<Self> {
        let me = thread();
        let home = home(me);
        if owner_is(home, me) || take_block(home, me) {
            if let Some(room) = Self::of(home) {
                return Some(room);
            }
        }
        let mut has_one = false;
        // Those that this thread has taken are below.
        let touched = 0..UNTOUCHED.load(Ordering::Relaxed);
        for index in touched.filter(|index| owner_is(*index, me)) {
            if let Some(room) = Self::of(index) {
                return Some(room);
            }
            has_one = true;
        }
        loop {
            let free = (0..BLOCKS).find(|index| take_block(*index, me));
            if let Some(index) = free {
                return Self::of(index);
            }
            if has_one {
                return None;
            }
            sched_yield();
        }
    }

    fn of(index: usize) -> Option<Self> {
        let path = PATHS.get(index)?.iter().find_map(Lock::try_lock)?;
        TAKEN.get(index)?.fetch_add(1, Ordering::Relaxed);
        Some(Self { path, _block: Block(index) })
    }

    /// In the child of a fork: the other threads are gone, and so is their use of rooms.
    pub(crate) fn free_others() {
        let me = thread();
        for ((owner, taken), rooms) in OWNERS.iter().zip(&TAKEN).zip(&PATHS) {
            let found = owner.load(Ordering::Relaxed);
            if found != NOBODY && found != me {
                rooms.iter().for_each(Lock::break_open);
                taken.store(0, Ordering::Relaxed);
                owner.store(NOBODY, Ordering::Release);
            }
        }
    }
}

/// The block that a thread finds free, unless another one is at home there, too.
const fn home(thread: usize) -> usize {
    let stack = thread >> STACK_BITS;
    (stack ^ stack >> 6) % BLOCKS
}

fn owner_is(index: usize, owner: usize) -> bool {
    OWNERS.get(index).is_some_and(|found| found.load(Ordering::Relaxed) == owner)
}

fn take_block(index: usize, owner: usize) -> bool {
    let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
    OWNERS.get(index).is_some_and(|found| {
        if found.load(failed) != NOBODY {
            return false;
        }
        // First: a handler that interrupts this is to find what its thread has.
        if UNTOUCHED.load(Ordering::Relaxed) <= index {
            UNTOUCHED.fetch_max(index + 1, Ordering::Relaxed);
        }
        found.compare_exchange(NOBODY, owner, order, failed).is_ok()
    })
}

impl Deref for Room {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut Path {
        &mut self.path
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let (Some(owner), Some(taken)) = (OWNERS.get(self.0), TAKEN.get(self.0)) else { return };
        let before = taken.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a room is counted once");
        if before == 1 {
            // A handler that came in between may have given it up already.
            let (order, failed) = (Ordering::Release, Ordering::Relaxed);
            match owner.compare_exchange(thread(), NOBODY, order, failed) {
                Ok(_) | Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, vec::Vec};

    use super::*;

    #[test]
    fn rooms_of_a_thread_are_its_own_until_they_are_dropped() {
        let work = |seed: u8| {
            for round in 0..200 {
                let mut rooms: Vec<_> =
                    (0..ROOMS).map(|_| Room::take().expect("as many as there are")).collect();
                for room in &mut rooms {
                    room.fill(seed);
                }
                thread::yield_now();
                for room in &rooms {
                    assert!(room.iter().all(|byte| *byte == seed), "round {round}");
                }
            }
        };
        thread::scope(|scope| {
            for seed in 0..8 {
                scope.spawn(move || work(seed));
            }
        });
    }

    #[test]
    fn threads_beyond_the_last_block_wait_for_one() {
        thread::scope(|scope| {
            for _ in 0..2 * BLOCKS {
                scope.spawn(|| {
                    let rooms = [Room::take(), Room::take()];
                    thread::yield_now();
                    assert!(rooms.iter().all(Option::is_some));
                });
            }
        });
    }
}
