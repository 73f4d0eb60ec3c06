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
//! A message leaves its buffer, which all peers share, as soon as it is there. What the peer's
//! credits allow fits in [`UNTAKEN_LEN_MAX`]; a peer that sends more is cut off.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::BTreeMap,
    io,
    rc::Rc,
    sync::atomic::AtomicU8,
    time::Duration,
};

use executor::{Class, Notify, first};
use ucx::{Address, Endpoint, Message};
use uring::{Buffer, Buffers, Heap, Inlet, Sender, Stream};
use wire::{Envelope, FRAME_LEN_MAX, TAG_LEN, WORKER_LEN_MAX};

use super::{
    channel::{Receive, Transmit},
    server::REQUESTS,
    ucx::{Worker, Workers},
};

/// More than the frames of all requests or replies that a peer may have on the way.
const UNTAKEN_LEN_MAX: usize = 2 * REQUESTS as usize * FRAME_LEN_MAX;
/// What a message costs here besides its bytes.
const PART_LEN: usize = 128;
/// Time for UCX to let go of an endpoint, after which a worker is dropped without waiting.
const PARTING: Duration = Duration::from_millis(100);

/// What marks the messages of a connection as the peer's, and as ours.
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
            secrets,
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

/// What carries the frames once they have left the stream.
struct Line {
    endpoint: Endpoint,
    secrets: Secrets,
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
        self.inbox.borrow_mut().add(envelope.number, message.data.to_vec())?;
        self.may_speak.set(true);
        self.news.notify_all();
        Some(())
    }

    async fn ready(&self) {
        self.news.until(|| self.end.get().is_some() || self.inbox.borrow().has_next()).await;
    }

    fn receive_now(&self, into: &Buffers) -> io::Result<usize> {
        let mut inbox = self.inbox.borrow_mut();
        match (inbox.has_next(), self.end.get()) {
            (true, _) => Ok(inbox.load(into)),
            (false, Some(end)) => Err(end.into()),
            (false, None) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Sends one message: more would take more of the peer's buffers.
    async fn send_all(&self, from: Vec<Buffer>) -> io::Result<()> {
        let number = self.sent.replace(self.sent.get() + 1);
        let envelope = Envelope { secret: self.secrets.ours, number };
        let sent = self.endpoint.send(&envelope.encode(), Payload(joined(from))).await;
        sent.map_err(|why| io::Error::new(io::ErrorKind::BrokenPipe, why))
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
    waiting: BTreeMap<u64, Vec<u8>>,
    next: u64,
    at: usize,
    len: usize,
}

impl Parts {
    /// Adds a message; `None` when it came before, says nothing, or is more than may wait.
    fn add(&mut self, number: u64, bytes: Vec<u8>) -> Option<()> {
        self.len += bytes.len() + PART_LEN;
        let fits = number >= self.next && !bytes.is_empty() && self.len <= UNTAKEN_LEN_MAX;
        (fits && self.waiting.insert(number, bytes).is_none()).then_some(())
    }

    fn has_next(&self) -> bool {
        self.waiting.contains_key(&self.next)
    }

    /// Moves what comes next, as far as it is there and fits; returns its length.
    fn load(&mut self, into: &Buffers) -> usize {
        let Some(part) = self.waiting.get(&self.next) else { return 0 };
        let mut done = 0;
        for buffer in into.as_slice() {
            let rest = part.get(self.at..).unwrap_or_default();
            let len = buffer.len().min(rest.len());
            buffer.store(rest);
            self.at += len;
            done += len;
        }
        if self.at == part.len() {
            self.len -= part.len() + PART_LEN;
            self.waiting.remove(&self.next);
            (self.next, self.at) = (self.next + 1, 0);
        }
        done
    }
}

/// All bytes in one buffer.
fn joined(mut parts: Vec<Buffer>) -> Buffer {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut whole = Vec::with_capacity(parts.iter().map(Buffer::len).sum());
    parts.iter().for_each(|part| part.append_to(&mut whole));
    whole.into()
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
