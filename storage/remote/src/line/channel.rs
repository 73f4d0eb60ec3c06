//! Frames over a stream: what is received, and what is to be sent.
//!
//! Payload is not copied on its way: a large one is received into a buffer of a pool, which is the
//! permit to have it here, and sent from the buffer it was read into. Small frames stay where they
//! were received, and are bounded by their number: requests and replies need credits.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    rc::Rc,
};

use executor::{Credit, Handle, Notify};
use shm::copy::copy_out;
use uring::{BUFFER_COUNT_MAX, Buffer, Buffers, FrameError, Frames, Heap, Inlet, Pool, Stages};
use wire::{
    BODY_START_LEN, FRAME_LEN_MAX, Frame, HEADER_LEN, INLINE_LEN_MAX, Invalid, LONG_START_LEN,
    Request,
};

use super::{Secrets, Speaks};

/// Most bytes that are given to the stream at a time.
pub(crate) const BATCH_LEN: usize = 256 << 10;
/// Length of a buffer that holds any frame's body.
const BODY_LEN_MAX: usize = FRAME_LEN_MAX - HEADER_LEN;
/// Bytes that are copied at a time to be summed: they stay in the nearest cache.
const SUMMED_LEN: usize = 4 << 10;
/// Bodies up to this length are no matter of the pool.
const OWN_LEN_MAX: usize = BODY_START_LEN + INLINE_LEN_MAX;
const _: () = assert!(OWN_LEN_MAX <= BODY_LEN_MAX && SUMMED_LEN <= BODY_LEN_MAX);

/// The direction towards this process, as an input.
pub(crate) trait Receive: Inlet + 'static {
    /// True if frames leave the stream once both sides have proven the key.
    fn leaves_stream(&self) -> bool {
        false
    }

    /// True if the peer has broken the stream off.
    fn is_broken_off(&self) -> bool {
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

/// Receive buffers shared by connections. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pool: Pool,
    stages: Stages,
}

impl Room {
    /// Room for so many large payloads.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            pool: Pool::reserve_aligned_at(LONG_START_LEN, BODY_LEN_MAX, count),
            stages: Stages::default(),
        }
    }

    /// The same, for connections that receive in turns.
    pub(crate) fn in_turns(count: usize, handle: &Handle) -> Self {
        Self { stages: Stages::in_turns(handle), ..Self::new(count) }
    }

    /// An equal part of it, for one more connection.
    pub(crate) fn join(&self) -> Self {
        Self { pool: self.pool.join(), stages: self.stages.clone() }
    }

    /// A buffer for a payload of `len` bytes.
    pub(crate) async fn buffer(&self, len: usize) -> Buffer {
        if len <= INLINE_LEN_MAX { Heap::buffer(len) } else { self.pool.take().await.prefix(len) }
    }
}

/// Received data.
pub(crate) struct Inbox<R> {
    frames: Frames<R, HEADER_LEN>,
    current: Option<Received>,
}

/// A frame, and its payload.
struct Received {
    frame: Frame<'static>,
    data: Buffers,
    /// The payload again, if it is small and no data.
    bytes: Vec<u8>,
    /// Of the connection's turn to receive, for a short transfer.
    share: Option<Credit>,
}

impl<R: Receive> Inbox<R> {
    /// An inbox with room of its own.
    pub(crate) fn new(receiver: R) -> Self {
        Self::with(receiver, &Room::new(1))
    }

    pub(crate) fn with(receiver: R, room: &Room) -> Self {
        let frames = Frames::new(receiver, room.pool.clone(), &room.stages);
        let frames = frames.with_own_up_to(OWN_LEN_MAX);
        Self { frames, current: None }
    }

    /// Goes on, between two frames, with other room.
    pub(crate) fn move_to(&mut self, room: &Room) {
        self.frames.move_to(room.pool.clone(), &room.stages);
    }

