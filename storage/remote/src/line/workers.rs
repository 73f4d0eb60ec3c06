//! The UCX workers of a daemon: opened only where a `ucx://` address asks for it.
//!
//! A server has one worker for all its connections, until a client goes without a word: later ones
//! get another. For over shared memory all senders share the receiver's queue, and one that is
//! killed within a message leaves the queue standing at it, for good. Clients that were connected
//! before then hear nothing more, and connect anew. Likewise when a client cannot be reached: a
//! worker knows only the network devices that were up when it was made. A client makes a new worker
//! for each connection: two that disagree on how often they were connected never meet again, and an
//! attempt may break on one side only.

use std::{
    cell::RefCell,
    io,
    os::fd::AsFd as _,
    rc::Rc,
    sync::{Arc, atomic::AtomicU8},
};

use executor::Handle;
use shm::Mapping;
use ucx::{Config, Settings};
use uring::{Heeded, Reactor};

use super::channel::BATCH_LEN;

/// Messages that a worker has at a time. Their memory is taken as it is used.
const BUFFER_COUNT: u32 = 64;

/// Returns a worker's bounds, and UCX's settings where the user's variables, `chosen`, have none.
///
/// Messages are taken out of their buffers as they come where only half of these are free, so few
/// buffers serve many peers. A peer may have as many on the way as it has requests, and a ping
/// every second. The stream beside the messages tells of a peer's end, so UCX need not wake a quiet
/// daemon every second to ask.
fn config(chosen: &[(String, String)]) -> Config {
    let chosen = chosen.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let settings = Settings::default().set("KEEPALIVE_INTERVAL", "60m");
    let settings = settings.leave_to_environment(chosen);
    Config {
        buffer_count: BUFFER_COUNT,
        buffer_len: BATCH_LEN,
        put_off_max: 256,
        send_max: 1024,
        settings,
        ..Config::default()
    }
}

/// Where the workers of one executor come from. Cheap to clone.
#[derive(Clone)]
pub struct Workers {
    pub(crate) handle: Handle,
    reactor: Reactor,
    config: Rc<Config>,
    /// A server's for its next connection, once it is made.
    shared: Option<Rc<RefCell<Option<Rc<Worker>>>>>,
}

/// The buffers of a worker, straight from the kernel: it takes memory as they are used, and has it
/// back with the worker. The allocator, once it has freed so much at a time, puts the next in its
/// heap, where it zeroes all of it at once, and may be unable to give it back.
struct Memory(Mapping);

impl AsRef<[AtomicU8]> for Memory {
    fn as_ref(&self) -> &[AtomicU8] {
        self.0.bytes()
    }
}

/// A worker, whose messages end the park of its executor.
pub(crate) struct Worker {
    pub(crate) worker: ucx::Worker,
    _heeded: Heeded,
}

impl Worker {
    /// True if messages may stay in their buffers.
    pub(crate) fn has_spare_buffers(&self) -> bool {
        self.worker.held().free_buffers > BUFFER_COUNT as usize / 2
    }
}

impl Workers {
    /// Workers of a client, made when they are needed.
    ///
    /// # Errors
    ///
    /// There is no libucp that serves.
    pub fn new(
        handle: &Handle,
        reactor: &Reactor,
        chosen: &[(String, String)],
    ) -> Result<Self, ucx::Error> {
        let config = Rc::new(config(chosen));
        ucx::Worker::probe(&config)?;
        let (handle, reactor) = (handle.clone(), reactor.clone());
        Ok(Self { handle, reactor, config, shared: None })
    }

    /// The same for a server: its connections share one, which is made now.
    ///
    /// # Errors
    ///
    /// As [`worker`](Self::worker).
    pub fn for_server(self) -> io::Result<Self> {
        debug_assert!(self.shared.is_none(), "a server's connections share one worker");
        let worker = self.make()?;
        Ok(Self { shared: Some(Rc::new(RefCell::new(Some(worker)))), ..self })
    }

    /// A worker for one more connection.
    ///
    /// # Errors
    ///
    /// UCX finds no transport, or no descriptor is left.
    pub(crate) fn worker(&self) -> io::Result<Rc<Worker>> {
        let Some(shared) = &self.shared else { return self.make() };
        let mut shared = shared.borrow_mut();
        let worker = shared.take().map_or_else(|| self.make(), Ok)?;
        Ok(Rc::clone(shared.insert(worker)))
    }

    /// Has later connections use another worker than this one.
    pub(crate) fn retire(&self, worker: &Rc<Worker>) {
        if let Some(shared) = &self.shared {
            shared.borrow_mut().take_if(|shared| Rc::ptr_eq(shared, worker));
        }
    }

    fn make(&self) -> io::Result<Rc<Worker>> {
        let (memory, _) = Mapping::create(BUFFER_COUNT as usize * BATCH_LEN)?;
        let worker = ucx::Worker::with_memory(&self.handle, &self.config, Arc::new(Memory(memory)))
            .map_err(io::Error::other)?;
        // Who waits for messages is woken by the worker; the descriptor only has to end the park.
        let heeded = self.reactor.heed(worker.as_fd().try_clone_to_owned()?)?;
        Ok(Rc::new(Worker { worker, _heeded: heeded }))
    }
}
