//! Primitives for code that crosses threads: `std`'s types, or loom's when model checking.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use std::sync::PoisonError;

/// Locks `mutex`, whatever happened to earlier holders.
///
/// For state that is consistent between any two statements, so that a panic elsewhere in a holder
/// leaves nothing half done.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
