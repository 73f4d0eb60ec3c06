//! A server's service to its clients: sessions that outlive connections, and their requests.
//!
//! A session is on one connection at a time. A later one ends the earlier, and is welcomed only
//! once nothing of the earlier is under way: else a write that was replayed could be overtaken by
//! its older self.

mod answered;
mod once;
mod opening;
#[cfg(test)]
mod tests;

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    io,
    rc::Rc,
    time::Duration,
};

use executor::{Class, Handle, Instant, Notify, yield_now};
use rustix::io::Errno;
use storage::{
    Locking, SHORT_LEN,
    names::{Answer, FileCall, Identity, NameCall},
    verdict::errno,
};
use uring::{Buffers, Halves};
use wire::{Request, SESSION_LEN};

use self::answered::Answered;
use super::{
    connections::BUFFERS,
    deadlock::Waits,
    doubts::Doubts,
    effects::Effect,
    grace::Grace,
    ledger::{Ledger, Record, Shelf},
    locks::{Locks, Unlocks},
    received::{Asked, Received},
};
use crate::{line::channel::bytes_of, log_throttle::LogThrottle};

/// Sessions that a server has at a time, on a connection or waiting for one.
pub(crate) const CLIENTS_MAX: usize = 1024;
/// Between two times that the ledgers of live sessions are made to look young, and others removed.
const RENEWAL: Duration = Duration::from_secs(60 * 60);
/// How long a session without a connection keeps its files. One that comes back later has them
/// opened again, as by a server that was started anew.
pub(crate) const KEEP: Duration = Duration::from_secs(60);

/// State of a server, common to all clients.
pub struct Service<S: Locking> {
    pub(crate) handle: Handle,
    pub(crate) storage: S,
    pub(super) unlocks: Unlocks,
    pub(super) waits: Waits,
    pub(super) grace: Grace,
    pub(super) shelf: Box<dyn Shelf>,
    pub(crate) sessions: RefCell<HashMap<[u8; SESSION_LEN], Rc<Session<S>>>>,
    doubts: Doubts,
    /// Descriptors for files that clients have open, and for their locks.
    descriptors: usize,
    /// For saying that a client is turned away.
    throttle: LogThrottle,
    /// Files that are being appended to.
    appending: RefCell<HashSet<Identity>>,
    appended: Notify,
    /// Nothing more is begun.
    is_ending: Cell<bool>,
}

/// One client, over all its connections.
pub(crate) struct Session<S: Locking> {
    name: [u8; SESSION_LEN],
    files: RefCell<HashMap<u32, Open<S>>>,
    pub(super) locks: Locks<S>,
    pub(super) ledger: Box<dyn Ledger>,
    records: RefCell<Vec<Option<Record>>>,
    answered: Answered,
    /// Counts connections: requests of an earlier one are not answered.
    pub(crate) connection: Cell<u64>,
    /// Requests under way.
    pub(crate) busy: Cell<u32>,
    /// Of the long transfers that the client may have under way.
    halves: Halves,
    /// Signalled when one of these has changed.
    pub(crate) changed: Notify,
    /// True if the client has asked for anything. Until then the welcome that called the session
    /// new may have been lost, and with it what tells the client to open its files again.
    has_asked: Cell<bool>,
    left_at: Cell<Option<Instant>>,
}

/// A session on a connection. When this is dropped, unless a later connection has it, the session
/// waits for the next one.
pub(crate) struct Visit<'a, S: Locking> {
    handle: &'a Handle,
    pub(crate) session: Rc<Session<S>>,
    pub(crate) number: u64,
}

impl<S: Locking> Drop for Visit<'_, S> {
    fn drop(&mut self) {
        if self.session.connection.get() == self.number {
            self.session.left_at.set(Some(self.handle.now()));
        }
    }
}

pub(super) struct Open<S: Locking> {
    pub(super) file: S::File,
    appends: Rc<Cell<bool>>,
    identity: Identity,
    /// When it was made, as its status tells.
    born: u64,
}

