//! A daemon's way to its server: requests that are sent, and sent again until they are answered.
//!
//! A request is kept until its reply has come. When the connection breaks, another one is made,
//! with growing pauses, and all unanswered requests are sent again in their order. One that must
//! not happen twice names a record, in which the server finds that it has happened. When nothing
//! was heard of the server for the timeout, every request fails with `EIO`: the last ones may or
//! may not have happened. A server that is too busy says so, and is waited for.

mod beat;
mod handles;
mod reopen;
mod standing;
mod state;

use std::{
    cell::{Cell, RefCell},
    fmt, io,
    rc::Rc,
    time::Duration,
};

use executor::{Credits, Handle, Instant, Notify, first};
use rustix::io::Errno;
use storage::{Locking, names::Answer, verdict::verdict};
use uring::{Buffer, Buffers};
use wire::{BOOT_LEN, Frame, INLINE_LEN_MAX, ROOT_LEN, Replay, Request, SESSION_LEN};

use self::{
    beat::Absence,
    reopen::is_short,
    standing::Standing,
    state::{Pending, State},
};
use super::own::Neighbour;
use crate::{
    line::{
        REQUESTS,
        channel::{Inbox, Outbox, Receive, Transmit, bytes_of},
        handshake::{advised, fails_at, greet, is_refusal, is_unknown, refused},
        key::{Key, random},
    },
    server::{connections::BUFFERS, ledger::RECORDS},
};

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Longest silence in an attempt to connect and greet.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// Transfers taken from clients at a time: those the server grants, and as many to follow.
const TRANSFERS: u32 = 2 * REQUESTS;
/// Of the requests, how many may wait for a lock: unlocks always find room.
const WAITS: u32 = REQUESTS / 4;
const _: () = assert!(WAITS > 0 && BUFFERS <= REQUESTS);
/// Bytes of requests that may wait for the stream before more are encoded.
const UNSENT_LEN_MAX: usize = 256 << 10;

/// Where connections come from, as an input.
pub(crate) trait Network: fmt::Display + 'static {
    type Receiver: Receive;
    type Sender: Transmit;
    /// The files of a server on this executor.
    type Own: Locking;

    /// Connects to the server.
    async fn connect(&self) -> io::Result<(Self::Receiver, Self::Sender)>;

    /// The server itself, if it is on this executor and knows the session.
    fn neighbour(&self, _session: &[u8; SESSION_LEN]) -> Option<Neighbour<Self::Own>> {
        None
    }
}

/// A daemon's session at its server.
pub struct Client<N> {
    handle: Handle,
    network: N,
    key: Key,
    session: [u8; SESSION_LEN],
    timeout: Duration,
    requests: Credits,
    buffers: Credits,
    records: Credits,
    waits: Credits,
    /// For transfers that are not begun yet.
    pub(crate) permits: Credits,
    state: RefCell<State>,
    /// The boot of the server's machine, once it is known.
    boot: Cell<Option<[u8; BOOT_LEN]>>,
    /// The name of the server's root, once it is known.
    root: Cell<Option<[u8; ROOT_LEN]>>,
    /// Something was asked for that is lost with that machine, unless it is synced.
    has_changed: Cell<bool>,
    /// When the server was there last, or was looked for first.
    heard_at: Cell<Instant>,
    /// A server was started anew, and does not have all the files yet.
    must_reopen: Cell<bool>,
    /// Since when one has been short of what that takes.
    short_since: Cell<Option<Instant>>,
    absence: Absence,
    /// Somebody waits for the first connection, and will say why there is none.
    pub(crate) is_awaited: Cell<bool>,
    /// Signalled when something is to be sent, and when the state of the connection has changed.
    news: Notify,
    /// Signalled when a request was answered or the session has ended.
    idle: Notify,
}

