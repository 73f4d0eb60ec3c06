//! Descriptors that async tasks wait for: the control sockets and the processes behind them.
//!
//! Readiness is level-triggered: a task that is woken reads until nothing is left, and a [`Watch`]
//! that is dropped is forgotten by the kernel too. A descriptor that is found ready again before
//! its task has taken notice is muted until then: as long as a task waits for something else, such
//! as a server that takes what a pipe brings, what it leaves unread would end every park.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    rc::Rc,
    time::Duration,
};

use executor::{Armed, Handle, Notify, Periodic, Source};

use crate::parker::Events;

/// An executor that is kept busy looks at its sockets this often.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// The watched descriptors of one executor. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reactor(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    events: Events,
    watches: RefCell<HashMap<u64, Rc<State>>>,
    next_key: Cell<u64>,
}

#[derive(Debug)]
struct State {
    fd: Rc<OwnedFd>,
    notice: Cell<Notice>,
    news: Notify,
}

/// A descriptor's readiness, as its task knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    /// The task has taken notice of all there was.
    Taken,
    Found,
    /// It was found again before the task has taken notice, and is not reported until then.
    Muted,
}

impl Reactor {
    /// Puts the descriptors on the poll list of `handle`'s executor, which parks in `events`.
    pub fn new(handle: &Handle, events: Events) -> Self {
        let (watches, next_key) = (RefCell::default(), Cell::new(0));
        let reactor = Self(Rc::new(Inner { events, watches, next_key }));
        let look = Periodic::new(handle, LOOK_EVERY);
        handle.add_source(Box::new(Descriptors { reactor: reactor.clone(), look }));
        reactor
    }

    /// Watches `fd`, and signals `news` whenever it is ready.
    ///
    /// # Errors
    ///
    /// Those of `epoll_ctl`.
    pub fn watch(&self, fd: Rc<OwnedFd>, news: &Notify) -> io::Result<Watch> {
        let key = self.0.next_key.get();
        self.0.next_key.set(key + 1);
        self.0.events.add_fd(&fd, key)?;
        let notice = Cell::new(Notice::Taken);
        let state = Rc::new(State { fd, notice, news: news.clone() });
        self.0.watches.borrow_mut().insert(key, Rc::clone(&state));
        Ok(Watch { reactor: self.clone(), key, state })
    }

    /// Lets `fd` end parks until the result is dropped. It is a source of its own that reads it.
    ///
    /// # Errors
    ///
    /// Those of `epoll_ctl`.
    pub fn heed(&self, fd: OwnedFd) -> io::Result<Heeded> {
        self.0.events.add_silent_fd(&fd)?;
        Ok(Heeded { reactor: self.clone(), fd })
    }
}

/// A watched descriptor.
#[derive(Debug)]
pub struct Watch {
    reactor: Reactor,
    key: u64,
    state: Rc<State>,
}

/// A descriptor that ends parks.
#[derive(Debug)]
pub struct Heeded {
    reactor: Reactor,
    fd: OwnedFd,
}

impl Heeded {
    /// False if the last park ended without anything to read here: what comes later ends the next.
    #[must_use]
    pub fn may_have_ended_park(&self) -> bool {
        !self.reactor.0.events.was_quiet()
    }
}

impl Drop for Heeded {
    fn drop(&mut self) {
        // A descriptor that was added can be removed.
        self.reactor.0.events.remove_silent_fd(&self.fd).ok();
    }
}

impl Watch {
    /// True if since the last call, the descriptor could be read or its other side was gone.
    pub fn take_ready(&self) -> bool {
        let before = self.state.notice.replace(Notice::Taken);
        if before == Notice::Muted {
            // A descriptor that was added can be heard.
            self.reactor.0.events.hear_fd(&self.state.fd, self.key).ok();
        }
        before != Notice::Taken
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.reactor.0.watches.borrow_mut().remove(&self.key);
        // A descriptor that was added can be removed.
        self.reactor.0.events.remove_fd(&self.state.fd, self.key).ok();
    }
}

/// The poll list's view of the descriptors.
struct Descriptors {
    reactor: Reactor,
    look: Periodic,
}

impl Source for Descriptors {
    fn poll(&mut self, budget: usize) -> usize {
        let inner = &self.reactor.0;
        if !inner.events.has_ready() {
            if !self.look.tick() {
                return 0;
            }
            inner.events.look();
        }
        let mut count = 0;
        while count < budget {
            let Some(key) = inner.events.pop() else { break };
            if let Some(state) = inner.watches.borrow().get(&key) {
                match state.notice.get() {
                    Notice::Taken => state.notice.set(Notice::Found),
                    Notice::Found => {
                        state.notice.set(Notice::Muted);
                        inner.events.mute_fd(&state.fd, key).ok(); // As when it is removed.
                    }
                    Notice::Muted => {}
                }
                state.news.notify_all();
            }
            count += 1;
        }
        count
    }

    fn arm(&mut self) -> Armed {
        if self.reactor.0.events.has_ready() { Armed::Busy } else { Armed::Waits }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        os::unix::net::UnixStream,
    };

    use super::*;
    use crate::parker::SystemClock;
    use executor::{Config, Executor, Idle};

    const A_WHILE: Duration = Duration::from_millis(50);

    fn executor() -> (Executor, Reactor) {
        let events = Events::new().expect("epoll");
        let config = Config { idle: Idle::Park, ..Config::default() };
        let executor = Executor::new(Rc::new(SystemClock), Box::new(events.parker()), config);
        let reactor = Reactor::new(&executor.handle(), events);
        (executor, reactor)
    }

    #[test]
    fn what_its_task_leaves_unread_does_not_keep_an_executor_from_parking() {
        let (mut executor, reactor) = executor();
        let (handle, news) = (executor.handle(), Notify::new());
        let (mut here, there) = UnixStream::pair().expect("sockets");
        let fd = Rc::new(OwnedFd::from(there.try_clone().expect("a descriptor")));
        let watch = reactor.watch(fd, &news).expect("watched");
        here.write_all(b"drop").expect("room");

        executor.run_until(handle.sleep(A_WHILE));

        let parks = handle.counters().parks;
        assert!(parks < 20, "it parked {parks} times");
        // Nor is it forgotten.
        for _ in 0..2 {
            executor.run_until(news.until(|| watch.take_ready()));
        }
        (&there).read_exact(&mut [0; 4]).expect("written");
        watch.take_ready();
        executor.run_until(handle.sleep(A_WHILE));
        assert!(!watch.take_ready(), "nothing is left");
        drop(here);
        executor.run_until(news.until(|| watch.take_ready()));
    }

    #[test]
    fn what_is_heeded_ends_a_park_each_time() {
        let (mut executor, reactor) = executor();
        let handle = executor.handle();
        let (mut here, there) = UnixStream::pair().expect("sockets");
        let heeded = reactor.heed(there.into()).expect("heeded");
        executor.run_until(handle.sleep(A_WHILE));
        assert!(!heeded.may_have_ended_park(), "nothing came");
        here.write_all(b"drop").expect("room");
        executor.run_until(handle.sleep(A_WHILE));
        assert!(handle.counters().parks > 20 && heeded.may_have_ended_park());

        drop(heeded);

        let before = handle.counters().parks;
        executor.run_until(handle.sleep(A_WHILE));
        assert!(handle.counters().parks < before + 20);
    }
}
