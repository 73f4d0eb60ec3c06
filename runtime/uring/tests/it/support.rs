//! An executor that parks in epoll, files, and waiting with a deadline.

use std::{
    fs,
    future::Future,
    io,
    os::fd::OwnedFd,
    pin::{Pin, pin},
    rc::Rc,
    sync::atomic::Ordering,
    task::{Context, Poll, Waker},
    time::Duration,
};

use executor::{Clock, Config, Executor, Handle, Sleep};
use uring::{Buffer, Choice, Engines, Events, File, Heap, Sockets, SystemClock};

/// Every way to choose engines.
pub(crate) const CHOICES: [Choice; 3] = [Choice::Auto, Choice::Uring, Choice::Threads];

/// The longest any test waits for one thing.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// One core with its engines.
pub(crate) struct Core {
    pub(crate) executor: Executor,
    pub(crate) engines: Engines,
    events: Events,
}

impl Core {
    pub(crate) fn new(choice: Choice, thread_count: usize) -> Self {
        Self::with_clock(Rc::new(SystemClock), choice, thread_count)
    }

    /// With a clock that stands still, slices end by their number of polls alone.
    pub(crate) fn with_clock(clock: Rc<dyn Clock>, choice: Choice, thread_count: usize) -> Self {
        let events = Events::new().expect("epoll");
        let parker = Box::new(events.parker());
        let executor = Executor::new(clock, parker, Config::default());
        let engines = Engines::new(&executor.handle(), choice, thread_count, &events);
        Self { executor, engines, events }
    }

    /// Sockets of this core.
    pub(crate) fn sockets(&self) -> Sockets {
        Sockets::new(&self.executor.handle(), &self.events, &self.engines).expect("epoll")
    }

    /// One that gives everything to io_uring; `None` where that is forbidden.
    pub(crate) fn with_ring() -> Option<Self> {
        let core = Self::new(Choice::Uring, 1);
        core.engines.describe().starts_with("io_uring").then_some(core)
    }

    /// Runs `future`, which must be ready before the deadline.
    pub(crate) fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let handle = self.executor.handle();
        self.executor.run_until(deadline(&handle, future))
    }

    /// Gives what was submitted the time to go wrong.
    pub(crate) fn turn_a_while(&mut self) {
        let handle = self.executor.handle();
        self.run(handle.sleep(Duration::from_millis(20)));
    }

    /// Goes on until `condition` holds, which must be before the deadline.
    pub(crate) fn turn_until(&mut self, condition: impl Fn() -> bool) {
        let handle = self.executor.handle();
        self.run(async {
            while !condition() {
                handle.sleep(Duration::from_millis(1)).await;
            }
        });
    }
}

/// Polls once, as a task would whose future is then dropped.
pub(crate) fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

async fn deadline<T>(handle: &Handle, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut sleep: Pin<&mut Sleep> = pin!(handle.sleep(DEADLINE));
    std::future::poll_fn(|context: &mut Context<'_>| {
        assert!(sleep.as_mut().poll(context).is_pending(), "not ready before the deadline");
        future.as_mut().poll(context)
    })
    .await
}

pub(crate) fn open(dir: &tempfile::TempDir, name: &str) -> io::Result<File> {
    let path = dir.path().join(name);
    let file =
        fs::File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    File::new(OwnedFd::from(file))
}

/// Folders on a disk and in memory.
pub(crate) fn dirs() -> Vec<tempfile::TempDir> {
    let mut dirs = vec![tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("disk")];
    dirs.extend(tempfile::tempdir_in("/dev/shm"));
    dirs
}

pub(crate) fn buffer(content: &[u8]) -> Buffer {
    let buffer = Heap::buffer(content.len());
    for (byte, value) in buffer.bytes().iter().zip(content) {
        byte.store(*value, Ordering::Relaxed);
    }
    buffer
}

pub(crate) fn fill(buffer: &Buffer, value: u8) {
    buffer.bytes().iter().for_each(|byte| byte.store(value, Ordering::Relaxed));
}

pub(crate) fn content(buffer: &Buffer) -> Vec<u8> {
    buffer.bytes().iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
}
