//! The shared integers the protocols are built on: `core`'s atomics, or loom's when model checking.
//!
//! loom's types are larger than the integers they model, so a loom build never views mapped bytes;
//! it builds the same types on the heap.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

pub(crate) use word::Word;

/// Explores `f` with at most `preemptions` switches away from a thread that could go on.
#[cfg(all(test, loom))]
pub(crate) fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// A value alone in its cache line, so that its writer disturbs nobody else.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Line<T>(pub(crate) T);

#[cfg(not(loom))]
mod word {
    use core::sync::atomic::{AtomicU64, Ordering};

    /// Eight bytes which a hostile peer may change during any access.
    ///
    /// A relaxed atomic: the protocol's own atomics order honest accesses, and a dishonest one
    /// yields a wrong value, not undefined behaviour.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct Word(AtomicU64);

    impl Word {
        pub(crate) fn get(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        pub(crate) fn set(&self, value: u64) {
            self.0.store(value, Ordering::Relaxed);
        }
    }
}

#[cfg(loom)]
mod word {
    use loom::cell::UnsafeCell;

    /// Eight bytes as plain memory: loom reports any access the protocol does not order.
    ///
    /// A relaxed atomic would hide a missing `Release`, because loom does not let a load see a
    /// later store.
    #[derive(Debug, Default)]
    pub(crate) struct Word(UnsafeCell<u64>);

    // SAFETY: loom checks every access at run time and fails the model on a race.
    unsafe impl Sync for Word {}

    impl Word {
        pub(crate) fn get(&self) -> u64 {
            // SAFETY: loom checks that no other thread writes at the same time.
            self.0.with(|word| unsafe { *word })
        }

        pub(crate) fn set(&self, value: u64) {
            // SAFETY: loom checks that no other thread reads or writes at the same time.
            self.0.with_mut(|word| unsafe { *word = value });
        }
    }
}
