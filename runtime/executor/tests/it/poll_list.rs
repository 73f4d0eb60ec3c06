//! Executors that poll for each other, with real threads where it matters who runs.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
    time::{Duration, Instant as StdInstant},
};

use executor::{
    Armed, Attendant, Clock, Config, Executor, Idle, Instant, ManualClock, Notify, Park, PollLists,
    SharedSource, Source, Unpark, yield_now,
};

use crate::{
    paying::{Lively, Ticking},
    support::{Log, Machine, Scripted},
};

const AWAKE: u32 = 0;
const POLLED: u32 = 1;
const ASLEEP: u32 = 2;

/// Sources of the executor and timers, each with as much to do.
#[test]
fn equal_demands_get_equal_shares() {
    let machine = Machine::default();
    let mut executor = machine.executor(Config::default());
    let handle = executor.handle();
    let logs: Vec<_> = (0..3).map(|_| Rc::new(Log::default())).collect();
    for log in &logs {
        log.ready.set(16);
        handle.add_source(Box::new(Scripted(log.clone())));
    }
    let timers = Rc::new(RefCell::new(0u64));
    let (own, sleeper) = (timers.clone(), handle.clone());
    handle.spawn(executor::Class::Latency, async move {
        loop {
            sleeper.sleep(Duration::from_micros(1)).await;
            *own.borrow_mut() += 1;
        }
    });
    for _ in 0..if cfg!(miri) { 40 } else { 1000 } {
        machine.clock.advance(Duration::from_micros(1));
        executor.turn();
    }
    let mut shares = vec![*timers.borrow()];
    shares.extend(logs.iter().map(|log| log.polls.get()));
    let (most, least) = (shares.iter().max(), shares.iter().min());
    let (most, least) = (most.expect("four"), least.expect("four"));
    assert!(*most * 4 <= *least * 5, "{shares:?}");
}

/// Signals when something is so.
struct Until<F: Fn() -> bool>(F, Notify);

impl<F: Fn() -> bool> Source for Until<F> {
    fn poll(&mut self, _budget: usize) -> usize {
        if (self.0)() {
            self.1.notify_all();
        }
        0
    }

    fn arm(&mut self) -> Armed {
        Armed::Waits
    }
}

#[test]
fn an_event_that_comes_while_its_list_is_left_to_nobody_prevents_the_park() {
    #[derive(Default)]
    struct Late(AtomicU32);
    impl SharedSource for Late {
        fn is_ready(&self) -> bool {
            self.0.load(Ordering::Relaxed) > 0
        }
        fn attend(&self, by: Attendant) -> Armed {
            if by == Attendant::Nobody {
                self.0.store(1, Ordering::Relaxed);
            }
            if self.is_ready() { Armed::Busy } else { Armed::Waits }
        }
    }
    let machine = Machine::default();
    let mut executor = machine.executor(Config::default());
    let late = Arc::new(Late::default());
    executor.handle().poll_lists().bind(0, late.clone());
    let handled = Notify::new();
    executor.handle().add_source(Box::new(Until(move || late.is_ready(), handled.clone())));

    executor.run_until(handled.notified());

    assert_eq!(*machine.parks.borrow(), []);
}

#[test]
fn who_has_ceased_to_run_polls_for_nobody() {
    let clock = Rc::new(Ticking(ManualClock::new()));
    let park = ThreadPark { bell: Arc::default(), parked_count: Arc::default() };
    let config = Config { idle: Idle::PollIdle, ..Config::default() };
    let mut executor = Executor::new(clock, Box::new(park), config);
    let (lists, in_office) = (executor.handle().poll_lists().clone(), Notify::new());
    let is_polled = {
        let lists = lists.clone();
        move || lists.is_polled()
    };
    executor.handle().add_source(Box::new(Until(is_polled, in_office.clone())));
    executor.handle().add_source(Box::new(Lively(3)));

    executor.run_until(in_office.notified());

    assert!(!lists.is_polled());
}

