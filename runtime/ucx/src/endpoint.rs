//! A connection to one peer.

use std::{ffi::c_void, ptr, rc::Rc, sync::atomic::AtomicU8};

use executor::Credit;

use crate::{
    abi,
    address::Address,
    error::{Error, Status},
    operation::{Completion, Owned, Regions},
    peer::{Header, Message, Peer},
    state::on_failure,
    worker::{Core, MESSAGE_ID},
};

/// A connection to a worker of another process. Dropping it cuts the connection.
///
/// The peer does not notice that; it notices only the end of this process, so say goodbye in a
/// message.
///
/// A peer process that dies is noticed within about two seconds, also when nothing is sent; over
/// shared memory only once its parent has reaped it. A node that vanishes without a word is noticed
/// by TCP or by the level above.
pub struct Endpoint {
    core: Rc<Core>,
    peer: Rc<Peer>,
}

impl Endpoint {
    pub(crate) fn new(core: &Rc<Core>, address: &Address) -> Result<Self, Error> {
        let state = &core.state;
        let peer = Rc::new(Peer::new(&state.any_failed));
        let params = abi::EndpointParams {
            field_mask: abi::EP_PARAM_FIELD_REMOTE_ADDRESS
                | abi::EP_PARAM_FIELD_FAILURE_MODE
                | abi::EP_PARAM_FIELD_ON_FAILURE,
            address: address.raw().as_ptr().cast(),
            failure_mode: abi::FAILURE_MODE_PEER,
            on_failure: Some(on_failure),
            on_failure_arg: Rc::as_ptr(&peer).cast_mut().cast::<c_void>(),
            user_data: ptr::null_mut(),
            flags: 0,
            socket_address: abi::SocketAddress::NONE,
            connection_request: ptr::null_mut(),
            name: ptr::null(),
            local_address: abi::SocketAddress::NONE,
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the address lives during this call; the peer, which the failure callback gets,
        // lives until the endpoint is closed.
        let status =
            unsafe { (state.library.ucp_ep_create)(state.worker, &raw const params, &raw mut raw) };
        Status::check(status, "ucp_ep_create")?;
        peer.endpoint.set(raw);
        state.add(Rc::clone(&peer));
        Ok(Self { core: Rc::clone(core), peer })
    }

    /// Sends a message of `header`, which is copied here, and `payload`.
    ///
    /// Starts when first polled; waits while as many sends are in flight as the worker may have.
    /// Ready when UCX needs the payload no more, which does not say that the peer has it. The
    /// order in which messages are received is not that of their sending where their lengths
    /// differ. Dropping the future detaches the send, which keeps the payload until it is over.
    ///
    /// # Errors
    ///
    /// - [`Error::LongHeader`]: `header` is longer than
    ///   [`HEADER_LEN_MAX`](crate::HEADER_LEN_MAX); nothing is sent.
    /// - Otherwise why the connection has ended; whether the peer has the message is unknown.
    pub fn send<P>(
        &self,
        header: &[u8],
        payload: P,
    ) -> impl Future<Output = Result<(), Error>> + use<P>
    where
        P: AsRef<[AtomicU8]> + 'static,
    {
        let (core, peer) = (Rc::clone(&self.core), Rc::clone(&self.peer));
        let header = Header::new(header).ok_or(Error::LongHeader { len: header.len() });
        async move {
            let (header, payload) = (header?, Box::new(payload));
            let credit = core.state.sends.take(1).await;
            if let Some(reason) = peer.failure() {
                return Err(reason);
            }
            let started = core.start_send(&peer, header, payload, credit);
            drop(core); // It may be over before UCX is done with this.
            let sent = started?.await;
            sent.map_err(|status| peer.failure().unwrap_or(Error::Disconnected(status)))
        }
    }

    /// The next message of the peer; after the last one, why no more will come.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// - [`Error::Disconnected`]: the peer is gone.
    /// - [`Error::TooLong`], [`Error::Overrun`]: it was cut off.
    pub async fn receive(&self) -> Result<Message, Error> {
        self.peer.receive().await
    }

    /// Why the connection has ended, once it has.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.peer.failure()
    }
}

impl Drop for Endpoint {
    /// The endpoint itself is closed in the next visit to the worker.
    fn drop(&mut self) {
        self.peer.fail(Error::Closed);
        self.peer.clear();
    }
}

impl Core {
    fn start_send(
        &self,
        peer: &Peer,
        header: Header,
        payload: Box<dyn AsRef<[AtomicU8]>>,
        credit: Credit,
    ) -> Result<Completion, Error> {
        let (endpoint, send) = (peer.open_endpoint()?, self.state.library.ucp_am_send_nbx);
        let owned = Owned::Send { header, payload, _credit: credit };
        let call = |regions: Regions, param: &abi::RequestParam| {
            let (header, data) = (regions.header, regions.data.cast_const());
            // SAFETY: the endpoint is open, and the operation owns the regions.
            unsafe {
                send(endpoint, MESSAGE_ID, header, regions.header_len, data, regions.len, param)
            }
        };
        // SAFETY: this takes a send callback; what `send` returns is returned.
        Ok(unsafe { self.state.start(owned, abi::AM_SEND_FLAG_REPLY, call) })
    }
}