impl<N: Network> Client<N> {
    /// A client without a connection; [`run`](Self::run) makes them.
    ///
    /// # Errors
    ///
    /// The machine has no random numbers.
    pub fn new(handle: Handle, network: N, key: Key, timeout: Duration) -> io::Result<Rc<Self>> {
        Ok(Rc::new(Self {
            heard_at: Cell::new(handle.now()),
            absence: Absence::since(handle.now()),
            handle,
            network,
            key,
            session: random()?,
            timeout,
            requests: Credits::new(u64::from(REQUESTS)),
            buffers: Credits::new(u64::from(BUFFERS)),
            records: Credits::new(u64::from(RECORDS)),
            waits: Credits::new(u64::from(WAITS)),
            permits: Credits::new(u64::from(TRANSFERS)),
            state: RefCell::new(State::new()),
            boot: Cell::new(None),
            root: Cell::new(None),
            has_changed: Cell::new(false),
            must_reopen: Cell::new(false),
            short_since: Cell::new(None),
            is_awaited: Cell::new(false),
            news: Notify::new(),
            idle: Notify::new(),
        }))
    }

    /// Waits until there is a connection, or an attempt to make one has failed; returns which.
    pub(crate) async fn tried(&self) -> io::Result<bool> {
        let failures = self.state.borrow().failures;
        let is_decided = || {
            let state = self.state.borrow();
            state.standing.is_connected() || state.standing.is_dead() || state.failures > failures
        };
        self.news.until(is_decided).await;
        let state = self.state.borrow();
        match &state.standing {
            Standing::Dead(why) => Err(io::Error::other(why.clone())),
            standing => Ok(standing.is_connected()),
        }
    }

    /// Sends a request and waits for its reply: its value and its payload.
    ///
    /// # Errors
    ///
    /// What the server says; `EIO` when it could not be reached for the timeout.
    pub(crate) async fn call(
        self: &Rc<Self>,
        request: Request,
        payload: Vec<u8>,
        is_once: bool,
    ) -> io::Result<Answer> {
        self.ask(request, payload, None, is_once).await
    }

    /// Sends a request to write `data`, or to read into it, and waits for the count.
    pub(crate) async fn transfer(
        self: &Rc<Self>,
        request: Request,
        data: Buffer,
        is_once: bool,
    ) -> io::Result<usize> {
        let len = data.len();
        let count = self.ask(request, Vec::new(), Some(data), is_once).await?.value;
        Ok(usize::try_from(count).unwrap_or(usize::MAX).min(len))
    }

    async fn ask(
        self: &Rc<Self>,
        request: Request,
        payload: Vec<u8>,
        data: Option<Buffer>,
        is_once: bool,
    ) -> io::Result<Answer> {
        let _record = if is_once { Some(self.records.take(1).await) } else { None };
        let _request = self.requests.take(1).await;
        let is_long = data.as_ref().is_some_and(|data| data.len() > INLINE_LEN_MAX);
        let _buffer = if is_long { Some(self.buffers.take(1).await) } else { None };
        let (id, pending) = self.post(request, payload, data, is_once)?;
        let is_over = || pending.reply.borrow().is_some() || self.is_dead();
        pending.answered.until(is_over).await;
        let mut state = self.state.borrow_mut();
        let removed = state.pending.remove(&id);
        debug_assert!(removed.is_some(), "request {id} waits for its caller");
        state.free_records.extend(pending.record);
        debug_assert!(state.free_records.len() <= RECORDS as usize, "a record is free once");
        self.idle.notify_all();
        Ok(pending.reply.take().ok_or(Errno::IO)??)
    }

    /// Asks the server, or has it asked over the connection that there is, or the next.
    fn post(
        self: &Rc<Self>,
        request: Request,
        payload: Vec<u8>,
        data: Option<Buffer>,
        is_once: bool,
    ) -> io::Result<(u64, Rc<Pending>)> {
        let mut state = self.state.borrow_mut();
        if state.standing.is_dead() {
            return Err(Errno::IO.into());
        }
        let is_change = is_once || request.replay() == Replay::Changes;
        self.has_changed.set(self.has_changed.get() || is_change);
        // There is one for every credit.
        let record = if is_once { state.free_records.pop_first() } else { None };
        invariant!(record.is_some() || !is_once, "there is a record for every credit",
            else return Err(Errno::IO.into()));
        let (reply, answered) = (RefCell::default(), Notify::new());
        let pending = Rc::new(Pending { request, record, payload, data, reply, answered });
        state.give_up(&request);
        let id = state.next_id;
        state.next_id += 1;
        state.pending.insert(id, Rc::clone(&pending));
        let is_begun = state.standing.is_connected();
        match self.network.neighbour(&self.session).filter(|_| is_begun) {
            Some(neighbour) => {
                drop(state);
                let (client, asked) = (Rc::clone(self), Rc::clone(&pending));
                neighbour.ask(pending.received(id), move |_, answer| {
                    client.conclude(&asked, answer);
                });
            }
            None => {
                state.unsent.push_back(id);
                drop(state);
                self.news.notify_all();
            }
        }
        Ok((id, pending))
    }

