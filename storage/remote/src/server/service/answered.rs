//! The last answers of a session, to what must not be done once more because its answer was lost.
//!
//! A client that comes back on another connection sends again what is unanswered. What it has
//! written to a place may have been read by others by then, and written over; an error of an
//! `fsync` the kernel tells once; and a lock that was given up may be another thread's. Where the
//! ledger has no record of it, such a request is answered from here. A server that is started anew
//! has no such answers, and does these things again.
//!
//! As many answers are kept as a client has requests unanswered: those that it has not received are
//! among the last that were given, if one that is given again counts as the last.

use std::{cell::RefCell, collections::VecDeque};

use rustix::io::Errno;
use storage::{
    names::Answer,
    verdict::{value, verdict},
};
use wire::Replay;

use crate::{line::REQUESTS, server::received::Received};

/// Numbers of requests and the values of their answers, the last one given at the end.
#[derive(Default)]
pub(super) struct Answered(RefCell<VecDeque<(u64, u64)>>);

impl Answered {
    /// The number of a request by which its answer is kept, if it is to be.
    pub(super) fn number(received: &Received) -> Option<u64> {
        let is_kept = matches!(received.request.replay(), Replay::Kept | Replay::Changes);
        // What is asked before all others has no number of its own.
        Some(received.id).filter(|id| is_kept && *id > 0 && received.record.is_none())
    }

    /// The answer that was given, if it was.
    pub(super) fn again(&self, number: u64) -> Option<Result<Answer, Errno>> {
        let mut last = self.0.borrow_mut();
        let at = last.iter().position(|(known, _)| *known == number)?;
        let (number, value) = last.remove(at)?;
        last.push_back((number, value));
        Some(verdict(value).map(Answer::value))
    }

    /// Keeps an answer, and forgets one that the client has received.
    pub(super) fn keep(&self, number: u64, answer: &Result<Answer, Errno>) {
        let mut last = self.0.borrow_mut();
        if last.len() == REQUESTS as usize {
            last.pop_front();
        }
        let answer = answer.as_ref().map(|answer| answer.value).map_err(|errno| *errno);
        last.push_back((number, value(answer)));
    }
}
