//! Nothing that is always ready keeps anything else from its turn.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use executor::{
    Armed, Class, Clock, Config, Executor, Instant, ManualClock, Notify, Source, yield_now,
};
use fastrand::Rng;

use crate::support::{Log, Machine, Scripted, seeds};

/// Longest simulated poll of one task, and of one source.
const POLL_MAX: Duration = Duration::from_micros(20);

#[test]
fn a_source_is_visited_while_a_task_is_always_ready() {
    let mut executor = Machine::default().executor(Config::default());
    let log = Rc::new(Log::default());
    executor.handle().add_source(Box::new(Scripted(log.clone())));
    executor.handle().spawn(Class::Latency, async {
        loop {
            yield_now().await;
        }
    });

    for _ in 0..10 {
        assert!(executor.turn());
    }

    assert_eq!(log.polls.get(), 10);
    assert_eq!(executor.counters().latency_polls, 10 * 64);
}

#[test]
fn a_turn_polls_at_most_one_throughput_task() {
    let mut executor = Machine::default().executor(Config::default());
    let polls = Rc::new(Cell::new(0));
    for _ in 0..3 {
        let polls = polls.clone();
        executor.handle().spawn(Class::Throughput, async move {
            loop {
                polls.set(polls.get() + 1);
                yield_now().await;
            }
        });
    }

    for turn in 1..=9 {
        executor.turn();
        assert_eq!(polls.get(), turn);
    }
}

#[test]
fn a_slice_ends_when_its_time_is_over() {
    let machine = Machine::default();
    let mut executor = machine.executor(Config::default());
    let clock = machine.clock.clone();
    executor.handle().spawn(Class::Latency, async move {
        loop {
            clock.advance(Duration::from_micros(30));
            yield_now().await;
        }
    });

    executor.turn();

    assert_eq!(executor.counters().latency_polls, 2); // 30 us is within the slice, 60 us is not.
}

#[test]
fn a_source_gets_the_configured_budget() {
    let mut executor =
        Machine::default().executor(Config { source_budget: 5, ..Config::default() });
    let log = Rc::new(Log::default());
    log.ready.set(100);
    executor.handle().add_source(Box::new(Scripted(log.clone())));

    executor.turn();

    assert_eq!((log.budget.get(), executor.counters().source_events), (5, 5));
}

/// Between two visits to a source lies at most one slice, one throughput poll, and one visit to
/// every other source; and every task goes on.
#[test]
fn every_mix_of_ready_tasks_and_sources_keeps_every_bound() {
    seeds(300, |rng| {
        let machine = Machine::default();
        let config = Config {
            slice_polls: rng.u32(1..100),
            slice: Duration::from_micros(rng.u64(1..200)),
            ..Config::default()
        };
        let mut executor = machine.executor(config);
        let visits = add_sources(&executor, &machine.clock, rng);
        let latency = add_tasks(&executor, &machine.clock, Class::Latency, rng);
        let throughput = add_tasks(&executor, &machine.clock, Class::Throughput, rng);

        let turns = if cfg!(miri) { 20 } else { 200 };
        for _ in 0..turns {
            executor.turn();
        }

        let others = u32::try_from(visits.len()).expect("few");
        let gap_max = config.slice + POLL_MAX * (1 + 1 + others);
        for visits in &visits {
            let visits = visits.borrow();
            assert_eq!(visits.len(), turns);
            for (earlier, later) in visits.iter().zip(visits.iter().skip(1)) {
                assert!(later.saturating_since(*earlier) <= gap_max);
            }
        }
        let counters = executor.counters();
        assert_round_robin(&latency, counters.latency_polls);
        assert_round_robin(&throughput, counters.throughput_polls);
        assert!(counters.latency_polls <= turns as u64 * u64::from(config.slice_polls));
        let throughput_turns = if throughput.is_empty() { 0 } else { turns as u64 };
        assert_eq!(counters.throughput_polls, throughput_turns);
    });
}

/// The slice in which it is asked for, and the slice after the visit that finds it done. What the
/// device takes meanwhile comes on top.
#[test]
fn a_read_beside_a_ready_task_and_a_busy_source_completes_within_two_slices() {
    seeds(300, |rng| {
        let machine = Machine::default();
        let config = Config { slice: Duration::from_micros(50), ..Config::default() };
        let mut executor = machine.executor(config);
        let (handle, clock) = (executor.handle(), machine.clock.clone());
        let (busy_clock, mut busy_rng) = (clock.clone(), rng.fork());
        handle.spawn(Class::Latency, async move {
            loop {
                busy_clock.advance(random_time(&mut busy_rng));
                yield_now().await;
            }
        });
        let (clock, visits) = (clock.clone(), Visits::default());
        handle.add_source(Box::new(Greedy { clock: clock.clone(), rng: rng.fork(), visits }));
        let device = Rc::new(Device { clock, read: RefCell::default() });
        handle.add_source(Box::new(Reads(Rc::clone(&device))));
        // A poll begins before the slice's end; then comes a visit to the busy source.
        let turn_max = config.slice + 2 * POLL_MAX;
        for _ in 0..20 {
            let (latency, late) = (POLL_MAX.mul_f64(5.0 * rng.f64()), Rc::new(Cell::new(None)));
            let (this, found) = (Rc::clone(&device), Rc::clone(&late));
            handle.spawn(Class::Latency, async move {
                let done_at = this.clock.now() + latency;
                this.read(done_at).await;
                found.set(Some(this.clock.now().saturating_since(done_at)));
            });
            while late.get().is_none() {
                executor.turn();
            }
            assert!(late.get() <= Some(2 * turn_max), "{late:?} after the device was done");
        }
    });
}

