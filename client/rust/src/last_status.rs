//! The file that the program has asked the status of last.
//!
//! A program asks how long a file is, and then maps it: which file that is need not be asked again.
//! Only where libc says that the process has one thread, whose signal handlers may come in between
//! everything here.

use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use rustix::fd::RawFd;

use crate::table::Opened;

/// A number with what it stood for, and the identity of that.
#[derive(Debug)]
pub(crate) struct LastStatus {
    /// 0: none.
    number: AtomicU64,
    identity: AtomicU64,
}

impl LastStatus {
    pub(crate) const fn new() -> Self {
        Self { number: AtomicU64::new(0), identity: AtomicU64::new(0) }
    }

    pub(crate) fn note(&self, fd: RawFd, opened: Opened, identity: u64) {
        self.number.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.identity.store(identity, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.number.store(key(fd, opened), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if self.identity.load(Ordering::Relaxed) != identity {
            // A handler has noted another one in between.
            self.number.store(0, Ordering::Relaxed);
        }
    }

    /// The identity of what a number stands for, if that is known.
    pub(crate) fn identity(&self, fd: RawFd, opened: Opened) -> Option<u64> {
        let is_it = || self.number.load(Ordering::Relaxed) == key(fd, opened);
        let before = is_it();
        compiler_fence(Ordering::SeqCst);
        let identity = self.identity.load(Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        Some(identity).filter(|_| before && is_it())
    }
}

/// Never 0.
fn key(fd: RawFd, opened: Opened) -> u64 {
    let number = u64::from(fd.unsigned_abs());
    number << 32 | 1 << 31 | u64::from(opened.turn())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_last_is_known_as_long_as_its_number_stands_for_it() {
        let last = LastStatus::new();
        let (first, second) = (Opened::new(0), Opened::new(1));
        assert_eq!(last.identity(0, first), None);
        last.note(7, first, 42);
        assert_eq!(last.identity(7, first), Some(42));
        assert_eq!((last.identity(7, second), last.identity(8, first)), (None, None));
        assert_eq!(first.written().and_then(|written| last.identity(7, written)), Some(42));
        last.note(8, second, 43);
        assert_eq!((last.identity(7, first), last.identity(8, second)), (None, Some(43)));
    }
}
