//! The starter of a job's daemon.
//!
//! A daemon that waits for its server hears nothing from whoever is attached: that the starter was
//! killed meanwhile its end of a pipe tells.

use std::{os::fd::OwnedFd, rc::Rc};

use executor::Notify;
use uring::{Reactor, Watch};

/// The other end of the starter's pipe.
#[derive(Debug)]
pub(crate) struct Starter {
    watch: Watch,
    news: Notify,
}

impl Starter {
    /// Watches for the starter's end. `None` when `output` is no pipe, and tells of nobody.
    pub(crate) fn watch(output: &OwnedFd, reactor: &Reactor) -> Option<Self> {
        let news = Notify::new();
        let output = Rc::new(output.try_clone().ok()?);
        let watch = reactor.watch(output, &news).ok()?;
        Some(Self { watch, news })
    }

    /// Waits until the starter is gone.
    pub(crate) async fn gone(&self) {
        self.news.until(|| self.watch.take_ready()).await;
    }
}
