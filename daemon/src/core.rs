//! One executor's part of the daemon: its sessions, and what drains their files.

mod board_source;

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
    sync::Arc,
};

use executor::{Handle, Idle, Notify};
use shm::{Board, SESSIONS_MAX, staging::Corrupt};

use self::board_source::BoardSource;
use crate::{
    drain_queues::DrainQueues,
    file::OpenFile,
    node::Node,
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
    pub(crate) drain_queues: RefCell<DrainQueues>,
    /// Files the tick looks at.
    pub(crate) active: RefCell<Vec<Rc<OpenFile<S>>>>,
    pub(crate) is_ticking: Cell<bool>,
    reap: Reap<S>,
}

/// Begins to reap a session that takes no request any more.
pub(crate) type Reap<S> = fn(&Rc<Core<S>>, Rc<Session<S>>);

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
    pub(crate) fn new(
        index: usize,
        handle: Handle,
        storage: S,
        node: Arc<Node>,
        reap: Reap<S>,
    ) -> Rc<Self> {
        // Clients are rung for every completion then, and ring for every request.
        let rings_always = handle.idle() == Idle::Interrupt;
        let board_source = BoardSource { node: Arc::clone(&node), core: index, rings_always };
        handle.poll_lists().bind(index, Arc::new(board_source));
        let core = Self {
            index,
            handle,
            storage,
            node,
            sessions: RefCell::new((0..SESSIONS_MAX).map(|_| None).collect()),
            bells: Rc::new(Bells::new(rings_always)),
            departed: Notify::new(),
            drain_queues: RefCell::default(),
            active: RefCell::default(),
            is_ticking: Cell::new(false),
            reap,
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
            (self.reap)(self, session);
        }
    }

    /// Takes a file off the list of active ones.
    pub(crate) fn forget(&self, file: &Rc<OpenFile<S>>) {
        if file.pace.is_active.replace(false) {
            self.active.borrow_mut().retain(|other| !Rc::ptr_eq(other, file));
        }
    }

    /// Lets go of a session that has ended, and of its files on the list of active ones.
    pub(crate) fn remove(&self, id: u32) {
        if let Some(slot) = self.sessions.borrow_mut().get_mut(id as usize) {
            *slot = None;
        }
        self.active.borrow_mut().retain(|file| file.session != id);
    }
}
