//! Which sockets are ready, and which tasks wait for them.
//!
//! Every socket is in one epoll set, edge-triggered, and remembers what it was told: a side is
//! ready until a call says otherwise. The set itself is a descriptor that wakes the executor.

use std::{
    cell::{Cell, RefCell},
    io, mem,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use executor::{Armed, Handle, Instant, Source};
use rustix::event::{
    Timespec,
    epoll::{self, CreateFlags, EventData, EventFlags},
};
use slab::Slab;

use super::call::SOCKET_LEN_MAX;
use crate::parker::Events;

/// Events taken out of one look at most.
const LOOK_LEN: usize = 64;

/// Calls a side may make between two visits.
pub(crate) const CALLS_MAX: u32 = 16;

/// Visits of which one looks, where nothing comes or all sockets are listeners: a look is a system
/// call.
const SELDOM: u64 = 32;

/// How long after something has come the next is looked for at every visit.
const ACTIVE: Duration = Duration::from_millis(2);

/// The sockets of one executor.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    sockets: RefCell<Slab<Rc<Readiness>>>,
    /// Those that listen.
    listener_count: Cell<usize>,
    /// Visits by the executor so far.
    visits: Cell<u64>,
    /// When a look found something last, or a socket was added, in the executor's time.
    came_at: Cell<Instant>,
    handle: Handle,
    /// A park may have ended because of a socket.
    was_armed: Cell<bool>,
    /// Tasks that had their share since the last visit, and want more.
    again: RefCell<Vec<Waker>>,
}

/// State of one socket.
#[derive(Debug)]
struct Readiness {
    receive: Side,
    send: Side,
    is_listener: bool,
}

#[derive(Debug)]
struct Side {
    /// A call may succeed.
    is_ready: Cell<bool>,
    /// The other end is gone, or has sent urgent bytes, at which a receive stops: only a call that
    /// would block tells that nothing is left.
    is_odd: Cell<bool>,
    /// The one task that waits; of an earlier one that gave up, at worst, it is woken once more.
    waiting: RefCell<Option<Waker>>,
    /// Events it has used up since the last visit.
    used: Cell<Used>,
}

/// Calls and bytes of one side since a visit.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// Which visit.
    visit: u64,
    calls: u32,
    len: usize,
}

/// A direction of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Also of a listener.
    Receive,
    /// Also of a connection being made.
    Send,
}

impl Poller {
    /// A set without sockets, on the poll list of `handle`'s executor, which parks in `events`.
    pub(crate) fn new(handle: &Handle, events: &Events) -> io::Result<Rc<Self>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        events.add_wake_fd(&epoll)?;
        let (sockets, again) = (RefCell::default(), RefCell::default());
        let (listener_count, visits) = (Cell::default(), Cell::default());
        let (came_at, was_armed) = (Cell::new(handle.lately()), Cell::default());
        let handle = handle.clone();
        let poller = Self {
            epoll,
            sockets,
            listener_count,
            visits,
            came_at,
            handle: handle.clone(),
            was_armed,
            again,
        };
        let poller = Rc::new(poller);
        handle.add_source(Box::new(Visits(Rc::clone(&poller))));
        Ok(poller)
    }

    /// Takes a non-blocking socket in, which may be one that listens.
    pub(crate) fn add(self: &Rc<Self>, fd: OwnedFd, is_listener: bool) -> io::Result<Socket> {
        let (receive, send) = (Side::new(), Side::new());
        let readiness = Rc::new(Readiness { receive, send, is_listener });
        self.listener_count.set(self.listener_count.get() + usize::from(is_listener));
        let key = self.sockets.borrow_mut().insert(Rc::clone(&readiness));
        self.came_at.set(self.handle.lately());
        let socket = Socket { poller: Rc::clone(self), readiness, key, fd };
        let told = EventFlags::IN | EventFlags::PRI | EventFlags::OUT | EventFlags::RDHUP;
        let data = EventData::new_u64(key as u64);
        epoll::add(&self.epoll, &socket.fd, data, told | EventFlags::ET)?;
        Ok(socket)
    }

    /// True if this visit is to look. Who connects waits for some turns, or for the next
    /// [park](Source::arm), and so does what comes after a silence.
    fn is_due(&self) -> bool {
        let was_armed = self.was_armed.take();
        if self.has_streams() {
            let silence = self.handle.lately().saturating_since(self.came_at.get());
            if was_armed || silence < ACTIVE {
                return true;
            }
        }
        !self.sockets.borrow().is_empty() && self.visits.get() % SELDOM == 0
    }

    fn has_streams(&self) -> bool {
        self.sockets.borrow().len() > self.listener_count.get()
    }

    /// Asks the kernel for up to `limit` sockets that became ready; returns how many there were.
    fn look(&self, limit: usize) -> usize {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); LOOK_LEN];
        let limit = limit.min(LOOK_LEN);
        let Some(space) = space.get_mut(..limit) else { return 0 };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted look is an empty one; no other error can happen to this descriptor.
        let Ok((found, _)) = epoll::wait(&self.epoll, space, Some(&now)) else { return 0 };
        let sockets = self.sockets.borrow();
        if !found.is_empty() {
            self.came_at.set(self.handle.lately());
        }
        let mut count = 0;
        for event in found {
            count += 1;
            let key = usize::try_from(event.data.u64()).ok();
            if let Some(readiness) = key.and_then(|key| sockets.get(key)) {
                readiness.hear(event.flags);
            }
        }
        count
    }
}

