//! Messages between executors: a box per executor, and a reply to a message.
//!
//! Both wake the receiving async task, on whatever thread it is; the mutex orders the value before
//! the wake. Boxes have no bound of their own: whoever sends waits for a reply, and requests,
//! connections, and sessions are bounded.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::Arc,
    task::{Poll, Waker},
};

use crate::sync::{Mutex, lock};

/// A box that any thread may put into.
#[derive(Debug)]
pub struct Mailbox<T>(Mutex<State<T>>);

#[derive(Debug)]
struct State<T> {
    queue: VecDeque<T>,
    waker: Option<Waker>,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Mailbox<T> {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self(Mutex::new(State { queue: VecDeque::new(), waker: None }))
    }

    /// Puts a message in and wakes the receiver.
    pub fn send(&self, message: T) {
        let mut state = lock(&self.0);
        state.queue.push_back(message);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the oldest message, waiting for one. For one task at a time.
    pub async fn receive(&self) -> T {
        poll_fn(|context| {
            let mut state = lock(&self.0);
            if let Some(message) = state.queue.pop_front() {
                return Poll::Ready(message);
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// The sending end of one reply. Dropped without a reply, it tells the waiting side so.
#[derive(Debug)]
pub struct Reply<T>(Arc<Mailbox<Option<T>>>, bool);

/// The waiting end of one reply.
#[derive(Debug)]
pub struct Waiting<T>(Arc<Mailbox<Option<T>>>);

/// A reply to come.
pub fn reply<T>() -> (Reply<T>, Waiting<T>) {
    let shared = Arc::new(Mailbox::new());
    (Reply(Arc::clone(&shared), false), Waiting(shared))
}

impl<T> Reply<T> {
    /// Replies.
    pub fn send(mut self, value: T) {
        self.1 = true;
        self.0.send(Some(value));
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.send(None);
        }
    }
}

impl<T> Waiting<T> {
    /// Waits for the reply; `None` when nobody will give one.
    pub async fn receive(self) -> Option<T> {
        self.0.receive().await
    }
}
