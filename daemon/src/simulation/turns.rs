//! Turns of a file: who shares one, and who waits for whom.

use std::{
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use storage::segment::Segment;
use wire::FileFlags;

use super::disk::{DEVICE, Open, SimStorage};
use crate::file::{Log, OpenFile, Origin};

fn file(flags: FileFlags) -> Rc<OpenFile<SimStorage>> {
    let segment = Arc::new(Segment::create(1 << 20).expect("memfd").0);
    let origin = Origin {
        session: 0,
        slot: 0,
        flags,
        identity: (DEVICE, 1),
        is_ours: false,
        has_descriptor: true,
    };
    let open = Open::new(1, flags.has(FileFlags::APPEND));
    Rc::new(OpenFile::new(origin, segment, open, None, Log::default()).expect("a slot"))
}

fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn writes_do_not_join_others_before_one_that_waits_for_its_turn_alone() {
    let file = file(FileFlags::WRITABLE);
    let writes = (poll(pin!(file.turn_to_write())), poll(pin!(file.turn_to_write())));
    assert!(writes.0.is_ready() && writes.1.is_ready());
    let mut alone = pin!(file.turn());
    assert!(poll(alone.as_mut()).is_pending());
    let mut late = pin!(file.turn_to_write());
    assert!(poll(late.as_mut()).is_pending());

    drop(writes);

    assert!(poll(late.as_mut()).is_pending());
    let turn = poll(alone.as_mut());
    assert!(turn.is_ready());
    drop(turn);
    assert!(poll(late.as_mut()).is_ready());
}

#[test]
fn appends_have_the_turn_one_after_the_other() {
    let file = file(FileFlags::WRITABLE.with(FileFlags::APPEND));
    let first = poll(pin!(file.turn_to_write()));
    let mut second = pin!(file.turn_to_write());
    assert!(first.is_ready() && poll(second.as_mut()).is_pending());
    drop(first);
    assert!(poll(second.as_mut()).is_ready());
}
