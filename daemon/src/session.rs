//! A session: the daemon's record of one client process, which every claim is checked against.

mod bells;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{Arc, atomic::Ordering},
};

use executor::Notify;
use shm::{
    FILES, LANES,
    copy::copy_in,
    lane::{Responder, Reused, Words},
};
use storage::{
    Storage,
    segment::Segment,
    verdict::{Verdict, value},
};
use wire::{Phase, Reply, is_sampled};

use crate::{
    admission::Grant,
    file::OpenFile,
    peer::Peer,
    statistics::{Totals, TracedWork},
    trace::{Open, Trace, now_ns},
};

pub(crate) use self::bells::Bells;

/// Bytes of one answer for which a client is woken at once: it copies them while the next are read.
const WORTH_A_WAKE_UP: u64 = 64 << 10;

/// One client process.
pub(crate) struct Session<S: Storage> {
    pub(crate) id: u32,
    /// The client's number in its parallel job.
    pub(crate) rank: Option<u32>,
    pub(crate) grant: Cell<Grant>,
    pub(crate) segment: Arc<Segment>,
    pub(crate) peer: Box<dyn Peer<S::File>>,
    pub(crate) totals: RefCell<Totals>,
    /// The client has marked files dirty which nobody has looked at.
    pub(crate) is_marked: Cell<bool>,
    /// Signalled when the socket or the process has news, and when the session ends.
    pub(crate) news: Notify,
    lanes: RefCell<Vec<Responder>>,
    files: RefCell<Vec<Option<Rc<OpenFile<S>>>>>,
    file_count: Cell<u32>,
    /// Of them, those for which the daemon holds a descriptor.
    descriptor_count: Cell<u32>,
    in_flight: Cell<usize>,
    /// Lanes whose client is still to be woken, as bits.
    late: Cell<u64>,
    /// Lanes whose entries are to stay there, as bits.
    blocked: Cell<u64>,
    /// Signalled when the last request in flight is answered.
    quiet: Notify,
    ending: Cell<bool>,
    /// The client has asked for locks.
    pub(crate) has_locks: Cell<bool>,
}

impl<S: Storage> Session<S> {
    pub(crate) fn new(
        id: u32,
        rank: Option<u32>,
        grant: Grant,
        segment: Arc<Segment>,
        peer: Box<dyn Peer<S::File>>,
    ) -> Self {
        Self {
            id,
            rank,
            grant: Cell::new(grant),
            segment,
            peer,
            totals: RefCell::new(Totals::of_session()),
            is_marked: Cell::new(false),
            news: Notify::new(),
            lanes: RefCell::new((0..LANES).map(|_| Responder::default()).collect()),
            files: RefCell::new((0..FILES).map(|_| None).collect()),
            file_count: Cell::new(0),
            descriptor_count: Cell::new(0),
            in_flight: Cell::new(0),
            late: Cell::new(0),
            blocked: Cell::new(0),
            quiet: Notify::new(),
            ending: Cell::new(false),
            has_locks: Cell::new(false),
        }
    }

    /// Takes the next entry of a lane.
    pub(crate) fn next(&self, lane: usize) -> Result<Option<(u32, Words)>, Reused> {
        let mut lanes = self.lanes.borrow_mut();
        match (lanes.get_mut(lane), self.segment.shared().lane(lane)) {
            (Some(responder), Some(shared)) => responder.next(shared),
            _ => Ok(None),
        }
    }

    /// Says whether a lane's client is still to be woken; returns whether it was until now.
    pub(crate) fn mark_late(&self, lane: usize, is_late: bool) -> bool {
        debug_assert!(lane < LANES);
        let (bit, before) = (1 << (lane % LANES), self.late.get());
        self.late.set(if is_late { before | bit } else { before & !bit });
        before & bit != 0
    }

    /// Says whether a lane's entries are to stay there.
    pub(crate) fn block(&self, lane: usize, is_blocked: bool) {
        debug_assert!(lane < LANES);
        let (bit, before) = (1 << (lane % LANES), self.blocked.get());
        self.blocked.set(if is_blocked { before | bit } else { before & !bit });
    }

    /// True if a lane's entries are to stay there.
    pub(crate) fn is_blocked(&self, lane: usize) -> bool {
        self.blocked.get() & 1 << (lane % LANES) != 0
    }

    /// Puts a file into its slot.
    pub(crate) fn insert(&self, file: Rc<OpenFile<S>>) {
        debug_assert!(self.is_free(file.slot), "slot {} is free", file.slot);
        if let Some(slot) = self.files.borrow_mut().get_mut(file.slot as usize) {
            self.descriptor_count.set(self.descriptor_count.get() + u32::from(file.has_descriptor));
            *slot = Some(file);
            self.file_count.set(self.file_count.get() + 1);
        }
    }

    /// Empties a slot.
    pub(crate) fn remove(&self, slot: u32) {
        let taken = self.files.borrow_mut().get_mut(slot as usize).and_then(Option::take);
        if let Some(file) = taken {
            self.file_count.set(self.file_count.get() - 1);
            let descriptors = self.descriptor_count.get();
            self.descriptor_count.set(descriptors - u32::from(file.has_descriptor));
        }
    }

    /// The file in a slot, unless it is being closed.
    pub(crate) fn file(&self, slot: u32) -> Option<Rc<OpenFile<S>>> {
        let files = self.files.borrow();
        files.get(slot as usize)?.as_ref().filter(|file| !file.is_closing()).map(Rc::clone)
    }

