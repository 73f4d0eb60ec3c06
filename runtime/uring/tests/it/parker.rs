//! Parking in epoll, and descriptors found ready.

use std::{
    io::{self, Read as _, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    pin::pin,
    thread,
    time::{Duration, Instant},
};

use executor::{Clock, Park};
use rustix::pipe::{PipeFlags, pipe_with};
use uring::{Events, File, Heap, SystemClock};

use crate::support::{Core, DEADLINE, poll};

#[test]
fn a_ready_descriptor_is_reported_until_it_is_not() {
    let events = Events::new().expect("epoll");
    let (mut here, there) = UnixStream::pair().expect("sockets");
    events.add_fd(&there, 42).expect("added");
    assert_eq!(events.look(), 0);
    here.write_all(b"drop").expect("room");
    for _ in 0..2 {
        assert_eq!(events.look(), 1);
        assert_eq!(events.pop(), Some(42));
    }
    (&there).read_exact(&mut [0; 4]).expect("written");
    assert_eq!(events.look(), 0);
    drop(here);
    assert_eq!((events.look(), events.pop()), (1, Some(42)));
}

#[test]
fn a_removed_descriptor_is_not_reported_even_if_found_before() {
    let events = Events::new().expect("epoll");
    let (mut here, there) = UnixStream::pair().expect("sockets");
    events.add_fd(&there, 1).expect("added");
    here.write_all(b"drop").expect("room");
    assert_eq!(events.look(), 1);

    events.remove_fd(&there, 1).expect("added before");

    assert_eq!((events.pop(), events.look()), (None, 0));
}

#[test]
fn a_muted_descriptor_is_reported_once_more_until_it_is_heard_again() {
    let events = Events::new().expect("epoll");
    let (mut here, there) = UnixStream::pair().expect("sockets");
    events.add_fd(&there, 42).expect("added");
    here.write_all(b"drop").expect("room");
    events.mute_fd(&there, 42).expect("added");
    assert_eq!((events.look(), events.pop()), (1, Some(42)));
    assert_eq!(events.look(), 0);
    drop(here);
    assert_eq!(events.look(), 0, "its end is not told either");

    events.hear_fd(&there, 42).expect("added");

    for _ in 0..2 {
        assert_eq!((events.look(), events.pop()), (1, Some(42)));
    }
}

#[test]
fn a_silent_descriptor_ends_parks_until_it_is_read() {
    let events = Events::new().expect("epoll");
    let (mut here, there) = UnixStream::pair().expect("sockets");
    events.add_silent_fd(&there).expect("added");
    here.write_all(b"drop").expect("room");
    let start = Instant::now();
    for _ in 0..2 {
        events.parker().park(Some(DEADLINE));
    }
    assert!(start.elapsed() < DEADLINE);
    assert_eq!(events.pop(), None);
    (&there).read_exact(&mut [0; 4]).expect("written");
    let start = Instant::now();
    events.parker().park(Some(Duration::from_millis(1)));
    assert!(start.elapsed() >= Duration::from_millis(1));
    events.remove_silent_fd(&there).expect("added before");
}

#[test]
fn the_reserved_key_is_refused() {
    let events = Events::new().expect("epoll");
    let error = events.add_fd(io::stdin().as_fd(), u64::MAX).expect_err("reserved");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn an_unpark_from_another_thread_ends_the_park() {
    let events = Events::new().expect("epoll");
    let (mut parker, unparker) = (events.parker(), events.unparker());
    for _ in 0..100 {
        let unparker = unparker.clone();
        let other = thread::spawn(move || unparker.unpark());
        let start = Instant::now();
        parker.park(Some(DEADLINE));
        assert!(start.elapsed() < DEADLINE, "the wake-up was lost");
        other.join().expect("no panic");
    }
}

#[test]
fn an_unpark_that_a_look_has_taken_ends_the_next_park_and_no_other() {
    let events = Events::new().expect("epoll");
    let (mut parker, start) = (events.parker(), Instant::now());
    events.unparker().unpark();
    assert_eq!(events.look(), 0);

    parker.park(Some(DEADLINE));

    assert!(start.elapsed() < DEADLINE, "the wake-up was lost");
    let start = Instant::now();
    parker.park(Some(Duration::from_millis(1)));
    assert!(start.elapsed() >= Duration::from_millis(1));
}

#[test]
fn an_unpark_ends_the_park_while_operations_are_in_flight() {
    let Some(mut core) = Core::with_ring() else { return };
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("descriptors");
    let endless = core.engines.read(&File::new(read).expect("a pipe"), 0, Heap::buffer(1).into());
    let mut endless = pin!(endless);
    assert!(poll(endless.as_mut()).is_pending());
    for _ in 0..100 {
        let engines = core.engines.clone();
        assert_eq!(core.run(engines.call(|| Ok(1))).expect("called"), 1);
    }
    drop(write);
    assert_eq!(core.run(endless).expect("the end of the pipe"), 0);
}

#[test]
fn a_park_lasts_as_long_as_its_timeout() {
    let mut parker = Events::new().expect("epoll").parker();
    parker.park(Some(Duration::ZERO)); // Set-up is not an event.
    let start = SystemClock.now();

    parker.park(Some(Duration::from_micros(1500)));

    assert!(SystemClock.now().saturating_since(start) >= Duration::from_micros(1500));
}

#[test]
fn a_descriptor_ends_the_park_and_prevents_the_next_until_taken() {
    let events = Events::new().expect("epoll");
    let (mut here, there) = UnixStream::pair().expect("sockets");
    events.add_fd(&there, 7).expect("added");
    here.write_all(b"drop").expect("room");

    events.parker().park(Some(DEADLINE));
    events.parker().park(Some(DEADLINE));

    assert!(events.has_ready());
    assert_eq!(events.pop(), Some(7));
}
