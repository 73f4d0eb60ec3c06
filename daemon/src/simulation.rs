//! The daemon in one seeded thread: its executors, its clients, storage, and time are simulated,
//! and every interleaving follows from the seed. A failing seed is printed; `SEED=n` repeats it,
//! `ROUNDS=n` takes as many seeds as wanted.

mod bells;
mod client;
mod disk;
mod draining;
mod intake;
mod locked;
mod model;
mod stalled;
mod turns;

use std::{
    cell::{Cell, RefCell},
    panic::{self, AssertUnwindSafe},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use executor::{Class, Clock, Config, Credits, Executor, Handle, PollLists, lock};
use fastrand::Rng;
use shm::lane::Requester;
use simulated::{NoPark, SimClock, seeds};
use storage::segment::Segment;

use self::{
    client::{Client, Wire, WireEnd},
    disk::{Disk, SimStorage},
    model::Model,
};
use crate::{
    admission::Admission,
    core::{Core, Departure},
    lanes::Lanes,
    mail,
    node::Node,
    reap::reap,
    registration,
    seats::Seats,
    session::Session,
};

const SEEDS: u64 = 1_000;
const CLIENTS: u64 = 4;
const OPERATIONS: usize = 60;
/// Longest a simulation may go on, in its own time.
const TIME_MAX: Duration = Duration::from_secs(20);
const STAGING: u64 = 256 << 10;

#[test]
fn daemon_keeps_its_promises_under_every_seed() {
    for seed in seeds(SEEDS) {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| Simulation::new(seed).run()));
        if let Err(cause) = outcome {
            eprintln!("SEED={seed}");
            panic::resume_unwind(cause);
        }
    }
}

