//! Writes that make a stream longer, and are under way together: it gets longer in the order of
//! their places. Else whoever dies between them would leave a hole before the last bytes.

use std::cell::RefCell;

use executor::Notify;

/// Where the writes under way begin that make one stream longer.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    starts: RefCell<Vec<u64>>,
    over: Notify,
}

/// One of them, until it is dropped.
pub(super) struct Extension<'a> {
    all: &'a Extensions,
    start: u64,
}

impl Extensions {
    /// Begins a write at `start`.
    pub(super) fn begin(&self, start: u64) -> Extension<'_> {
        self.starts.borrow_mut().push(start);
        Extension { all: self, start }
    }
}

impl Extension<'_> {
    /// Waits until no write is under way that begins before this one.
    pub(super) async fn turn(&self) {
        let Self { all, start } = self;
        let is_first = || all.starts.borrow().iter().all(|other| other >= start);
        all.over.until(is_first).await;
    }
}

impl Drop for Extension<'_> {
    fn drop(&mut self) {
        let mut starts = self.all.starts.borrow_mut();
        let place = starts.iter().position(|start| *start == self.start);
        debug_assert!(place.is_some(), "a write is there until it is over");
        if let Some(place) = place {
            starts.swap_remove(place);
        }
        drop(starts);
        self.all.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    #[test]
    fn write_waits_for_those_that_begin_before_it() {
        let extensions = Extensions::default();
        let mut context = Context::from_waker(Waker::noop());
        let [first, second, third] = [10, 20, 20].map(|start| extensions.begin(start));
        {
            let (mut one, mut other) = (pin!(second.turn()), pin!(third.turn()));
            assert_eq!(one.as_mut().poll(&mut context), Poll::Pending);
            assert_eq!(pin!(first.turn()).poll(&mut context), Poll::Ready(()));
            drop(first);
            // At the same place nobody is before the other.
            assert_eq!(one.as_mut().poll(&mut context), Poll::Ready(()));
            assert_eq!(other.as_mut().poll(&mut context), Poll::Ready(()));
        }
        drop((second, third));
        assert!(extensions.starts.borrow().is_empty());
    }
}