    /// The file in a slot, also while it is being closed.
    pub(crate) fn file_to_drain(&self, slot: u32) -> Option<Rc<OpenFile<S>>> {
        self.files.borrow().get(slot as usize)?.clone()
    }

    /// True if nobody has the slot, not even a file that is being closed.
    pub(crate) fn is_free(&self, slot: u32) -> bool {
        self.files.borrow().get(slot as usize).is_some_and(Option::is_none)
    }

    /// Every file, in slot order.
    pub(crate) fn files(&self) -> Vec<Rc<OpenFile<S>>> {
        self.files.borrow().iter().flatten().map(Rc::clone).collect()
    }

    pub(crate) fn file_count(&self) -> u32 {
        self.file_count.get()
    }

    /// True if one more file of this machine is within the session's credit.
    pub(crate) fn may_hold_one_more(&self) -> bool {
        self.descriptor_count.get() < self.grant.get().file_credit
    }

    /// True if the range lies in what is granted of the arena.
    pub(crate) fn may_use(&self, arena_at: u64, len: u64) -> bool {
        arena_at.checked_add(len).is_some_and(|end| end <= self.grant.get().arena_len)
    }

    /// Marks the session as ending; `false` when it was already.
    pub(crate) fn begin_end(&self) -> bool {
        let first = !self.ending.replace(true);
        self.segment.shared().close();
        self.news.notify_all();
        first
    }

    /// True if the session takes no requests any more.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.get()
    }

    /// Waits until no request is in flight.
    pub(crate) async fn quiet(&self) {
        self.quiet.until(|| self.in_flight.get() == 0).await;
    }

    /// Adds up the counters of the session and its client.
    pub(crate) fn count_up(&self) -> Totals {
        let mut totals = self.totals.borrow().clone();
        let counters = &self.segment.shared().counters;
        totals.add_counters(counters.iter().map(|word| word.load(Ordering::Relaxed)));
        totals
    }
}

/// A request that is owed an answer.
pub(crate) struct Ticket<S: Storage> {
    pub(crate) session: Rc<Session<S>>,
    pub(crate) lane: usize,
    pub(crate) seq: u32,
    bells: Rc<Bells<S>>,
    /// A trace shows it.
    traced: Option<Box<(Cell<Open>, Arc<Trace>)>>,
}

impl<S: Storage> Ticket<S> {
    /// A ticket for entry `seq` of a lane; the session is not quiet until it is answered.
    pub(crate) fn new(
        bells: &Rc<Bells<S>>,
        session: &Rc<Session<S>>,
        lane: usize,
        seq: u32,
    ) -> Self {
        session.in_flight.set(session.in_flight.get() + 1);
        Self { session: Rc::clone(session), lane, seq, bells: Rc::clone(bells), traced: None }
    }

    /// Has a trace show the request, if its number is one of those.
    pub(crate) fn traced(mut self, trace: Option<&Arc<Trace>>) -> Self {
        let trace = trace.filter(|_| is_sampled(self.seq));
        self.traced = trace.map(|trace| Box::new((Cell::new(Open::new()), Arc::clone(trace))));
        self
    }

    /// The request's I/O begins now.
    #[inline]
    pub(crate) fn issue(&self) {
        if let Some(traced) = &self.traced {
            traced.0.set(Open { issued_ns: now_ns(), ..traced.0.get() });
        }
    }

    /// Tells the client that the request is received and valid.
    pub(crate) fn acknowledge(&self) {
        let lanes = self.session.lanes.borrow();
        let shared = self.session.segment.shared().lane(self.lane);
        debug_assert!(shared.is_some(), "a request came from lane {}", self.lane);
        if let (Some(responder), Some(lane)) = (lanes.get(self.lane), shared) {
            responder.acknowledge(lane, self.seq, self.state(Phase::Acknowledged));
        }
    }

    /// Puts an answer into the lane's buffer.
    pub(crate) fn put(&self, bytes: &[u8]) {
        copy_in(self.session.segment.lane_buffer(self.lane), bytes);
    }

    /// Tells the client what the request has come to.
    pub(crate) fn complete(self, verdict: Verdict) {
        if let Some(traced) = &self.traced {
            let work = TracedWork::Request { lane: self.lane, seq: self.seq };
            traced.1.complete(self.session.id, work, traced.0.get());
        }
        let state = self.state(Phase::Completed);
        let mut lanes = self.session.lanes.borrow_mut();
        let shared = self.session.segment.shared().lane(self.lane);
        debug_assert!(shared.is_some(), "a request came from lane {}", self.lane);
        if let (Some(responder), Some(lane)) = (lanes.get_mut(self.lane), shared) {
            responder.complete(lane, self.seq, state, value(verdict));
            let can_wait = responder.owes(lane) && verdict.unwrap_or(0) < WORTH_A_WAKE_UP;
            drop(lanes);
            self.bells.answered(&self.session, self.lane, can_wait);
        }
    }

    fn state(&self, phase: Phase) -> u64 {
        Reply { seq: self.seq, phase }.encode()
    }
}

impl<S: Storage> Drop for Ticket<S> {
    fn drop(&mut self) {
        debug_assert!(self.session.in_flight.get() > 0, "a ticket is counted once");
        let left = self.session.in_flight.get() - 1;
        self.session.in_flight.set(left);
        if left == 0 {
            self.session.quiet.notify_all();
        }
    }
}