/// Else whoever is woken finds the office taken, by one that is busy.
#[test]
fn a_poller_that_hands_over_while_it_works_resigns_at_once() {
    /// Lets the poller run while the other executor sleeps.
    struct WhileParked(Option<Box<dyn FnOnce()>>);
    impl Park for WhileParked {
        fn park(&mut self, _timeout: Option<Duration>) {
            self.0.take().expect("it parks once")();
        }
        fn unparker(&self) -> Arc<dyn Unpark> {
            Arc::new(Bell::default())
        }
    }
    let lists = PollLists::new(2);
    let config = Config { idle: Idle::PollIdle, ..Config::default() };
    let clock = Rc::new(Ticking(ManualClock::new()));
    let park = Box::new(WhileParked(None));
    let mut poller = Executor::join(clock.clone(), park, config, &lists, 0);
    let (work, in_office) = (Rc::new(Log::default()), Notify::new());
    let is_polled = {
        let lists = lists.clone();
        move || lists.is_polled()
    };
    poller.handle().add_source(Box::new(Until(is_polled, in_office.clone())));
    poller.handle().add_source(Box::new(Lively(3)));
    poller.handle().add_source(Box::new(Scripted(work.clone())));

    let lane = Lane::new(&Arc::default());
    lists.bind(1, Arc::new(OnList(lane.clone())));
    let (polled, client) = (lists.clone(), lane.clone());
    let poll = move || {
        poller.run_until(async {
            in_office.notified().await;
            client.publish();
            work.ready.set(1);
            yield_now().await;
            assert!(!polled.is_polled(), "it keeps the office");
        });
        assert_eq!(poller.counters().handed_over, 1);
    };
    let park = Box::new(WhileParked(Some(Box::new(poll))));
    let mut sleeper = Executor::join(clock, park, Config::default(), &lists, 1);
    let done = Notify::new();
    sleeper.handle().add_source(Box::new(OwnLane(lane, done.clone(), 1)));
    sleeper.run_until(done.notified());
}

/// Blocks a real thread, and counts those that are blocked.
struct ThreadPark {
    bell: Arc<Bell>,
    parked_count: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    changed: Condvar,
}

impl Park for ThreadPark {
    fn park(&mut self, _timeout: Option<Duration>) {
        self.parked_count.fetch_add(1, Ordering::AcqRel);
        let is_rung = self.bell.is_rung.lock().expect("no panic in a holder");
        let waited = self.bell.changed.wait_timeout_while(is_rung, DEADLINE, |rung| !*rung);
        let (mut is_rung, timeout) = waited.expect("as above");
        assert!(!timeout.timed_out(), "a wake-up was lost");
        *is_rung = false;
        self.parked_count.fetch_sub(1, Ordering::AcqRel);
    }

    fn give_way(&mut self) {
        thread::yield_now();
    }

    fn unparker(&self) -> Arc<dyn Unpark> {
        self.bell.clone()
    }
}

impl Unpark for Bell {
    fn unpark(&self) {
        *self.is_rung.lock().expect("no panic in a holder") = true;
        self.changed.notify_one();
    }
}

struct SystemClock(StdInstant);

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        let nanos = u64::try_from(self.0.elapsed().as_nanos()).expect("584 years");
        Instant::from_nanos(nanos)
    }
}

const DEADLINE: Duration = Duration::from_secs(120);

/// A lane of one executor, which its clients ring only when nobody polls for it.
struct Lane {
    published: AtomicU64,
    handled: AtomicU64,
    attendance: AtomicU32,
    bell: Arc<Bell>,
}

impl Lane {
    fn new(bell: &Arc<Bell>) -> Arc<Self> {
        let (published, handled) = (AtomicU64::new(0), AtomicU64::new(0));
        let attendance = AtomicU32::new(AWAKE);
        Arc::new(Self { published, handled, attendance, bell: Arc::clone(bell) })
    }

    fn publish(&self) {
        self.published.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let claim =
            self.attendance.compare_exchange(ASLEEP, AWAKE, Ordering::Relaxed, Ordering::Relaxed);
        if claim.is_ok() {
            self.bell.unpark();
        }
    }

    fn is_ready(&self) -> bool {
        self.published.load(Ordering::Acquire) != self.handled.load(Ordering::Acquire)
    }