struct Simulation {
    clock: Rc<SimClock>,
    rng: Rng,
    node: Arc<Node>,
    cores: Vec<Rc<Core<SimStorage>>>,
    /// Those of the cores, then that of the clients.
    executors: Vec<Executor>,
    model: Rc<RefCell<Model>>,
    clients_left: Rc<Cell<u64>>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let clock = Rc::new(SimClock::default());
        let core_count = rng.usize(1..=2);
        let job = shm::Job::create().expect("memfd").0;
        let admission = admission(core_count);
        let node = Arc::new(Node::new(job, admission));
        let fault_odds = if rng.u32(0..3) == 0 { 40 } else { 0 };
        let disk = Rc::new(Disk {
            files: RefCell::default(),
            rng: RefCell::new(rng.fork()),
            locks: RefCell::default(),
            fault_odds,
        });
        let model = Rc::new(RefCell::new(Model::new(Rc::clone(&disk))));
        let lists = PollLists::new(core_count + 1);
        let mut executors = Vec::new();
        let mut cores = Vec::new();
        for index in 0..=core_count {
            let clock: Rc<dyn Clock> = clock.clone();
            let park = Box::new(NoPark);
            let executor = Executor::join(clock, park, Config::default(), &lists, index);
            let handle = executor.handle();
            executors.push(executor);
            if index < core_count {
                let permits = (rng.u32(0..3) > 0).then(|| Credits::new(rng.u64(1..=8)));
                let disk = Rc::clone(&disk);
                let storage = SimStorage { disk, handle: handle.clone(), permits };
                let core = Core::new(index, handle.clone(), storage, Arc::clone(&node), reap);
                handle.add_source(Box::new(Lanes::new(Rc::clone(&core))));
                handle.spawn(Class::Latency, mail::read(Rc::clone(&core)));
                cores.push(core);
            }
        }
        let clients_left = Rc::new(Cell::new(CLIENTS));
        Self { clock, rng, node, cores, executors, model, clients_left }
    }

    fn run(mut self) {
        for index in 0..CLIENTS {
            self.connect(index);
        }
        let end = self.clock.now() + TIME_MAX;
        while self.clients_left.get() > 0 || self.node.session_count() > 0 {
            let mut was_busy = false;
            for executor in &mut self.executors {
                was_busy |= executor.turn();
            }
            if !was_busy {
                self.clock.0.advance(Duration::from_micros(self.rng.u64(1..80)));
            }
            assert!(self.clock.now() < end, "the simulation is stuck");
        }
        self.model.borrow().check_all();
        self.check_that_nothing_is_left();
    }

    /// Lets a client in, with a control socket that the daemon reads when it gets to it.
    fn connect(&mut self, index: u64) {
        let wire = Rc::new(Wire::default());
        let (core, session) = self.enter(&wire);
        let (id, grant) = (session.id, session.grant.get());
        let segment = Arc::clone(&session.segment);
        let rng = self.rng.fork();
        let watch = Rc::clone(&wire);
        core.handle.spawn(Class::Latency, attend(Rc::clone(&core), session, watch, rng));

        let handle = self.executors.last().expect("the clients'").handle();
        let client = Client {
            index,
            session: id,
            executor: grant.executor,
            segment,
            node: Arc::clone(&self.node),
            wire,
            model: Rc::clone(&self.model),
            storage: core.storage.clone(),
            handle: handle.clone(),
            rng: self.rng.fork(),
            requester: Requester::new(),
            files: (0..client::SLOTS).map(|_| None).collect(),
        };
        let (left, count) = (Rc::clone(&self.clients_left), self.rng.usize(1..2 * OPERATIONS));
        handle.spawn(Class::Latency, async move {
            client.run(count).await;
            left.set(left.get() - 1);
        });
    }

    /// A session of a client at the other end of a wire.
    fn enter(&self, wire: &Rc<Wire>) -> (Rc<Core<SimStorage>>, Rc<Session<SimStorage>>) {
        let (id, grant) = lock(&self.node.admission).enter().expect("room");
        let core = Rc::clone(&self.cores[grant.executor]);
        let arena_len = usize::try_from(grant.arena_len).unwrap();
        let segment = Arc::new(Segment::create(arena_len).expect("memfd").0);
        let peer = Box::new(WireEnd(Rc::clone(wire)));
        let session = Rc::new(Session::new(id, None, grant, segment, peer));
        core.enter(Rc::clone(&session));
        (core, session)
    }

    /// Turns the executors, a microsecond at a time.
    fn turn_until(&mut self, is_over: impl Fn() -> bool) {
        let end = self.clock.now() + TIME_MAX;
        while !is_over() {
            assert!(self.clock.now() < end, "the simulation is stuck");
            self.executors.iter_mut().for_each(|executor| _ = executor.turn());
            self.clock.0.advance(Duration::from_micros(1));
        }
    }

    fn check_that_nothing_is_left(&mut self) {
        // Ticks go on for 100 ms after the last file has gone.
        for _ in 0..500 {
            self.clock.0.advance(Duration::from_millis(1));
            for executor in &mut self.executors {
                executor.turn();
            }
        }
        assert_eq!(*lock(&self.node.admission), admission(self.cores.len()));
        assert_eq!(lock(&self.node.registry).count(), 0);
        assert!(self.node.shared().inodes.is_empty());
        for core in &self.cores {
            assert_eq!(core.handle.task_count(), 1, "only the mail is read");
            assert!(core.active.borrow().is_empty());
            assert!(core.drain_queues.borrow().is_empty());
        }
    }
}

/// Returns the resources for the clients of a simulation.
fn admission(core_count: usize) -> Admission {
    Admission::new(STAGING, STAGING * CLIENTS, 4096, Seats::spread(core_count))
}

/// Reads a session's control socket from time to time, until the session ends. The death of a
/// client may be noticed before what it has sent.
async fn attend(
    core: Rc<Core<SimStorage>>,
    session: Rc<Session<SimStorage>>,
    wire: Rc<Wire>,
    mut rng: Rng,
) {
    let handle: Handle = core.handle.clone();
    while !session.is_ending() {
        handle.sleep(Duration::from_micros(rng.u64(1..3_000))).await;
        if wire.is_gone() && rng.bool() {
            core.end(&session, Departure::Gone);
        } else {
            registration::hear(&core, &session);
        }
    }
}
