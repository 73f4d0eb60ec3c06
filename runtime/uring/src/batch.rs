//! When the entries that are queued for the kernel are worth a system call.
//!
//! As soon as they are as many as the device has left to do (at least 2, at most 32), so that it
//! never waits while a long batch is prepared. A short transfer that continues the one before it
//! waits for a batch of 64: they go as one (`run`).

use std::{
    mem,
    os::fd::{AsRawFd as _, RawFd},
    time::Duration,
};

use executor::Instant;

use crate::operation::Operation;

/// So many queued operations are worth a system call at once, whatever the device has to do,
pub(crate) const BATCH_LEN: usize = 32;
/// so many when it has nothing,
pub(crate) const BATCH_LEN_MIN: usize = 2;

/// and so many when they continue each other and so become one request.
pub(crate) const JOINED_LEN: usize = 64;

/// The longest an entry stays queued while others are in flight.
pub(crate) const HELD_MAX: Duration = Duration::from_micros(20);

/// A transfer up to so many bytes costs a device more by itself than as a part of a longer one.
pub(crate) const SHORT_LEN_MAX: usize = 16 * 1024;

/// Operations not yet given to the kernel.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) len: usize,
    /// When the first of them was pushed.
    oldest: Instant,
    /// File and end of the transfer pushed last, if it is short.
    last: Option<(RawFd, u64)>,
    /// The transfer pushed last continues the one before it.
    continues: bool,
}

impl Batch {
    /// Notes an operation whose entry is pushed next.
    pub(crate) fn note(&mut self, operation: &Operation, now: impl FnOnce() -> Instant) {
        self.continues = self.continues_last(operation);
        if self.len == 0 {
            self.oldest = now();
        }
    }

    /// Whether the last transfer is short and does not continue another: the time until the device
    /// begins with the like counts more than what they cost together.
    pub(crate) fn is_urgent(&self) -> bool {
        self.last.is_some() && !self.continues
    }

    /// Whether it is worth a system call while the device has `left` operations to do.
    pub(crate) fn is_full(&self, left: usize) -> bool {
        let worth = if self.continues { JOINED_LEN } else { left.clamp(BATCH_LEN_MIN, BATCH_LEN) };
        self.len >= worth
    }

    /// Whether its first entry has waited for long enough.
    pub(crate) fn is_old(&self, now: Instant) -> bool {
        self.len > 0 && now.saturating_since(self.oldest) >= HELD_MAX
    }

    /// Whether `operation` is short and begins where the last one ended: what goes to the kernel
    /// together becomes one request to the device.
    fn continues_last(&mut self, operation: &Operation) -> bool {
        let Some((file, at, buffers)) = operation.transfer() else { return false };
        let (fd, len) = (file.as_raw_fd(), buffers.len());
        let is_short = len <= SHORT_LEN_MAX;
        let last =
            mem::replace(&mut self.last, is_short.then(|| (fd, at.saturating_add(len as u64))));
        is_short && last == Some((fd, at))
    }
}
