//! Descriptors that async tasks wait for: the control sockets and the processes behind them.
//!
//! Readiness is level-triggered: a task that is woken reads until nothing is left, and a
//! [`Watch`] that is dropped is forgotten by the kernel too.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use executor::{Armed, Handle, Notify, Source};
use uring::Events;

use crate::seldom::Seldom;

/// An executor that is kept busy looks at its sockets this often.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// The watched descriptors of one executor. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Reactor(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    events: Events,
    watches: RefCell<HashMap<u64, Rc<State>>>,
    next_key: Cell<u64>,
}

#[derive(Debug)]
struct State {
    is_ready: Cell<bool>,
    news: Notify,
}

impl Reactor {
    /// Puts the descriptors on the poll list of `handle`'s executor, which parks in `events`.
    pub(crate) fn new(handle: &Handle, events: Events) -> Self {
        let (watches, next_key) = (RefCell::default(), Cell::new(0));
        let reactor = Self(Rc::new(Inner { events, watches, next_key }));
        let look = Seldom::new(handle, LOOK_EVERY);
        handle.add_source(Box::new(Descriptors { reactor: reactor.clone(), look }));
        reactor
    }

    /// Watches `fd`, and signals `news` whenever it is ready.
    pub(crate) fn watch(&self, fd: Rc<OwnedFd>, news: &Notify) -> io::Result<Watch> {
        let key = self.0.next_key.get();
        self.0.next_key.set(key + 1);
        self.0.events.add_fd(&fd, key)?;
        let state = Rc::new(State { is_ready: Cell::new(false), news: news.clone() });
        self.0.watches.borrow_mut().insert(key, Rc::clone(&state));
        Ok(Watch { reactor: self.clone(), key, fd, state })
    }
}

/// A watched descriptor.
#[derive(Debug)]
pub(crate) struct Watch {
    reactor: Reactor,
    key: u64,
    fd: Rc<OwnedFd>,
    state: Rc<State>,
}

impl Watch {
    /// Whether, since the last call, the descriptor could be read or its other side was gone.
    pub(crate) fn take_ready(&self) -> bool {
        self.state.is_ready.take()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.reactor.0.watches.borrow_mut().remove(&self.key);
        // A descriptor that was added can be removed.
        self.reactor.0.events.remove_fd(self.fd.as_fd(), self.key).ok();
    }
}

/// The poll list's view of the descriptors.
struct Descriptors {
    reactor: Reactor,
    look: Seldom,
}

impl Source for Descriptors {
    fn poll(&mut self, budget: usize) -> usize {
        let inner = &self.reactor.0;
        if !inner.events.has_ready() {
            if !self.look.is_due() {
                return 0;
            }
            inner.events.look();
        }
        let mut count = 0;
        while count < budget {
            let Some(key) = inner.events.pop() else { break };
            if let Some(state) = inner.watches.borrow().get(&key) {
                state.is_ready.set(true);
                state.news.notify_all();
            }
            count += 1;
        }
        count
    }

    fn arm(&mut self) -> Armed {
        if self.reactor.0.events.has_ready() { Armed::Busy } else { Armed::Waits }
    }

    fn disarm(&mut self) {}
}
