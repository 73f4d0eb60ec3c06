//! Signals during a wait that the kernel does not know of.
//!
//! While a thread asks for a lock, signals that have a handler are held back; between two questions
//! they may come. So none is missed, and a wait ends with `EINTR` where the kernel's would: after a
//! handler that was installed without `SA_RESTART`. Signals without a handler do at once what they
//! always do.

use core::ptr;

use client::Errno;
use libc::{c_int, timespec};

use crate::kernel::{ignore, kernel};

pub(crate) const SIGNALS: usize = 64;
/// Bytes of a set of signals as the kernel has it.
pub(crate) const SET_LEN: usize = size_of::<u64>();
/// Those by which a thread learns of its own fault, or of a system call that a filter forbids: held
/// back, they end the process.
pub(crate) const FAULTS: u64 = bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGSYS);

/// The kernel's `struct sigaction`: handler, flags, restorer, mask.
pub(crate) type Action = [usize; 4];

/// Signals with a handler, held back until this is dropped.
pub(crate) struct Held {
    /// The thread's mask before.
    before: u64,
    /// Signals whose handlers end a wait.
    ending: u64,
}

impl Held {
    pub(crate) fn new() -> Self {
        let (mut handled, mut ending) = (0, 0);
        for number in 1..=SIGNALS {
            let mut action: Action = [0; 4];
            let none: *const Action = ptr::null();
            // SAFETY: asks only, and there is room for the answer.
            let asked =
                unsafe { kernel!(SYS_rt_sigaction, number, none, &raw mut action, SET_LEN) };
            let [handler, flags, ..] = action;
            if asked.is_err() || handler == libc::SIG_DFL || handler == libc::SIG_IGN {
                continue;
            }
            handled |= 1 << (number - 1);
            if flags & libc::SA_RESTART as usize == 0 {
                ending |= 1 << (number - 1);
            }
        }
        Self { before: change_mask(libc::SIG_BLOCK, handled & !FAULTS), ending }
    }

    /// Lets come what has arrived.
    ///
    /// # Errors
    ///
    /// `EINTR`: a handler has run that ends a wait.
    pub(crate) fn let_come(&self) -> Result<(), Errno> {
        let mut arrived = 0_u64;
        // SAFETY: there is room for the set.
        ignore(unsafe { kernel!(SYS_rt_sigpending, &raw mut arrived, SET_LEN) });
        let arrived = arrived & !self.before;
        if arrived == 0 {
            return Ok(());
        }
        // Those and no others: what comes after this look is seen by the next.
        let (mask, at_once) = (!arrived, timespec { tv_sec: 0, tv_nsec: 0 });
        let nothing: *const libc::pollfd = ptr::null();
        let (time, mask) = (&raw const at_once, &raw const mask);
        // SAFETY: no descriptors; the kernel reads the time and the set, and may write the time
        // left.
        ignore(unsafe { kernel!(SYS_ppoll, nothing, 0_usize, time, mask, SET_LEN) });
        if arrived & self.ending == 0 { Ok(()) } else { Err(Errno::INTR) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        change_mask(libc::SIG_SETMASK, self.before);
    }
}

/// Changes the calling thread's mask; returns the one before.
pub(crate) fn change_mask(how: c_int, set: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: the kernel reads one set and writes another.
    ignore(unsafe { kernel!(SYS_rt_sigprocmask, how, &raw const set, &raw mut before, SET_LEN) });
    before
}

/// A signal in a set.
pub(crate) const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}