impl<S: Locking> Open<S> {
    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the effect of a request on a file that must not happen twice.
    fn effect(&self, received: &Received) -> Option<Effect<S::File>> {
        let file = self.file.clone();
        if self.appends.get() && matches!(received.request, Request::Write { .. }) {
            let data = bytes_of(&received.data).into();
            return Some(Effect::Append { file, identity: self.identity, data });
        }
        let call = FileCall::decode(&received.request, &received.payload).ok()?;
        call.is_once().then_some(Effect::OnFile(file, call))
    }
}

impl<S: Locking> Clone for Open<S> {
    fn clone(&self) -> Self {
        let (file, appends) = (self.file.clone(), Rc::clone(&self.appends));
        Self { file, appends, ..*self }
    }
}

/// The answer to a request that has no value.
pub(super) fn nothing(done: io::Result<()>) -> Result<Answer, Errno> {
    done.map(|()| Answer::default()).map_err(errno)
}

impl<S: Locking> Service<S> {
    /// A service for what earlier ones have left on the shelf, which may have so many descriptors.
    pub(crate) fn new(
        handle: Handle,
        storage: S,
        shelf: Box<dyn Shelf>,
        limit: u64,
    ) -> io::Result<Rc<Self>> {
        let grace = Grace::after(&*shelf, handle.now())?;
        Ok(Rc::new(Self {
            handle,
            storage,
            unlocks: Unlocks::new(),
            waits: Waits::default(),
            grace,
            doubts: Doubts::load(&*shelf)?,
            descriptors: usize::try_from(limit / 2).unwrap_or(usize::MAX),
            shelf,
            sessions: RefCell::default(),
            throttle: LogThrottle::default(),
            appending: RefCell::default(),
            appended: Notify::new(),
            is_ending: Cell::new(false),
        }))
    }

    /// Sessions there are.
    pub(crate) fn session_count(&self) -> usize {
        self.sessions.borrow().len()
    }

    /// Files that sessions have open.
    #[cfg(test)]
    pub(crate) fn open_files(&self) -> usize {
        let sessions = self.sessions.borrow();
        sessions.values().map(|session| session.files.borrow().len()).sum()
    }

