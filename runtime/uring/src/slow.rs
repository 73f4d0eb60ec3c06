//! Devices that were slow to take an inline write, and for how long that is remembered.

use std::time::Duration;

use executor::{Clock, Instant};

/// The first time. Short, because a preempted executor looks the same as a slow device.
const FIRST: Duration = Duration::from_millis(64);

/// The longest time; it doubles when the device proves slow again right after.
const LONGEST: Duration = Duration::from_secs(1);

/// Slow devices; as many entries as devices proved slow lately.
#[derive(Debug, Default)]
pub(crate) struct SlowDevices(Vec<SlowDevice>);

#[derive(Debug)]
struct SlowDevice {
    device: u64,
    until: Instant,
    slow_for: Duration,
}

impl SlowDevices {
    /// Remembers that `device` was slow at `now`.
    pub(crate) fn mark(&mut self, device: u64, now: Instant) {
        self.0.retain(|slow| slow.until + slow.slow_for > now); // The rest were fast for long.
        match self.0.iter_mut().find(|slow| slow.device == device) {
            Some(slow) => {
                slow.slow_for = (slow.slow_for * 2).min(LONGEST);
                slow.until = now + slow.slow_for;
            }
            None => self.0.push(SlowDevice { device, until: now + FIRST, slow_for: FIRST }),
        }
    }

    /// Whether `device` counts as slow now. Reads the clock only for a device marked before.
    pub(crate) fn contains(&self, device: u64, clock: &impl Clock) -> bool {
        let slow = self.0.iter().find(|slow| slow.device == device);
        slow.is_some_and(|slow| clock.now() < slow.until)
    }
}

#[cfg(test)]
mod tests {
    use executor::ManualClock;

    use super::*;

    /// Milliseconds for which device 1 counts as slow from now on.
    fn slow_ms(devices: &SlowDevices, clock: &ManualClock) -> u32 {
        let step = Duration::from_millis(1);
        let mut passed = 0;
        while devices.contains(1, clock) {
            clock.advance(step);
            passed += 1;
            assert!(passed <= 2000, "slow for good");
        }
        passed
    }

    #[test]
    fn time_doubles_up_to_a_second_while_a_device_stays_slow() {
        let (mut devices, clock) = (SlowDevices::default(), ManualClock::new());
        let times = [64, 128, 256, 512, 1000, 1000];
        for expected in times {
            devices.mark(1, clock.now());
            assert!(!devices.contains(2, &clock));
            assert_eq!(slow_ms(&devices, &clock), expected);
        }
    }

    #[test]
    fn a_device_that_was_fast_for_long_starts_again() {
        let (mut devices, clock) = (SlowDevices::default(), ManualClock::new());
        devices.mark(1, clock.now());
        clock.advance(Duration::from_millis(64 + 64));

        devices.mark(1, clock.now());

        assert_eq!(slow_ms(&devices, &clock), 64);
    }
}
