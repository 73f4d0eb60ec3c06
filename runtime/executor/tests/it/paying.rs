//! How long a poller polls for what it has found.

use std::{rc::Rc, sync::Arc, time::Duration};

use executor::{
    Armed, Clock, Config, Counters, Executor, Idle, Instant, ManualClock, Notify, Park, Source,
    Unpark,
};

use crate::support::NoUnpark;

/// A clock by which every look takes a while.
pub(crate) struct Ticking(pub(crate) ManualClock);

impl Clock for Ticking {
    fn now(&self) -> Instant {
        self.0.advance(Duration::from_micros(10));
        self.0.now()
    }
}

/// Has events in every second visit, so many times: polling pays for a while.
pub(crate) struct Lively(pub(crate) u64);

impl Source for Lively {
    fn poll(&mut self, _budget: usize) -> usize {
        self.0 = self.0.saturating_sub(1);
        usize::from(self.0 % 2 == 1)
    }

    fn arm(&mut self) -> Armed {
        Armed::Waits
    }
}

/// Returns the counters of an executor until its first park, whose polls have found something so
/// many times.
fn until_first_park(quiet: Duration, found_count: u64) -> Counters {
    struct EndOfTest(Notify);
    impl Park for EndOfTest {
        fn park(&mut self, _timeout: Option<Duration>) {
            self.0.notify_all();
        }
        fn unparker(&self) -> Arc<dyn Unpark> {
            Arc::new(NoUnpark)
        }
    }
    let clock = Rc::new(Ticking(ManualClock::new()));
    let parked = Notify::new();
    let config = Config { idle: Idle::PollIdle, quiet, ..Config::default() };
    let mut executor = Executor::new(clock.clone(), Box::new(EndOfTest(parked.clone())), config);
    executor.handle().add_source(Box::new(Lively(2 * found_count)));

    executor.run_until(parked.notified());

    let counters = executor.counters();
    assert_eq!((counters.parks, counters.source_events), (1, found_count));
    assert!(!executor.handle().poll_lists().is_polled(), "it has resigned");
    counters
}

#[test]
fn poller_parks_when_polls_have_found_too_little() {
    let quiet = Duration::from_secs(3600);
    let polling = |found_count| until_first_park(quiet, found_count).polling;
    let ten = polling(10);
    assert!(polling(0) < Duration::from_micros(200));
    assert!((Duration::from_millis(1)..Duration::from_millis(3)).contains(&ten), "{ten:?}");
    assert!(polling(20) > ten * 3 / 2);
}

#[test]
fn poller_parks_after_the_quiet_time_however_much_polls_have_found() {
    let quiet = Duration::from_millis(1);
    let counters = until_first_park(quiet, 100);
    assert!(counters.polling >= quiet && counters.idle_turns > 20, "{counters:?}");
    assert!(counters.polling < 5 * quiet, "{counters:?}");
}
