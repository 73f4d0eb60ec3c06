//! The server's side of connections: who may come in, what a client may have under way, and what
//! becomes of a client that does not keep to it.
//!
//! # Bounds
//!
//! A connection may be greeting for [`GREETING_TIME_MAX`]. There are [`GREETING_COUNT_MAX`] at a
//! time, and the oldest gives way to one more: who has the key greets at once, so strangers that
//! say nothing keep nobody out, and they have room of their own. There are [`CONNECTIONS_MAX`] that
//! have greeted; where they are all taken the one gives way that has been silent longest, if that
//! is [`IDLE_MIN`] or more, since the client at its other end may be gone. Afterwards a client has
//! at most the granted requests unanswered, of which at most the granted buffers are larger than
//! [`INLINE_LEN_MAX`]; one more and it is cut off. For each of the larger ones it takes a buffer of
//! the clients' [`Room`], of which all of them have equal parts, and waits while it holds its part;
//! the buffer is free again when the request is executed, or what was read is sent. What UCX has
//! received needs none while it stays in buffers of the worker, of which half may. Of the smaller
//! ones as much is executed at a time as stays in the cache: clients take turns, each with what it
//! has sent together. Replies that a client does not take are bounded by not reading on. A client
//! whose machine is silent for [`SILENCE_MAX`] is taken for gone.

use std::{
    cell::Cell,
    io, mem,
    rc::Rc,
    sync::{Arc, Weak},
    time::Duration,
};

use executor::{Class, Notify, first};
use rustix::io::Errno;
use storage::{Locking, names::Answer, verdict::value};
use uring::{Buffer, Listener};
use wire::{Frame, INLINE_LEN_MAX, RemoteWelcome, Request, SESSION_LEN, TRANSFER_LEN_MAX};

use super::{
    boot::Boot,
    limit::{Admitted, ConnectionLimit},
    received::Received,
    service::{CLIENTS_MAX, Service, Session},
    traffic::Traffic,
};
use crate::{
    line::{
        self, REQUESTS,
        channel::{Inbox, Outbox, Receive, Room, Transmit, bytes_of, joined, moved},
        handshake::{challenge, fails_at, fails_when, refused},
        key::Key,
        workers::Workers,
    },
    log_throttle::{AcceptBackoff, LogThrottle},
};

/// Of the [`REQUESTS`] of a client, how many may move more than [`INLINE_LEN_MAX`] bytes. Half of
/// them are executed at a time, while others are received.
pub(crate) const BUFFERS: u32 = 48;
/// Bytes that a client, or the replies to it, may have in flight by these bounds.
pub(crate) const WINDOW_LEN: usize =
    REQUESTS as usize * INLINE_LEN_MAX + BUFFERS as usize * TRANSFER_LEN_MAX;
/// Connections at a time that have greeted: as many as sessions.
const CONNECTIONS_MAX: usize = CLIENTS_MAX;
/// Connections at a time that are greeting.
pub(crate) const GREETING_COUNT_MAX: usize = 256;
/// Larger requests that the server has at a time: one of every client, all that a client has been
/// granted as long as there are few. Memory is taken as it is used.
const ROOM: usize = CONNECTIONS_MAX;
/// Between two assurances that the server is there, to a client that waits for it.
const BEAT: Duration = Duration::from_secs(1);
const GREETING_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a client that is alive may be silent while it wants something.
pub(crate) const IDLE_MIN: Duration = Duration::from_secs(5);
/// Longest time for which the machine at the other end may not answer the kernel's own questions.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Bytes of replies that may wait before nothing more is read.
const UNSENT_LEN_MAX: usize = 1 << 20;

/// A server at one address.
pub struct Server<S: Locking> {
    pub(crate) service: Rc<Service<S>>,
    pub(crate) key: Key,
    boot: Boot,
    /// The right to be served.
    connections: ConnectionLimit,
    /// Held by each connection that is served, for those on other threads who count them.
    traffic: Arc<Traffic>,
    greetings: ConnectionLimit,
    /// For saying that somebody is refused.
    refusals: LogThrottle,
    /// Of those that are greeting.
    lobby: Room,
    room: Room,
}

impl<S: Locking> Server<S> {
    /// A server on the machine that `boot` was started on.
    pub fn new(service: Rc<Service<S>>, key: Key, boot: Boot) -> Rc<Self> {
        let connections = ConnectionLimit::new(CONNECTIONS_MAX, IDLE_MIN);
        let greetings = ConnectionLimit::new(GREETING_COUNT_MAX, Duration::ZERO);
        let (lobby, refusals) = (Room::new(GREETING_COUNT_MAX), LogThrottle::default());
        let room = Room::in_turns(ROOM, &service.handle);
        let traffic = Arc::default();
        Rc::new(Self { service, key, boot, connections, traffic, greetings, refusals, lobby, room })
    }

    /// Has as many holders as there are connections that are served, and one.
    pub fn traffic(&self) -> Weak<Traffic> {
        Arc::downgrade(&self.traffic)
    }

