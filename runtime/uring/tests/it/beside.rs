//! A read by io_uring beside a task that is always ready and a stream that is always busy.
//!
//! A device takes its own time. What counts are the slices from when it is done until the task that
//! reads goes on: the visit after the first reaps the read, the second polls the task. So a test
//! has to know when the device is done, without a turn of the executor: a pipe is when the test
//! writes to it.

use std::{
    cell::Cell,
    fs,
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    rc::Rc,
    sync::atomic::Ordering,
    time::Instant,
};

use executor::{Class, Clock, ManualClock, yield_now};
use rustix::{
    fs::OFlags,
    pipe::{PipeFlags, pipe_with},
};
use uring::{Buffer, Buffers, Choice, File, Heap, SystemClock};

use crate::{
    sockets::Net,
    support::{Core, DEADLINE, dirs},
};

const LEN: usize = 4096;
const READS: usize = 100;
/// The task that is always ready, and the two ends of the stream.
const OTHERS: u64 = 3;
/// Bound for events that never come.
const SLICES_MAX: u64 = 10_000;

/// As `O_DIRECT` wants it.
#[repr(align(4096))]
struct Block([u8; LEN]);

/// An executor with a ring that always has something else to do, and what has been received so far.
/// `None` where io_uring is forbidden.
fn busy(clock: Rc<dyn Clock>) -> Option<(Net, Rc<Cell<usize>>)> {
    let core = Core::with_clock(clock, Choice::Uring, 1);
    let engines = core.engines.describe();
    if !engines.starts_with("io_uring") {
        skip(&engines);
        return None;
    }
    let mut net = Net::with(core);
    let mut listener = net.tcp_listener();
    let [mut ours, mut theirs] = net.pair(&mut listener);
    let handle = net.core.executor.handle();
    handle.spawn(Class::Latency, async {
        loop {
            yield_now().await;
        }
    });
    handle.spawn(Class::Latency, async move {
        let bytes: Vec<Buffer> = (0..64).map(|_| Heap::buffer(64 << 10)).collect();
        while ours.send_all(bytes.clone()).await.is_ok() {}
    });
    let received = Rc::new(Cell::new(0_usize));
    let count = Rc::clone(&received);
    handle.spawn(Class::Latency, async move {
        let into = Buffers::from(Heap::buffer(1 << 20));
        while let Ok(len @ 1..) = theirs.receive(&into).await {
            count.set(count.get() + len);
        }
    });
    while received.get() == 0 {
        net.core.executor.turn();
    }
    Some((net, received))
}

/// Slices from when `device` has returned, which is after the ring was given a read, until the task
/// that reads has gone on.
fn slices(net: &mut Net, file: &File, device: impl FnOnce(&Buffer)) -> u64 {
    let (executor, engines) = (&mut net.core.executor, &net.core.engines);
    let (into, done) = (Heap::buffer(LEN), Rc::new(Cell::new(false)));
    let (read, is_done) = (engines.read(file, 0, into.clone().into()), Rc::clone(&done));
    executor.handle().spawn(Class::Latency, async move {
        assert_eq!(read.await.expect("no error"), LEN);
        is_done.set(true);
    });
    let before = engines.counters();
    let given = (0..SLICES_MAX).any(|_| {
        executor.turn();
        engines.counters().ring > before.ring
    });
    assert!(given && engines.counters().inline == before.inline, "it is not the ring's");
    assert!(!done.get(), "no slice has begun since");

    device(&into);

    let count = (1..=SLICES_MAX).find(|_| {
        executor.turn();
        done.get()
    });
    count.expect("it goes on some time")
}

/// The visit that reaps it is after the first slice.
#[test]
fn a_read_beside_a_ready_task_and_a_busy_stream_goes_on_within_two_slices_of_the_device() {
    // Where time stands still a slice has so many polls, and all that was woken before it is in it.
    reads_of_a_pipe_go_on_within(Rc::new(ManualClock::new()), 2);
}

/// A poll of the stream may take longer than a slice, which then has no other.
#[test]
fn a_read_waits_for_one_slice_of_each_other_task_at_most() {
    reads_of_a_pipe_go_on_within(Rc::new(SystemClock), 2 + OTHERS);
}

fn reads_of_a_pipe_go_on_within(clock: Rc<dyn Clock>, slices_max: u64) {
    let Some((mut net, received)) = busy(clock) else { return };
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("descriptors");
    let (file, mut write) = (File::new(read).expect("a pipe"), fs::File::from(write));
    let before = received.get();
    for _ in 0..READS {
        let slices = slices(&mut net, &file, |_| write.write_all(&[7; LEN]).expect("has room"));
        assert!(slices <= slices_max, "{slices} slices");
    }
    assert!(received.get() > before, "the stream stands still");
}

/// Of a disk the bytes are known to be there, and that what was asked for later is done; what tells
/// the kernel of them may still be on its way to another core. So not every read counts.
#[test]
fn most_reads_of_a_disk_go_on_within_two_slices_of_the_device() {
    let Some((mut net, _)) = busy(Rc::new(ManualClock::new())) else { return };
    let dir = dirs().swap_remove(0);
    let path = dir.path().join("direct");
    fs::write(&path, [7; LEN]).expect("has room");
    let flags = i32::try_from(OFlags::DIRECT.bits()).expect("fits");
    let disk = match fs::File::options().read(true).custom_flags(flags).open(path) {
        Ok(disk) => disk,
        Err(error) => return skip(&format!("O_DIRECT in {}: {error}", dir.path().display())),
    };
    let file = File::new(disk.try_clone().expect("a descriptor").into()).expect("a file");
    let reads = (0..READS).filter(|_| {
        let slices = slices(&mut net, &file, |into| {
            let end = Instant::now() + DEADLINE;
            while into.bytes().last().expect("not empty").load(Ordering::Acquire) != 7 {
                assert!(Instant::now() < end, "the device does nothing");
            }
            disk.read_exact_at(&mut Block([0; LEN]).0, 0).expect("aligned");
        });
        slices <= 2
    });
    let count = reads.count();
    assert!(count > READS / 2, "{count} of {READS}");
}

fn skip(why: &str) {
    let line = format!("1 SKIPPED: reads by io_uring beside others: {why}\n");
    io::stderr().write_all(line.as_bytes()).expect("standard error");
}
