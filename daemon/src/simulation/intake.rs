//! Lanes of a server without room, and the order of their turns.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use executor::{Config, Credits, Executor, Source, lock};
use fastrand::Rng;
use shm::{
    LANES,
    lane::{Requester, SLOTS},
};
use storage::segment::Segment;
use wire::{FileFlags, Phase, Registration, Reply, Request};

use super::{
    NoPark, SimClock, admission,
    client::{Wire, WireEnd},
    disk::{Disk, Open, SimStorage},
};
use crate::{core::Core, lanes::Lanes, node::Node, reap::reap, registration, session::Session};

/// A lane whose turn has come gets a quarter.
const PERMITS: usize = 8;
const BATCH: usize = 2;
const CLIENTS: usize = 3;

/// A client that has as many reads in its lane as there is room for.
struct Reader {
    segment: Arc<Segment>,
    requester: Requester,
}

impl Reader {
    fn connect(core: &Rc<Core<SimStorage>>, node: &Node, inode: u64) -> Self {
        let (id, grant) = lock(&node.admission).enter().expect("room");
        let arena_len = usize::try_from(grant.arena_len).unwrap();
        let segment = Arc::new(Segment::create(arena_len).expect("memfd").0);
        let wire = Rc::new(Wire::default());
        let flags = FileFlags::READABLE;
        let registration = Registration { file: 0, flags, log_at: 0, log_len: 0 };
        wire.hand_over(registration, Open::new(inode, false));
        let peer = Box::new(WireEnd(wire));
        let session = Rc::new(Session::new(id, None, grant, Arc::clone(&segment), peer));
        core.enter(Rc::clone(&session));
        registration::hear(core, &session);
        let mut reader = Self { segment, requester: Requester::new() };
        let lane = reader.segment.shared().lane(0).expect("a lane");
        for _ in 0..SLOTS {
            let request = Request::Read { file: 0, at: 0, len: 16, arena_at: 0 };
            reader.requester.publish(lane, &request.encode().0).expect("a slot for each");
        }
        let (shared, session) = (node.shared(), id as usize);
        shared.ready[session].raise(0, &shared.boards[0], session);
        reader
    }

    /// How many of its reads are at least in this phase.
    fn count(&self, phase: Phase) -> usize {
        let lane = self.segment.shared().lane(0).expect("a lane");
        let phase_of = |seq| Reply::phase_of(self.requester.state(lane, seq), seq);
        let is_there = |seq: &u32| {
            let found = phase_of(*seq);
            found == Some(Phase::Completed) || found == Some(phase)
        };
        (1..=u32::BITS).filter(is_there).count()
    }
}

/// A daemon of one executor, without its lanes.
fn daemon(clock: Rc<SimClock>, permits: Credits) -> (Executor, Rc<Core<SimStorage>>) {
    let executor = Executor::new(clock, Box::new(NoPark), Config::default());
    let job = shm::Job::create().expect("memfd").0;
    let node = Arc::new(Node::new(job, admission(1)));
    let rng = RefCell::new(Rng::with_seed(1));
    let locks = RefCell::default();
    let disk = Rc::new(Disk { files: RefCell::default(), rng, locks, fault_odds: 0 });
    let handle = executor.handle();
    let storage = SimStorage { disk, handle: handle.clone(), permits: Some(permits) };
    let core = Core::new(0, handle, storage, node, reap);
    (executor, core)
}

#[test]
fn a_lane_that_is_raised_without_end_is_queued_once() {
    let (_executor, core) = daemon(Rc::default(), Credits::new(1));
    let mut lanes = Lanes::new(Rc::clone(&core));
    drop(Reader::connect(&core, &core.node, 1));
    let shared = core.node.shared();
    for _ in 0..100 {
        for lane in 0..=LANES {
            shared.ready[0].raise(lane, &shared.boards[0], 0);
        }
        lanes.poll(1);
        assert!(lanes.queued_count() <= LANES + 1, "{} are queued", lanes.queued_count());
    }
    while lanes.poll(1) > 0 {}
    assert_eq!(lanes.queued_count(), 0);
}

#[test]
fn lanes_are_read_as_far_as_there_are_permits_and_take_turns() {
    let (clock, permits) = (Rc::new(SimClock::default()), Credits::new(PERMITS as u64));
    let (mut executor, core) = daemon(clock.clone(), permits.clone());
    let (handle, node) = (executor.handle(), Arc::clone(&core.node));
    handle.add_source(Box::new(Lanes::new(Rc::clone(&core))));
    let connect = |inode| Reader::connect(&core, &node, inode);
    let readers: Vec<_> = (1..=CLIENTS as u64).map(connect).collect();
    let count = |phase| readers.iter().map(|reader| reader.count(phase)).collect::<Vec<_>>();

    executor.turn();
    // The first has all permits; of the others, and of it, one each waits in line.
    assert_eq!(count(Phase::Acknowledged), [PERMITS + 1, 1, 1]);

    while count(Phase::Completed) != [SLOTS; CLIENTS] {
        if !executor.turn() {
            clock.0.advance(Duration::from_micros(10));
        }
        let (taken, answered) = (count(Phase::Acknowledged), count(Phase::Completed));
        let waiting = taken.iter().sum::<usize>() - answered.iter().sum::<usize>();
        assert!(waiting <= PERMITS + CLIENTS, "{waiting} are taken and not answered");
        // One that is read to its end takes no more turns.
        let others: Vec<_> = taken.into_iter().skip(1).filter(|taken| *taken < SLOTS).collect();
        let (fewest, most) = (others.iter().min(), others.iter().max());
        let lead = most.zip(fewest).map_or(0, |(most, fewest)| most - fewest);
        assert!(lead <= BATCH, "a lead of {lead}");
    }
    assert_eq!(permits.available(), permits.total());
}