/// Reads one thing at a time, and is done when it is told.
struct Device {
    clock: Rc<ManualClock>,
    /// When it is done, and who waits for it.
    read: RefCell<Option<(Instant, Notify)>>,
}

impl Device {
    async fn read(&self, done_at: Instant) {
        let news = Notify::new();
        *self.read.borrow_mut() = Some((done_at, news.clone()));
        news.until(|| self.read.borrow().is_none()).await;
    }
}

struct Reads(Rc<Device>);

impl Source for Reads {
    fn poll(&mut self, _budget: usize) -> usize {
        let now = self.0.clock.now();
        let done = self.0.read.borrow_mut().take_if(|(at, _)| *at <= now);
        done.map_or(0, |(_, news)| {
            news.notify_all();
            1
        })
    }

    fn arm(&mut self) -> Armed {
        Armed::Busy
    }
}

/// Lanes, a file engine, a socket, and a worker, as sources whose requests run as tasks, and
/// timers: each has so many requests under way, and the next one is there when one was served. The
/// machine cannot keep up with any two of them.
#[test]
fn sources_of_all_kinds_get_equal_shares_of_a_busy_executor() {
    const UNDER_WAY: usize = 32;
    seeds(100, |rng| {
        let machine = Machine::default();
        let mut executor = machine.executor(Config::default());
        let served: Vec<Rc<Cell<u64>>> = (0..5).map(|_| Rc::default()).collect();
        let serve = |clock: &Rc<ManualClock>, served: &Rc<Cell<u64>>| {
            clock.advance(Duration::from_micros(2));
            served.set(served.get() + 1);
        };
        let (timers, sources) = served.split_first().expect("five");
        for served in sources {
            let ready = Rc::new(Cell::new(UNDER_WAY));
            let (handle, clock, served) =
                (executor.handle(), machine.clock.clone(), served.clone());
            let request = move |ready: &Rc<Cell<usize>>| {
                let (clock, served, ready) = (clock.clone(), served.clone(), ready.clone());
                handle.spawn(Class::Latency, async move {
                    serve(&clock, &served);
                    ready.set(ready.get() + 1);
                });
            };
            executor.handle().add_source(Box::new(Requests { ready, request }));
        }
        for _ in 0..UNDER_WAY {
            let (handle, clock, served) =
                (executor.handle(), machine.clock.clone(), timers.clone());
            let time = Duration::from_nanos(rng.u64(1..1000));
            executor.handle().spawn(Class::Latency, async move {
                loop {
                    handle.sleep(time).await;
                    serve(&clock, &served);
                }
            });
        }

        for _ in 0..if cfg!(miri) { 50 } else { 500 } {
            executor.turn();
        }

        let counts: Vec<_> = served.iter().map(|served| served.get()).collect();
        let (most, least) = (counts.iter().max(), counts.iter().min());
        let (most, least) = (most.expect("five"), least.expect("five"));
        assert!(most * 4 <= least * 5, "{counts:?}");
    });
}

/// Starts what is ready.
struct Requests<R> {
    ready: Rc<Cell<usize>>,
    request: R,
}

impl<R: Fn(&Rc<Cell<usize>>)> Source for Requests<R> {
    fn poll(&mut self, budget: usize) -> usize {
        let count = self.ready.get().min(budget);
        self.ready.set(self.ready.get() - count);
        (0..count).for_each(|_| (self.request)(&self.ready));
        count
    }

    fn arm(&mut self) -> Armed {
        Armed::Busy
    }
}

/// Always ready, for a random time.
struct Greedy {
    clock: Rc<ManualClock>,
    rng: Rng,
    visits: Rc<RefCell<Vec<Instant>>>,
}

impl Source for Greedy {
    fn poll(&mut self, budget: usize) -> usize {
        self.visits.borrow_mut().push(self.clock.now());
        self.clock.advance(random_time(&mut self.rng));
        self.rng.usize(0..=budget)
    }

    fn arm(&mut self) -> Armed {
        Armed::Busy
    }
}

type Visits = Rc<RefCell<Vec<Instant>>>;

fn add_sources(executor: &Executor, clock: &Rc<ManualClock>, rng: &mut Rng) -> Vec<Visits> {
    let count = rng.usize(1..5);
    let add = |_| {
        let (clock, rng, visits) = (clock.clone(), rng.fork(), Visits::default());
        executor.handle().add_source(Box::new(Greedy { clock, rng, visits: visits.clone() }));
        visits
    };
    (0..count).map(add).collect()
}

fn add_tasks(
    executor: &Executor,
    clock: &Rc<ManualClock>,
    class: Class,
    rng: &mut Rng,
) -> Vec<Rc<Cell<u64>>> {
    let count = rng.usize(0..20);
    let add = |_| {
        let (clock, mut rng, polls) = (clock.clone(), rng.fork(), Rc::new(Cell::new(0)));
        let count = polls.clone();
        executor.handle().spawn(class, async move {
            loop {
                count.set(count.get() + 1);
                clock.advance(random_time(&mut rng));
                yield_now().await;
            }
        });
        polls
    };
    (0..count).map(add).collect()
}

fn random_time(rng: &mut Rng) -> Duration {
    POLL_MAX.mul_f64(rng.f64())
}

/// Tasks that are always ready are polled in turn.
fn assert_round_robin(polls: &[Rc<Cell<u64>>], total: u64) {
    let least = polls.iter().map(|polls| polls.get()).min().unwrap_or_default();
    let most = polls.iter().map(|polls| polls.get()).max().unwrap_or_default();
    assert!(most - least <= 1, "{least} polls of one, {most} of another");
    assert_eq!(polls.iter().map(|polls| polls.get()).sum::<u64>(), total);
}
