//! Locks, and files that are closed while one is asked for.

use std::{cell::Cell, rc::Rc, time::Duration};

use executor::Class;
use rustix::io::Errno;
use storage::lock_call::LockCall;
use wire::{FileFlags, LockKind, LockOwner};

use super::{
    Simulation,
    client::Wire,
    disk::{DEVICE, Open, SimStorage},
    seeds,
};
use crate::{
    core::Core,
    file::{Log, OpenFile, Origin},
    locks, registration,
    session::Session,
};

const SEEDS: u64 = 200;
const INODE: u64 = 5;

/// Another thread may have got it by another descriptor meanwhile.
#[test]
fn lock_that_is_got_by_a_closed_file_takes_no_other_with_it() {
    for owner in [LockOwner::Process, LockOwner::OpenFile, LockOwner::Whole] {
        let mut simulation = Simulation::new(0);
        let (core, session) = simulation.enter(&Rc::new(Wire::default()));
        let [closed, other] = [0, 1].map(|slot| open(&core, &session, slot));
        let on = |owner, start| {
            let mut call = LockCall::unlock_all(owner, 0);
            call.terms.kind = LockKind::Exclusive;
            LockCall { start, len: 10, ..call }
        };
        closed.begin_close();
        let (told, tells) = (Rc::new(Cell::new(None)), core.handle.clone());
        let tell = Rc::clone(&told);
        tells.spawn(Class::Latency, async move {
            locks::closing(&core, &session, &closed).await;
            let young = locks::lock(&core, &session, &other, on(LockOwner::Process, 0)).await;
            let late = locks::lock(&core, &session, &closed, on(owner, 10)).await;
            tell.set(Some((young, late)));
        });
        simulation.turn_until(|| told.get().is_some());

        assert_eq!(told.get(), Some((Ok(0), Err(Errno::BADF))));
        let disk = &simulation.model.borrow().disk;
        let mut left = disk.locks.borrow().clone();
        // Closing the descriptor gives up its own.
        left.retain(|(_, call)| call.terms.owner == LockOwner::Process);
        assert_eq!(left.iter().map(|(_, call)| call.start).collect::<Vec<_>>(), [0], "{owner:?}");
    }
}

#[test]
fn lock_that_is_got_while_its_file_is_closed_is_given_up() {
    let mut refusals = 0;
    for seed in seeds(SEEDS) {
        let mut simulation = Simulation::new(seed);
        let (core, session) = simulation.enter(&Rc::new(Wire::default()));
        let file = open(&core, &session, 0);
        let mut call = LockCall::unlock_all(LockOwner::Process, 0);
        call.terms.kind = LockKind::Exclusive;

        let (told, left) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(2)));
        let mut begin = || {
            let us = simulation.rng.u64(0..100);
            (core.handle.clone(), Duration::from_micros(us), Rc::clone(&left))
        };
        let (handle, pause, done) = begin();
        let (to, of, locked, tells) =
            (Rc::clone(&core), Rc::clone(&session), Rc::clone(&file), Rc::clone(&told));
        handle.clone().spawn(Class::Latency, async move {
            handle.sleep(pause).await;
            tells.set(Some(locks::lock(&to, &of, &locked, call).await));
            done.set(done.get() - 1);
        });
        let (handle, pause, done) = begin();
        handle.clone().spawn(Class::Latency, async move {
            handle.sleep(pause).await;
            registration::discard(&core, &session, &file).await;
            done.set(done.get() - 1);
        });
        simulation.turn_until(|| left.get() == 0);
        let locks = &simulation.model.borrow().disk.locks;
        assert!(locks.borrow().is_empty(), "SEED={seed}: {:?}", told.get());
        refusals += u32::from(told.get() == Some(Err(Errno::BADF)));
    }
    assert!(refusals > 0, "none came between");
}

fn open(
    core: &Rc<Core<SimStorage>>,
    session: &Session<SimStorage>,
    slot: u32,
) -> Rc<OpenFile<SimStorage>> {
    let (flags, identity) = (FileFlags::READABLE, (DEVICE, INODE));
    let origin =
        Origin { session: session.id, slot, flags, identity, is_ours: false, has_descriptor: true };
    registration::admit(core, session, origin, Open::new(INODE, false), Log::default())
        .expect("room");
    session.file(slot).expect("open")
}
