//! Waiting for connections.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    ffi::c_void,
    fmt, mem,
    net::SocketAddr,
    ptr,
    rc::Rc,
};

use executor::Notify;
use rustix::net::SocketAddrAny;

use crate::{
    abi,
    endpoint::{Endpoint, Remote},
    error::{Error, Status},
    library::Library,
    worker::Core,
};

/// Connections not yet accepted; further ones are refused.
const BACKLOG_MAX: usize = 64;

/// A socket address at which peers connect to a worker. Not for strangers, see the crate's
/// documentation.
pub struct Listener {
    core: Rc<Core>,
    incoming: Rc<Incoming>,
}

/// What the callback reaches.
struct Incoming {
    library: Library,
    listener: Cell<*mut abi::Listener>,
    /// Neither accepted nor rejected.
    requests: RefCell<VecDeque<*mut abi::ConnectionRequest>>,
    changed: Notify,
}

impl Listener {
    pub(crate) fn new(core: &Rc<Core>, address: SocketAddr) -> Result<Self, Error> {
        let (library, worker) = (core.state.library, core.state.worker);
        let incoming = Rc::new(Incoming {
            library,
            listener: Cell::new(ptr::null_mut()),
            requests: RefCell::default(),
            changed: Notify::new(),
        });
        let address = SocketAddrAny::from(address);
        let params = abi::ListenerParams {
            field_mask: abi::LISTENER_PARAM_FIELD_ADDRESS | abi::LISTENER_PARAM_FIELD_ON_CONNECTION,
            address: abi::SocketAddress::new(&address),
            accept_handler: [ptr::null(); 2],
            on_connection: Some(on_connection),
            on_connection_arg: Rc::as_ptr(&incoming).cast_mut().cast::<c_void>(),
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the address lives during this call, and `incoming`, which the callback gets,
        // until the listener is destroyed. The callback comes in progress calls only.
        let status =
            unsafe { (library.ucp_listener_create)(worker, &raw const params, &raw mut raw) };
        Status::check(status, "ucp_listener_create")?;
        incoming.listener.set(raw);
        Ok(Self { core: Rc::clone(core), incoming })
    }

    /// The next connection.
    ///
    /// # Errors
    ///
    /// [`Error::Ucx`]: that peer is gone already, or no transport reaches it; others may follow.
    pub async fn accept(&self) -> Result<Endpoint, Error> {
        loop {
            let changed = self.incoming.changed.notified();
            let request = self.incoming.requests.borrow_mut().pop_front();
            if let Some(request) = request {
                return Endpoint::new(&self.core, &Remote::Request(request));
            }
            changed.await;
        }
    }

    /// Where peers connect.
    ///
    /// # Errors
    ///
    /// [`Error::Ucx`] when UCX does not know.
    pub fn local_address(&self) -> Result<SocketAddr, Error> {
        let call = "ucp_listener_query";
        let mut attributes = abi::ListenerAttributes {
            field_mask: abi::LISTENER_ATTR_FIELD_ADDRESS,
            // SAFETY: plain numbers, for which zero is a value.
            address: unsafe { mem::zeroed() },
        };
        // SAFETY: the listener lives; the attributes are laid out as the interface has them.
        let status = unsafe {
            (self.incoming.library.ucp_listener_query)(
                self.incoming.listener.get(),
                &raw mut attributes,
            )
        };
        Status::check(status, call)?;
        attributes.socket_address().ok_or(Error::Ucx { call, status: Status::INVALID_ADDRESS })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let listener = self.incoming.listener.get();
        for request in self.incoming.requests.take() {
            self.incoming.reject(request);
        }
        // SAFETY: made once, destroyed once; the worker lives, and no callback runs.
        unsafe { (self.incoming.library.ucp_listener_destroy)(listener) };
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.local_address()).finish_non_exhaustive()
    }
}

impl Incoming {
    fn reject(&self, request: *mut abi::ConnectionRequest) {
        // SAFETY: neither accepted nor rejected yet. Nothing can be done about an error.
        unsafe { (self.library.ucp_listener_reject)(self.listener.get(), request) };
    }
}

/// `ucp_listener_conn_callback_t`, with an [`Incoming`] as its argument.
unsafe extern "C" fn on_connection(request: *mut abi::ConnectionRequest, incoming: *mut c_void) {
    // SAFETY: what the listener was made with; it outlives the listener.
    let incoming = unsafe { &*incoming.cast::<Incoming>() };
    if incoming.requests.borrow().len() == BACKLOG_MAX {
        incoming.reject(request);
        return;
    }
    incoming.requests.borrow_mut().push_back(request);
    incoming.changed.notify_all();
}
