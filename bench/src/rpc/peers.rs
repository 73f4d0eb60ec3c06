//! Servers on other runtimes, as their own documentation would have them written.
//!
//! Built with the feature `peers` alone, since they bring some eighty crates: `make bench` does.

pub(super) mod compio;
pub(super) mod glommio;
pub(super) mod tokio;

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use super::packet::Run;
use crate::meter::{Meter, Sample};

const PAGE: usize = 4096;

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

/// Buffers that begin at a page, as O_DIRECT wants them, to be used again.
#[derive(Default)]
struct Spares(RefCell<Vec<Vec<u8>>>);

impl Spares {
    /// A buffer, and where in it the page begins.
    fn take(&self, size: usize) -> (Vec<u8>, usize) {
        let spare = self.0.borrow_mut().pop();
        let buffer = spare.unwrap_or_else(|| vec![0; size + PAGE]);
        let start = buffer.as_ptr().align_offset(PAGE);
        (buffer, start)
    }

    fn give_back(&self, buffer: Vec<u8>) {
        self.0.borrow_mut().push(buffer);
    }
}
