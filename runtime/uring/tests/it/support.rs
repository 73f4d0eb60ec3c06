//! An executor that parks in epoll, files, and waiting with a deadline.

use std::{
    fs,
    future::Future,
    io,
    os::fd::OwnedFd,
    pin::{Pin, pin},
    rc::Rc,
    sync::atomic::Ordering,
    task::Context,
    time::Duration,
};

use executor::{Config, Executor, Handle, Sleep};
use uring::{Buffer, Choice, Engines, Events, File, Heap, SystemClock};

/// The longest any test waits for one thing.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// One core with its engines.
pub(crate) struct Core {
    pub(crate) executor: Executor,
    pub(crate) engines: Engines,
}

impl Core {
    pub(crate) fn new(choice: Choice, thread_count: usize) -> Self {
        Self::with_config(choice, thread_count, Config::default())
    }

    pub(crate) fn with_config(choice: Choice, thread_count: usize, config: Config) -> Self {
        let events = Events::new().expect("epoll");
        let parker = Box::new(events.parker());
        let executor = Executor::new(Rc::new(SystemClock), parker, config);
        let engines = Engines::new(&executor.handle(), choice, thread_count, &events);
        Self { executor, engines }
    }

    /// Runs `future`, which must be ready before the deadline.
    pub(crate) fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let handle = self.executor.handle();
        self.executor.run_until(deadline(&handle, future))
    }
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

pub(crate) fn content(buffer: &Buffer) -> Vec<u8> {
    buffer.bytes().iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
}
