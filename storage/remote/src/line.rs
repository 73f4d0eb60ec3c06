//! The two directions of a connection. Under `tcp://` and `unix://` they are a stream. Under
//! `ucx://` they begin as one, over which both sides prove the key and tell each other a UCX
//! worker; the frames after the welcome then travel as messages between the workers, and the stream
//! stays open only so that its end tells of the peer's.
//!
//! # Order
//!
//! A message is a part of the stream of frames, of any length. UCX may deliver large ones late, so
//! they are numbered, and put together here.
//!
//! # Trust
//!
//! UCX takes a message from whoever reaches the worker. One counts here only when UCX says that it
//! came through the endpoint made for this peer, *and* it names the secret of this connection and
//! direction, which only who has the job key can compute. What does not is dropped.
//!
//! # Bounds
//!
//! What a peer's credits allow fits in [`UNTAKEN_LEN_MAX`]; a peer that sends more is cut off. A
//! short message leaves its buffer, which all peers share, as soon as it is there. A long one stays
//! there until it is written, so that it need not be copied, as long as enough others are free.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::BTreeMap,
    io,
    rc::Rc,
    sync::{Arc, atomic::AtomicU8},
    task::Poll,
    time::Duration,
};

use executor::{Class, Credits, Handle, Notify, first};
use ucx::{Address, Endpoint, Message, PIECE_LEN};
use uring::{BUFFER_COUNT_MAX, Buffer, Buffers, Heap, Inlet, Memory, Sender, Stream};
use wire::{Envelope, FRAME_LEN_MAX, TAG_LEN, WORKER_LEN_MAX};

pub(super) mod address;
pub(super) mod channel;
pub(super) mod handshake;
pub(super) mod key;
pub(super) mod workers;

use self::{
    channel::{Receive, Transmit, joined},
    workers::{Worker, Workers},
};
/// Requests that a client may have unanswered.
pub(crate) const REQUESTS: u32 = 64;
/// More than the frames of all requests or replies that a peer may have on the way.
const UNTAKEN_LEN_MAX: usize = 2 * REQUESTS as usize * FRAME_LEN_MAX;
/// Payloads up to this length are copied to be one message with what stands before and after them:
/// that costs less than a message.
const JOINED_LEN_MAX: usize = 16 << 10;
/// Messages on their way to the peer.
const SENDING_MAX: u64 = 4;
/// Overhead of a message, bytes.
const PART_LEN: usize = 128;
/// Time for UCX to let go of an endpoint, after which a worker is dropped without waiting.
const PARTING: Duration = Duration::from_millis(100);

/// The marks that tell the peer's messages from ours on a connection.
#[derive(Clone, Copy)]
pub(crate) struct Secrets {
    pub(crate) ours: [u8; TAG_LEN],
    pub(crate) theirs: [u8; TAG_LEN],
}

/// The directions of a connection; the frames leave the stream when `workers` are given.
pub(crate) fn halves(stream: Stream, workers: Option<Workers>) -> (Incoming, Outgoing) {
    let (receiver, sender) = stream.split();
    let line = Rc::new(OnceCell::new());
    let outgoing = Outgoing { sender, line: Rc::clone(&line) };
    (Incoming { receiver: Some(receiver), line, workers, worker: None }, outgoing)
}

/// The direction towards this process.
pub(crate) struct Incoming {
    /// Until the frames leave the stream.
    receiver: Option<uring::Receiver>,
    line: Rc<OnceCell<Rc<Line>>>,
    workers: Option<Workers>,
    /// From when the peer is told of it.
    worker: Option<Rc<Worker>>,
}

/// The direction towards the peer.
pub(crate) struct Outgoing {
    sender: Sender,
    line: Rc<OnceCell<Rc<Line>>>,
}

impl Inlet for Incoming {
    /// A call brings bytes of one message, and long payloads are messages of their own.
    fn lends(&self) -> bool {
        self.receiver.is_none()
    }

    async fn lend(&mut self, len: usize) -> Option<Buffers> {
        match (&mut self.receiver, self.line.get()) {
            (Some(receiver), _) => receiver.lend(len).await,
            (None, Some(line)) => line.lend(len).await,
            (None, None) => None,
        }
    }

