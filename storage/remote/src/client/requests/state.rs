//! A client's state of its session: unanswered requests, and the files it has open and locked.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};

use executor::Notify;
use rustix::io::Errno;
use storage::{lock_call::LockCall, names::Answer};
use uring::Buffer;
use wire::{Base, Request, Status};

use super::standing::Standing;
use crate::{
    client::{held::Held, opened::Opened},
    server::{ledger::RECORDS, received::Received},
};

pub(super) struct State {
    pub(super) pending: BTreeMap<u64, Rc<Pending>>,
    /// Of these, those that this connection has not sent.
    pub(super) unsent: VecDeque<u64>,
    pub(super) next_id: u64,
    pub(super) free_records: BTreeSet<u32>,
    pub(super) opened: Opened,
    pub(super) held: Held,
    pub(super) standing: Standing,
    /// Attempts to connect that came to nothing.
    pub(super) failures: u64,
}

/// A request that is not answered.
pub(super) struct Pending {
    pub(super) request: Request,
    pub(super) record: Option<u32>,
    pub(super) payload: Vec<u8>,
    /// Data to write, or room for data to read.
    pub(super) data: Option<Buffer>,
    pub(super) reply: RefCell<Option<Result<Answer, Errno>>>,
    pub(super) answered: Notify,
}

impl Pending {
    /// The request as its server takes it, which is told no bytes that are here already.
    pub(super) fn received(&self, id: u64) -> Received {
        let data = self.data.clone().unwrap_or_else(|| Vec::new().into());
        let (request, record, payload) = (self.request, self.record, Rc::from(&*self.payload));
        Received { id, record, request, payload, data: data.into() }
    }
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            pending: BTreeMap::new(),
            unsent: VecDeque::new(),
            next_id: 1,
            free_records: (0..RECORDS).collect(),
            opened: Opened::new(),
            held: Held::default(),
            standing: Standing::Apart,
            failures: 0,
        }
    }

    /// Forgets a file that is given up: it is not reopened, for it may be somebody else's before
    /// the answer comes.
    pub(super) fn give_up(&mut self, request: &Request) {
        self.note_lock(request, true);
        if let Request::Close { file } = *request {
            self.held.closed(file);
        }
    }

    /// Keeps up with which files the server has open, and with their locks. At once when the answer
    /// comes: the connection may break before whoever asked has run.
    pub(super) fn note(&mut self, pending: &Pending, answer: &Result<Answer, Errno>) {
        match (answer, pending.request) {
            (Err(Errno::AGAIN), Request::Lock { file, terms, start, len }) => {
                if let Ok(call) = LockCall::new(terms, start, len) {
                    self.held.refused(file, call);
                }
            }
            (Ok(answer), Request::Open { file, flags, .. }) => {
                let opened = Status::decode(&answer.bytes).zip(Base::decode(&pending.payload));
                if let Some((status, (_, path))) = opened {
                    self.opened.insert(file, path.to_vec(), flags, &status);
                }
            }
            (Ok(_), Request::SetAppend { file, appends }) => self.opened.set_append(file, appends),
            (Ok(_), Request::Lock { .. }) => self.note_lock(&pending.request, false),
            _ => {}
        }
    }

    /// Takes down a lock, or an unlock, of a file that the session knows.
    fn note_lock(&mut self, request: &Request, is_unlock: bool) {
        let Request::Lock { file, terms, start, len } = *request else { return };
        let call = LockCall::new(terms, start, len).ok();
        let call = call.filter(|call| call.is_unlock() == is_unlock);
        if let (Some(identity), Some(call)) = (self.opened.identity(file), call) {
            self.held.note(file, identity, call);
        }
    }
}