    #[track_caller]
    fn wait_until_handled(&self, count: u64) {
        let start = StdInstant::now();
        while self.handled.load(Ordering::Acquire) < count {
            assert!(start.elapsed() < DEADLINE, "an event was lost");
            thread::yield_now();
        }
    }
}

/// The lane as a source of its own executor.
struct OwnLane(Arc<Lane>, Notify, u64);

impl Source for OwnLane {
    fn poll(&mut self, _budget: usize) -> usize {
        let published = self.0.published.load(Ordering::Acquire);
        let handled = self.0.handled.swap(published, Ordering::AcqRel);
        if published >= self.2 {
            self.1.notify_all();
        }
        usize::try_from(published - handled).expect("no event is handled twice")
    }

    fn arm(&mut self) -> Armed {
        Armed::Waits
    }
}

/// The lane on the poll list.
struct OnList(Arc<Lane>);

impl SharedSource for OnList {
    fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    fn attend(&self, by: Attendant) -> Armed {
        let attendance = match by {
            Attendant::ItsCore => AWAKE,
            Attendant::Poller => POLLED,
            Attendant::Nobody => ASLEEP,
        };
        self.0.attendance.store(attendance, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.0.is_ready() { Armed::Busy } else { Armed::Waits }
    }
}

/// Runs executor `core` until its lane has seen `last` events; returns the events it counted.
fn serve(
    lists: &PollLists,
    core: usize,
    lane: &Arc<Lane>,
    parked_count: &Arc<AtomicUsize>,
    last: u64,
) -> u64 {
    let park = ThreadPark { bell: lane.bell.clone(), parked_count: parked_count.clone() };
    let quiet = Duration::from_secs(3600);
    let config = Config { idle: Idle::PollIdle, quiet, ..Config::default() };
    let clock = Rc::new(SystemClock(StdInstant::now()));
    let mut executor = Executor::join(clock, Box::new(park), config, lists, core);
    lists.bind(core, Arc::new(OnList(lane.clone())));
    let done = Notify::new();
    executor.handle().add_source(Box::new(OwnLane(lane.clone(), done.clone(), last)));
    executor.run_until(done.until(|| lane.handled.load(Ordering::Acquire) >= last));
    executor.counters().source_events
}

/// As many executors, each with a client that waits for every answer, some with pauses in which
/// their executor goes to sleep; in the end, while all are idle, at most one is awake.
fn events_are_handled_once_and_one_polls_for_all(core_count: usize) {
    let events = if cfg!(miri) { 5 } else { 2000 };
    let lists = PollLists::new(core_count);
    let parked_count = Arc::new(AtomicUsize::new(0));
    let lanes: Vec<_> = (0..core_count).map(|_| Lane::new(&Arc::default())).collect();
    thread::scope(|scope| {
        let serve = |core, lane| serve(&lists, core, lane, &parked_count, events + 1);
        let numbered = lanes.iter().enumerate();
        let executors: Vec<_> =
            numbered.map(|(core, lane)| scope.spawn(move || serve(core, lane))).collect();
        let clients: Vec<_> = lanes
            .iter()
            .enumerate()
            .map(|(index, lane)| {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(index as u64);
                    for event in 1..=events {
                        lane.publish();
                        lane.wait_until_handled(event);
                        let pause = StdInstant::now();
                        let length = Duration::from_micros(random.u64(0..100));
                        while random.bool() && pause.elapsed() < length {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().expect("every event was handled");
        }
        let start = StdInstant::now();
        while parked_count.load(Ordering::Acquire) + 1 < core_count {
            assert!(start.elapsed() < DEADLINE, "more than one is awake while all are idle");
            thread::yield_now();
        }
        lanes.iter().for_each(|lane| lane.publish());
        for executor in executors {
            assert_eq!(executor.join().expect("no wake-up was lost"), events + 1);
        }
    });
}

#[test]
fn two_executors_handle_every_event_once_and_one_polls_for_both() {
    events_are_handled_once_and_one_polls_for_all(2);
}

#[test]
fn four_executors_handle_every_event_once_and_one_polls_for_all() {
    events_are_handled_once_and_one_polls_for_all(4);
}