    async fn ready(&mut self) {
        match (&mut self.receiver, self.line.get()) {
            (Some(receiver), _) => receiver.ready().await,
            (None, Some(line)) => line.ready().await,
            (None, None) => {}
        }
    }

    fn receive_now(&mut self, into: &Buffers) -> io::Result<usize> {
        match (&mut self.receiver, self.line.get()) {
            (Some(receiver), _) => receiver.receive_now(into),
            (None, Some(line)) => line.receive_now(into),
            (None, None) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The other direction has to go, too: both are dropped by who gets the error.
    fn cut(&mut self) {}
}

impl Receive for Incoming {
    fn leaves_stream(&self) -> bool {
        self.workers.is_some()
    }

    fn is_broken_off(&self) -> bool {
        self.receiver.as_ref().is_some_and(uring::Receiver::is_broken_off)
    }

    fn worker(&mut self) -> io::Result<Vec<u8>> {
        let workers = self.workers.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let worker = self.worker.insert(workers.worker()?);
        let address = worker.worker.address().map_err(io::Error::other)?.as_bytes().to_vec();
        if address.len() > WORKER_LEN_MAX {
            return Err(io::Error::other("the address of the UCX worker is too long"));
        }
        Ok(address)
    }

    fn leave_stream(&mut self, to: &[u8], secrets: Secrets, speaks: Speaks) -> io::Result<()> {
        let missing = || io::Error::from(io::ErrorKind::NotConnected);
        let workers = self.workers.clone().ok_or_else(missing)?;
        let worker = self.worker.take().ok_or_else(missing)?;
        let to = Address::from_bytes(to).ok_or(io::ErrorKind::InvalidData)?;
        let endpoint = worker.worker.connect_worker(&to).map_err(|why| {
            workers.retire(&worker);
            io::Error::new(io::ErrorKind::HostUnreachable, why)
        })?;
        let line = Rc::new(Line {
            endpoint,
            worker: Rc::clone(&worker),
            handle: workers.handle.clone(),
            secrets,
            sending: Credits::new(SENDING_MAX),
            sent: Cell::new(0),
            inbox: RefCell::default(),
            may_speak: Cell::new(speaks == Speaks::First),
            is_left: Cell::new(false),
            end: Cell::new(None),
            news: Notify::new(),
        });
        let stream = self.receiver.take().ok_or_else(missing)?;
        self.line.set(Rc::clone(&line)).map_err(|_| missing())?;
        workers.handle.clone().spawn(Class::Latency, async move {
            line.attend(stream).await;
            if !line.is_left.get() {
                workers.retire(&worker);
            }
            drop(line);
            workers.handle.sleep(PARTING).await;
            drop(worker);
        });
        Ok(())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(line) = self.line.get() {
            line.is_left.set(true);
            line.news.notify_all();
        }
    }
}

impl Transmit for Outgoing {
    async fn send_all(&mut self, from: Vec<Buffer>) -> io::Result<()> {
        match self.line.get().filter(|line| line.may_speak.get()) {
            Some(line) => line.send_all(from).await,
            None => self.sender.send_all(from).await,
        }
    }
}

/// Which side sends the first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// The one that connects last: UCX drops what comes before its receiver has connected.
    First,
    /// The one that answers; until it is spoken to, it uses the stream.
    Second,
}

/// The connection that carries the frames once they have left the stream.
struct Line {
    endpoint: Endpoint,
    worker: Rc<Worker>,
    handle: Handle,
    secrets: Secrets,
    /// Places for messages on their way.
    sending: Credits,
    /// Messages sent.
    sent: Cell<u64>,
    inbox: RefCell<Parts>,
    may_speak: Cell<bool>,
    /// Nobody receives any more.
    is_left: Cell<bool>,
    /// Why nothing more will come.
    end: Cell<Option<io::ErrorKind>>,
    news: Notify,
}

impl Line {
    /// Takes in what comes, until the peer, the stream, or who receives here is gone.
    async fn attend(&self, stream: uring::Receiver) {
        let left = async {
            self.news.until(|| self.is_left.get()).await;
            io::ErrorKind::NotConnected
        };
        let end = first(first(self.collect(), silence(stream)), left).await;
        self.end.set(Some(end));
        self.news.notify_all();
    }

