//! State that the callbacks of a worker reach: peers, buffers, messages put off.
//!
//! A message that finds a free buffer is copied into it at once, or stays where UCX has it (see
//! [`loans`](crate::loans)); one by rendezvous is fetched into one after the progress call that
//! announced it, a few at a time. Until then it is put off as the descriptor UCX gave; so is an
//! eager one, as a copy, that finds no buffer free. Messages put off get their buffers first. When
//! more than the configured number of a peer's remain for which there is none, it is cut off, so
//! what this holds is bounded by peers, not by what they send.
//!
//! # Reentrance
//!
//! UCX calls back within calls. No borrow of a cell here is held across a call of UCX.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    ffi::c_void,
    ptr::{self, NonNull},
    rc::Rc,
    slice,
    sync::Arc,
};

use executor::Credits;

use crate::{
    abi::{self, MessageParam},
    config::Config,
    error::{Error, Status},
    library::Library,
    loans::Lent,
    operation::{Completion, Operation, Owned, Regions},
    peer::{Header, Message, Peer},
    pool::{Buffer, PAGE_LEN, Pool},
};

/// State of one worker.
pub(crate) struct State {
    pub(crate) library: Library,
    pub(crate) worker: *mut abi::Worker,
    pub(crate) pool: Arc<Pool>,
    /// The right to have a send in flight.
    pub(crate) sends: Credits,
    pub(crate) in_flight: Rc<Cell<usize>>,
    pub(crate) any_failed: Rc<Cell<bool>>,
    /// A message has come since this was last taken.
    pub(crate) has_heard: Cell<bool>,
    /// By endpoint, from its making to its closing.
    peers: RefCell<HashMap<*mut abi::Endpoint, Rc<Peer>>>,
    /// Of endpoints that UCX did not close: until the worker is destroyed it calls back for them.
    unclosed: RefCell<Vec<Rc<Peer>>>,
    put_off: RefCell<VecDeque<PutOff>>,
    put_off_max: u32,
    lent_len_min: usize,
    lent_max: usize,
}

struct PutOff {
    from: Rc<Peer>,
    header: Header,
    data: Data,
}

enum Data {
    Copied(Vec<u8>),
    /// To be fetched from the sender.
    Rendezvous {
        descriptor: *mut c_void,
        len: usize,
    },
}

/// A message's data, as UCX presents it.
enum Presented<'a> {
    /// Valid in the callback, and longer if it is lent.
    Here { bytes: &'a [u8], lent: Option<Lent> },
    /// With the sender.
    Announced { descriptor: *mut c_void, len: usize },
}

impl State {
    pub(crate) fn new(
        library: Library,
        worker: *mut abi::Worker,
        pool: Arc<Pool>,
        config: &Config,
    ) -> Self {
        Self {
            library,
            worker,
            pool,
            sends: Credits::new(config.send_max.max(1).into()),
            in_flight: Rc::default(),
            any_failed: Rc::default(),
            has_heard: Cell::default(),
            peers: RefCell::default(),
            unclosed: RefCell::default(),
            put_off: RefCell::default(),
            put_off_max: config.put_off_max,
            lent_len_min: config.lent_len_min,
            lent_max: config.lent_max as usize,
        }
    }

    pub(crate) fn add(&self, peer: Rc<Peer>) {
        self.peers.borrow_mut().insert(peer.endpoint.get(), peer);
    }

    pub(crate) fn peer_count(&self) -> usize {
        self.peers.borrow().len()
    }

    /// Has UCX take back what it had lent.
    pub(crate) fn take_back(&self) {
        for lent in self.pool.loans.take_back() {
            let start = lent.start().as_ptr().cast();
            // SAFETY: kept in the callback, and nobody has it any more.
            unsafe { (self.library.ucp_am_data_release)(self.worker, start) };
        }
    }

    pub(crate) fn put_off_count(&self) -> usize {
        self.put_off.borrow().len()
    }

    /// True if the next visit has work that UCX does not know of.
    pub(crate) fn has_work(&self) -> bool {
        let served = self.put_off.borrow().iter().any(PutOff::may_come);
        served && self.pool.free_count() > 0 || self.any_failed.get()
    }

    /// True if a message waits for a buffer, and none is free.
    pub(crate) fn lacks_buffers(&self) -> bool {
        self.put_off_count() > 0 && self.pool.free_count() == 0
    }

    /// Gives buffers to messages put off, as far as there are any; returns to how many.
    pub(crate) fn serve(&self) -> usize {
        let mut count = 0;
        while let Some((next, buffer)) = self.next() {
            count += 1;
            next.from.put_off.set(next.from.put_off.get() - 1);
            self.receive(Message { header: next.header, data: buffer }, next.from, next.data);
        }
        self.cut_off();
        count
    }

    /// The first message put off that may come, and its buffer.
    fn next(&self) -> Option<(PutOff, Buffer)> {
        let mut put_off = self.put_off.borrow_mut();
        let at = put_off.iter().position(PutOff::may_come)?;
        let buffer = self.pool.take(put_off.get(at)?.data.len())?;
        Some((put_off.remove(at)?, buffer))
    }

