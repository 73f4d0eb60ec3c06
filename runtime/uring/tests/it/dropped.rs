//! An operation whose future is dropped goes on, and keeps what it owns until it is reaped.

use std::{
    fs::File as StdFile,
    future::Future,
    io::{Read, Write},
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    sync::{Arc, mpsc},
    time::Instant,
};

use rustix::pipe::{PipeFlags, pipe_with};
use uring::{Buffer, Choice, File, Heap};

use crate::support::{Core, DEADLINE, content, dirs, open, poll};

const LEN: usize = 4096;

/// Memory that tells who else holds it.
struct Watched(Arc<Heap>);

impl Watched {
    fn filled(byte: u8) -> Self {
        let memory = Self(Arc::new(Heap::new(LEN)));
        crate::support::fill(&memory.buffer(), byte);
        memory
    }

    fn buffer(&self) -> Buffer {
        Buffer::new(self.0.clone(), 0, LEN).expect("whole")
    }

    fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// Submits an operation and drops its future.
fn start_and_drop<T>(future: impl Future<Output = T>) {
    let mut future: Pin<Box<_>> = Box::pin(future);
    assert!(poll(future.as_mut()).is_pending());
}

/// Keeps the only engine thread busy until the sender is dropped.
fn block_threads(core: &mut Core) -> mpsc::Sender<()> {
    let (sender, blocked) = mpsc::channel::<()>();
    start_and_drop(core.engines.call(move || {
        blocked.recv().expect_err("never sent to");
        Ok(0)
    }));
    sender
}

/// Dropped operations have given back their right to be in flight, but not their room.
#[test]
fn an_operation_waits_for_room_that_dropped_ones_have() {
    let mut core = Core::new(Choice::Threads, 1);
    let gate = block_threads(&mut core);
    (1..1024).for_each(|_| start_and_drop(core.engines.call(|| Ok(0))));
    let engines = core.engines.clone();
    let mut last = Box::pin(engines.call(|| Ok(7)));
    assert!(poll(last.as_mut()).is_pending());
    drop(gate);
    assert_eq!(core.run(last).expect("room"), 7);
}

fn pipe() -> (File, OwnedFd) {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("descriptors");
    (File::new(read).expect("a pipe"), write)
}

#[test]
fn dropped_read_keeps_its_buffer_in_the_ring() {
    let Some(mut core) = Core::with_ring() else { return };
    let (memory, (file, write)) = (Watched::filled(0), pipe());
    start_and_drop(core.engines.read(&file, 0, memory.buffer().into()));
    core.turn_a_while();
    assert!(memory.is_held());

    StdFile::from(write).write_all(&[7; LEN]).expect("fits in a pipe");
    core.turn_until(|| !memory.is_held());

    assert_eq!(content(&memory.buffer()), [7; LEN]);
}

#[test]
fn dropped_write_keeps_its_buffer_in_the_ring() {
    let Some(mut core) = Core::with_ring() else { return };
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("descriptors");
    let full = rustix::pipe::fcntl_getpipe_size(&write).expect("a pipe");
    StdFile::from(write.try_clone().expect("one more")).write_all(&vec![0; full]).expect("fits");
    let memory = Watched::filled(7);
    let file = File::new(write).expect("a pipe");
    start_and_drop(core.engines.write(&file, 0, memory.buffer().into()));
    core.turn_a_while();
    assert!(memory.is_held());

    let mut taken = vec![0; full + LEN];
    let mut read = StdFile::from(read);
    read.read_exact(taken.get_mut(..full).expect("shorter")).expect("written before");
    core.turn_until(|| !memory.is_held());

    read.read_exact(taken.get_mut(..LEN).expect("shorter")).expect("written by the ring");
    assert!(taken.starts_with(&[7; LEN]));
}

#[test]
fn dropped_sync_keeps_its_descriptor_in_the_ring() {
    let Some(mut core) = Core::with_ring() else { return };
    let file = open(dirs().first().expect("disk"), "data").expect("created");
    start_and_drop(core.engines.sync(&file, false));
    assert!(Arc::strong_count(file.fd()) > 1);

    core.turn_until(|| Arc::strong_count(file.fd()) == 1);
}

#[test]
fn dropped_fetch_keeps_its_descriptor_in_the_ring() {
    let Some(mut core) = Core::with_ring() else { return };
    let (file, write) = pipe();
    start_and_drop(core.engines.fetch(&file, 0, LEN));
    core.turn_a_while();
    assert!(Arc::strong_count(file.fd()) > 1);

    drop(write); // The end of the file.
    core.turn_until(|| Arc::strong_count(file.fd()) == 1);
}

#[test]
fn dropped_read_keeps_its_buffer_on_a_thread() {
    let mut core = Core::new(Choice::Threads, 1);
    let file = open(dirs().first().expect("disk"), "data").expect("created");
    StdFile::from(file.as_fd().try_clone_to_owned().expect("one more"))
        .write_all(&[7; LEN])
        .expect("room");
    let (blocker, memory) = (block_threads(&mut core), Watched::filled(0));
    start_and_drop(core.engines.read(&file, 0, memory.buffer().into()));
    core.turn_a_while();
    assert!(memory.is_held());

    drop(blocker);
    core.turn_until(|| !memory.is_held());

    assert_eq!(content(&memory.buffer()), [7; LEN]);
}

#[test]
fn dropped_write_keeps_its_buffer_on_a_thread() {
    let mut core = Core::new(Choice::Threads, 1);
    let file = open(dirs().first().expect("disk"), "data").expect("created");
    let (blocker, memory) = (block_threads(&mut core), Watched::filled(7));
    start_and_drop(core.engines.write(&file, 0, memory.buffer().into()));
    core.turn_a_while();
    assert!(memory.is_held());

    drop(blocker);
    core.turn_until(|| !memory.is_held());

    let mut written = Vec::new();
    let mut reader = StdFile::from(file.as_fd().try_clone_to_owned().expect("one more"));
    reader.read_to_end(&mut written).expect("readable");
    assert_eq!(written, [7; LEN]);
}

#[test]
fn dropped_sync_and_fetch_keep_their_descriptor_on_a_thread() {
    let mut core = Core::new(Choice::Threads, 1);
    let file = open(dirs().first().expect("disk"), "data").expect("created");
    let blocker = block_threads(&mut core);
    start_and_drop(core.engines.sync(&file, true));
    assert_eq!(Arc::strong_count(file.fd()), 2);
    start_and_drop(core.engines.fetch(&file, 0, LEN));
    core.turn_a_while();
    assert_eq!(Arc::strong_count(file.fd()), 3);

    drop(blocker);
    core.turn_until(|| Arc::strong_count(file.fd()) == 1);
}

#[test]
fn dropped_call_keeps_what_it_captured_and_runs() {
    let mut core = Core::new(Choice::Auto, 1);
    let (blocker, captured) = (block_threads(&mut core), Arc::new(()));
    let (ran, held) = (mpsc::channel(), captured.clone());
    start_and_drop(core.engines.call(move || {
        drop(held);
        ran.0.send(()).map_err(std::io::Error::other)?;
        Ok(0)
    }));
    core.turn_a_while();
    assert_eq!(Arc::strong_count(&captured), 2);

    drop(blocker);
    ran.1.recv_timeout(DEADLINE).expect("the call ran");
    core.turn_until(|| Arc::strong_count(&captured) == 1);
}

#[test]
fn closing_the_ring_waits_until_the_kernel_holds_nothing() {
    let Some(mut core) = Core::with_ring() else { return };
    let (memory, (file, _write)) = (Watched::filled(0), pipe());
    start_and_drop(core.engines.read(&file, 0, memory.buffer().into()));
    core.turn_a_while();
    assert!(memory.is_held());

    let start = Instant::now();
    drop(core);

    assert!(!memory.is_held());
    assert!(start.elapsed() < DEADLINE, "a cancelled read ends at once");
}

#[test]
fn a_file_is_closed_by_the_last_who_has_it() {
    let mut core = Core::new(Choice::Auto, 1);
    let (file, write) = pipe();
    let engines = core.engines.clone();
    core.run(engines.close(file.clone(), true)).expect("nothing to close yet");
    rustix::io::write(&write, b"x").expect("a reader is left");
    core.run(engines.close(file, true)).expect("closed");
    assert_eq!(rustix::io::write(&write, b"x"), Err(rustix::io::Errno::PIPE));
}