    async fn collect(&self) -> io::ErrorKind {
        loop {
            match self.endpoint.receive().await {
                Ok(message) => {
                    if self.take(message).is_none() {
                        return io::ErrorKind::InvalidData;
                    }
                }
                Err(_) => return io::ErrorKind::ConnectionReset,
            }
        }
    }

    /// Keeps a message of the peer; `None`: it does not keep to the protocol.
    fn take(&self, message: Message) -> Option<()> {
        let envelope = Envelope::decode(message.header());
        let envelope = envelope.filter(|found| is_equal(&found.secret, &self.secrets.theirs));
        let Some(envelope) = envelope else {
            tracing::debug!("a UCX message of a stranger was dropped");
            return Some(());
        };
        let part = self.kept(message.data);
        self.inbox.borrow_mut().add(envelope.number, part)?;
        self.may_speak.set(true);
        self.news.notify_all();
        Some(())
    }

    async fn ready(&self) {
        self.news.until(|| self.end.get().is_some() || self.inbox.borrow().has_next()).await;
    }

    async fn lend(&self, len: usize) -> Option<Buffers> {
        let mut lent = None;
        let is_decided = || match self.inbox.borrow_mut().take_whole(len) {
            Poll::Ready(found) => {
                lent = found;
                true
            }
            Poll::Pending => self.end.get().is_some(),
        };
        self.news.until(is_decided).await;
        lent
    }

