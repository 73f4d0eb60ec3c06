//! A simulated machine: a clock moved by hand, and a park that moves it.

use std::{
    cell::{Cell, RefCell},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use executor::{Armed, Config, Executor, ManualClock, Park, Source, Unpark};

/// Time the simulation passes in a park without a timeout; a test that blocks for good fails.
const PARKS_MAX: usize = 1000;

/// Machine of an executor.
#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) clock: Rc<ManualClock>,
    pub(crate) parks: Rc<RefCell<Vec<Option<Duration>>>>,
}

impl Machine {
    pub(crate) fn executor(&self, config: Config) -> Executor {
        let park = SimulatedPark { clock: self.clock.clone(), parks: self.parks.clone() };
        Executor::new(self.clock.clone(), Box::new(park), config)
    }
}

struct SimulatedPark {
    clock: Rc<ManualClock>,
    parks: Rc<RefCell<Vec<Option<Duration>>>>,
}

impl Park for SimulatedPark {
    fn park(&mut self, timeout: Option<Duration>) {
        self.parks.borrow_mut().push(timeout);
        assert!(self.parks.borrow().len() < PARKS_MAX, "nothing will ever end this park");
        self.clock.advance(timeout.unwrap_or_default());
    }

    fn unparker(&self) -> Arc<dyn Unpark> {
        Arc::new(NoUnpark)
    }
}

pub(crate) struct NoUnpark;

impl Unpark for NoUnpark {
    fn unpark(&self) {}
}

/// Visits to a simulated source, and its planned answers.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) polls: Cell<u64>,
    pub(crate) budget: Cell<usize>,
    /// Events it reports in every poll, as far as the budget goes.
    pub(crate) ready: Cell<usize>,
    pub(crate) busy: Cell<bool>,
    pub(crate) arms: Cell<u64>,
}

/// A source that does what its log says.
pub(crate) struct Scripted(pub(crate) Rc<Log>);

impl Source for Scripted {
    fn poll(&mut self, budget: usize) -> usize {
        self.0.polls.set(self.0.polls.get() + 1);
        self.0.budget.set(budget);
        self.0.ready.get().min(budget)
    }

    fn arm(&mut self) -> Armed {
        self.0.arms.set(self.0.arms.get() + 1);
        if self.0.busy.get() { Armed::Busy } else { Armed::Waits }
    }
}

/// Polls with a waker that does nothing.
pub(crate) fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs `test` with many seeds, as many as `ROUNDS` says, or with the one in `SEED`; a failure
/// prints its seed.
pub(crate) fn seeds(count: u64, test: impl Fn(&mut fastrand::Rng)) {
    #[expect(clippy::disallowed_methods, reason = "SEED=n repeats a failed test")]
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let count = if cfg!(miri) { count.div_ceil(50) } else { count };
    let all = 0..number("ROUNDS").unwrap_or(count);
    for seed in number("SEED").map_or(all, |seed| seed..seed + 1) {
        let _repeat_with = Seed(seed);
        test(&mut fastrand::Rng::with_seed(seed));
    }
}

/// Prints the seed when a test fails while this lives.
struct Seed(u64);

impl Drop for Seed {
    #[expect(clippy::print_stderr, reason = "the seed belongs to the failure's message")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat with SEED={}", self.0);
        }
    }
}
