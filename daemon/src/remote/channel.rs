//! Frames over a stream: what is received and not yet understood, what is to be sent.
//!
//! Both are bounded: an [`Inbox`] holds one frame and what one receive brought besides, an
//! [`Outbox`] what the credits of a connection allow, since a request or a reply enters it only with
//! a credit.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
};

use executor::Notify;
use shm::copy::{copy_in, copy_out};
use uring::{Buffer, Buffers, Heap};
use wire::{FRAME_LEN_MAX, Frame};

use super::line::{Secrets, Speaks};

/// Most bytes of one receive.
const RECEIVE_LEN: usize = 64 << 10;
/// Most bytes that are given to the stream at a time.
pub(crate) const BATCH_LEN: usize = 256 << 10;

/// The direction towards this process, as an input.
pub(crate) trait Receive: 'static {
    /// Receives some bytes; 0 when the peer has closed.
    async fn receive(&mut self, into: &Buffers) -> io::Result<usize>;

    /// Whether frames leave the stream once both sides have proven the key.
    fn leaves_stream(&self) -> bool {
        false
    }

    /// The address of the UCX worker at which this side then takes them.
    fn worker(&mut self) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Has the frames leave the stream, for messages between that worker and the peer's at `to`.
    fn leave_stream(&mut self, _to: &[u8], _secrets: Secrets, _speaks: Speaks) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The direction towards the peer, as an input.
pub(crate) trait Transmit: 'static {
    /// Sends all bytes.
    async fn send_all(&mut self, from: Vec<Buffer>) -> io::Result<()>;
}

/// What has been received.
pub(crate) struct Inbox<R> {
    receiver: R,
    space: Buffer,
    bytes: Vec<u8>,
    /// Bytes before this have been consumed.
    start: usize,
}

impl<R: Receive> Inbox<R> {
    pub(crate) fn new(receiver: R) -> Self {
        Self { receiver, space: Heap::buffer(RECEIVE_LEN), bytes: Vec::new(), start: 0 }
    }

    /// Waits until a whole frame has been received, and returns its length.
    ///
    /// # Errors
    ///
    /// Those of the stream; `UnexpectedEof` when the peer has closed; `InvalidData` when it does not
    /// speak the protocol.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        loop {
            let waiting = self.bytes.get(self.start..).unwrap_or_default();
            let parsed = Frame::parse(waiting);
            match parsed.map_err(|invalid| io::Error::new(io::ErrorKind::InvalidData, invalid))? {
                Some((_, len)) => return Ok(len),
                None => self.receive().await?,
            }
        }
    }

    async fn receive(&mut self) -> io::Result<()> {
        self.bytes.drain(..self.start);
        self.start = 0;
        let len = self.receiver.receive(&self.space.clone().into()).await?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let used = self.bytes.len();
        debug_assert!(used < FRAME_LEN_MAX, "a frame that is complete was left unparsed");
        self.bytes.resize(used + len, 0);
        let room = self.bytes.get_mut(used..).unwrap_or_default();
        copy_out(room, self.space.prefix(len).bytes());
        Ok(())
    }

    /// The frame that [`fill`](Self::fill) has found.
    pub(crate) fn frame(&self) -> Option<Frame<'_>> {
        let waiting = self.bytes.get(self.start..).unwrap_or_default();
        Frame::parse(waiting).ok().flatten().map(|(frame, _)| frame)
    }

    /// What is received from, between two frames.
    pub(crate) fn receiver(&mut self) -> &mut R {
        &mut self.receiver
    }

    /// Forgets the frame, which has `len` bytes.
    pub(crate) fn consume(&mut self, len: usize) {
        self.start += len;
    }
}

/// What is to be sent. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Outbox(Rc<State>);

#[derive(Default)]
struct State {
    bytes: RefCell<Vec<u8>>,
    owes_pong: Cell<bool>,
    owes_ping: Cell<bool>,
    changed: Notify,
}

impl Outbox {
    /// Adds a frame, to be sent with whatever else is there by then.
    pub(crate) fn push(&self, frame: Frame<'_>) {
        let mut bytes = self.0.bytes.borrow_mut();
        bytes.extend_from_slice(frame.head().bytes());
        bytes.extend_from_slice(frame.payload());
        drop(bytes);
        self.0.changed.notify_all();
    }

    /// Answers a ping; however many there were, once.
    pub(crate) fn owe_pong(&self) {
        self.0.owes_pong.set(true);
        self.0.changed.notify_all();
    }

    /// Asks whether the peer is there, once however often this is called before it is sent.
    pub(crate) fn ping(&self) {
        self.0.owes_ping.set(true);
        self.0.changed.notify_all();
    }

    /// Waits until at most `len` bytes wait to be sent.
    pub(crate) async fn shrink(&self, len: usize) {
        self.0.changed.until(|| self.0.bytes.borrow().len() <= len).await;
    }

    /// Sends what is there, and what comes, until the stream breaks.
    pub(crate) async fn pump(&self, sender: &mut impl Transmit) -> io::Result<()> {
        loop {
            let state = &self.0;
            let owes = || state.owes_pong.get() || state.owes_ping.get();
            state.changed.until(|| owes() || !state.bytes.borrow().is_empty()).await;
            if state.owes_pong.take() {
                self.push(Frame::Pong);
            }
            if state.owes_ping.take() {
                self.push(Frame::Ping);
            }
            let batch = {
                let mut bytes = state.bytes.borrow_mut();
                let len = bytes.len().min(BATCH_LEN);
                let batch = Heap::buffer(len);
                copy_in(batch.bytes(), &bytes);
                bytes.drain(..len);
                batch
            };
            sender.send_all(vec![batch]).await?;
            state.changed.notify_all();
        }
    }
}