    /// The session of this name, and whether it still has its files; ended on any earlier
    /// connection, with nothing of that under way.
    ///
    /// # Errors
    ///
    /// `ConnectionAborted` when a later connection has come meanwhile: of a client that tries again
    /// and again while a request hangs, one waits here. Those of the ledger.
    pub(crate) async fn enter(&self, name: [u8; SESSION_LEN]) -> io::Result<(Visit<'_, S>, bool)> {
        self.forget_old();
        let known = self.sessions.borrow().get(&name).cloned();
        let is_known = known.as_ref().is_some_and(|session| session.has_asked.get());
        let session = match known {
            Some(session) => session,
            None if self.session_count() >= CLIENTS_MAX && !self.make_room() => {
                return Err(io::Error::other("all sessions are connected or hold locks"));
            }
            None => {
                let ledger = self.shelf.open(&name).inspect_err(|why| self.tell_seldom(why))?;
                ledger.comes();
                self.grace.comes(&name);
                let session = Rc::new(Session::new(name, ledger)?);
                self.sessions.borrow_mut().insert(name, Rc::clone(&session));
                session
            }
        };
        let number = session.connection.get() + 1;
        session.connection.set(number);
        session.left_at.set(None);
        session.changed.notify_all();
        let visit = Visit { handle: &self.handle, session, number };
        let Session { changed, busy, connection, .. } = &*visit.session;
        changed.until(|| busy.get() == 0 || connection.get() != number).await;
        if connection.get() != number {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok((visit, is_known))
    }

    /// Says why no session can begin; clients try again and again.
    pub(super) fn tell_seldom(&self, why: &io::Error) {
        if self.throttle.admits(self.handle.now()) {
            tracing::warn!("a client is turned away: its records cannot be kept: {why}");
        }
    }

    /// The session of this name, if there is one.
    pub(crate) fn session(&self, name: &[u8; SESSION_LEN]) -> Option<Rc<Session<S>>> {
        self.sessions.borrow().get(name).cloned()
    }

    /// The session is over.
    pub(crate) fn end(&self, session: &Rc<Session<S>>) {
        self.sessions.borrow_mut().remove(&session.name);
        self.grace.settle(&session.name);
        self.shelf.remove(&session.name);
        self.let_go(Rc::clone(session));
    }

    /// Closes what a session has open that is over, once nothing of it is under way. That may take
    /// long, or be thousands of files.
    fn let_go(&self, session: Rc<Session<S>>) {
        let storage = self.storage.clone();
        self.handle.spawn(Class::Throughput, async move {
            session.changed.until(|| session.busy.get() == 0).await;
            // Who waits for a lock is not to wait for a file that takes long besides.
            let files = session.files.take().into_values().map(|open| open.file);
            for file in session.locks.holders().chain(files) {
                storage.close(file).await.ok(); // There is nobody to tell.
                yield_now().await;
            }
        });
    }

    /// Lets go of what clients had open that are gone, for ever; has the ledgers of the others look
    /// young, and removes the old.
    pub async fn tidy(self: Rc<Self>) {
        let mut renewed_at = self.handle.now();
        loop {
            self.handle.sleep(KEEP).await;
            self.forget_old();
            if self.handle.now() >= renewed_at + RENEWAL {
                renewed_at = self.handle.now();
                self.sessions.borrow().values().for_each(|session| session.ledger.renew());
                self.shelf.remove_old();
            }
        }
    }

    pub(super) fn forget_old(&self) {
        let (now, mut old) = (self.handle.now(), Vec::new());
        self.sessions.borrow_mut().retain(|_, session| {
            let left_at = session.left_at.get();
            let is_kept = left_at.is_none_or(|at| now < at + KEEP || session.busy.get() > 0);
            if !is_kept {
                old.push(Rc::clone(session));
            }
            is_kept
        });
        for session in old {
            if session.locks.is_noted.get() {
                session.ledger.lose_locks();
            }
            self.let_go(session);
        }
    }

    /// Lets go of what the client has open that left longest ago, so that another one finds room:
    /// it opens its files again if it comes back. Returns false if all are connected or hold locks.
    fn make_room(&self) -> bool {
        let mut sessions = self.sessions.borrow_mut();
        let left = sessions.values().filter(|session| {
            let is_idle = session.busy.get() == 0 && !session.locks.is_noted.get();
            is_idle && session.left_at.get().is_some()
        });
        let Some(first) = left.min_by_key(|session| session.left_at.get()).cloned() else {
            return false;
        };
        sessions.remove(&first.name);
        self.let_go(first);
        true
    }

    /// Begins nothing more, and returns when nothing is under way. So no outcome is unknown to the
    /// next server, which is asked everything that was not answered.
    pub async fn finish(&self) {
        self.is_ending.set(true);
        loop {
            let mut sessions = self.sessions.borrow().values().cloned().collect::<Vec<_>>();
            sessions.retain(|session| session.busy.get() > 0);
            let Some(session) = sessions.pop() else { return };
            session.changed.until(|| session.busy.get() == 0).await;
        }
    }

    /// Executes a request; `answer` gets what it has come to, but for what was read, which is in
    /// the request's buffer. A short transfer is begun on the spot, as one that a local client asks
    /// for; of long ones a client has half of what it may have under way executed at a time.
    pub(crate) fn start(
        self: &Rc<Self>,
        session: &Rc<Session<S>>,
        received: Received,
        answer: impl FnOnce(u64, Result<Answer, Errno>) + 'static,
    ) {
        if self.is_ending.get() {
            return; // The next server is asked.
        }
        session.has_asked.set(true);
        let number = Answered::number(&received);
        if let Some(known) = number.and_then(|number| session.answered.again(number)) {
            return answer(received.id, known);
        }
        session.busy.set(session.busy.get() + 1);
        let (is_short, is_long) = match received.request {
            Request::Read { len, .. } | Request::Write { len, .. } => {
                (len <= SHORT_LEN, len > SHORT_LEN)
            }
            _ => (false, false),
        };
        let (service, session) = (Rc::clone(self), Rc::clone(session));
        let task = async move {
            let id = received.id;
            let served = if is_long { Some(session.halves.serve(1).await) } else { None };
            let done = service.execute(&session, received).await;
            drop(served);
            if let Some(number) = number {
                session.answered.keep(number, &done);
            }
            answer(id, done);
            session.busy.set(session.busy.get() - 1);
            session.changed.notify_all();
        };
        if is_short {
            self.handle.start(Class::Latency, task);
        } else {
            self.handle.spawn(Class::Latency, task);
        }
    }

    async fn execute(&self, session: &Session<S>, received: Received) -> Result<Answer, Errno> {
        match received.asked()? {
            Asked::OnFile(handle) => {
                let open = session.file(handle)?;
                match open.effect(&received) {
                    Some(effect) => self.once(session, &received, effect).await,
                    None => self.on_file(&open, &received).await.map_err(errno),
                }
            }
            Asked::Open(handle, call) if call.is_once() => {
                self.once(session, &received, Effect::Open(handle, call)).await
            }
            Asked::Open(handle, call) => self.open(session, handle, call).await,
            Asked::Close(handle) => self.close(session, handle).await,
            Asked::Lock(handle, call) => self.lock(session, handle, call).await,
            Asked::FindLock(handle, call) => self.find_lock(session, handle, call).await,
            Asked::Name(call) if call.is_once() => {
                self.once(session, &received, Effect::Name(call)).await
            }
            Asked::Name(call) => self.name(call).await,
            Asked::Reclaimed => {
                self.settle_locks(session);
                Ok(Answer::default())
            }
        }
    }

    async fn name(&self, call: NameCall) -> Result<Answer, Errno> {
        self.storage.name(call).await.map_err(errno)
    }

    async fn on_file(&self, open: &Open<S>, received: &Received) -> io::Result<Answer> {
        match received.request {
            Request::Read { at, .. } => {
                let len = self.storage.read(&open.file, at, received.data.clone()).await?;
                Ok(Answer::value(len as u64))
            }
            Request::Write { at, .. } => self.write(open, at, &received.data).await,
            _ => {
                let call = FileCall::decode(&received.request, &received.payload)?;
                let answer = self.storage.on(&open.file, call).await?;
                if let FileCall::SetAppend(appends) = call {
                    open.appends.set(appends);
                }
                Ok(answer)
            }
        }
    }

    async fn write(&self, open: &Open<S>, at: u64, data: &Buffers) -> io::Result<Answer> {
        at.checked_add(data.len() as u64)
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or(Errno::FBIG)?;
        let len = self.storage.write_full(&open.file, at, data).await?;
        Ok(Answer::value(len as u64))
    }
}

impl<S: Locking> Session<S> {
    fn new(name: [u8; SESSION_LEN], ledger: Box<dyn Ledger>) -> io::Result<Self> {
        Ok(Self {
            name,
            files: RefCell::default(),
            locks: Locks::default(),
            records: RefCell::new(ledger.load()?),
            answered: Answered::default(),
            ledger,
            connection: Cell::new(0),
            busy: Cell::new(0),
            halves: Halves::of(BUFFERS.into()),
            changed: Notify::new(),
            has_asked: Cell::new(false),
            left_at: Cell::new(None),
        })
    }

