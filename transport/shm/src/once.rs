//! A value that is set at most once and never moves: for statics, without libc.

use core::{
    cell::UnsafeCell,
    fmt,
    mem::MaybeUninit,
    sync::atomic::{AtomicU32, Ordering},
};

const EMPTY: u32 = 0;
const SETTING: u32 = 1;
const SET: u32 = 2;

/// A value that is not there, and then is for good.
///
/// It is never dropped: it is meant for statics.
pub struct Once<T> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written by the one thread that leaves `EMPTY`, and shared only after `SET`.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { state: AtomicU32::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The value, if it has been set.
    pub fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) != SET {
            return None;
        }
        // SAFETY: nobody writes any more once `SET` is stored.
        let value = unsafe { &*self.value.get() };
        // SAFETY: `SET` is stored after the value was written.
        Some(unsafe { value.assume_init_ref() })
    }

    /// Sets the value.
    ///
    /// # Errors
    ///
    /// Gives the value back when there is one already, or another thread is setting it.
    pub fn set(&self, value: T) -> Result<&T, T> {
        let won = self.state.compare_exchange(EMPTY, SETTING, Ordering::Acquire, Ordering::Relaxed);
        if won.is_err() {
            return Err(value);
        }
        // SAFETY: only the thread that left `EMPTY` is here, and readers wait for `SET`.
        let place = unsafe { &mut *self.value.get() };
        // Shared from here on: a reader would make an exclusive reference invalid.
        let value: &T = place.write(value);
        self.state.store(SET, Ordering::Release);
        Ok(value)
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Once<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("state", &self.state).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{iter, thread};

    use super::*;

    /// For Miri, which tells when a reader makes what `set` returns invalid. It switches threads
    /// only now and then, so there are many rounds.
    #[test]
    fn a_value_may_be_read_before_its_setting_returns() {
        for value in 0..200 {
            let once = Once::new();
            thread::scope(|scope| {
                let setter = scope.spawn(|| once.set(value).copied());
                let read = iter::repeat_with(|| once.get()).find_map(|read| read);
                assert_eq!(read, Some(&value));
                assert_eq!(setter.join().unwrap(), Ok(value));
            });
        }
    }

    #[test]
    fn the_first_value_stays() {
        let once = Once::new();
        assert_eq!(once.get(), None);
        assert_eq!(once.set(1), Ok(&1));
        assert_eq!(once.set(2), Err(2));
        assert_eq!(once.get(), Some(&1));
    }
}
