//! When clients are woken for their answers.
//!
//! A client that has several requests in flight on a lane is woken once for those that are answered
//! together: when nothing of the lane is left to be answered, or one answer is worth it, and else
//! [`TURNS_MAX`] turns after the first. These take a fraction of a microsecond when there is little
//! to do, and as many slices of tasks when there is much: a wake-up costs more than most requests
//! do.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

use super::Session;
use storage::Storage;

/// Turns for which a client sleeps on after its first answer.
const TURNS_MAX: u64 = 4;

/// The bells of one executor's clients.
pub(crate) struct Bells<S: Storage> {
    /// Every answer wakes, whether or not anybody sleeps: the conventional interrupt.
    rings_always: bool,
    late: RefCell<VecDeque<Late<S>>>,
    turn: Cell<u64>,
}

/// A lane with answers that nobody was woken for.
struct Late<S: Storage> {
    session: Rc<Session<S>>,
    lane: usize,
    /// The turn of the first.
    since: u64,
}

impl<S: Storage> Bells<S> {
    pub(crate) fn new(rings_always: bool) -> Self {
        Self { rings_always, late: RefCell::default(), turn: Cell::new(0) }
    }

    /// A request on this lane was answered; `can_wait` says whether its client may sleep on for
    /// more answers.
    pub(crate) fn answered(&self, session: &Rc<Session<S>>, lane: usize, can_wait: bool) {
        let Some(shared) = session.segment.shared().lane(lane) else { return };
        if self.rings_always {
            shared.bell.ring_always();
        } else if !can_wait {
            session.mark_late(lane, false);
            shared.bell.ring();
        } else if !session.mark_late(lane, true) {
            let late = Late { session: Rc::clone(session), lane, since: self.turn.get() };
            self.late.borrow_mut().push_back(late);
        }
    }

    /// True if somebody is still to be woken.
    pub(crate) fn is_late(&self) -> bool {
        !self.late.borrow().is_empty()
    }

    /// Wakes all who have waited for long enough. To be called once a turn.
    pub(crate) fn ring(&self) {
        let turn = self.turn.get() + 1;
        self.turn.set(turn);
        while let Some(Late { session, lane, .. }) = self.pop_due(turn) {
            let shared = session.segment.shared().lane(lane);
            // Unless it was woken meanwhile.
            if let Some(shared) = shared.filter(|_| session.mark_late(lane, false)) {
                shared.bell.ring();
            }
        }
    }

    fn pop_due(&self, turn: u64) -> Option<Late<S>> {
        let mut late = self.late.borrow_mut();
        debug_assert!(late.back().is_none_or(|last| last.since <= turn), "turns count up");
        late.front().filter(|first| turn - first.since >= TURNS_MAX)?;
        late.pop_front()
    }
}
