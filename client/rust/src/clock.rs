//! Time, without a system call.

use core::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Time since some moment in the past.
pub(crate) fn now() -> Duration {
    duration(clock_gettime(ClockId::Monotonic))
}

/// The same, ns.
pub(crate) fn now_ns() -> u64 {
    nanoseconds(now())
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The same to a few milliseconds, and cheaper.
pub(crate) fn coarse_now() -> Duration {
    duration(clock_gettime(ClockId::MonotonicCoarse))
}

fn duration(time: Timespec) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
