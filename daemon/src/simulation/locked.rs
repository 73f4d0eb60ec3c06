//! Locks, and files that are closed while one is asked for.

use std::{cell::Cell, rc::Rc, time::Duration};

use executor::{Class, Clock as _};
use rustix::io::Errno;
use wire::{FileFlags, LockKind, LockOwner};

use super::{
    Simulation, TIME_MAX,
    client::Wire,
    seeds,
    storage::{DEVICE, Open},
};
use crate::{
    file::{Log, Origin},
    locks::{self, LockCall},
    registration,
};

const SEEDS: u64 = 200;
const INODE: u64 = 5;

#[test]
fn lock_that_is_got_while_its_file_is_closed_is_given_up() {
    let mut refusals = 0;
    for seed in seeds(SEEDS) {
        let mut simulation = Simulation::new(seed);
        let (core, session) = simulation.enter(&Rc::new(Wire::default()));
        let (flags, identity) = (FileFlags::READABLE, (DEVICE, INODE));
        let origin = Origin { session: session.id, slot: 0, flags, identity, is_ours: false };
        registration::admit(&core, &session, origin, Open::new(INODE, false), Log::default())
            .expect("room");
        let file = session.file(0).expect("open");
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
        let end = simulation.clock.now() + TIME_MAX;
        while left.get() > 0 {
            assert!(simulation.clock.now() < end, "SEED={seed}: stuck");
            for executor in &mut simulation.executors {
                executor.turn();
            }
            simulation.clock.0.advance(Duration::from_micros(1));
        }
        let locks = &simulation.model.borrow().disk.locks;
        assert!(locks.borrow().is_empty(), "SEED={seed}: {:?}", told.get());
        refusals += u32::from(told.get() == Some(Err(Errno::BADF)));
    }
    assert!(refusals > 0, "none came between");
}
