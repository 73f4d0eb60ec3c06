//! State of a peer: its messages that arrived, and why it is lost.
//!
//! Callbacks of UCX reach these values, so no borrow of one is held across a call of UCX.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt, ptr,
    rc::Rc,
};

use executor::{Credits, Notify};

use crate::{
    abi,
    error::{Error, Status},
    pool::Buffer,
};

/// Messages fetched from a peer at one time: enough to keep a transport busy. Each has a buffer,
/// and what more of them bring leaves the cache before it is used.
const FETCH_MAX: u64 = 4;

/// Most bytes of a message's header.
pub const HEADER_LEN_MAX: usize = 128;

/// The small part of a message, kept beside its data.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    bytes: [u8; HEADER_LEN_MAX],
    len: usize,
}

impl Header {
    /// A copy of `header`; `None` when that is too long.
    pub(crate) fn new(header: &[u8]) -> Option<Self> {
        let (mut bytes, len) = ([0; HEADER_LEN_MAX], header.len());
        bytes.get_mut(..len)?.copy_from_slice(header);
        Some(Self { bytes, len })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// A message received. Holds a credit of the worker until its data is dropped.
#[derive(Debug)]
pub struct Message {
    pub(crate) header: Header,
    /// Bytes after the header.
    pub data: Buffer,
}

impl Message {
    /// The header, up to [`HEADER_LEN_MAX`] bytes.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.header.as_slice()
    }
}

/// The other side of an endpoint.
pub(crate) struct Peer {
    /// Null before the endpoint is made and from its closing on.
    pub(crate) endpoint: Cell<*mut abi::Endpoint>,
    failure: RefCell<Option<Error>>,
    /// Received and not taken; each holds a buffer, so there are at most that many.
    inbox: RefCell<VecDeque<Message>>,
    /// Its messages put off.
    pub(crate) put_off: Cell<u32>,
    /// The right to fetch one.
    pub(crate) fetches: Credits,
    changed: Notify,
    /// Raised when any peer of the worker fails, for the next visit to close its endpoint.
    any_failed: Rc<Cell<bool>>,
}

impl Peer {
    pub(crate) fn new(any_failed: &Rc<Cell<bool>>) -> Self {
        Self {
            endpoint: Cell::new(ptr::null_mut()),
            failure: RefCell::default(),
            inbox: RefCell::default(),
            put_off: Cell::default(),
            fetches: Credits::new(FETCH_MAX),
            changed: Notify::new(),
            any_failed: Rc::clone(any_failed),
        }
    }

    pub(crate) fn deliver(&self, message: Message) {
        self.inbox.borrow_mut().push_back(message);
        self.changed.notify_all();
    }

    /// Notes that the data of `message` will not come: what follows it is worthless.
    pub(crate) fn lose(&self, message: Message, status: Status) {
        drop(message);
        self.fail(Error::Disconnected(status));
    }

    /// Ends the connection. The first reason stands.
    pub(crate) fn fail(&self, reason: Error) {
        self.failure.borrow_mut().get_or_insert(reason);
        self.any_failed.set(true);
        self.changed.notify_all();
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// The next message; once none is left, why no more will come.
    pub(crate) async fn receive(&self) -> Result<Message, Error> {
        loop {
            let changed = self.changed.notified();
            let message = self.inbox.borrow_mut().pop_front();
            if let Some(message) = message {
                return Ok(message);
            }
            if let Some(reason) = self.failure() {
                return Err(reason);
            }
            changed.await;
        }
    }

    /// The endpoint, while there is one.
    pub(crate) fn open_endpoint(&self) -> Result<*mut abi::Endpoint, Error> {
        let endpoint = self.endpoint.get();
        if endpoint.is_null() { Err(Error::Closed) } else { Ok(endpoint) }
    }

    /// Drops what nobody will take any more.
    pub(crate) fn clear(&self) {
        let inbox = self.inbox.take();
        drop(inbox);
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.as_slice())
    }
}
