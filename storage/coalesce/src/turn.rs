//! Exclusive right of one async task at a time, on one executor.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

use executor::Notify;

/// The right to do what one task at a time may do, in the order in which they ask.
#[derive(Debug, Default)]
pub(super) struct Turn {
    is_taken: Cell<bool>,
    /// Numbers of those who wait; none is given twice.
    waiting: RefCell<VecDeque<u64>>,
    asked: Cell<u64>,
    given_back: Notify,
}

/// The turn, until it is dropped.
pub(super) struct Taken<'a>(&'a Turn);

/// A task that waits for the turn, or gives up when it is dropped.
struct Waiting<'a> {
    turn: &'a Turn,
    number: u64,
}

impl Turn {
    pub(super) fn is_free(&self) -> bool {
        !self.is_taken.get()
    }

    pub(super) async fn take(&self) -> Taken<'_> {
        let waiting = Waiting::begin(self);
        self.given_back.until(|| self.is_free() && waiting.is_first()).await;
        self.is_taken.set(true);
        Taken(self)
    }
}

impl<'a> Waiting<'a> {
    fn begin(turn: &'a Turn) -> Self {
        let number = turn.asked.get();
        turn.asked.set(number + 1);
        turn.waiting.borrow_mut().push_back(number);
        Self { turn, number }
    }

    fn is_first(&self) -> bool {
        self.turn.waiting.borrow().front() == Some(&self.number)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let was_first = self.is_first();
        self.turn.waiting.borrow_mut().retain(|number| *number != self.number);
        if was_first && self.turn.is_free() {
            self.turn.given_back.notify_all(); // It gave up, and the next one is first.
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.is_taken.set(false);
        self.0.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn is_given(asking: Pin<&mut impl Future>) -> bool {
        asking.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn turn_goes_to_who_has_asked_first() {
        let turn = Turn::default();
        let mut first = Box::pin(turn.take());
        let Poll::Ready(taken) = first.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        else {
            panic!("it was free")
        };
        let (mut second, mut third) = (Box::pin(turn.take()), pin!(turn.take()));
        assert!(!is_given(second.as_mut()) && !is_given(third.as_mut()));
        drop(taken);
        // Nobody passes the second, who has not been asked yet, until that gives up.
        assert!(!is_given(third.as_mut()) && !is_given(pin!(turn.take())));
        drop(second);
        assert!(is_given(third));
    }
}
