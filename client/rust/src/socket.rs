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
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::sched_yield,
};
use shm::Lock;

use crate::{clock::now, host::Host};

/// Descriptors get the first numbers that the program cannot have, if the limit is no higher: the
/// kernel's table has to reach as far.
const BEYOND_MAX: u64 = 4096;
/// How many numbers beyond the limit these are.
const BEYOND_COUNT: u64 = 64;
/// Held while the limit is raised.
static RAISING: Lock<()> = Lock::new(());
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

/// A duplicate above the numbers that programs have, or else use.
fn higher(socket: impl AsFd) -> Option<OwnedFd> {
    let number = |min: RawFd| io::fcntl_dupfd_cloexec(&socket, min).ok();
    beyond_limit(BEYOND_MAX, number).or_else(|| NUMBER_MIN.into_iter().find_map(number))
}

/// Makes a descriptor while the process may have more than its limit says, from whose number on it
/// is. It stays open when the limit is back: the program misses none of its numbers, and
/// finds none taken.
fn beyond_limit(limit_max: u64, make: impl FnOnce(RawFd) -> Option<OwnedFd>) -> Option<OwnedFd> {
    // Two at a time would each take the other's limit for the program's.
    let _turn = RAISING.try_lock()?;
    let limit = getrlimit(Resource::Nofile);
    let count = limit.current.filter(|count| *count <= limit_max)?;
    let most = count.saturating_add(BEYOND_COUNT).min(limit.maximum.unwrap_or(u64::MAX));
    if most <= count {
        return None;
    }
    debug_assert!(most - count <= BEYOND_COUNT, "the program's limit is raised by a few");
    let raised = Rlimit { current: Some(most), ..limit };
    setrlimit(Resource::Nofile, raised).ok()?;
    let made = make(RawFd::try_from(count).ok()?);
    // A limit that may be raised may be lowered.
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) | Err(_) => made,
    }
}

/// Calls again with one more number where the program has used up all: what makes a placeholder
/// real needs one for a moment.
pub(crate) fn with_one_more<T>(call: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match call() {
        Err(Errno::MFILE) => {}
        done => return done,
    }
    let mut done = Err(Errno::MFILE);
    beyond_limit(u64::MAX, |_| {
        done = call();
        None
    });
    done
}

#[cfg(test)]
mod tests {
    use rustix::{
        fd::AsRawFd as _,
        fs::{Mode, OFlags, open},
    };

    use super::*;

    #[test]
    fn socket_is_above_the_numbers_of_its_program() {
        let before = getrlimit(Resource::Nofile);
        let few = Rlimit { current: Some(500), ..before };
        setrlimit(Resource::Nofile, few).expect("fewer");
        let file = open(c"/dev/null", OFlags::RDONLY, Mode::empty()).expect("there");
        let moved = higher(&file).expect("moved");
        assert_eq!(getrlimit(Resource::Nofile), few);
        assert_eq!(moved.as_raw_fd(), 500);
        setrlimit(Resource::Nofile, before).expect("as many as before");
    }
}
