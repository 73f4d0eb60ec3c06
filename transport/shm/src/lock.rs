//! Mutual exclusion inside one process, without libc: for code that may run in a signal handler.
//!
//! One word says whether the lock is held and by which thread, so there is no instant at which a
//! signal handler finds its own thread's lock held by nobody: it gets [`Reentered`] instead of a
//! deadlock. Handlers that wait until no lock is held ([`section`]) do not.
//!
//! # One thread
//!
//! An instruction that excludes other cores waits for all stores before it, up to 10 ns each: most
//! of what a small write costs. Where libc says that the process has one thread, one instruction
//! without that suffices: a signal handler comes before it or behind it.
//!
//! # Memory ordering
//!
//! `state` is taken with `Acquire` and freed with `Release`, which orders uses of the value.
//! `freed` is counted up with `Release` after `state` is freed and loaded with `Acquire` before
//! `state` is found contended, so that a sleeper does not wait for a wake-up that has been.

use core::{
    cell::UnsafeCell,
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    ptr,
    sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use rustix::{io::Errno, time::Timespec};

use crate::section;

const FREE: u64 = 0;
/// Set beside the holder when somebody may sleep; [`thread`] leaves it clear.
const CONTENDED: u64 = 1;
const SPINS: u32 = 100;

/// Libc's word that is not 0 while the process has one thread; null where nobody has said.
static ALONE: AtomicPtr<AtomicU8> = AtomicPtr::new(ptr::null_mut());

/// Has locks taken for a process of one thread while `flag` is not 0: it becomes 0 before a second
/// thread starts.
pub fn alone_while(flag: &'static AtomicU8) {
    ALONE.store(ptr::from_ref(flag).cast_mut(), Ordering::Relaxed);
}

/// True if the process is known to have one thread: see [`alone_while`].
#[inline]
#[must_use]
pub fn is_alone() -> bool {
    // SAFETY: null, or a reference that lasts as long as the process.
    let flag = unsafe { ALONE.load(Ordering::Relaxed).as_ref() };
    flag.is_some_and(|flag| flag.load(Ordering::Relaxed) != 0)
}

/// Puts `to` in place of `from`, of a word that no other thread uses; else returns what is there.
/// Handlers see one step.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn exchange_alone(word: *mut u64, from: u64, to: u64) -> Result<u64, u64> {
    let found;
    // SAFETY: both callers have a reference to the word, which the instruction reads and writes.
    unsafe {
        core::arch::asm!(
            "cmpxchg [{word}], {to}",
            word = in(reg) word, to = in(reg) to, inlateout("rax") from => found,
            options(nostack),
        );
    }
    if found == from { Ok(found) } else { Err(found) }
}

/// Puts `to` in place of `from`, of a word that no other thread uses; else returns what is there.
#[cfg(any(not(target_arch = "x86_64"), miri))]
fn exchange_alone(word: *mut u64, from: u64, to: u64) -> Result<u64, u64> {
    // SAFETY: both callers have a reference to the word.
    let word = unsafe { AtomicU64::from_ptr(word) };
    word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
}

/// A value that one thread at a time may use, which is a [`section`] unless `DEFERS` is false.
pub struct Lock<T, const DEFERS: bool = true> {
    /// [`FREE`], or the holder's identity.
    state: AtomicU64,
    /// Counts the times a contended lock was freed; sleepers wait for it to change.
    freed: AtomicU32,
    value: UnsafeCell<T>,
}

/// The calling thread holds the lock already: it was interrupted by its own signal handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reentered;

/// Use of a locked value; unlocks when dropped.
///
/// It lets no other thread at a value that may be sent but not shared:
///
/// ```compile_fail,E0277
/// fn shared_between_threads<T: Sync>() {}
/// shared_between_threads::<shm::Guard<'static, core::cell::Cell<u8>>>();
/// ```
pub struct Guard<'a, T, const DEFERS: bool = true> {
    lock: &'a Lock<T, DEFERS>,
    /// Belongs to the thread that locked, and shares the value with no other.
    here: PhantomData<*mut T>,
}

