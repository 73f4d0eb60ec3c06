//! The lanes on the poll list: takes entries and hands them to [`requests`].
//!
//! Found through bits, in time proportional to what is ready. A visit to a lane takes at most as
//! many entries as it has slots; a lane that may have more waits for its next turn behind the
//! others. One that is [blocked](crate::requests::permits) is left alone.

use std::{collections::VecDeque, rc::Rc, sync::Arc, time::Duration};

use executor::{Armed, Attendant, Credit, SharedSource, Source};
use shm::{Board, LANES, SESSIONS_MAX, lane::SLOTS};

use crate::{
    core::{Core, Departure},
    node::Node,
    pace, requests,
    seldom::Seldom,
    session::Session,
    session_storage::SessionStorage,
};

/// Bit of a ready word that stands for dirty files.
const DIRTY: usize = LANES;
const _: () = assert!(DIRTY < 64, "a word has a bit for each lane and for marks");
/// An executor that is kept busy looks for much staged this often.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// The lanes of one executor's sessions.
pub(crate) struct Lanes<S: SessionStorage> {
    core: Rc<Core<S>>,
    /// Session and lane of entries that may be there, at most once each.
    ready: VecDeque<(u32, usize)>,
    /// Which lanes of each session those are, as bits: a client may raise its own without end.
    queued: Vec<u64>,
    look: Seldom,
}

impl<S: SessionStorage> Lanes<S> {
    pub(crate) fn new(core: Rc<Core<S>>) -> Self {
        let look = Seldom::new(&core.handle, LOOK_EVERY);
        Self { core, ready: VecDeque::new(), queued: vec![0; SESSIONS_MAX], look }
    }

    /// Turns raised bits into lanes to visit.
    fn gather(&mut self) {
        let Some(board) = self.core.board() else { return };
        board.take(|session| {
            let Ok(id) = u32::try_from(session) else { return };
            let Some(queued) = self.queued.get_mut(session) else { return };
            let mut bits = self.core.node.ready(id).map_or(0, shm::Ready::take) & !*queued;
            *queued |= bits;
            while bits != 0 {
                self.ready.push_back((id, bits.trailing_zeros() as usize));
                bits &= bits - 1;
            }
        });
    }

    /// Takes the next of what may be there. Bits raised from now on queue it again.
    fn pop(&mut self) -> Option<(u32, usize)> {
        let (id, lane) = self.ready.pop_front()?;
        if let Some(queued) = self.queued.get_mut(id as usize) {
            debug_assert!(*queued & 1 << lane != 0, "a queued lane is marked");
            *queued &= !(1 << lane);
        }
        Some((id, lane))
    }

    /// Lanes that wait to be visited.
    #[cfg(test)]
    pub(crate) fn queued_count(&self) -> usize {
        self.ready.len()
    }

    /// Has a lane visited once more, behind the others.
    fn push(&mut self, id: u32, lane: usize) {
        if let Some(queued) = self.queued.get_mut(id as usize) {
            debug_assert!(*queued & 1 << lane == 0, "a lane is queued once");
            *queued |= 1 << lane;
        }
        self.ready.push_back((id, lane));
    }
}

/// Takes a lane's entries; returns how many, and whether there may be more.
pub(crate) fn visit<S: SessionStorage>(
    core: &Rc<Core<S>>,
    session: &Rc<Session<S>>,
    lane: usize,
    permits: &mut Option<Credit>,
) -> (usize, bool) {
    for taken in 0..SLOTS {
        if session.is_ending() || session.is_blocked(lane) {
            return (taken, false);
        }
        match session.next(lane) {
            Ok(Some((seq, words))) => {
                requests::take(core, session, lane, seq, words, permits);
            }
            Ok(None) => return (taken, false),
            Err(_) => {
                core.end(session, Departure::Protocol("entry over an unanswered one"));
                return (taken, false);
            }
        }
    }
    (SLOTS, true)
}

impl<S: SessionStorage> Source for Lanes<S> {
    fn poll(&mut self, budget: usize) -> usize {
        self.core.bells.ring();
        self.gather();
        if self.look.is_due() {
            pace::drain_what_has_much(&self.core);
        }
        let mut events = 0;
        for _ in 0..self.ready.len() {
            if events >= budget {
                break;
            }
            let Some((id, lane)) = self.pop() else { break };
            let Some(session) = self.core.session(id) else { continue };
            events += 1;
            if lane == DIRTY {
                pace::marked(&self.core, &session);
                continue;
            }
            let (taken, has_more) = visit(&self.core, &session, lane, &mut None);
            events += taken;
            if has_more {
                self.push(id, lane);
            }
        }
        events
    }

    /// New bits on the board are the [`Doorstep`]'s affair.
    fn arm(&mut self) -> Armed {
        let is_busy = !self.ready.is_empty() || self.core.bells.is_late();
        if is_busy { Armed::Busy } else { Armed::Waits }
    }
}

/// One executor's board on its poll list: any core may look at it, and have its executor woken.
pub(crate) struct Doorstep {
    pub(crate) node: Arc<Node>,
    /// Index of the executor.
    pub(crate) core: usize,
    /// Clients ring for every request anyway.
    pub(crate) rings_always: bool,
}

impl SharedSource for Doorstep {
    fn is_ready(&self) -> bool {
        self.node.board(self.core).is_some_and(Board::is_ready)
    }

    fn attend(&self, by: Attendant) -> Armed {
        let Some(board) = self.node.board(self.core) else { return Armed::Waits };
        match by {
            _ if self.rings_always => {}
            Attendant::ItsCore => board.parked.withdraw(),
            Attendant::Poller => board.parked.leave_to_poller(),
            Attendant::Nobody => board.parked.announce(),
        }
        if board.is_ready() { Armed::Busy } else { Armed::Waits }
    }
}
