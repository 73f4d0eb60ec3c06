//! Blocking in epoll: descriptors that become ready, wake-ups from other threads, timeouts. While a
//! ring has operations in flight it is the ring that blocks, and watches epoll: one system call
//! then gives the kernel what is queued, waits, and has completions posted.
//!
//! [`Events`] is shared: the executor parks in it, and a source takes the ready descriptors out of
//! it, with a look of its own while the executor does not park. Wake-ups are edge-triggered: every
//! one ends one wait, and nobody reads them. One that a look takes ends the next park instead: what
//! it tells of may have come after its own source was visited.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt, io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use crate::crowd::Crowd;
use executor::{Clock, Instant, Park, Unpark};
use rustix::{
    event::{
        EventfdFlags, Timespec,
        epoll::{self, CreateFlags, EventData, EventFlags},
        eventfd,
    },
    thread::sched_yield,
    time::{ClockId, clock_gettime},
};

/// Descriptors taken out of one wait at most.
const READY_MAX: usize = 64;

/// Events that make a descriptor readable.
const READABLE: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

/// The key of what only ends a park.
const WAKE_KEY: u64 = u64::MAX;

/// The descriptors one executor waits for. Cheap to clone.
#[derive(Clone)]
pub struct Events(Rc<Inner>);

struct Inner {
    epoll: OwnedFd,
    doorbell: Arc<Doorbell>,
    /// Keys of what was found ready and is not yet taken; at most [`READY_MAX`].
    ready: RefCell<VecDeque<u64>>,
    /// A look took a wake-up since the last park.
    is_woken: Cell<bool>,
    /// The last look or park found nothing.
    was_quiet: Cell<bool>,
    ring: RefCell<Option<Weak<dyn Wait>>>,
}

/// Something else to block in, which ends for what an [`Events`] waits for as well.
pub(crate) trait Wait {
    /// Blocks until something has happened or `timeout` has passed; returns `false` at once when
    /// only the [`Events`] has anything to wait for.
    fn wait(&self, timeout: Option<Duration>) -> bool;
}

