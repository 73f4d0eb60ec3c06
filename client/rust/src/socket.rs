//! Numbers of the client's own, which make way for the program: of the control socket, and of
//! files that hold others.
//!
//! Numbers are the program's to choose: where one becomes a duplicate that is the client's, the
//! client gets another.
//!
//! # Memory ordering
//!
//! A use is counted before it loads the number; who moves the descriptor stores the new number
//! before it looks at the count. All four are `SeqCst`, so either the use has the new number, or it
//! is waited for: no call on it is made by a number that is the program's by then.

use core::{
    sync::atomic::{AtomicI32, AtomicUsize, Ordering},
    time::Duration,
};

use rustix::{
    fd::{AsFd, BorrowedFd, IntoRawFd as _, OwnedFd, RawFd},
    io::{self, Errno},
    thread::sched_yield,
};
use shm::Lock;

use crate::{client::Host, clock::now};

/// Numbers below the first of these are the program's: some close them all, some count on getting
/// low ones. The others are for where there are not so many.
const NUMBER_MIN: [RawFd; 4] = [900, 200, 50, 20];
/// The lowest that is no standard stream's.
const LOWEST: RawFd = 3;
/// For how long uses are waited for. One is a system call, which waits only where the daemon stands
/// still; but the caller may be a handler that has interrupted it.
const USE: Duration = Duration::from_secs(1);

/// A descriptor that is open for as long as the process lives.
pub(crate) struct OwnNumber {
    host: &'static dyn Host,
    number: AtomicI32,
    /// Calls that are being made on it.
    use_count: AtomicUsize,
    moving: Lock<()>,
}

impl OwnNumber {
    /// Takes a descriptor over, and moves it above the numbers that programs use.
    pub(crate) fn new(socket: OwnedFd, host: &'static dyn Host) -> Self {
        let number = higher(&socket).unwrap_or(socket).into_raw_fd();
        let (use_count, moving) = (AtomicUsize::new(0), Lock::new(()));
        Self { host, number: AtomicI32::new(number), use_count, moving }
    }

    pub(crate) fn number(&self) -> RawFd {
        self.number.load(Ordering::SeqCst)
    }

    /// Makes a system call on it.
    pub(crate) fn with<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        self.use_count.fetch_add(1, Ordering::SeqCst);
        let done = call(self.host.borrow(self.number()));
        self.use_count.fetch_sub(1, Ordering::SeqCst);
        done
    }

    /// In the child of a fork: the uses that there are were those of the parent's threads.
    pub(crate) fn forget_uses(&self) {
        self.use_count.store(0, Ordering::SeqCst);
        self.moving.break_open();
    }

    /// Moves it away from `number`, if it is there, and tells the new number before anybody uses
    /// it. Nobody uses the old one when this returns, which is still open.
    ///
    /// # Errors
    ///
    /// `EBUSY`: no other number is free, or somebody does not stop using this one, as the code
    /// beneath a handler.
    pub(crate) fn make_way(&self, number: RawFd, tell: impl FnOnce(RawFd)) -> io::Result<()> {
        let _turn = self.moving.lock().map_err(|_| Errno::BUSY)?;
        if self.number() == number {
            let moved = self.with(|socket| {
                higher(socket).map_or_else(|| io::fcntl_dupfd_cloexec(socket, LOWEST), Ok)
            });
            let moved = moved.map_err(|_| Errno::BUSY)?.into_raw_fd();
            tell(moved);
            self.number.store(moved, Ordering::SeqCst);
        }
        let end = now() + USE;
        while self.use_count.load(Ordering::SeqCst) > 0 {
            if now() > end {
                return Err(Errno::BUSY);
            }
            sched_yield();
        }
        Ok(())
    }
}

/// A duplicate above the numbers that programs use.
fn higher(socket: impl AsFd) -> Option<OwnedFd> {
    NUMBER_MIN.into_iter().find_map(|min| io::fcntl_dupfd_cloexec(&socket, min).ok())
}