impl Readiness {
    fn hear(&self, flags: EventFlags) {
        let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        let ends_or_stops = broken || flags.intersects(EventFlags::RDHUP | EventFlags::PRI);
        self.receive.hear(flags.contains(EventFlags::IN), ends_or_stops);
        self.send.hear(flags.contains(EventFlags::OUT), broken);
    }
}

impl Side {
    /// A new socket may be ready: the first call tells.
    fn new() -> Self {
        Self {
            is_ready: Cell::new(true),
            is_odd: Cell::new(false),
            waiting: RefCell::new(None),
            used: Cell::default(),
        }
    }

    fn hear(&self, is_ready: bool, is_odd: bool) {
        self.is_odd.set(self.is_odd.get() || is_odd);
        if is_ready || is_odd {
            self.is_ready.set(true);
            if let Some(waker) = self.waiting.take() {
                waker.wake();
            }
        }
    }

    /// Returns the events it has used up since this visit.
    fn used(&self, visit: u64) -> Used {
        let used = self.used.get();
        if used.visit == visit { used } else { Used { visit, ..Used::default() } }
    }

    fn wait(&self, context: &Context<'_>) {
        *self.waiting.borrow_mut() = Some(context.waker().clone());
    }
}

/// A socket of a [`Poller`]. Closed when dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    poller: Rc<Poller>,
    readiness: Rc<Readiness>,
    key: usize,
    fd: OwnedFd,
}

impl Socket {
    /// Makes a call when the side is ready and has not used up its share since the last visit.
    ///
    /// One task a side may wait.
    pub(crate) fn poll_call<T>(
        &self,
        direction: Direction,
        context: &Context<'_>,
        call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        ready!(self.poll_ready(direction, context));
        match self.call(direction, call) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.side(direction).wait(context);
                Poll::Pending
            }
            result => Poll::Ready(result),
        }
    }

    /// Waits until a call may succeed and the side has not used up its share.
    pub(crate) fn poll_ready(&self, direction: Direction, context: &Context<'_>) -> Poll<()> {
        let side = self.side(direction);
        let used = side.used(self.poller.visits.get());
        if used.calls >= CALLS_MAX || used.len >= SOCKET_LEN_MAX {
            self.poller.again.borrow_mut().push(context.waker().clone());
            return Poll::Pending;
        }
        if !side.is_ready.get() {
            side.wait(context);
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Makes a call; one that would block leaves the side to be waited for.
    pub(crate) fn call<T>(
        &self,
        direction: Direction,
        call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let side = self.side(direction);
        let used = side.used(self.poller.visits.get());
        side.used.set(Used { calls: used.calls + 1, ..used });
        let result = call(self.fd.as_fd());
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            side.is_ready.set(false);
        }
        result
    }

    /// Notes how many bytes the last call moved.
    pub(crate) fn moved(&self, direction: Direction, len: usize) {
        let side = self.side(direction);
        let used = side.used.get();
        side.used.set(Used { len: used.len + len, ..used });
    }

    /// Notes that the next call would block unless something is heard meanwhile.
    pub(crate) fn exhausted(&self, direction: Direction) {
        let side = self.side(direction);
        side.is_ready.set(side.is_odd.get());
    }

    /// Where it was added.
    pub(crate) fn poller(&self) -> &Rc<Poller> {
        &self.poller
    }

    fn side(&self, direction: Direction) -> &Side {
        match direction {
            Direction::Receive => &self.readiness.receive,
            Direction::Send => &self.readiness.send,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Without this, a duplicate of the descriptor would go on being reported. It fails for a
        // socket that could not be added.
        epoll::delete(&self.poller.epoll, &self.fd).ok();
        self.poller.sockets.borrow_mut().remove(self.key);
        let gone = usize::from(self.readiness.is_listener);
        self.poller.listener_count.set(self.poller.listener_count.get() - gone);
    }
}

/// The sockets on the poll list.
struct Visits(Rc<Poller>);

impl Source for Visits {
    fn poll(&mut self, budget: usize) -> usize {
        let poller = &self.0;
        poller.visits.set(poller.visits.get() + 1);
        let again = mem::take(&mut *poller.again.borrow_mut());
        again.into_iter().for_each(Waker::wake);
        if poller.is_due() { poller.look(budget) } else { 0 }
    }

    /// Events that the last look left, or that came after it, end the park, even if
    /// [`Events::look`] has heard of them meanwhile.
    fn arm(&mut self) -> Armed {
        let poller = &self.0;
        poller.was_armed.set(true);
        // What visits have not looked for ends no further park.
        let has_missed =
            !poller.has_streams() && poller.listener_count.get() > 0 && poller.look(LOOK_LEN) > 0;
        if has_missed || !poller.again.borrow().is_empty() { Armed::Busy } else { Armed::Waits }
    }
}