// SAFETY: the lock hands out the value to one thread at a time.
unsafe impl<T: Send, const DEFERS: bool> Sync for Lock<T, DEFERS> {}

impl<T> Lock<T> {
    /// An unlocked value.
    pub const fn new(value: T) -> Self {
        Self::unlocked(value)
    }
}

impl<T> Lock<T, false> {
    /// An unlocked value that may be kept for long: handlers run meanwhile.
    pub const fn new_interruptible(value: T) -> Self {
        Self::unlocked(value)
    }
}

impl<T, const DEFERS: bool> Lock<T, DEFERS> {
    const fn unlocked(value: T) -> Self {
        Self {
            state: AtomicU64::new(FREE),
            freed: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks, waiting for the holder if need be.
    ///
    /// # Errors
    ///
    /// [`Reentered`] when this thread holds the lock.
    pub fn lock(&self) -> Result<Guard<'_, T, DEFERS>, Reentered> {
        let me = thread() as u64;
        Self::enter();
        if let Err(found) = self.take(me) {
            if found & !CONTENDED == me {
                Self::leave();
                return Err(Reentered);
            }
            self.wait(me, None);
        }
        Ok(self.guard())
    }

    /// Locks, waiting for the holder if need be. `None` when this thread is it, or when nobody has
    /// freed the lock for `time`: a signal handler may keep the holder for ever.
    pub fn lock_within(&self, time: Duration) -> Option<Guard<'_, T, DEFERS>> {
        let me = thread() as u64;
        Self::enter();
        if let Err(found) = self.take(me) {
            if found & !CONTENDED == me || !self.wait(me, Some(time)) {
                Self::leave();
                return None;
            }
        }
        Some(self.guard())
    }

    /// Locks if nobody holds the lock.
    pub fn try_lock(&self) -> Option<Guard<'_, T, DEFERS>> {
        Self::enter();
        if self.take(thread() as u64).is_err() {
            Self::leave();
            return None;
        }
        Some(self.guard())
    }

    /// True if this thread holds the lock.
    pub fn is_mine(&self) -> bool {
        self.state.load(Ordering::Relaxed) & !CONTENDED == thread() as u64
    }

    /// True if nobody holds the lock; what its last holder did before is seen then.
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) == FREE
    }

    /// Frees the lock unless this thread holds it: for the child of a fork, whose other threads are
    /// gone, and only there.
    pub fn break_open(&self) {
        if !self.is_mine() {
            self.state.store(FREE, Ordering::Release);
        }
    }

    /// Takes the lock for `holder` if it is free; else returns the state found.
    fn take(&self, holder: u64) -> Result<u64, u64> {
        if is_alone() {
            return exchange_alone(self.state.as_ptr(), FREE, holder);
        }
        self.state.compare_exchange(FREE, holder, Ordering::Acquire, Ordering::Relaxed)
    }

    /// Returns whether the lock was taken, rather than not freed for `time`.
    #[cold]
    fn wait(&self, me: u64, time: Option<Duration>) -> bool {
        for _ in 0..SPINS {
            core::hint::spin_loop();
            if self.state.load(Ordering::Relaxed) == FREE && self.take(me).is_ok() {
                return true;
            }
        }
        let mut left = time;
        loop {
            let freed = self.freed.load(Ordering::Acquire);
            // Contended from the start: others may sleep already.
            let Err(found) = self.take(me | CONTENDED) else { return true };
            let marked = found | CONTENDED;
            let (ok, err) = (Ordering::Relaxed, Ordering::Relaxed);
            if found == marked || self.state.compare_exchange(found, marked, ok, err).is_ok() {
                let step = left.map_or(section::PATIENCE, |left| left.min(section::PATIENCE));
                // What a thread waits for it does not hold.
                Self::leave();
                let is_late = sleep(&self.freed, freed, step);
                Self::enter();
                if !is_late || self.freed.load(Ordering::Acquire) != freed {
                    left = time;
                    continue;
                }
                left = left.map(|left| left.saturating_sub(step));
                if left == Some(Duration::ZERO) {
                    return false;
                }
                // It may hold another one.
                section::let_in();
            }
        }
    }

    const fn guard(&self) -> Guard<'_, T, DEFERS> {
        Guard { lock: self, here: PhantomData }
    }

    /// Gives up what [`take`](Self::take) has taken.
    #[inline]
    fn free(&self) {
        if is_alone() && self.state.load(Ordering::Relaxed) & CONTENDED == 0 {
            self.state.store(FREE, Ordering::Release);
            return;
        }
        if self.state.swap(FREE, Ordering::Release) & CONTENDED != 0 {
            self.freed.fetch_add(1, Ordering::Release);
            wake(&self.freed);
        }
    }

    #[inline]
    fn enter() {
        if DEFERS {
            section::enter();
        }
    }

    #[inline]
    fn leave() {
        if DEFERS {
            section::leave();
        }
    }
}