    /// Accepts connections for ever; with `workers` they go on by UCX.
    pub async fn listen(self: Rc<Self>, mut listener: Listener, workers: Option<Workers>) {
        let backoff = AcceptBackoff::new(&self.service.handle);
        loop {
            match listener.accept().await {
                Ok(stream) => {
                    if let Err(why) = self.key.admits(&stream) {
                        self.tell_refused(&why);
                        continue;
                    }
                    // A Unix socket has neither.
                    stream.set_window_min(WINDOW_LEN).ok();
                    stream.set_silence_max(SILENCE_MAX).ok();
                    let (receiver, sender) = line::halves(stream, workers.clone());
                    self.meet(receiver, sender);
                }
                Err(error) => backoff.pause_after(&error).await,
            }
        }
    }

    /// Serves a connection.
    pub(crate) fn meet(self: &Rc<Self>, receiver: impl Receive, mut sender: impl Transmit) {
        let server = Rc::clone(self);
        self.service.handle.spawn(Class::Latency, async move {
            let (inbox, outbox) = (Inbox::with(receiver, &server.lobby.join()), Outbox::default());
            let served = server.serve(inbox, &outbox);
            match first(served, outbox.pump(&mut sender)).await {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    server.tell("is cut off", &error);
                }
                Err(error) => tracing::info!("a remote client is gone: {error}"),
                Ok(()) => {}
            }
        });
    }

    async fn serve<R: Receive>(&self, mut inbox: Inbox<R>, outbox: &Outbox) -> io::Result<()> {
        let name =
            self.greet(&mut inbox, outbox).await.inspect_err(|why| self.tell_refused(why))?;
        let place = self.connections.admit(self.service.handle.now());
        let full = || refused("as many are connected as may be");
        let place = place.ok_or_else(full).inspect_err(|why| self.tell_refused(why))?;
        let root = self.service.shelf.root();
        let root = root.inspect_err(|why| self.service.tell_seldom(why))?;
        let entered = first(self.service.enter(name), self.hold(outbox)).await;
        let (visit, is_known) = entered.inspect_err(|why| self.tell_refused(why))?;
        let room = &self.room.join();
        inbox.move_to(room);
        let _served = Arc::clone(&self.traffic);
        let Boot(boot) = self.boot;
        let welcome = RemoteWelcome { requests: REQUESTS, buffers: BUFFERS, is_known, boot, root };
        outbox.push(Frame::Welcome(welcome));
        let (session, number) = (&visit.session, visit.number);
        let credits = Rc::new(Credits::default());
        let heard = &place;
        let connection = Connection { server: self, session, number, outbox, room, credits, heard };
        let is_replaced = || connection.is_replaced();
        let replaced = fails_when(&session.changed, is_replaced, io::ErrorKind::ConnectionAborted);
        let gives_way = async {
            place.gives_way().await;
            Err(io::Error::other("it is silent, and others want its place"))
        };
        let read = first(connection.read(&mut inbox), connection.assure());
        first(read, first(replaced, gives_way)).await
    }

    /// Says that somebody is not let in.
    fn tell_refused(&self, why: &io::Error) {
        self.tell("is refused", why);
    }

    /// Says what has become of a client, which anybody can cause as often as he likes.
    fn tell(&self, what: &str, why: &io::Error) {
        if self.refusals.admits(self.service.handle.now()) {
            let unsaid = self.refusals.unsaid();
            tracing::warn!("a remote client {what}: {why} ({unsaid} more since the last line)");
        }
    }

    /// Tells a client that waits for its welcome every now and then that the server is there:
    /// requests of an earlier connection may hang for as long as a disk does.
    async fn hold<T>(&self, outbox: &Outbox) -> io::Result<T> {
        loop {
            self.service.handle.sleep(BEAT).await;
            outbox.shrink(0).await;
            // Before the welcome in any case: what follows that may go another way.
            outbox.push(Frame::Pong);
        }
    }

    /// The session of a client that has the key.
    async fn greet<R: Receive>(
        &self,
        inbox: &mut Inbox<R>,
        outbox: &Outbox,
    ) -> io::Result<[u8; SESSION_LEN]> {
        let handle = &self.service.handle;
        let place = self.greetings.admit(handle.now());
        let place = place.ok_or(io::ErrorKind::ConnectionAborted)?;
        let too_late = fails_at(handle, handle.now() + GREETING_TIME_MAX);
        let too_many = async {
            place.gives_way().await;
            Err(io::ErrorKind::ConnectionAborted.into())
        };
        first(challenge(&self.key, inbox, outbox), first(too_late, too_many)).await
    }
}

/// A client's requests in flight.
#[derive(Default)]
struct Credits {
    requests: Cell<u32>,
    buffers: Cell<u32>,
    /// Signalled when there is one more of these.
    more: Notify,
}

struct Connection<'a, S: Locking> {
    server: &'a Server<S>,
    session: &'a Rc<Session<S>>,
    number: u64,
    outbox: &'a Outbox,
    room: &'a Room,
    credits: Rc<Credits>,
    /// The place that it has, for as long as it is heard of.
    heard: &'a Admitted<'a>,
}

