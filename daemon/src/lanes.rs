//! The lanes on the poll list: takes entries and hands them to [`requests`].
//!
//! Found through bits, in time proportional to what is ready. A visit to a lane takes at most as
//! many entries as it has slots; a lane that may have more waits for its next turn behind the
//! others. One that is [blocked](crate::requests::permits) is left alone.

use std::{collections::VecDeque, rc::Rc, time::Duration};

use executor::{Armed, Periodic, Source};
use shm::{LANES, SESSIONS_MAX};

use crate::{core::Core, pace, requests, session_storage::SessionStorage};

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
    look: Periodic,
}

impl<S: SessionStorage> Lanes<S> {
    pub(crate) fn new(core: Rc<Core<S>>) -> Self {
        let look = Periodic::new(&core.handle, LOOK_EVERY);
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

impl<S: SessionStorage> Source for Lanes<S> {
    fn poll(&mut self, budget: usize) -> usize {
        self.core.bells.ring();
        self.gather();
        if self.look.tick() {
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
            let (taken, has_more) = requests::visit(&self.core, &session, lane, &mut None);
            events += taken;
            if has_more {
                self.push(id, lane);
            }
        }
        events
    }

    /// New bits on the board are the `BoardSource`'s affair, in `core`.
    fn arm(&mut self) -> Armed {
        let is_busy = !self.ready.is_empty() || self.core.bells.is_late();
        if is_busy { Armed::Busy } else { Armed::Waits }
    }
}