    fn receive_now(&self, into: &Buffers) -> io::Result<usize> {
        let mut inbox = self.inbox.borrow_mut();
        match (inbox.has_next(), self.end.get()) {
            (true, _) => Ok(inbox.load(into)),
            (false, Some(end)) => Err(end.into()),
            (false, None) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Where the data of a message is from now on: where it came, unless too few buffers are left
    /// for all peers.
    fn kept(&self, data: ucx::Buffer) -> Part {
        let len = data.len();
        if len <= JOINED_LEN_MAX || !self.worker.has_spare_buffers() {
            return Part { data: data.to_vec().into(), is_held: false };
        }
        let data = Buffer::new(Arc::new(Held(data)), 0, len).unwrap_or_else(|| Heap::buffer(0));
        Part { data, is_held: true }
    }

    /// Begins to send, long payloads as messages of their own, which need not be copied here or
    /// there; waits while too many of these are on their way.
    async fn send_all(self: &Rc<Self>, from: Vec<Buffer>) -> io::Result<()> {
        for message in messages(&from) {
            let number = self.sent.replace(self.sent.get() + 1);
            let envelope = Envelope { secret: self.secrets.ours, number };
            let sent = self.endpoint.send(&envelope.encode(), Payload(message));
            // One that is gone never takes what is on its way.
            let place = async { Ok(self.sending.take(1).await) };
            let (place, line) = (first(place, self.ended()).await?, Rc::downgrade(self));
            // Begun at once: who says goodbye goes then.
            self.handle.start(Class::Latency, async move {
                let failed = sent.await.is_err();
                // What follows it cannot be put together.
                if let Some(line) = line.upgrade().filter(|_| failed) {
                    line.end.set(Some(io::ErrorKind::BrokenPipe));
                    line.news.notify_all();
                }
                drop(place);
            });
        }
        self.end.get().map_or(Ok(()), |end| Err(end.into()))
    }

    /// Waits until nothing more will come, and returns why.
    async fn ended<T>(&self) -> io::Result<T> {
        self.news.until(|| self.end.get().is_some()).await;
        Err(self.end.get().unwrap_or(io::ErrorKind::NotConnected).into())
    }
}

/// Waits for the end of a stream on which nothing more is said.
async fn silence(mut stream: uring::Receiver) -> io::ErrorKind {
    let space = Heap::buffer(1).into();
    match stream.receive(&space).await {
        Ok(0) => io::ErrorKind::UnexpectedEof,
        Ok(_) => io::ErrorKind::InvalidData,
        Err(error) => error.kind(),
    }
}

/// Takes the same time for every wrong guess.
fn is_equal(one: &[u8; TAG_LEN], other: &[u8; TAG_LEN]) -> bool {
    one.iter().zip(other).fold(0, |found, (one, other)| found | (one ^ other)) == 0
}

/// Messages that came, by their numbers, and where in the first one the reader is.
#[derive(Default)]
struct Parts {
    waiting: BTreeMap<u64, Part>,
    next: u64,
    at: usize,
    len: usize,
}

struct Part {
    data: Buffer,
    /// In the worker's buffer: all peers have few of these, so it may go on as it is.
    is_held: bool,
}

impl Parts {
    /// Adds a message; `None` when it came before, says nothing, or is more than may wait.
    fn add(&mut self, number: u64, part: Part) -> Option<()> {
        self.len += part.data.len() + PART_LEN;
        let fits = number >= self.next && !part.data.is_empty() && self.len <= UNTAKEN_LEN_MAX;
        (fits && self.waiting.insert(number, part).is_none()).then_some(())
    }

    fn has_next(&self) -> bool {
        self.waiting.contains_key(&self.next)
    }

    /// Moves what comes next, as far as it is there and fits; returns its length.
    fn load(&mut self, into: &Buffers) -> usize {
        let Some(Part { data: part, .. }) = self.waiting.get(&self.next) else { return 0 };
        let mut done = 0;
        for buffer in into.as_slice() {
            debug_assert!(self.at <= part.len(), "what is read was there");
            let rest = part.suffix(self.at);
            buffer.copy_from(rest.bytes());
            let len = buffer.len().min(rest.len());
            self.at += len;
            done += len;
        }
        if self.at == part.len() {
            self.drop_next();
        }
        done
    }

    /// Takes the next messages as they are, if they may go on so, and are so long together; not
    /// ready before all have come.
    fn take_whole(&mut self, len: usize) -> Poll<Option<Buffers>> {
        let (mut left, mut parts) = (len, Vec::new());
        for number in self.next.. {
            match self.waiting.get(&number) {
                _ if left == 0 => break,
                _ if self.at > 0 || parts.len() == BUFFER_COUNT_MAX => return Poll::Ready(None),
                Some(Part { data, is_held: true }) if data.len() <= left => {
                    left -= data.len();
                    parts.push(data.clone());
                }
                Some(_) => return Poll::Ready(None),
                None => return Poll::Pending,
            }
        }
        debug_assert!(parts.len() <= BUFFER_COUNT_MAX, "no more are taken together");
        parts.iter().for_each(|_| self.drop_next());
        Poll::Ready(Buffers::new(parts))
    }

    fn drop_next(&mut self) {
        if let Some(part) = self.waiting.remove(&self.next) {
            debug_assert!(self.len >= part.data.len() + PART_LEN, "a message is counted once");
            self.len -= part.data.len() + PART_LEN;
            (self.next, self.at) = (self.next + 1, 0);
        }
    }
}

/// The data of a message, in the worker's buffer.
struct Held(ucx::Buffer);

impl Memory for Held {
    fn bytes(&self) -> &[AtomicU8] {
        self.0.bytes()
    }
}

/// Cuts buffers into messages: a part of a long payload each, or short ones together.
fn messages(from: &[Buffer]) -> impl Iterator<Item = Buffer> {
    let is_short = |buffer: &Buffer| buffer.len() <= JOINED_LEN_MAX;
    let groups = from.chunk_by(move |one, next| is_short(one) && is_short(next));
    groups.flat_map(|group| {
        let whole = joined(group.to_vec());
        let starts = (0..whole.len()).step_by(PIECE_LEN);
        starts.map(move |at| whole.suffix(at).prefix(PIECE_LEN))
    })
}

/// A buffer to send.
struct Payload(Buffer);

impl AsRef<[AtomicU8]> for Payload {
    fn as_ref(&self) -> &[AtomicU8] {
        self.0.bytes()
    }
}

#[cfg(test)]
mod tests;
