//! One executor's part of the daemon: its sessions, and what drains their files.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
    sync::Arc,
};

use executor::{Class, Handle, Idle, Notify};
use shm::{Board, SESSIONS_MAX, staging::Corrupt};

use crate::{
    drain::{self, Lines},
    file::OpenFile,
    lanes::Doorstep,
    mail::Reply,
    node::{CoreReport, Mail, Node, Report},
    pace, registration,
    session::{Bells, Session},
    session_storage::SessionStorage,
    statistics::Totals,
};

/// The state of one executor. Lives on its thread.
pub(crate) struct Core<S: SessionStorage> {
    pub(crate) index: usize,
    pub(crate) handle: Handle,
    pub(crate) storage: S,
    pub(crate) node: Arc<Node>,
    sessions: RefCell<Vec<Option<Rc<Session<S>>>>>,
    pub(crate) bells: Rc<Bells<S>>,
    /// Signalled on the first executor when a session has ended, on whichever.
    pub(crate) departed: Notify,
    /// Files to drain in the background.
    pub(crate) lines: RefCell<Lines>,
    /// Files the tick looks at.
    pub(crate) active: RefCell<Vec<Rc<OpenFile<S>>>>,
    pub(crate) is_ticking: Cell<bool>,
}

/// Why a session ends.
#[derive(Debug)]
pub(crate) enum Departure {
    /// The client closed its socket, or its process is gone.
    Gone,
    /// The daemon ends.
    Stopping,
    /// The staging log makes no sense.
    Corrupt(Corrupt),
    /// The client broke the protocol, in this way.
    Protocol(&'static str),
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the client is gone"),
            Self::Stopping => f.write_str("the daemon stops"),
            Self::Corrupt(corrupt) => write!(f, "the client broke its staging log: {corrupt}"),
            Self::Protocol(what) => write!(f, "the client broke the protocol: {what}"),
        }
    }
}

impl<S: SessionStorage> Core<S> {
    pub(crate) fn new(index: usize, handle: Handle, storage: S, node: Arc<Node>) -> Rc<Self> {
        // Clients are rung for every completion then, and ring for every request.
        let rings_always = handle.idle() == Idle::Interrupt;
        let doorstep = Doorstep { node: Arc::clone(&node), core: index, rings_always };
        handle.poll_lists().bind(index, Arc::new(doorstep));
        let core = Self {
            index,
            handle,
            storage,
            node,
            sessions: RefCell::new((0..SESSIONS_MAX).map(|_| None).collect()),
            bells: Rc::new(Bells::new(rings_always)),
            departed: Notify::new(),
            lines: RefCell::default(),
            active: RefCell::default(),
            is_ticking: Cell::new(false),
        };
        if let (true, Some(board)) = (rings_always, core.board()) {
            board.parked.always();
        }
        Rc::new(core)
    }

    /// Where clients of this executor say that they are ready.
    pub(crate) fn board(&self) -> Option<&Board> {
        self.node.board(self.index)
    }

    /// Takes a session in. From now on its client's requests are served.
    pub(crate) fn enter(&self, session: Rc<Session<S>>) {
        if let Some(ready) = self.node.ready(session.id) {
            ready.take(); // What an earlier client under this id left.
        }
        debug_assert!(self.session(session.id).is_none(), "session {} is new", session.id);
        tracing::info!(session = session.id, "session began");
        if let Some(slot) = self.sessions.borrow_mut().get_mut(session.id as usize) {
            *slot = Some(session);
        }
    }

    pub(crate) fn session(&self, id: u32) -> Option<Rc<Session<S>>> {
        self.sessions.borrow().get(id as usize)?.clone()
    }

    pub(crate) fn sessions(&self) -> Vec<Rc<Session<S>>> {
        self.sessions.borrow().iter().flatten().map(Rc::clone).collect()
    }

    /// The file in a session's slot. Its registration may still be on the way: then looks there.
    pub(crate) fn find_file(
        self: &Rc<Self>,
        session: &Session<S>,
        slot: u32,
    ) -> Option<Rc<OpenFile<S>>> {
        session.file(slot).or_else(|| {
            registration::hear(self, session);
            session.file(slot)
        })
    }

    /// Counts something for a session.
    pub(crate) fn count(&self, session: u32, count: impl FnOnce(&mut Totals)) {
        if let Some(session) = self.session(session) {
            count(&mut session.totals.borrow_mut());
        }
    }

    /// Ends the session with this id, if it is here.
    pub(crate) fn end_by_id(self: &Rc<Self>, id: u32, departure: Departure) {
        if let Some(session) = self.session(id) {
            self.end(&session, departure);
        }
    }