    /// Waits until a whole frame has been received.
    ///
    /// # Errors
    ///
    /// Those of the stream; `UnexpectedEof` when the peer has closed; `InvalidData` when it does
    /// not speak the protocol, or something has arrived that was not sent.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        let wrong = Cell::new(None);
        let admit = |header: &_| {
            Frame::body_len(header).map_err(|why| {
                wrong.set(Some(why));
                FrameError::BadHead
            })
        };
        let invalid = |why: Invalid| io::Error::new(io::ErrorKind::InvalidData, why);
        let received = match self.frames.next(admit).await {
            Ok(Some(received)) => received,
            Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(FrameError::Broken(error)) => return Err(error),
            Err(error) => {
                let error = io::Error::new(io::ErrorKind::InvalidData, error);
                return Err(wrong.get().map_or(error, invalid));
            }
        };
        let body = received.body.unwrap_or_else(|| Heap::buffer(0));
        let lent = received.lent;
        let body_len = body.len() + lent.as_ref().map_or(0, Buffers::len);
        let mut start = [0; BODY_START_LEN];
        body.load(&mut start);
        let is_cut_elsewhere = body.len() < LONG_START_LEN;
        if let (Some(lent), Some(rest), true) =
            (&lent, start.get_mut(body.len()..), is_cut_elsewhere)
        {
            // Of a peer that cuts elsewhere, the frame ends here.
            lent.as_slice().iter().take(1).for_each(|first| first.load(rest));
        }
        let parts = [&body].into_iter().chain(lent.iter().flat_map(Buffers::as_slice));
        if parts.fold(0, summed) != Frame::body_sum(&received.head) {
            return Err(invalid(Invalid::Checksum));
        }
        let start = start.get(..body_len).unwrap_or(&start);
        let decoded = Frame::decode(&received.head, start);
        let (frame, payload_at) = decoded.map_err(invalid)?;
        let data = match lent {
            None => body.suffix(payload_at).into(),
            Some(data) if body.len() == payload_at => data,
            Some(rest) => joined([&[body], rest.as_slice()].concat()).suffix(payload_at).into(),
        };
        let is_copied = match frame {
            Frame::Request { request: Request::Write { .. }, .. } => false,
            Frame::Worker { .. } => true,
            _ => body_len <= OWN_LEN_MAX,
        };
        let bytes = if is_copied { bytes_of(&data) } else { Vec::new() };
        let share = self.share(&frame);
        self.current = Some(Received { frame, data, bytes, share });
        Ok(())
    }

    /// Its part of the turn. Only what is in the cache while it is served, and served without
    /// anybody else's doing, keeps that from others.
    fn share(&mut self, frame: &Frame<'_>) -> Option<Credit> {
        let moved = match *frame {
            Frame::Request { request, .. } => moved(&request),
            _ => 0,
        };
        let share = self.frames.share(HEADER_LEN + moved);
        share.filter(|_| (1..=INLINE_LEN_MAX).contains(&moved))
    }

    /// The frame that [`fill`](Self::fill) has found, with a payload that is small and not to be
    /// written.
    pub(crate) fn frame(&self) -> Option<Frame<'_>> {
        let received = self.current.as_ref()?;
        Some(received.frame.with_payload(&received.bytes))
    }

    /// Its payload, whatever it is.
    pub(crate) fn data(&self) -> Option<Buffers> {
        self.current.as_ref().map(|received| received.data.clone())
    }

    /// The frame's part of the connection's turn, to be kept until it is answered.
    pub(crate) fn take_share(&mut self) -> Option<Credit> {
        self.current.as_mut()?.share.take()
    }

    /// Waits for something else than the next frame; others may receive meanwhile.
    pub(crate) async fn wait<T>(&mut self, other: impl Future<Output = T>) -> T {
        self.frames.wait(other).await
    }

    /// Returns the receiver, between two frames.
    pub(crate) fn receiver(&mut self) -> &mut R {
        self.frames.inlet()
    }

    /// Forgets the frame: its buffer may be somebody else's.
    pub(crate) fn consume(&mut self) {
        self.current = None;
    }
}

/// Bytes of payload that a request or its reply may have.
pub(crate) fn moved(request: &Request) -> usize {
    match *request {
        Request::Read { len, .. } | Request::Write { len, .. } => len as usize,
        // Paths.
        _ => 0,
    }
}

/// CRC32C continued over what a buffer holds. Others may change that meanwhile: then the frame is
/// refused, and sent again with what is there by then.
fn summed(mut sum: u32, buffer: &Buffer) -> u32 {
    let mut copy = [0; SUMMED_LEN];
    for part in buffer.bytes().chunks(SUMMED_LEN) {
        debug_assert!(part.len() <= SUMMED_LEN, "a part fits");
        let copy = copy.get_mut(..part.len()).unwrap_or_default();
        copy_out(copy, part);
        sum = wire::sum(sum, copy);
    }
    sum
}

/// All bytes in one buffer.
pub(crate) fn joined(mut parts: Vec<Buffer>) -> Buffer {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut whole = Vec::with_capacity(parts.iter().map(Buffer::len).sum());
    parts.iter().for_each(|part| part.append_to(&mut whole));
    whole.into()
}