impl Events {
    /// A set without descriptors.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`: the process or the machine is out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let doorbell = Arc::new(Doorbell(doorbell));
        let (ready, is_woken, ring) = (RefCell::default(), Cell::default(), RefCell::default());
        let was_quiet = Cell::default();
        let inner = Inner { epoll, doorbell, ready, is_woken, was_quiet, ring };
        let events = Self(Rc::new(inner));
        events.add_wake_fd(&events.0.doorbell.0)?;
        Ok(events)
    }

    /// Reports `key` whenever `fd` has something to read or its other side is gone, until removed:
    /// level-triggered.
    ///
    /// # Errors
    ///
    /// - `InvalidInput`: `key` is `u64::MAX`, which is reserved.
    /// - `EEXIST`: added already. `EPERM`: a regular file, which is always ready.
    /// - `ENOSPC`, `ENOMEM`: too many watches.
    pub fn add_fd(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        if key == WAKE_KEY {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(epoll::add(&self.0.epoll, fd, EventData::new_u64(key), READABLE)?)
    }

    /// Reports `fd` once more at most, until it is [heard](Self::hear_fd) again: what is reported
    /// and not read would end every park. It stays added.
    #[expect(clippy::missing_errors_doc, reason = "`ENOENT`: not added")]
    pub fn mute_fd(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        let flags = READABLE | EventFlags::ONESHOT;
        Ok(epoll::modify(&self.0.epoll, fd, EventData::new_u64(key), flags)?)
    }

    /// Reports `fd` again, as after [`add_fd`](Self::add_fd). Takes no memory, so that it cannot
    /// fail for what was added.
    #[expect(clippy::missing_errors_doc, reason = "`ENOENT`: not added")]
    pub fn hear_fd(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        Ok(epoll::modify(&self.0.epoll, fd, EventData::new_u64(key), READABLE)?)
    }

    /// Lets `fd` end parks for as long as it has something to read; it is never reported. Its
    /// source reads it when it is visited.
    ///
    /// # Errors
    ///
    /// As [`add_fd`](Self::add_fd).
    pub fn add_silent_fd(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.0.epoll, fd, EventData::new_u64(WAKE_KEY), EventFlags::IN)?)
    }

    /// Forgets a silent `fd`.
    #[expect(clippy::missing_errors_doc, reason = "`ENOENT`: not added")]
    pub fn remove_silent_fd(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0.epoll, fd)?)
    }

    /// Forgets `fd`, and what was found ready under `key`.
    #[expect(clippy::missing_errors_doc, reason = "`ENOENT`: not added")]
    pub fn remove_fd(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        self.0.ready.borrow_mut().retain(|ready| *ready != key);
        epoll::delete(&self.0.epoll, fd)?;
        Ok(())
    }

    /// Takes the key of the next ready descriptor. Looks only at what an earlier wait has found.
    #[must_use]
    pub fn pop(&self) -> Option<u64> {
        self.0.ready.borrow_mut().pop_front()
    }

    /// Looks for ready descriptors unless some wait to be taken; returns how many do now.
    ///
    /// Never blocks; costs a system call when none waits.
    pub fn look(&self) -> usize {
        if self.0.ready.borrow().is_empty() && self.wait(Some(Duration::ZERO)) {
            self.0.is_woken.set(true);
        }
        self.0.ready.borrow().len()
    }

    /// True if ready descriptors wait to be taken. Makes no system call.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.0.ready.borrow().is_empty()
    }

    /// The way an executor blocks in this set.
    #[must_use]
    pub fn parker(&self) -> EpollParker {
        EpollParker { events: self.clone(), crowd: Crowd::new() }
    }

    /// Returns the handle that ends the park from any thread.
    #[must_use]
    pub fn unparker(&self) -> Arc<dyn Unpark> {
        Arc::clone(&self.0.doorbell) as Arc<dyn Unpark>
    }

    /// Lets every signal of an eventfd end a park; it is never reported, and never read.
    pub(crate) fn add_wake_fd(&self, fd: impl AsFd) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&self.0.epoll, fd, EventData::new_u64(WAKE_KEY), flags)?;
        Ok(())
    }

    /// Parks in `ring` from now on, as long as it lives and has something in flight.
    pub(crate) fn park_in(&self, ring: Weak<dyn Wait>) {
        *self.0.ring.borrow_mut() = Some(ring);
    }

    /// True if the last look or park found nothing. What has come since ends the next park.
    pub(crate) fn was_quiet(&self) -> bool {
        self.0.was_quiet.get()
    }

    fn park(&self, timeout: Option<Duration>) {
        self.0.was_quiet.set(false);
        if self.0.is_woken.take() {
            return;
        }
        let ring = self.0.ring.borrow().as_ref().and_then(Weak::upgrade);
        if !ring.is_some_and(|ring| ring.wait(timeout)) {
            self.wait(timeout);
        }
    }

    /// Blocks until something is ready or `timeout` has passed, and keeps what was found. Returns
    /// whether there was a wake-up.
    fn wait(&self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); READY_MAX];
        // An interrupted wait is an early return; no other error can happen to this descriptor.
        let Ok((found, _)) = epoll::wait(&self.0.epoll, &mut space, timeout.as_ref()) else {
            return false;
        };
        self.0.was_quiet.set(found.is_empty());
        let (mut ready, mut is_woken) = (self.0.ready.borrow_mut(), false);
        for event in found {
            match event.data.u64() {
                WAKE_KEY => is_woken = true,
                key => ready.push_back(key),
            }
        }
        is_woken
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.epoll.as_fd()
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("ready", &self.0.ready).finish_non_exhaustive()
    }
}

/// Blocks an executor in its [`Events`].
#[derive(Debug)]
pub struct EpollParker {
    events: Events,
    crowd: Option<Crowd>,
}

impl Park for EpollParker {
    fn park(&mut self, timeout: Option<Duration>) {
        if !self.events.has_ready() {
            self.events.park(timeout);
        }
    }

    fn give_way(&mut self) {
        sched_yield();
    }

    fn is_crowded(&mut self) -> bool {
        self.crowd.as_ref().is_some_and(Crowd::is_there)
    }

    fn unparker(&self) -> Arc<dyn Unpark> {
        self.events.unparker()
    }
}

#[derive(Debug)]
struct Doorbell(OwnedFd);

impl Unpark for Doorbell {
    fn unpark(&self) {
        #[expect(clippy::host_endian_bytes, reason = "an eventfd counts in the host's order")]
        let one = 1u64.to_ne_bytes();
        // Fails only when the counter is full, after 2^64 wake-ups.
        rustix::io::write(&self.0, &one).ok();
    }
}

/// The machine's monotonic clock, the same in every process of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        let time = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
        Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }
}
