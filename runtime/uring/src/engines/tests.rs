//! Which engine executes what.

use std::{fs::File as StdFile, os::fd::OwnedFd};

use super::{route::route, *};
use crate::memory::{Buffers, Heap};

fn operations() -> [Operation; 5] {
    let file = Arc::new(OwnedFd::from(StdFile::open("/dev/null").expect("is there")));
    let (at, len, buffers) = (0, 1, || Buffers::from(Heap::buffer(1)));
    [
        Operation::Read { file: file.clone(), at, into: buffers() },
        Operation::Write { file: file.clone(), at, from: buffers(), is_whole: false },
        Operation::Sync { file: file.clone(), data_only: true },
        Operation::Fetch { file, at, len },
        Operation::Call(Box::new(|| Ok(0))),
    ]
}

fn routes(choice: Choice, kind: Kind, slow: bool) -> [Route; 5] {
    operations().map(|operation| route(choice, kind, &operation, slow))
}

#[test]
fn routes_are_those_of_the_table() {
    use Route::{Cached, Inline, Ring, Threads};
    let auto = |kind| routes(Choice::Auto, kind, false);
    assert_eq!(auto(Kind::Memory), [Inline, Inline, Inline, Inline, Threads]);
    assert_eq!(auto(Kind::Direct), [Ring, Ring, Ring, Ring, Threads]);
    assert_eq!(auto(Kind::Cached), [Cached, Inline, Ring, Ring, Threads]);
    assert_eq!(auto(Kind::Other), [Threads; 5]);
}

#[test]
fn a_slow_device_keeps_writes_off_the_executor() {
    use Route::{Cached, Inline, Ring, Threads};
    let slow = |kind| routes(Choice::Auto, kind, true);
    assert_eq!(slow(Kind::Cached), [Cached, Threads, Ring, Ring, Threads]);
    assert_eq!(slow(Kind::Memory), [Inline, Inline, Inline, Inline, Threads]);
}

#[test]
fn a_choice_overrides_the_table() {
    use Route::{Ring, Threads};
    for kind in [Kind::Memory, Kind::Direct, Kind::Cached, Kind::Other] {
        assert_eq!(routes(Choice::Uring, kind, false), [Ring, Ring, Ring, Ring, Threads]);
        assert_eq!(routes(Choice::Threads, kind, false), [Threads; 5]);
    }
}
