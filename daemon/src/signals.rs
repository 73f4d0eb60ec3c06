//! SIGTERM and SIGINT as something an executor can wait for, and SIGXFSZ as nothing at all.

use std::{
    cell::Cell,
    io::{self, Read},
    os::{fd::OwnedFd, unix::net::UnixStream},
    rc::Rc,
    sync::Arc,
};

use executor::Notify;
use signal_hook::{
    SigId,
    consts::{SIGINT, SIGTERM, SIGXFSZ},
    flag,
    low_level::{pipe, unregister},
};
use uring::{Reactor, Watch};

/// Has calls that make a file longer than may be fail, as on a full disk, instead of ending the
/// daemon and with it the files of all its clients. That holds for segments, too.
pub(crate) fn survive_long_files() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// The signals that end a daemon, caught until dropped.
#[derive(Debug)]
pub(crate) struct Signals {
    caught: UnixStream,
    ids: Vec<SigId>,
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        let (caught, writer) = UnixStream::pair()?;
        caught.set_nonblocking(true)?;
        let mut signals = Self { caught, ids: Vec::new() };
        for signal in [SIGTERM, SIGINT] {
            signals.ids.push(pipe::register(signal, writer.try_clone()?)?);
        }
        Ok(signals)
    }

    /// Lets an executor wait for them.
    pub(crate) fn watch(&self, reactor: &Reactor) -> io::Result<Watched> {
        let news = Notify::new();
        let fd = Rc::new(OwnedFd::from(self.caught.try_clone()?));
        let watch = reactor.watch(fd, &news)?;
        Ok(Watched { caught: self.caught.try_clone()?, watch, news, count: Cell::new(0) })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            unregister(id);
        }
    }
}

/// Signals as an executor sees them.
#[derive(Debug)]
pub(crate) struct Watched {
    caught: UnixStream,
    watch: Watch,
    news: Notify,
    count: Cell<usize>,
}

impl Watched {
    /// Waits until this many signals have come, in all.
    pub(crate) async fn came(&self, count: usize) {
        self.news
            .until(|| {
                if self.watch.take_ready() {
                    let read = (&self.caught).read(&mut [0; 16]).unwrap_or_default();
                    self.count.set(self.count.get() + read);
                    self.news.notify_all(); // Another task may wait for a lower count.
                }
                self.count.get() >= count
            })
            .await;
    }
}
