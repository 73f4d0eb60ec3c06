//! Parts of simulations: time, executors that are turned by hand, and the seeds that all follows
//! from. Only tests use it.
#![forbid(unsafe_code)]

use std::{ops::Range, sync::Arc, time::Duration};

use executor::{Clock, Instant, ManualClock, Park, Unpark};

/// The seeds of a test: `SEED=n` repeats one, `ROUNDS=n` takes as many as wanted.
///
/// # Panics
///
/// If a variable is no number.
#[must_use]
pub fn seeds(count: u64) -> Range<u64> {
    #[expect(clippy::disallowed_methods, reason = "whoever repeats a seed names it here")]
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let all = 0..number("ROUNDS").unwrap_or(count);
    number("SEED").map_or(all, |seed| seed..seed + 1)
}

/// A clock that also moves a little whenever it is read, as machines do.
#[derive(Debug, Default)]
pub struct SimClock(pub ManualClock);

impl Clock for SimClock {
    fn now(&self) -> Instant {
        self.0.advance(Duration::from_nanos(20));
        self.0.now()
    }
}

/// Executors here are turned by hand and never park.
#[derive(Debug)]
pub struct NoPark;

impl Park for NoPark {
    fn park(&mut self, _: Option<Duration>) {}

    fn unparker(&self) -> Arc<dyn Unpark> {
        Arc::new(Self)
    }
}

impl Unpark for NoPark {
    fn unpark(&self) {}
}
