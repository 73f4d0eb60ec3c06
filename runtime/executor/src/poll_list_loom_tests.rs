//! Cores that poll, sleep, and take each other's office, against clients that ring only for who
//! sleeps, in every order loom can make.
//!
//! A core that sleeps through an event is a deadlock, which loom reports. The client's half is the
//! one that clients of the daemon play on a board; see `shm`'s `doorbell`.

use std::sync::Arc;

use loom::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicU32, Ordering, fence},
    },
    thread,
};

use crate::{Armed, Attendant, PollLists, SharedSource, park::Unpark};

const AWAKE: u32 = 0;
const POLLED: u32 = 1;
const ASLEEP: u32 = 2;

/// Explores `f` with at most `preemptions` switches away from a thread that could go on.
fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn wait(&self) {
        let mut is_rung = self.is_rung.lock().expect("no panic in a holder");
        while !*is_rung {
            is_rung = self.changed.wait(is_rung).expect("no panic in a holder");
        }
        *is_rung = false;
    }
}

impl Unpark for Bell {
    fn unpark(&self) {
        *self.is_rung.lock().expect("no panic in a holder") = true;
        self.changed.notify_one();
    }
}

/// A lane of one core.
struct Lane {
    /// Events not yet handled.
    waiting: AtomicU32,
    handled: AtomicU32,
    attendance: AtomicU32,
    bell: Arc<Bell>,
}

impl Lane {
    fn new(bell: &Arc<Bell>) -> Arc<Self> {
        let (waiting, handled) = (AtomicU32::new(0), AtomicU32::new(0));
        let attendance = AtomicU32::new(AWAKE);
        Arc::new(Self { waiting, handled, attendance, bell: Arc::clone(bell) })
    }

    /// The client's half.
    fn publish(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let awake = |found| (found == ASLEEP).then_some(AWAKE);
        let claimed =
            self.attendance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, awake).is_ok();
        if claimed {
            self.bell.unpark();
        }
    }

    fn handle(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            let count = self.waiting.swap(0, Ordering::AcqRel);
            self.handled.fetch_add(count, Ordering::Relaxed);
        }
    }
}

impl SharedSource for Lane {
    fn is_ready(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    fn attend(&self, by: Attendant) -> Armed {
        let attendance = match by {
            Attendant::ItsCore => AWAKE,
            Attendant::Poller => POLLED,
            Attendant::Nobody => ASLEEP,
        };
        self.attendance.store(attendance, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.is_ready() { Armed::Busy } else { Armed::Waits }
    }
}

struct Node {
    lists: PollLists,
    bells: Vec<Arc<Bell>>,
    lane: Arc<Lane>,
}

impl Node {
    /// Cores of which the first has the lane on its list.
    fn new(core_count: usize) -> Arc<Self> {
        let lists = PollLists::new(core_count);
        let bells: Vec<_> = (0..core_count).map(|_| Arc::new(Bell::default())).collect();
        for (core, bell) in bells.iter().enumerate() {
            lists.join(core, bell.clone());
        }
        let lane = Lane::new(&bells[0]);
        lists.bind(0, lane.clone());
        Arc::new(Self { lists, bells, lane })
    }

    /// Sleeps and wakes as core 0 until all events are handled, by whomever.
    fn serve_as_owner(&self, events: u32) {
        loop {
            self.lane.handle();
            if self.lane.handled.load(Ordering::Relaxed) == events {
                return;
            }
            if self.lists.sleep(0) {
                self.bells[0].wait();
            }
            self.lists.wake(0);
        }
    }

    /// Is the poller for some rounds, as `core`, if it can be.
    fn poll_as(&self, core: usize, rounds: usize) {
        if !self.lists.take_office(core) {
            return;
        }
        for _ in 0..rounds {
            self.lists.visit_sleepers();
        }
        self.lists.resign();
    }
}

/// Whatever the poller does, the sleeper's event is handed over, rung for, or found by itself.
#[test]
fn an_event_of_a_sleeper_is_never_lost_to_a_poller_that_comes_and_goes() {
    model(3, || {
        let node = Node::new(2);
        let client = thread::spawn({
            let node = node.clone();
            move || node.lane.publish()
        });
        let poller = thread::spawn({
            let node = node.clone();
            move || node.poll_as(1, 1)
        });
        node.serve_as_owner(1);
        client.join().expect("no panic");
        poller.join().expect("no panic");
    });
}

/// The office may change hands while the old poller still arms what was left to it.
#[test]
fn an_event_of_a_sleeper_is_never_lost_between_two_pollers() {
    model(2, || {
        let node = Node::new(3);
        let client = thread::spawn({
            let node = node.clone();
            move || node.lane.publish()
        });
        let pollers = [1, 2].map(|core| {
            let node = node.clone();
            thread::spawn(move || node.poll_as(core, 1))
        });
        node.serve_as_owner(1);
        client.join().expect("no panic");
        for poller in pollers {
            poller.join().expect("no panic");
        }
    });
}
