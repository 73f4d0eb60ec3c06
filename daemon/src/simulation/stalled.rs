//! Devices that stand still.

use std::rc::Rc;

use shm::staging::Producer;
use wire::FileFlags;

use super::{
    Simulation,
    client::Wire,
    disk::{DEVICE, Open},
};
use crate::{
    drain,
    file::{Log, Origin},
    registration,
};

const LOG_LEN: u64 = 8 << 10;
const LEN: u64 = 100;
/// Files of a device: more than have a worker.
const FILES: u32 = 6;

#[test]
fn devices_that_stand_still_hold_up_no_other() {
    let mut simulation = Simulation::new(0);
    let (core, session) = simulation.enter(&Rc::new(Wire::default()));
    let of_device = |place: u64| {
        let slots = (0..FILES).map(|index| u32::try_from(place).unwrap() * FILES + index);
        let files = slots.map(|slot| {
            let identity = (DEVICE + place, u64::from(slot));
            let origin = Origin {
                session: session.id,
                slot,
                flags: FileFlags::WRITABLE,
                identity,
                is_ours: false,
                has_descriptor: true,
            };
            let open = Open::new(identity.1, false);
            open.is_stalled.set(place < 2);
            let log = Log { at: u64::from(slot) * LOG_LEN, len: LOG_LEN };
            registration::admit(&core, &session, origin, open, log).expect("room");
            let file = session.file(slot).expect("open");
            let mut producer = Producer::new(LOG_LEN);
            producer.reserve(file.shared(), 0, LEN).expect("room");
            producer.publish(file.shared(), 0, LEN);
            drain::enqueue_to(&core, &file, file.head());
            file
        });
        files.collect::<Vec<_>>()
    };
    let [first, second, healthy] = [0, 1, 2].map(of_device);

    simulation.turn_until(|| healthy.iter().all(|file| file.staged() == 0));

    assert!(first.iter().chain(&second).all(|file| file.staged() == LEN));
}