/// A copy of what buffers hold.
pub(crate) fn bytes_of(buffers: &Buffers) -> Vec<u8> {
    let mut bytes = Vec::new();
    buffers.as_slice().iter().for_each(|buffer| buffer.append_to(&mut bytes));
    bytes
}

/// Data to send. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Outbox(Rc<State>);

#[derive(Default)]
struct State {
    parts: RefCell<VecDeque<Part>>,
    /// Bytes of all parts.
    len: Cell<usize>,
    owes_pong: Cell<bool>,
    owes_ping: Cell<bool>,
    changed: Notify,
}

enum Part {
    /// Whole frames, or the start of one.
    Bytes(Vec<u8>),
    /// A payload.
    Data(Buffer),
}

impl Outbox {
    /// Adds a frame, to be sent with whatever else is there by then.
    pub(crate) fn push(&self, frame: Frame<'_>) {
        self.add(&[frame.head().bytes(), frame.payload()]);
        self.0.changed.notify_all();
    }

    /// Adds a frame whose payload is `data`, which is kept until it is sent.
    pub(crate) fn push_data(&self, frame: Frame<'_>, data: Buffer) {
        self.add(&[frame.head_before(data.len(), |start| summed(start, &data)).bytes()]);
        self.0.len.set(self.0.len.get() + data.len());
        self.0.parts.borrow_mut().push_back(Part::Data(data));
        self.0.changed.notify_all();
    }

    fn add(&self, bytes: &[&[u8]]) {
        let len: usize = bytes.iter().map(|bytes| bytes.len()).sum();
        self.0.len.set(self.0.len.get() + len);
        let mut parts = self.0.parts.borrow_mut();
        match parts.back_mut() {
            Some(Part::Bytes(last)) if last.len() + len <= BATCH_LEN => {
                bytes.iter().for_each(|bytes| last.extend_from_slice(bytes));
            }
            _ => parts.push_back(Part::Bytes(bytes.concat())),
        }
    }

    /// Takes off the front what is given to the stream at a time.
    fn batch(&self) -> Vec<Buffer> {
        let (mut batch, mut len) = (Vec::new(), 0);
        let mut parts = self.0.parts.borrow_mut();
        while let Some(part) = parts.pop_front() {
            if batch.len() == BUFFER_COUNT_MAX || len > 0 && len + part.len() > BATCH_LEN {
                parts.push_front(part);
                break;
            }
            len += part.len();
            batch.push(part.into_buffer());
        }
        debug_assert!(len <= self.0.len.get(), "every part is counted");
        self.0.len.set(self.0.len.get() - len);
        debug_assert_eq!(self.0.len.get() == 0, parts.is_empty(), "no part is empty");
        batch
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
        self.0.changed.until(|| self.0.len.get() <= len).await;
    }

    /// Sends what is there, and what comes, until the stream breaks.
    pub(crate) async fn pump(&self, sender: &mut impl Transmit) -> io::Result<()> {
        loop {
            let state = &self.0;
            let owes = || state.owes_pong.get() || state.owes_ping.get();
            state.changed.until(|| owes() || state.len.get() > 0).await;
            if state.owes_pong.take() {
                self.push(Frame::Pong);
            }
            if state.owes_ping.take() {
                self.push(Frame::Ping);
            }
            sender.send_all(self.batch()).await?;
            state.changed.notify_all();
        }
    }
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Data(data) => data.len(),
        }
    }

    fn into_buffer(self) -> Buffer {
        match self {
            Self::Bytes(bytes) => bytes.into(),
            Self::Data(data) => data,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use uring::Buffers;
    use wire::WORKER_LEN_MAX;

    use super::*;

    /// Bytes received so far.
    struct Said(Vec<u8>);

    impl Inlet for Said {
        async fn ready(&mut self) {}

        fn receive_now(&mut self, into: &Buffers) -> io::Result<usize> {
            let mut done = 0;
            for buffer in into.as_slice() {
                let rest = &self.0[done..];
                buffer.store(rest);
                done += buffer.len().min(rest.len());
            }
            self.0.drain(..done);
            Ok(done)
        }

        fn cut(&mut self) {}
    }

    impl Receive for Said {}

    #[test]
    fn the_longest_address_of_a_worker_is_heard() {
        let address = [7; WORKER_LEN_MAX];
        let frame = Frame::Worker { address: &address };
        let mut inbox = Inbox::new(Said([frame.head().bytes(), &address].concat()));
        let filled = pin!(inbox.fill()).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(filled, Poll::Ready(Ok(()))));
        assert!(inbox.frame() == Some(frame));
    }
}