impl<S: Locking> Connection<'_, S> {
    /// Takes requests until the client says goodbye, breaks the protocol, or is gone.
    async fn read<R: Receive>(&self, inbox: &mut Inbox<R>) -> io::Result<()> {
        let (mut heard_at, mut is_given_up) = (self.server.service.handle.now(), false);
        loop {
            inbox.wait(self.outbox.shrink(UNSENT_LEN_MAX)).await;
            inbox.fill().await?;
            let before = mem::replace(&mut heard_at, self.server.service.handle.now());
            self.heard.note_heard(heard_at);
            // What was sent to a process that stood still may be old.
            let is_late = heard_at.saturating_since(before) > BEAT;
            is_given_up |= is_late && inbox.receiver().is_broken_off();
            match inbox.frame() {
                Some(Frame::Request { id, record, request, payload }) => {
                    let credit = self.credit(&request)?;
                    let data = inbox.data().unwrap_or_else(|| Buffer::from(Vec::new()).into());
                    let (payload, data) = match request {
                        Request::Write { .. } => (Rc::default(), data),
                        Request::Read { len, .. } => {
                            (Rc::default(), inbox.wait(self.room.buffer(len as usize)).await.into())
                        }
                        // Few paths are longer than what is small.
                        _ if payload.len() < data.len() => (bytes_of(&data).into(), data),
                        _ => (Rc::from(payload), data),
                    };
                    if self.is_replaced() || is_given_up {
                        // It is sent again, or its program was told that it failed; executed late,
                        // it could undo what came after that.
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                    let received = Received { id, record, request, payload, data };
                    self.take(received, credit, inbox.take_share());
                }
                Some(Frame::Ping) => self.outbox.owe_pong(),
                Some(Frame::Goodbye) => {
                    self.server.service.end(self.session);
                    return Ok(());
                }
                _ => return Err(broken("a frame that no client sends")),
            }
            inbox.consume();
        }
    }

    /// True if the session is on a later connection.
    fn is_replaced(&self) -> bool {
        self.session.connection.get() != self.number
    }

    /// Tells a client every now and then that the server is there, while it waits for an answer:
    /// its pings may not be read before a large request is done, and it sends none while it has its
    /// files opened again.
    async fn assure(&self) -> io::Result<()> {
        let credits = &self.credits;
        loop {
            credits.more.until(|| credits.requests.get() > 0).await;
            self.server.service.handle.sleep(BEAT).await;
            if credits.requests.get() > 0 {
                self.outbox.owe_pong();
            }
        }
    }

    /// The client's credit for a request, given back when this is dropped.
    fn credit(&self, request: &Request) -> io::Result<Credit> {
        let buffers = u32::from(moved(request) > INLINE_LEN_MAX);
        let credits = &self.credits;
        credits.requests.set(credits.requests.get() + 1);
        credits.buffers.set(credits.buffers.get() + buffers);
        let credit = Credit { credits: Rc::clone(credits), buffers };
        if credits.requests.get() > REQUESTS || credits.buffers.get() > BUFFERS {
            return Err(broken("a request without credit"));
        }
        credits.more.notify_all();
        Ok(credit)
    }

    fn take(&self, received: Received, credit: Credit, share: Option<executor::Credit>) {
        let (outbox, session, number) = (self.outbox.clone(), Rc::clone(self.session), self.number);
        let read = matches!(received.request, Request::Read { .. }).then(|| received.data.clone());
        let (traffic, request) = (Arc::clone(&self.server.traffic), received.request);
        self.server.service.start(self.session, received, move |id, answer| {
            drop((credit, share));
            traffic.add(&request, answer.as_ref().map_or(0, |answer| answer.value));
            if session.connection.get() != number {
                return; // It will be asked again on the connection that came after.
            }
            let reply = |value, payload| Frame::Reply { id, value, payload };
            match (answer, read) {
                (Ok(Answer { value: moved, .. }), Some(data)) => {
                    let data = joined(data.as_slice().to_vec());
                    let len = usize::try_from(moved).ok().filter(|len| *len <= data.len());
                    let len = invariant!(some len, "a read fills its buffer at most",
                        else return outbox.push(reply(value(Err(Errno::IO)), &[])));
                    outbox.push_data(reply(moved, &[]), data.prefix(len));
                }
                (Ok(Answer { value, bytes }), None) => outbox.push(reply(value, &bytes)),
                (Err(error), _) => outbox.push(reply(value(Err(error)), &[])),
            }
        });
    }
}

/// A request that is not answered.
struct Credit {
    credits: Rc<Credits>,
    buffers: u32,
}

impl Drop for Credit {
    fn drop(&mut self) {
        debug_assert!(self.credits.requests.get() > 0, "a request is counted once");
        debug_assert!(self.credits.buffers.get() >= self.buffers, "a buffer is counted once");
        self.credits.requests.set(self.credits.requests.get() - 1);
        self.credits.buffers.set(self.credits.buffers.get() - self.buffers);
    }
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
