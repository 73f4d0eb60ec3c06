//! Operations of UCX in flight: sends, receives by rendezvous, closes.
//!
//! # Ownership
//!
//! An operation owns the memory it concerns. While UCX has its request, UCX holds one count of
//! the operation; the completion callback takes that count back, gives the request back to UCX,
//! and only then drops the memory. Dropping a [`Completion`] detaches the operation and frees
//! nothing. A request that UCX never completes therefore leaks what it owns, and nothing else.

use std::{
    cell::{Cell, RefCell},
    ffi::c_void,
    pin::Pin,
    rc::Rc,
    sync::atomic::AtomicU8,
    task::{Context, Poll, Waker},
};

use executor::Credit;

use crate::{
    abi::{self, OnComplete, RequestParam, Started, StatusPointer},
    error::Status,
    library::Library,
    peer::{Header, Message, Peer},
};

/// One request of UCX.
pub(crate) struct Operation {
    library: Library,
    /// Operations of this worker that UCX has.
    in_flight: Rc<Cell<usize>>,
    /// Taken at completion.
    owned: RefCell<Option<Owned>>,
    result: Cell<Option<Result<(), Status>>>,
    waker: RefCell<Option<Waker>>,
}

/// Memory that an operation keeps alive, and in place, until its completion.
pub(crate) enum Owned {
    Send {
        header: Header,
        payload: Box<dyn AsRef<[AtomicU8]>>,
        _credit: Credit,
    },
    Receive {
        message: Message,
        from: Rc<Peer>,
        _fetch: Option<Credit>,
    },
    /// UCX may call the peer's failure callback until that is over.
    Close(#[expect(dead_code, reason = "keeps the peer alive")] Rc<Peer>),
}

/// Addresses and lengths of an operation's memory.
#[derive(Clone, Copy)]
pub(crate) struct Regions {
    pub(crate) header: *const c_void,
    pub(crate) header_len: usize,
    pub(crate) data: *mut c_void,
    pub(crate) len: usize,
}

impl Regions {
    fn new(header: &[u8], data: &[AtomicU8]) -> Self {
        Self {
            header: header.as_ptr().cast(),
            header_len: header.len(),
            data: data.as_ptr().cast_mut().cast(),
            len: data.len(),
        }
    }
}

impl Operation {
    /// Starts an operation by `call`, which gets what UCX reads of it.
    ///
    /// # Safety
    ///
    /// `call` hands the parameters to a function of UCX that takes the callback of `owned`'s kind,
    /// and returns what that returned.
    pub(crate) unsafe fn start(
        library: Library,
        in_flight: &Rc<Cell<usize>>,
        owned: Owned,
        flags: u32,
        call: impl FnOnce(Regions, &RequestParam) -> StatusPointer,
    ) -> Completion {
        let on_complete = match owned {
            Owned::Receive { .. } => OnComplete { received: on_received },
            Owned::Send { .. } | Owned::Close(_) => OnComplete { sent: on_sent },
        };
        let operation = Rc::new(Self {
            library,
            in_flight: Rc::clone(in_flight),
            owned: RefCell::new(Some(owned)),
            result: Cell::new(None),
            waker: RefCell::new(None),
        });
        in_flight.set(in_flight.get() + 1);
        let regions = operation.regions();
        let user_data = Rc::into_raw(Rc::clone(&operation)).cast_mut().cast();
        let started = call(regions, &RequestParam::new(on_complete, user_data, flags));
        let result = match Started::new(started) {
            // The callback may have been called within the call, whatever that returned.
            _ if operation.result.get().is_some() => return Completion(operation),
            Started::Request => return Completion(operation),
            Started::Done => Ok(()),
            Started::Failed(status) => Err(Status(status)),
        };
        // SAFETY: made by `into_raw` above; the callback, which would take it, is never called.
        drop(unsafe { Rc::from_raw(user_data.cast::<Self>()) });
        operation.complete(result);
        Completion(operation)
    }

    /// Where the memory is. It stays there: this operation does not move, and a payload's bytes
    /// borrow from a value that stays in its box, unborrowed otherwise, until completion.
    fn regions(&self) -> Regions {
        match &*self.owned.borrow() {
            Some(Owned::Send { header, payload, .. }) => {
                Regions::new(header.as_slice(), (**payload).as_ref())
            }
            Some(Owned::Receive { message, .. }) => Regions::new(&[], message.data.bytes()),
            Some(Owned::Close(_)) | None => Regions::new(&[], &[]),
        }
    }

    fn complete(&self, result: Result<(), Status>) {
        self.in_flight.set(self.in_flight.get() - 1);
        let owned = self.owned.borrow_mut().take();
        match (owned, result) {
            (Some(Owned::Receive { message, from, .. }), Ok(())) => from.deliver(message),
            (Some(Owned::Receive { message, from, .. }), Err(status)) => from.lose(message, status),
            (Some(Owned::Send { .. } | Owned::Close(_)) | None, _) => {}
        }
        self.result.set(Some(result));
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// `ucp_send_nbx_callback_t` of sends and closes.
unsafe extern "C" fn on_sent(request: *mut c_void, status: abi::Status, user_data: *mut c_void) {
    // SAFETY: UCX calls this once for each request, with what it was given.
    unsafe { finish(request, status, user_data) };
}

/// `ucp_am_recv_data_nbx_callback_t`.
unsafe extern "C" fn on_received(
    request: *mut c_void,
    status: abi::Status,
    _len: usize,
    user_data: *mut c_void,
) {
    // SAFETY: as in `on_sent`.
    unsafe { finish(request, status, user_data) };
}

/// Ends the operation of a completed request.
///
/// # Safety
///
/// `request` is completed and not freed; `user_data` is a count of its operation, given up here.
unsafe fn finish(request: *mut c_void, status: abi::Status, user_data: *mut c_void) {
    // SAFETY: the caller gives up a count made by `into_raw`.
    let operation = unsafe { Rc::from_raw(user_data.cast::<Operation>()) };
    // SAFETY: completed and not freed, says the caller; a callback may free its request.
    unsafe { (operation.library.ucp_request_free)(request) };
    operation.complete(if status == abi::OK { Ok(()) } else { Err(Status(status)) });
}

/// Waits for the completion of an operation. Dropping it detaches the operation.
pub(crate) struct Completion(Rc<Operation>);

impl Completion {
    /// True if it is over, and was in vain.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.result.get().is_some_and(|result| result.is_err())
    }
}

impl Future for Completion {
    type Output = Result<(), Status>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.0.result.get() {
            return Poll::Ready(result);
        }
        *self.0.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}