    /// Closes the endpoints of peers that failed; returns of how many.
    pub(crate) fn close_failed(&self) -> usize {
        if !self.any_failed.take() {
            return 0;
        }
        self.discard_failed();
        let failed: Vec<_> =
            self.peers.borrow().values().filter(|peer| peer.has_failed()).cloned().collect();
        for peer in &failed {
            self.close(peer);
        }
        failed.len()
    }

    pub(crate) fn close_all(&self) {
        let peers: Vec<_> = self.peers.borrow().values().cloned().collect();
        for peer in &peers {
            peer.fail(Error::Closed);
        }
        self.close_failed();
    }

    /// Cuts the connection to `peer`, unless that has been done.
    ///
    /// By force always: an orderly close with a rendezvous under way makes UCX 1.13 abort.
    fn close(&self, peer: &Rc<Peer>) {
        let endpoint = peer.endpoint.replace(ptr::null_mut());
        if self.peers.borrow_mut().remove(&endpoint).is_none() {
            return;
        }
        let close = self.library.ucp_ep_close_nbx;
        // SAFETY: it was in the table, so it is open; from here on nothing names it.
        let call = |_, param: &abi::RequestParam| unsafe { close(endpoint, param) };
        let (owned, flags) = (Owned::Close(Rc::clone(peer)), abi::EP_CLOSE_FLAG_FORCE);
        // SAFETY: closing takes a send callback; what `close` returns is returned.
        let closing = unsafe { self.start(owned, flags, call) };
        if closing.has_failed() {
            self.unclosed.borrow_mut().push(Rc::clone(peer));
        }
    }

    /// # Safety
    ///
    /// As for [`Operation::start`].
    pub(crate) unsafe fn start(
        &self,
        owned: Owned,
        flags: u32,
        call: impl FnOnce(Regions, &abi::RequestParam) -> abi::StatusPointer,
    ) -> Completion {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { Operation::start(self.library, &self.in_flight, owned, flags, call) }
    }

    /// Takes in a message that UCX presents; says whether UCX may have the data back at once.
    fn arrive(&self, from: &Rc<Peer>, header: &[u8], data: Presented<'_>) -> abi::Status {
        let (header_len, len) = (header.len(), data.len());
        let header = Header::new(header).filter(|_| len <= self.pool.buffer_len());
        let (header, bytes, lent) = match (header, data) {
            (None, data) => {
                from.fail(Error::TooLong { header_len, len });
                return data.refused(abi::ERR_MESSAGE_TRUNCATED);
            }
            (Some(header), Presented::Announced { descriptor, len }) => {
                self.put_off(from, header, Data::Rendezvous { descriptor, len });
                return abi::IN_PROGRESS;
            }
            (Some(header), Presented::Here { bytes, lent }) => (header, bytes, lent),
        };
        // Buffers as many as messages put off are theirs.
        let spare = self.pool.free_count() > self.put_off_count();
        let Some(mut buffer) = spare.then(|| self.pool.take(len)).flatten() else {
            self.put_off(from, header, Data::Copied(bytes.to_vec()));
            return abi::OK;
        };
        let may_lend = self.pool.loans.count() < self.lent_max;
        let status = match lent.filter(|_| may_lend) {
            Some(lent) => {
                buffer.borrow(lent);
                abi::IN_PROGRESS
            }
            None => {
                buffer.store(bytes);
                abi::OK
            }
        };
        from.deliver(Message { header, data: buffer });
        status
    }

    fn put_off(&self, from: &Rc<Peer>, header: Header, data: Data) {
        from.put_off.set(from.put_off.get() + 1);
        self.put_off.borrow_mut().push_back(PutOff { from: Rc::clone(from), header, data });
    }

    /// Brings the data of a message put off into its buffer.
    fn receive(&self, message: Message, from: Rc<Peer>, data: Data) {
        let descriptor = match data {
            Data::Copied(bytes) => {
                message.data.store(&bytes);
                return from.deliver(message);
            }
            Data::Rendezvous { descriptor, .. } => descriptor,
        };
        let (worker, receive) = (self.worker, self.library.ucp_am_recv_data_nbx);
        let call = |regions: Regions, param: &abi::RequestParam| {
            // SAFETY: the descriptor was kept in the callback and not used since; the regions are
            // the buffer, which the operation owns, as long as the message.
            unsafe { receive(worker, descriptor, regions.data, regions.len, param) }
        };
        let owned = Owned::Receive { _fetch: from.fetches.try_take(1), message, from };
        // SAFETY: this takes a receive callback; what `receive` returns is returned.
        let completion = unsafe { self.start(owned, 0, call) };
        drop(completion); // The peer is told by the operation itself.
    }

    /// Fails the peers that have more put off than is allowed, and than there are buffers.
    fn cut_off(&self) {
        let put_off = self.put_off.borrow();
        if put_off.is_empty() {
            return;
        }
        let max = self.put_off_max as usize + self.pool.free_count();
        for put_off in &*put_off {
            if put_off.from.put_off.get() as usize > max && !put_off.from.has_failed() {
                put_off.from.fail(Error::Overrun);
            }
        }
    }

