//! Blocks that leave the kernel's tick alone.
//!
//! A core that has nothing to run stops its tick, and starts it again when it is woken. Each time
//! it tells the hardware when its next timer is due, and a virtual machine is left for that, before
//! the thread that was woken runs and at its expense. A core whose next timer is another one, due
//! before the tick, has nothing to tell.
//!
//! So a thread that blocks often has one, which wakes nobody and is due shortly before each
//! tick. It is set when the thread blocks, once in a tick, and costs an interrupt. Where the
//! kernel lets the tick be in short sleeps, as most real machines do, that is all there is to it.

use std::{mem, os::fd::OwnedFd, time::Duration};

use executor::Instant;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_getres,
    timerfd_create, timerfd_settime,
};

/// So many blocks in one tick are worth a timer in the next.
const BLOCKS_MIN: u32 = 4;

/// How long before the tick it is due, in nanoseconds.
const AHEAD: u64 = 50_000;

/// The timer of one thread.
#[derive(Debug)]
pub(crate) struct KernelTick {
    timer: OwnedFd,
    /// From one tick to the next, in nanoseconds.
    period: u64,
    /// When the timer is due, or would be if it had been set.
    due: Instant,
    /// Blocks since it was decided whether to set it.
    block_count: u32,
}

impl KernelTick {
    /// `None` where there is no tick, or no timer to be had: then blocks cost more, which is all.
    pub(crate) fn new() -> Option<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let period = period()?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).ok()?;
        Some(Self { timer, period, due: Instant::default(), block_count: 0 })
    }

    /// To be called right before the thread blocks, or may.
    pub(crate) fn leave_alone(&mut self, now: Instant) {
        self.block_count += 1;
        if now < self.due {
            return;
        }
        self.due = due(now, self.period);
        if mem::take(&mut self.block_count) >= BLOCKS_MIN {
            self.set();
        }
    }

    fn set(&self) {
        let due = Timespec::try_from(Duration::from_nanos(self.due.as_nanos()));
        let Ok(it_value) = due else { return };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // As without a timer.
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once).ok();
    }
}

/// From one tick to the next, in nanoseconds, if there are ticks.
fn period() -> Option<u64> {
    // This clock goes on with the tick: 100 to 1000 times a second, or else it is another kernel's.
    let resolution = Duration::try_from(clock_getres(ClockId::MonotonicCoarse)).ok()?;
    let nanos = u64::try_from(resolution.as_nanos()).ok()?;
    (1_000_000..=10_000_000).contains(&nanos).then_some(nanos)
}

/// The first moment after `now` that is shortly before a tick. A tick's own is a multiple of the
/// period, from Linux 6.4 on; on older kernels the timer comes before every second one or so.
fn due(now: Instant, period: u64) -> Instant {
    let next_tick = ((now.as_nanos() + AHEAD) / period + 1) * period;
    Instant::from_nanos(next_tick - AHEAD)
}

#[cfg(test)]
mod tests {
    use executor::Clock as _;
    use rustix::time::timerfd_gettime;

    use super::*;
    use crate::parker::SystemClock;

    const PERIOD: u64 = 4_000_000;

    #[test]
    fn it_is_due_before_the_next_tick_or_else_the_one_after() {
        for (now, tick) in [
            (0, 1),
            (PERIOD - AHEAD - 1, 1),
            (PERIOD - AHEAD, 2),
            (PERIOD - 1, 2),
            (PERIOD, 2),
            (7 * PERIOD + 1, 8),
        ] {
            let due = due(Instant::from_nanos(now), PERIOD);
            assert_eq!(due.as_nanos(), tick * PERIOD - AHEAD, "at {now}");
            assert!(due.as_nanos() > now);
        }
    }

    #[test]
    fn only_who_blocks_often_has_a_timer() {
        let is_set = |tick: &KernelTick| {
            let left = timerfd_gettime(&tick.timer).expect("a timer").it_value;
            (left.tv_sec, left.tv_nsec) != (0, 0)
        };
        for (count, sets) in [(BLOCKS_MIN - 1, false), (BLOCKS_MIN, true)] {
            // Long ticks, of which none ends meanwhile.
            let Some(tick) = KernelTick::new() else { return };
            let mut tick = KernelTick { period: u64::from(u32::MAX) << 20, ..tick };
            let mut now = SystemClock.now();
            tick.due = now + Duration::from_secs(1);
            (1..count).for_each(|_| tick.leave_alone(now));
            assert!(!is_set(&tick), "it is not yet known how often it blocks");
            now = tick.due;
            tick.leave_alone(now);
            assert_eq!(is_set(&tick), sets, "{count} blocks");
        }
    }
}