impl<T, const DEFERS: bool> Drop for Guard<'_, T, DEFERS> {
    #[inline]
    fn drop(&mut self) {
        self.lock.free();
        Lock::<T, DEFERS>::leave();
    }
}

impl<T, const DEFERS: bool> Deref for Guard<'_, T, DEFERS> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock, and the guard borrows the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, const DEFERS: bool> DerefMut for Guard<'_, T, DEFERS> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the lock, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, const DEFERS: bool> fmt::Debug for Lock<T, DEFERS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

impl<T, const DEFERS: bool> fmt::Debug for Guard<'_, T, DEFERS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

/// Returns whether it took all of the time.
fn sleep(freed: &AtomicU32, seen: u32, time: Duration) -> bool {
    use rustix::thread::futex::{Flags, wait};
    let time = Timespec::try_from(time).ok();
    // A wake-up, a signal, and a changed word all mean: look again.
    wait(freed, Flags::PRIVATE, seen, time.as_ref()) == Err(Errno::TIMEDOUT)
}

fn wake(freed: &AtomicU32) {
    use rustix::thread::futex::{Flags, wake};
    // A word that is mapped and aligned cannot fail.
    match wake(freed, Flags::PRIVATE, 1) {
        Ok(_) | Err(_) => {}
    }
}

/// Identity of the calling thread: the address of its control block. Even, and never zero.
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

/// Identity of the calling thread: its thread pointer. Even, and never zero.
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

/// Identity of the calling thread: its kernel id, doubled. Even, and never zero.
#[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
#[must_use]
pub fn thread() -> usize {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs() as usize * 2
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

    /// A handler may interrupt its thread right after the exchange that took the lock, or right
    /// before the one that frees it: no other store is needed to know the holder.
    #[test]
    fn the_exchange_that_takes_the_lock_names_the_holder() {
        let lock = Lock::new(());
        section::enter();
        assert_eq!(lock.take(thread() as u64), Ok(FREE));
        assert_eq!(lock.lock().err(), Some(Reentered));
        lock.state.fetch_or(CONTENDED, Ordering::Relaxed);
        assert_eq!(lock.lock().err(), Some(Reentered));
        drop(lock.guard());
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn breaking_open_frees_what_a_lost_thread_held_and_nothing_else() {
        let lock = Lock::new(());
        let mine = lock.lock().expect("free");
        lock.break_open();
        assert!(lock.is_mine());
        drop(mine);
        lock.state.store(u64::MAX, Ordering::Relaxed); // A thread that fork did not copy.
        lock.break_open();
        assert!(lock.lock().is_ok());
    }

    #[test]
    fn a_holder_that_does_not_let_go_is_given_up_and_one_that_does_is_not() {
        let (lock, time) = (Lock::new(()), Duration::from_millis(50));
        let guard = lock.lock().expect("free");
        assert!(lock.lock_within(time).is_none(), "its own");
        thread::scope(|scope| {
            let other = || lock.lock_within(time).is_some();
            assert_eq!(scope.spawn(other).join().ok(), Some(false));
            let patient = scope.spawn(|| lock.lock_within(Duration::from_secs(60)).is_some());
            drop(guard);
            assert_eq!(patient.join().ok(), Some(true));
        });
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
