//! A server on another runtime, as its own documentation would have it written.
//!
//! Built with the feature `peers` alone, since it brings some sixty crates: `make bench` does.

pub(super) mod glommio;

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use super::packet::Run;
use crate::meter::{Meter, Sample};

/// State shared by the tasks of one server.
struct Shared {
    meter: Meter,
    run: Run,
    served: Cell<u64>,
    /// Credits to return to the client.
    owed: Cell<u64>,
    waiting: RefCell<Option<Waker>>,
}

impl Shared {
    fn new(run: &Run) -> Rc<Self> {
        let (served, owed) = (Cell::new(0), Cell::new(u64::from(run.depth)));
        let (meter, run) = (Meter::new(run.count), run.clone());
        Rc::new(Self { meter, run, served, owed, waiting: RefCell::default() })
    }

    /// Notes that one more packet is in the file.
    fn serve(&self) {
        self.served.set(self.served.get() + 1);
        self.meter.served(self.served.get());
        self.owed.set(self.owed.get() + 1);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// The next answer; `None` after the last.
    async fn answer(&self) -> Option<[u8; 8]> {
        poll_fn(|context| {
            let owed = self.owed.take();
            if owed == 0 && self.served.get() < self.run.count {
                *self.waiting.borrow_mut() = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready((owed > 0).then(|| owed.to_le_bytes()))
        })
        .await
    }

    fn sample(&self) -> Sample {
        self.meter.sample()
    }
}