    /// Ends a session: takes no further request, drains all that was published, and lets go of
    /// everything. Returns at once.
    pub(crate) fn end(self: &Rc<Self>, session: &Session<S>, departure: Departure) {
        if !session.begin_end() {
            return;
        }
        match departure {
            Departure::Gone | Departure::Stopping => {
                tracing::info!(session = session.id, "session ended: {departure}");
            }
            _ => tracing::warn!(session = session.id, "session ended: {departure}"),
        }
        if let Some(session) = self.session(session.id) {
            self.handle.spawn(Class::Latency, bury(Rc::clone(self), session));
        }
    }

    /// Reads this executor's mail, until it is told to end.
    pub(crate) async fn read_mail(self: Rc<Self>) {
        let Some(mailbox) = self.node.mailbox(self.index) else { return };
        loop {
            let (mail, core) = (mailbox.receive().await, Rc::clone(&self));
            match mail {
                Mail::Drain { session, slot, done } => {
                    self.answer(done, async move { core.drain_slot(session, slot).await });
                }
                Mail::DrainAll(done) => self.answer(done, async move { core.drain_all().await }),
                Mail::Hear(done) => {
                    self.hear_all();
                    done.send(());
                }
                Mail::Bury(done) => self.answer(done, async move { core.bury_lockers().await }),
                Mail::Close(done) => {
                    self.close();
                    done.send(());
                }
                Mail::LeaveServer(done) => {
                    self.answer(done, async move { core.storage.leave().await });
                }
                Mail::Report(done) => done.send(self.report()),
                Mail::Departed => self.departed.notify_all(),
                Mail::End => return,
            }
        }
    }

    /// Has what a letter asks for done in a task, and says so.
    fn answer(&self, done: Reply<()>, work: impl Future<Output = ()> + 'static) {
        self.handle.spawn(Class::Latency, async move {
            work.await;
            done.send(());
        });
    }

    /// Drains the file in a session's slot, if there is one.
    async fn drain_slot(self: &Rc<Self>, session: u32, slot: u32) {
        let file = self.session(session).and_then(|found| found.file_to_drain(slot));
        if let Some(file) = file {
            drain::drain_to(self, &file, file.head()).await.unwrap_or_default();
        }
    }

    /// Drains every file, also those that are still on their way here.
    async fn drain_all(self: &Rc<Self>) {
        self.hear_all();
        for session in self.sessions() {
            drain::drain_session(self, &session).await;
        }
    }

    /// Reads every control socket.
    fn hear_all(self: &Rc<Self>) {
        self.sessions().iter().for_each(|session| registration::hear(self, session));
    }

    /// Ends the sessions of clients that are gone and had locks; on return they have none.
    async fn bury_lockers(self: &Rc<Self>) {
        let mut ending = self.sessions();
        ending.retain(|session| session.has_locks.get());
        for session in ending.iter().filter(|session| session.peer.is_gone()) {
            self.end(session, Departure::Gone);
        }
        ending.retain(|session| session.is_ending());
        for session in ending {
            session.news.until(|| session.file_count() == 0).await;
        }
    }

    /// Ends every session.
    fn close(self: &Rc<Self>) {
        for session in self.sessions() {
            self.end(&session, Departure::Stopping);
        }
    }

    fn report(&self) -> Report {
        let (counters, sessions) = (self.handle.counters(), self.sessions());
        let mut totals = self.node.ended(self.index);
        sessions.iter().for_each(|session| totals.add(&session.count_up()));
        let files: Vec<_> = sessions.iter().flat_map(|session| session.files()).collect();
        let is_refused = |file: &&Rc<OpenFile<S>>| file.pace.is_refused.get();
        totals.drain_errors += files.iter().filter(is_refused).count() as u64;
        let core = CoreReport::new(self.index, self.storage.describe(), sessions.len(), &counters);
        let staged_bytes = files.iter().map(|file| file.staged().min(file.log().len)).sum();
        Report { core, totals, staged_bytes, working: counters.working }
    }
}

/// The last rites of a session.
async fn bury<S: SessionStorage>(core: Rc<Core<S>>, session: Rc<Session<S>>) {
    debug_assert!(session.is_ending(), "session {} takes no requests", session.id);
    // A file that was handed over is drained, even if nothing has been heard of it yet.
    registration::hear(&core, &session);
    session.quiet().await;
    drain::drain_session(&core, &session).await;
    for file in session.files() {
        registration::discard(&core, &session, &file).await;
        if !file.is_ours {
            core.node.shared().inodes.remove(file.identity.0, file.identity.1);
        }
    }
    if session.has_locks.get() {
        core.node.locker_ended();
        session.news.notify_all();
    }
    core.node.bundles.end(session.id);
    core.node.count_ended(core.index, &session.count_up());
    if let Some(slot) = core.sessions.borrow_mut().get_mut(session.id as usize) {
        *slot = None;
    }
    pace::forget_session(&core, session.id);
    let (id, grant) = (session.id, session.grant);
    drop(session);
    core.node.leave(id, grant);
}
