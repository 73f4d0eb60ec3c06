//! Wake-ups for answers. The clients that sleep are real threads.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use shm::lane::Requester;
use storage::segment::Segment;
use wire::Request;

use super::{
    client::{Wire, WireEnd},
    disk::SimStorage,
};
use crate::{
    admission::Grant,
    session::{Bells, Session, Ticket},
};

const ARENA_LEN: usize = 1 << 20;
/// A client that nobody wakes.
const HANG: Duration = Duration::from_secs(60);

fn session() -> (Rc<Session<SimStorage>>, Arc<Segment>) {
    let segment = Arc::new(Segment::create(ARENA_LEN).expect("memfd").0);
    let arena_len = ARENA_LEN as u64;
    let grant = Grant { file_credit: 1, arena_len, arena_max: arena_len, executor: 0 };
    let peer = Box::new(WireEnd(Rc::new(Wire::default())));
    (Rc::new(Session::new(0, None, grant, Arc::clone(&segment), peer)), segment)
}

#[test]
fn a_client_with_more_in_flight_is_woken_some_turns_after_its_first_answer() {
    let (session, _) = session();
    let bells = Bells::new(false);
    bells.answered(&session, 3, true);
    bells.answered(&session, 3, true);
    let turns = (1..=100).take_while(|_| {
        bells.ring();
        bells.is_late()
    });
    assert_eq!(turns.count(), 3, "and in the fourth it is woken");
}

#[test]
fn a_client_is_woken_at_once_by_its_last_answer() {
    let (session, _) = session();
    let bells = Bells::new(false);
    bells.answered(&session, 3, true);
    bells.answered(&session, 3, false);
    assert!(!session.mark_late(3, false), "nothing is left to wake it for");
}

/// The first of two requests moves so many bytes: whether its client sleeps until more is answered.
fn sleeps_on_after(moved: u64) -> bool {
    let ((session, segment), bells) = (session(), Rc::new(Bells::new(false)));
    let lane = segment.shared().lane(0).expect("a lane");
    let mut requester = Requester::new();
    let mut ticket = || {
        requester.publish(lane, &Request::Nothing.encode().0).expect("room");
        let (seq, _) = session.next(0).expect("an honest client").expect("just published");
        Ticket::new(&bells, &session, 0, seq)
    };
    let (first, _second) = (ticket(), ticket());
    first.complete(Ok(moved));
    bells.is_late()
}

#[test]
fn a_client_is_woken_at_once_for_much_that_it_copies_meanwhile() {
    assert!(sleeps_on_after((64 << 10) - 1));
    assert!(!sleeps_on_after(64 << 10));
}

#[test]
fn every_sleeper_wakes_with_or_without_more_in_flight() {
    for owes in [true, false] {
        let (session, segment) = session();
        let bells = Bells::new(false);
        let is_answered = Arc::new(AtomicBool::new(false));
        let (woken, wakes) = mpsc::channel();
        let is_seen = Arc::clone(&is_answered);
        let client = thread::spawn(move || {
            let bell = &segment.shared().lane(0).expect("a lane").bell;
            while !is_seen.load(Ordering::Acquire) {
                bell.sleep(2 * HANG, || is_seen.load(Ordering::Acquire));
            }
            woken.send(()).expect("the test waits");
        });
        is_answered.store(true, Ordering::Release);
        bells.answered(&session, 0, owes);
        while bells.is_late() {
            bells.ring();
        }
        wakes.recv_timeout(HANG).expect("it was woken");
        client.join().expect("no panic");
    }
}
