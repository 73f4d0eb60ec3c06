//! Mutual exclusion inside one process, without libc: for code that may run in a signal handler.
//!
//! A lock knows which thread holds it. A handler that interrupts the holder gets [`Reentered`]
//! instead of a deadlock, and takes its direct path.

use core::{
    cell::UnsafeCell,
    fmt,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
const SPINS: u32 = 100;

/// A value that one thread at a time may use.
pub struct Lock<T> {
    state: AtomicU32,
    /// Identity of the holding thread; meaningful only to that thread.
    owner: AtomicUsize,
    value: UnsafeCell<T>,
}

/// The calling thread holds the lock already: it was interrupted by its own signal handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reentered;

/// Use of a locked value; unlocks when dropped.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

// SAFETY: the lock hands out the value to one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// An unlocked value.
    pub const fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            owner: AtomicUsize::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks, waiting for the holder if need be.
    ///
    /// # Errors
    ///
    /// [`Reentered`] when this thread holds the lock.
    pub fn lock(&self) -> Result<Guard<'_, T>, Reentered> {
        let me = thread();
        if self.owner.load(Ordering::Relaxed) == me {
            return Err(Reentered);
        }
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        self.owner.store(me, Ordering::Relaxed);
        Ok(Guard { lock: self })
    }

    /// Locks if nobody holds the lock.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).ok()?;
        self.owner.store(thread(), Ordering::Relaxed);
        Some(Guard { lock: self })
    }

    /// Whether this thread holds the lock.
    pub fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == thread()
    }

    /// Frees the lock whoever held it: for the child of a fork, whose other threads are gone.
    pub fn break_open(&self) {
        self.owner.store(0, Ordering::Relaxed);
        self.state.store(FREE, Ordering::Release);
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            core::hint::spin_loop();
            if self.state.load(Ordering::Relaxed) == FREE
                && self
                    .state
                    .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
        }
        while self.state.swap(CONTENDED, Ordering::Acquire) != FREE {
            sleep(&self.state);
        }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.owner.store(0, Ordering::Relaxed);
        if self.lock.state.swap(FREE, Ordering::Release) == CONTENDED {
            wake(&self.lock.state);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock, and the guard borrows the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the lock, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

fn sleep(state: &AtomicU32) {
    use rustix::thread::futex::{Flags, wait};
    // A wake-up, a signal, and a changed word all mean: look again.
    match wait(state, Flags::PRIVATE, CONTENDED, None) {
        Ok(()) | Err(_) => {}
    }
}

fn wake(state: &AtomicU32) {
    use rustix::thread::futex::{Flags, wake};
    // A word that is mapped and aligned cannot fail.
    match wake(state, Flags::PRIVATE, 1) {
        Ok(_) | Err(_) => {}
    }
}

/// Identity of the calling thread: the address of its control block. Never zero.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[must_use]
pub fn thread() -> usize {
    let block: usize;
    // SAFETY: on x86-64 Linux the thread control block starts with its own address.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) block, options(nostack, pure, readonly));
    }
    block
}

/// Identity of the calling thread: its thread pointer. Never zero.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[must_use]
pub fn thread() -> usize {
    let pointer: usize;
    // SAFETY: reads a register that belongs to the thread.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, pure, nomem));
    }
    pointer
}

/// Identity of the calling thread: its kernel id. Never zero.
#[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
#[must_use]
pub fn thread() -> usize {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs() as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_holder_is_told_and_others_wait() {
        let lock = Lock::new(1);
        let guard = lock.lock().expect("free");
        assert_eq!(lock.lock().err(), Some(Reentered));
        assert!(lock.is_mine());
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(!lock.is_mine());
    }

    #[test]
    fn increments_from_many_threads_all_count() {
        let (lock, rounds) = (Lock::new(0u32), if cfg!(miri) { 50 } else { 50_000 });
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        *lock.lock().expect("not reentered") += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock().expect("free"), 4 * rounds);
    }
}
