//! When a ring enters the kernel, what ends its waits, and what it refuses.

use std::{
    hint,
    os::fd::OwnedFd,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use executor::{Class, Config, Executor, ManualClock};
use rustix::pipe::{PipeFlags, pipe_with};

use super::*;
use crate::{
    batch::{BATCH_BYTES, BATCH_LEN, BATCH_LEN_MIN, GATHERING_MAX, HELD_MAX},
    memory::Buffers,
    span::SHORT_LEN_MAX,
};

struct Bench {
    ring: Ring,
    events: Events,
    clock: Rc<ManualClock>,
    read: Arc<OwnedFd>,
    write: OwnedFd,
    executor: Executor,
}

impl Bench {
    /// A ring, and a pipe whose reads stay in flight; `None` where io_uring is forbidden.
    fn new() -> Option<Self> {
        let (events, clock) = (Events::new().unwrap(), Rc::new(ManualClock::new()));
        let parker = Box::new(events.parker());
        let executor = Executor::new(clock.clone(), parker, Config::default());
        let ring = Ring::new(&executor.handle(), &events).ok()?;
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let read = Arc::new(read);
        Some(Self { ring, events, clock, read, write, executor })
    }

    fn submit(&mut self) -> Result<(), Operation> {
        self.submit_at(0)
    }

    /// Submits a read of one byte.
    fn submit_at(&mut self, at: u64) -> Result<(), Operation> {
        self.submit_of(1, at)
    }

    /// Submits a read of `len` bytes.
    fn submit_of(&mut self, len: usize, at: u64) -> Result<(), Operation> {
        self.submit_into(Heap::buffer(len).into(), at)
    }

    fn submit_into(&mut self, into: Buffers, at: u64) -> Result<(), Operation> {
        self.ring.submit(Operation::Read { file: self.read.clone(), at, into }, Token(0))
    }

    /// Has time pass, which the executor sees.
    fn advance(&mut self, time: Duration) {
        self.clock.advance(time);
        self.executor.turn();
    }

    /// Has two operations complete, by another thread: mostly the kernel still holds them back.
    fn complete_two(&mut self) {
        self.submit().unwrap();
        self.submit().unwrap();
        self.queued_after_reap();
        let write = &self.write;
        thread::scope(|scope| {
            scope.spawn(|| rustix::io::write(write, b"xy").unwrap());
            while !self.ring.ring.submission().taskrun() && self.ring.ring.completion().len() < 2 {
                hint::spin_loop();
            }
        });
    }

    /// Has two operations complete and serves them one by one.
    fn serve_two(&mut self) {
        self.complete_two();
        while !self.ring.in_flight.is_empty() {
            self.ring.reap(1, &mut |_, _| {});
        }
    }

    fn queued_after_reap(&mut self) -> usize {
        assert_eq!(self.ring.reap(16, &mut |_, _| {}), 0);
        self.ring.batch.len
    }
}

#[test]
fn a_lone_entry_is_submitted_at_the_next_visit() {
    let Some(mut bench) = Bench::new() else { return };
    bench.submit().unwrap();
    assert_eq!(bench.queued_after_reap(), 0);
}

#[test]
fn an_entry_is_held_for_20_us_while_others_are_in_flight() {
    let Some(mut bench) = Bench::new() else { return };
    bench.submit().unwrap();
    bench.queued_after_reap();
    bench.submit().unwrap();
    assert_eq!(bench.queued_after_reap(), 1);

    bench.advance(HELD_MAX);

    assert_eq!(bench.queued_after_reap(), 0);
}

#[test]
fn a_device_with_little_to_do_gets_short_batches() {
    let Some(mut bench) = Bench::new() else { return };
    let mut at = 0;
    for batch_len in [BATCH_LEN_MIN, BATCH_LEN_MIN, 4, 8, 16, BATCH_LEN, BATCH_LEN] {
        for queued in 1..=batch_len {
            bench.submit_of(SHORT_LEN_MAX + 1, at).unwrap();
            at += 1 << 20;
            assert_eq!(bench.ring.batch.len, queued % batch_len);
        }
    }
}

#[test]
fn the_last_that_follows_what_was_served_goes_by_the_call_that_blocks() {
    let Some(mut bench) = Bench::new() else { return };
    bench.serve_two();
    bench.submit().unwrap();
    assert_eq!(bench.queued_after_reap(), 1);
    assert_eq!(bench.queued_after_reap(), 0, "it did not block");
}

#[test]
fn what_follows_waits_for_no_block_beside_tasks_that_are_ready() {
    let Some(mut bench) = Bench::new() else { return };
    bench.serve_two();
    for _ in 0..=Config::default().slice_polls {
        bench.executor.handle().spawn(Class::Latency, async {});
    }
    bench.executor.turn();
    bench.submit().unwrap();

    assert_eq!(bench.queued_after_reap(), 0);
}

#[test]
fn transfers_that_continue_each_other_gather_while_all_that_is_complete_is_fetched() {
    let Some(mut bench) = Bench::new() else { return };
    bench.complete_two();
    bench.submit_at(7).unwrap();
    bench.submit_at(8).unwrap();

    assert_eq!(bench.ring.reap(16, &mut |_, _| {}), 2);

    assert_eq!(bench.ring.batch.len, 2, "nothing was submitted");
}

#[test]
fn transfers_that_continue_each_other_wait_for_as_many_as_are_worth_a_call() {
    let Some(mut bench) = Bench::new() else { return };
    const LEN: usize = 4096;
    for number in 0..BATCH_BYTES / LEN {
        assert_eq!(bench.ring.batch.len, number);
        bench.submit_of(LEN, (number * LEN) as u64).unwrap();
    }
    assert_eq!(bench.ring.batch.len, 0);
}

#[test]
fn transfers_of_short_buffers_wait_likewise_and_those_of_long_ones_do_not() {
    for (len, worth) in [(4096, 8), (SHORT_LEN_MAX + 1, BATCH_LEN_MIN)] {
        let Some(mut bench) = Bench::new() else { return };
        for number in 0..worth {
            assert_eq!(bench.ring.batch.len, number, "buffers of {len} bytes");
            let into = Buffers::new(vec![Heap::buffer(len); 16]).unwrap();
            bench.submit_into(into, (number * 16 * len) as u64).unwrap();
        }
        assert_eq!(bench.ring.batch.len, 0, "buffers of {len} bytes");
    }
}

#[test]
fn transfers_that_continue_each_other_wait_as_long_as_more_of_them_come() {
    let Some(mut bench) = Bench::new() else { return };
    for at in 0..4 {
        bench.submit_at(2 * at).unwrap();
        bench.submit_at(2 * at + 1).unwrap();
        assert_eq!(bench.queued_after_reap() as u64, 2 * at + 2);
    }
    assert_eq!(bench.queued_after_reap(), 0, "no more has come");
}

#[test]
fn transfers_that_continue_each_other_wait_no_longer_than_gathering_takes() {
    let Some(mut bench) = Bench::new() else { return };
    bench.submit_at(0).unwrap();
    bench.submit_at(1).unwrap();
    assert_eq!(bench.queued_after_reap(), 2);
    bench.submit_at(2).unwrap();

    bench.advance(GATHERING_MAX);

    assert_eq!(bench.queued_after_reap(), 0);
}

#[test]
fn who_continues_nothing_does_not_wait_for_those_that_do() {
    let Some(mut bench) = Bench::new() else { return };
    for _ in 0..BATCH_LEN {
        bench.submit().unwrap();
    }
    bench.advance(HELD_MAX);
    bench.queued_after_reap();
    for first in [1000, 20] {
        bench.submit_at(first).unwrap();
        bench.submit_at(first + 10).unwrap();
        bench.submit_at(first + 11).unwrap();
        assert_eq!(bench.queued_after_reap(), 3);
        bench.advance(HELD_MAX);
        assert_eq!(bench.queued_after_reap(), 0, "begins with one by itself");
    }
    for at in 60..68 {
        bench.submit_at(at).unwrap();
    }
    bench.submit_at(7).unwrap();
    bench.advance(HELD_MAX);
    assert_eq!(bench.queued_after_reap(), 0, "ends with one by itself");
}

#[test]
fn short_transfers_that_continue_each_other_are_one_entry() {
    let Some(mut bench) = Bench::new() else { return };
    for at in 0..4 {
        bench.submit_at(at).unwrap();
    }
    bench.ring.close_run();

    assert_eq!((bench.ring.batch.len, bench.ring.queued()), (4, 1));
}

#[test]
fn blocking_submits_everything() {
    let Some(mut bench) = Bench::new() else { return };
    bench.submit().unwrap();
    bench.queued_after_reap();
    bench.submit().unwrap();

    assert_eq!(bench.ring.arm(), Armed::Waits);

    assert!(bench.ring.wait(Some(Duration::ZERO)));

    assert_eq!(bench.ring.batch.len, 0);
}

#[test]
fn a_ready_descriptor_ends_a_wait_for_operations_and_is_found() {
    let Some(mut bench) = Bench::new() else { return };
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    bench.events.add_fd(&read, 7).unwrap();
    bench.submit().unwrap();
    for _ in 0..3 {
        rustix::io::write(&write, b"x").unwrap();

        assert!(bench.ring.wait(Some(Duration::from_secs(60))));

        bench.queued_after_reap();
        assert_eq!(bench.events.pop(), Some(7));
        rustix::io::read(&read, &mut [0; 1]).unwrap();
    }
}

#[test]
fn a_wait_for_longer_than_the_kernel_counts_does_not_end_at_once() {
    let Some(mut bench) = Bench::new() else { return };
    bench.submit().unwrap();
    for timeout in [Duration::from_nanos(u64::MAX), Duration::MAX] {
        let (unparker, is_rung) = (bench.events.unparker(), Arc::new(AtomicBool::new(false)));
        let rings = Arc::clone(&is_rung);
        let other = thread::spawn(move || {
            rings.store(true, Ordering::Relaxed);
            unparker.unpark();
        });
        assert!(bench.ring.wait(Some(timeout)));
        assert!(is_rung.load(Ordering::Relaxed), "after {timeout:?}");
        other.join().unwrap();
        bench.queued_after_reap();
    }
}

#[test]
fn a_full_ring_refuses_and_hands_the_operation_back() {
    let Some(mut bench) = Bench::new() else { return };
    for _ in 0..IN_FLIGHT_MAX {
        bench.submit().unwrap();
    }
    let refused = bench.submit().expect_err("full");
    assert!(matches!(refused, Operation::Read { .. }));
}

#[test]
fn what_the_kernel_does_not_give_back_stays_its_own() {
    let Some(mut bench) = Bench::new() else { return };
    let (file, mut into) = (bench.read.clone(), Heap::buffer(1));
    let read = Operation::Read { file: file.clone(), at: 0, into: into.clone().into() };
    let fetch = Operation::Fetch { file, at: 0, len: 1 };
    for operation in [read, fetch] {
        bench.ring.submit(operation, Token(0)).unwrap();
    }
    let mut sink = bench.ring.sink.clone();

    bench.ring.abandon();
    drop(bench);

    assert!(!into.is_sole() && !sink.is_sole());
}

#[test]
fn what_the_kernel_cancels_is_left_to_another_engine() {
    let Some(mut bench) = Bench::new() else { return };
    bench.submit_at(0).unwrap();
    bench.submit_at(7).unwrap();
    bench.ring.enter();
    bench.ring.cancel_all();
    while bench.ring.unserved.len() < 2 {
        bench.ring.wait(Some(Duration::from_secs(60)));
        assert_eq!(bench.ring.reap(16, &mut |_, _| {}), 0);
    }
    assert!(bench.ring.in_flight.is_empty());
}

#[test]
fn what_is_interrupted_or_would_block_is_left_to_another_engine() {
    for errno in [libc::EINTR, libc::EAGAIN] {
        let Some(mut bench) = Bench::new() else { return };
        bench.submit().unwrap();
        let (key, _) = bench.ring.open.take().expect("not queued yet");
        let InFlight { run, .. } = bench.ring.in_flight.remove(key);

        bench.ring.finish(run, -errno, &mut |_, _| panic!("nothing to report"));

        assert_eq!(bench.ring.unserved.len(), 1);
    }
}
