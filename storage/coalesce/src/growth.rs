//! Writes that make a stream longer, and are under way together: it gets longer in the order of
//! their places. Else whoever dies between them would leave a hole before the last bytes.

use std::cell::RefCell;

use executor::Notify;

/// Where the writes under way begin that make one stream longer.
#[derive(Debug, Default)]
pub(super) struct Growth {
    starts: RefCell<Vec<u64>>,
    over: Notify,
}

/// One of them, until it is dropped.
pub(super) struct Growing<'a> {
    growth: &'a Growth,
    start: u64,
}

impl Growth {
    /// Begins a write at `start`.
    pub(super) fn begin(&self, start: u64) -> Growing<'_> {
        self.starts.borrow_mut().push(start);
        Growing { growth: self, start }
    }
}

impl Growing<'_> {
    /// Waits until no write is under way that begins before this one.
    pub(super) async fn turn(&self) {
        let Self { growth, start } = self;
        let is_first = || growth.starts.borrow().iter().all(|other| other >= start);
        growth.over.until(is_first).await;
    }
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        let mut starts = self.growth.starts.borrow_mut();
        let place = starts.iter().position(|start| *start == self.start);
        debug_assert!(place.is_some(), "a write is there until it is over");
        if let Some(place) = place {
            starts.swap_remove(place);
        }
        drop(starts);
        self.growth.over.notify_all();
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
        let growth = Growth::default();
        let mut context = Context::from_waker(Waker::noop());
        let [first, second, third] = [10, 20, 20].map(|start| growth.begin(start));
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
        assert!(growth.starts.borrow().is_empty());
    }
}