    /// Drops what is put off for peers that failed.
    fn discard_failed(&self) {
        let all = self.put_off.take();
        let (failed, kept): (VecDeque<_>, _) =
            all.into_iter().partition(|put_off| put_off.from.has_failed());
        *self.put_off.borrow_mut() = kept;
        for put_off in failed {
            if let Data::Rendezvous { descriptor, .. } = put_off.data {
                // SAFETY: kept in the callback and not used since.
                unsafe { (self.library.ucp_am_data_release)(self.worker, descriptor) };
            }
        }
    }
}

impl Presented<'_> {
    fn len(&self) -> usize {
        match *self {
            Self::Here { bytes, .. } => bytes.len(),
            Self::Announced { len, .. } => len,
        }
    }

    /// Returns the status for a message that nobody wants.
    fn refused(&self, why: abi::Status) -> abi::Status {
        match self {
            Self::Here { .. } => abi::OK,
            Self::Announced { .. } => why,
        }
    }
}

impl PutOff {
    /// True if nothing but a buffer is wanting.
    fn may_come(&self) -> bool {
        match self.data {
            Data::Copied(_) => true,
            Data::Rendezvous { .. } => self.from.fetches.available() > 0,
        }
    }
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Rendezvous { len, .. } => *len,
        }
    }
}

/// `ucp_am_recv_callback_t`, with a [`State`] as its argument.
pub(crate) unsafe extern "C" fn on_message(
    state: *mut c_void,
    header: *const c_void,
    header_len: usize,
    data: *mut c_void,
    len: usize,
    param: *const MessageParam,
) -> abi::Status {
    // SAFETY: the state the handler was set with; it outlives the worker, which calls this.
    let state = unsafe { &*state.cast::<State>() };
    // SAFETY: UCX passes its parameters in this layout.
    let MessageParam { attributes, reply_to } = unsafe { param.read() };
    state.has_heard.set(true);
    let has = |flag| attributes & flag != 0;
    let data = if has(abi::AM_RECV_ATTR_FLAG_RENDEZVOUS) {
        Presented::Announced { descriptor: data, len }
    } else {
        let start = NonNull::new(data.cast::<u8>()).filter(|_| len > 0);
        // SAFETY: without the rendezvous flag, `data` are `len` bytes, valid in the callback.
        let bytes = start.map(|start| unsafe { slice::from_raw_parts(start.as_ptr(), len) });
        let may_stay = has(abi::AM_RECV_ATTR_FLAG_DATA) && len >= state.lent_len_min;
        let start = start.filter(|start| may_stay && start.addr().get() % PAGE_LEN == 0);
        // SAFETY: with that flag they stay until they are released.
        let lent = start.map(|start| unsafe { Lent::new(start.cast(), len) });
        Presented::Here { bytes: bytes.unwrap_or_default(), lent }
    };
    let known = has(abi::AM_RECV_ATTR_FIELD_REPLY_TO);
    let from = known.then(|| state.peers.borrow().get(&reply_to).cloned()).flatten();
    let Some(from) = from.filter(|peer| !peer.has_failed()) else {
        return data.refused(abi::ERR_CANCELED);
    };
    let header = if header_len == 0 {
        &[]
    } else {
        // SAFETY: `header_len` bytes, valid in this callback.
        unsafe { slice::from_raw_parts(header.cast::<u8>(), header_len) }
    };
    state.arrive(&from, header, data)
}

/// `ucp_err_handler_cb_t`, with a [`Peer`] as its argument.
pub(crate) unsafe extern "C" fn on_failure(
    peer: *mut c_void,
    _endpoint: *mut abi::Endpoint,
    status: abi::Status,
) {
    // SAFETY: the peer the endpoint was made with; it lives until the endpoint is closed.
    let peer = unsafe { &*peer.cast::<Peer>() };
    peer.fail(Error::Disconnected(Status(status)));
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write as _};

    use super::*;

    unsafe extern "C" fn refuses(
        _endpoint: *mut abi::Endpoint,
        _param: *const abi::RequestParam,
    ) -> abi::StatusPointer {
        ptr::without_provenance_mut(usize::MAX - 3) // -4: out of memory.
    }

    #[test]
    fn a_peer_lives_as_long_as_its_endpoint_that_could_not_be_closed() {
        let Ok(mut library) = Library::open("libucp.so.0") else {
            let line = b"1 SKIPPED: ucx: no libucp.so.0 (Debian: libucx0)\n";
            return io::stderr().write_all(line).expect("standard error");
        };
        library.ucp_ep_close_nbx = refuses;
        let pool = Pool::new(1, 64);
        let state = State::new(library, ptr::null_mut(), pool, &Config::default());
        let peer = Rc::new(Peer::new(&state.any_failed));
        peer.endpoint.set(ptr::without_provenance_mut(64));
        state.add(Rc::clone(&peer));
        let named = Rc::downgrade(&peer);
        peer.fail(Error::Closed);
        drop(peer);

        assert_eq!(state.close_failed(), 1);

        assert_eq!(state.peer_count(), 0);
        assert!(named.upgrade().is_some(), "UCX still names it");
    }
}