    /// True if every request fails, for good.
    pub(super) fn is_dead(&self) -> bool {
        self.state.borrow().standing.is_dead()
    }

    /// The right to wait for a lock at the server.
    pub(crate) async fn wait(&self) -> impl Sized + use<'_, N> {
        self.waits.take(1).await
    }

    /// Waits until everything is answered, and ends the session.
    pub(crate) async fn leave(&self) {
        let is_quiet = || {
            let state = self.state.borrow();
            state.pending.is_empty() || state.standing.is_dead()
        };
        self.idle.until(is_quiet).await;
        self.abandon();
        self.idle.until(|| !self.state.borrow().standing.is_connected()).await;
    }

    /// Ends the session, or the attempts to begin it, in which nothing is asked any more.
    pub(crate) fn abandon(&self) {
        self.state.borrow_mut().standing.abandon();
        self.news.notify_all();
    }

    /// Keeps a connection until the client is given up, or has said goodbye.
    pub async fn run(self: Rc<Self>) {
        self.hears();
        self.absence.begin(self.handle.now());
        let mut pause = PAUSE_MIN;
        let mut has_served = false;
        loop {
            let error = match first(self.attempt(), self.tell_absence()).await {
                Ok(()) => return,
                Err(error) => error,
            };
            if !Errno::from_io_error(&error).is_some_and(is_short) {
                self.short_since.set(None);
            }
            let was_connected = self.state.borrow().standing.is_connected();
            self.state.borrow_mut().standing.break_off();
            if self.state.borrow().standing == Standing::Left {
                return self.idle.notify_all();
            }
            if was_connected {
                tracing::warn!("the connection to the server at {} broke: {error}", self.network);
                self.hears();
                self.absence.begin(self.handle.now());
                pause = PAUSE_MIN;
                has_served = true;
            }
            if is_refusal(&error) || is_unknown(&error) && !has_served {
                return self.die(&error);
            }
            self.state.borrow_mut().failures += 1;
            self.news.notify_all();
            let end = self.heard_at.get() + self.timeout;
            self.absence.explain(&error);
            let pausing = async {
                self.handle.sleep_until((self.handle.now() + pause).min(end)).await;
                Ok(())
            };
            first(pausing, self.tell_absence()).await.ok();
            if self.handle.now() >= end {
                return self.die(&error);
            }
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Connects, as long as the server may be silent, and serves until the connection breaks.
    async fn attempt(&self) -> io::Result<()> {
        let end = self.heard_at.get() + self.timeout;
        let end = end.min(self.handle.now() + ATTEMPT_MAX);
        let connected = first(self.network.connect(), fails_at(&self.handle, end)).await;
        let (receiver, mut sender) = connected.map_err(silent("nothing answers there"))?;
        let (mut inbox, outbox) = (Inbox::new(receiver), Outbox::default());
        let serve = async {
            let entered = self.enter(&mut inbox, &outbox);
            let entered = first(entered, self.listen(end)).await;
            entered.map_err(silent("what listens there does not answer"))?;
            self.begin();
            let heard = Cell::new(true);
            let read = self.read(&mut inbox, &heard);
            first(read, first(self.write(&outbox), self.beat(&outbox, &heard))).await
        };
        first(serve, outbox.pump(&mut sender)).await
    }

    /// Greets the server, and has one that was started anew open what the session has open.
    async fn enter<R: Receive>(&self, inbox: &mut Inbox<R>, outbox: &Outbox) -> io::Result<()> {
        let welcome = greet(&self.key, self.session, inbox, outbox, || self.hears()).await?;
        if welcome.requests < REQUESTS || welcome.buffers < BUFFERS {
            return Err(refused(
                "the server grants too little; use the same `kakehi` on both nodes",
            ));
        }
        let root = self.root.replace(Some(welcome.root));
        if root.is_some_and(|root| root != welcome.root) {
            return Err(refused(
                "the server has another root than this job began in; start `kakehi serve` with \
                 the --root that it had, and then the job again",
            ));
        }
        let boot = self.boot.replace(Some(welcome.boot));
        if self.has_changed.get() && boot.is_some_and(|boot| boot != welcome.boot) {
            return Err(refused(
                "the server's machine was booted, and what it had not synced is lost",
            ));
        }
        self.must_reopen.set(self.must_reopen.get() || !welcome.is_known);
        if self.must_reopen.get() {
            self.reopen(inbox, outbox).await?;
            self.must_reopen.set(false);
        }
        Ok(())
    }

    /// A connection is there: everything unanswered is to be sent.
    fn begin(&self) {
        let mut state = self.state.borrow_mut();
        let is_unanswered =
            |(id, pending): (&u64, &Rc<Pending>)| pending.reply.borrow().is_none().then_some(*id);
        state.unsent = state.pending.iter().filter_map(is_unanswered).collect();
        state.standing.connect();
        drop(state);
        self.tell_return();
        self.news.notify_all();
    }

    /// Sends what is unsent, and a goodbye when nothing is and the session is to end.
    async fn write(&self, outbox: &Outbox) -> io::Result<()> {
        loop {
            let is_due = || {
                let state = self.state.borrow();
                state.standing == Standing::Leaving || !state.unsent.is_empty()
            };
            self.news.until(is_due).await;
            outbox.shrink(UNSENT_LEN_MAX).await;
            if !self.send_next(outbox) {
                outbox.push(Frame::Goodbye);
                // The server closes the connection.
                return std::future::pending().await;
            }
        }
    }

    fn send_next(&self, outbox: &Outbox) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(id) = state.unsent.pop_front() else { return false };
        if let Some(pending) = state.pending.get(&id) {
            let Pending { request, record, payload, data, .. } = &**pending;
            let (request, record) = (*request, *record);
            let frame = Frame::Request { id, record, request, payload };
            match data.as_ref().filter(|_| matches!(request, Request::Write { .. })) {
                Some(data) => outbox.push_data(frame, data.clone()),
                None => outbox.push(frame),
            }
        }
        true
    }

    async fn read<R: Receive>(&self, inbox: &mut Inbox<R>, heard: &Cell<bool>) -> io::Result<()> {
        loop {
            inbox.fill().await?;
            heard.set(true);
            match inbox.frame() {
                Some(Frame::Reply { id, value, .. }) => self.answered(id, value, inbox.data())?,
                Some(Frame::Pong) => {}
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
            inbox.consume();
        }
    }

    /// Takes a reply.
    ///
    /// # Errors
    ///
    /// `InvalidData`: nothing that is unanswered has this number. The request that the reply is
    /// for would wait for ever; over the next connection it is sent again.
    fn answered(&self, id: u64, value: u64, found: Option<Buffers>) -> io::Result<()> {
        let pending = self.state.borrow().pending.get(&id).cloned();
        let pending = pending.filter(|pending| pending.reply.borrow().is_none());
        let pending = pending.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "a reply to nothing that was asked")
        })?;
        let answer = verdict(value).map(|value| match (&pending.data, pending.request, &found) {
            (Some(into), Request::Read { .. }, Some(found)) => {
                into.gather(found);
                Answer::value(found.len() as u64)
            }
            _ => Answer { value, bytes: found.as_ref().map(bytes_of).unwrap_or_default() },
        });
        self.conclude(&pending, answer);
        Ok(())
    }

    fn conclude(&self, pending: &Pending, answer: Result<Answer, Errno>) {
        self.state.borrow_mut().note(pending, &answer);
        pending.reply.replace(Some(answer));
        pending.answered.notify_all();
    }

    /// Everything fails from now on.
    fn die(&self, error: &io::Error) {
        if !self.is_awaited.get() {
            let place = &self.network;
            tracing::error!("the server at {place} is given up: {error}; its files fail with EIO");
        }
        let mut state = self.state.borrow_mut();
        state.standing.die(advised(error));
        let pending: Vec<_> = state.pending.values().cloned().collect();
        drop(state);
        pending.iter().for_each(|pending| pending.answered.notify_all());
        self.news.notify_all();
        self.idle.notify_all();
    }
}

/// For `map_err`: what it means that nothing has come in time.
fn silent(why: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| match error.kind() {
        io::ErrorKind::TimedOut => io::Error::new(io::ErrorKind::TimedOut, why),
        _ => error,
    }
}
