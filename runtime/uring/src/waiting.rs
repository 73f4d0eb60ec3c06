//! The table between completions and the futures that wait for them.

use std::{
    cell::RefCell,
    io, mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use executor::Credit;
use slab::Slab;

use crate::engine::Token;

/// Futures that wait, and results not yet fetched. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Rc<RefCell<Slab<State>>>);

#[derive(Debug)]
enum State {
    /// Submitted; the future, once polled, left a waker.
    InFlight(Option<Waker>),
    /// Submitted; nobody waits any more.
    Detached,
    /// Reaped; the future has not been polled since.
    Done(io::Result<u64>),
}

impl Waiting {
    /// Opens an entry for an operation about to be submitted.
    pub(crate) fn open(&self, right: Option<Credit>) -> Completion {
        let key = self.0.borrow_mut().insert(State::InFlight(None));
        Completion { waiting: self.clone(), key, right, open: true }
    }

    /// Stores the result of a reaped operation and wakes its future.
    pub(crate) fn complete(&self, token: Token, result: io::Result<u64>) {
        let Ok(key) = usize::try_from(token.0) else { return };
        let mut table = self.0.borrow_mut();
        let Some(state) = table.get_mut(key) else { return };
        match mem::replace(state, State::Done(result)) {
            State::InFlight(Some(waker)) => waker.wake(),
            State::InFlight(None) | State::Done(_) => {}
            State::Detached => drop(table.remove(key)),
        }
    }
}

/// Waits for the completion of one submitted operation. Dropping it detaches the operation.
#[derive(Debug)]
pub(crate) struct Completion {
    waiting: Waiting,
    key: usize,
    /// The right to be in flight, if the operation needs one.
    right: Option<Credit>,
    /// The entry is in the table.
    open: bool,
}

impl Completion {
    pub(crate) fn token(&self) -> Token {
        Token(self.key as u64)
    }

    /// Closes the entry of an operation that is not in flight, and returns its right.
    pub(crate) fn close(mut self) -> Option<Credit> {
        self.waiting.0.borrow_mut().try_remove(self.key);
        self.open = false;
        self.right.take()
    }
}

impl Future for Completion {
    type Output = io::Result<u64>;

    /// # Panics
    ///
    /// Panics when polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        assert!(self.open, "a completion is fetched once");
        let this = &mut *self;
        let mut table = this.waiting.0.borrow_mut();
        if let Some(State::InFlight(waker)) = table.get_mut(this.key) {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        this.open = false;
        match table.try_remove(this.key) {
            Some(State::Done(result)) => Poll::Ready(result),
            _ => unreachable!("an open entry is in flight or done"),
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let mut table = self.waiting.0.borrow_mut();
        match table.get_mut(self.key) {
            Some(state @ State::InFlight(_)) => *state = State::Detached,
            _ => drop(table.try_remove(self.key)),
        }
    }
}