    pub(super) fn name(&self) -> &[u8; SESSION_LEN] {
        &self.name
    }

    pub(super) fn file(&self, handle: u32) -> Result<Open<S>, Errno> {
        self.files.borrow().get(&handle).cloned().ok_or(Errno::BADF)
    }

    pub(super) fn remove(&self, handle: u32) -> Option<Open<S>> {
        self.files.borrow_mut().remove(&handle)
    }

    fn record(&self, slot: u32) -> Option<Record> {
        self.records.borrow().get(slot as usize).copied().flatten()
    }

    /// Writes a record down before anything else is done.
    fn keep(&self, slot: u32, record: Record) -> io::Result<()> {
        self.ledger.write(slot, &record)?;
        self.remember(slot, record);
        Ok(())
    }

    /// Writes down what a request has come to. It has, also where that cannot be written: then the
    /// next server looks into it, should this one die before the client knows.
    fn keep_done(&self, slot: u32, record: Record) {
        if let Err(error) = self.ledger.write(slot, &record) {
            tracing::warn!("the record of a request that was done cannot be written: {error}");
        }
        self.remember(slot, record);
    }

    fn remember(&self, slot: u32, record: Record) {
        if let Some(place) = self.records.borrow_mut().get_mut(slot as usize) {
            *place = Some(record);
        }
    }
}
