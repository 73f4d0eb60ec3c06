//! Devices that are slow to take an inline write.
//!
//! A long call alone proves nothing: on a shared core most calls of more than a millisecond are
//! the executor preempted, not the storage waiting (measured with four competing processes: 42
//! calls in 200,000, none of which gave up the processor itself). So a long call only puts its
//! device under watch; a watched call that is long and gave up the processor makes it slow.

use std::{mem::MaybeUninit, time::Duration};

use executor::{Clock, Instant};

/// A call that takes no longer is fast, whatever it did.
const CALL_TIME_MAX: Duration = Duration::from_millis(1);

/// How long a device counts as slow, and how long it is watched after its last long call.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Devices with a long call lately.
#[derive(Debug, Default)]
pub(crate) struct SlowDevices(Vec<Device>);

#[derive(Debug)]
struct Device {
    device: u64,
    slow_until: Instant,
    watched_until: Instant,
}

/// One call on a device, from before it begins.
#[derive(Debug)]
pub(crate) struct Observed {
    device: u64,
    start: Instant,
    /// Of this thread before the call, when the device is watched.
    waits: Option<i64>,
}

impl SlowDevices {
    /// Notes what is needed to judge a call that begins now.
    pub(crate) fn begin(&self, device: u64, clock: &impl Clock) -> Observed {
        let start = clock.now();
        let watched = self.find(device).is_some_and(|found| start < found.watched_until);
        Observed { device, start, waits: watched.then(waits_of_this_thread) }
    }

    /// Judges a call that ends now.
    pub(crate) fn end(&mut self, observed: &Observed, clock: &impl Clock) {
        let now = clock.now();
        if now.saturating_since(observed.start) > CALL_TIME_MAX {
            let waited = observed.waits.is_some_and(|before| waits_of_this_thread() > before);
            self.long_call(observed.device, waited, now);
        }
    }

    /// True if `device` counts as slow now. Reads the clock only for a device seen before.
    pub(crate) fn contains(&self, device: u64, clock: &impl Clock) -> bool {
        self.find(device).is_some_and(|found| clock.now() < found.slow_until)
    }

    fn long_call(&mut self, device: u64, waited: bool, now: Instant) {
        self.0.retain(|other| now < other.watched_until && other.device != device);
        let slow_until = if waited { now + REMEMBERED } else { now };
        self.0.push(Device { device, slow_until, watched_until: slow_until + REMEMBERED });
    }

    fn find(&self, device: u64) -> Option<&Device> {
        self.0.iter().find(|other| other.device == device)
    }
}

/// How often this thread gave up the processor to wait for something.
fn waits_of_this_thread() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` has room for what the kernel writes.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    debug_assert_eq!(result, 0, "the arguments are valid");
    // SAFETY: all bytes are initialised, to zero at least, and any are a valid `rusage`.
    unsafe { usage.assume_init() }.ru_nvcsw
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use executor::ManualClock;

    use super::*;

    const LONG: Duration = Duration::from_millis(2);

    /// A call of 2 ms by the clock, which really waits or does not.
    fn call(devices: &mut SlowDevices, clock: &ManualClock, waits: bool) {
        let observed = devices.begin(1, clock);
        clock.advance(LONG);
        let before = waits_of_this_thread();
        // A thread that is kept from its core until the time is over has not waited.
        while waits && waits_of_this_thread() == before {
            let (_sender, receiver) = mpsc::channel::<()>();
            receiver.recv_timeout(LONG).expect_err("nothing is sent");
        }
        devices.end(&observed, clock);
    }

    #[test]
    fn long_calls_that_did_not_wait_never_make_a_device_slow() {
        let (mut devices, clock) = (SlowDevices::default(), ManualClock::new());
        for _ in 0..100 {
            let before = waits_of_this_thread();
            call(&mut devices, &clock, false);
            if waits_of_this_thread() == before {
                assert!(!devices.contains(1, &clock));
            } else {
                devices = SlowDevices::default(); // The page fault of a loaded machine.
            }
        }
    }

    #[test]
    fn the_second_long_call_that_waits_makes_its_device_slow_for_a_second() {
        let (mut devices, clock) = (SlowDevices::default(), ManualClock::new());
        call(&mut devices, &clock, true);
        assert!(!devices.contains(1, &clock), "watched first");

        call(&mut devices, &clock, true);

        assert!(devices.contains(1, &clock));
        assert!(!devices.contains(2, &clock));
        clock.advance(REMEMBERED);
        assert!(!devices.contains(1, &clock));
        call(&mut devices, &clock, true);
        assert!(devices.contains(1, &clock), "still watched");
    }

    #[test]
    fn a_device_fast_for_long_is_not_watched() {
        let (mut devices, clock) = (SlowDevices::default(), ManualClock::new());
        call(&mut devices, &clock, true);
        clock.advance(REMEMBERED);

        assert!(devices.begin(1, &clock).waits.is_none());
    }
}
