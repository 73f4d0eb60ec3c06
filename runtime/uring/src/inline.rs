//! The engine that performs an operation on the spot, bounded so that a slice stays short.
//!
//! A task may take the result of a short operation at once. The others' completions come from
//! `reap`: so all that is done between two visits to the sources takes hardly longer than the
//! longest call.

use std::{collections::VecDeque, io};

use executor::Armed;

use crate::{
    engine::{Engine, Token},
    memory::{Buffer, Heap},
    operation::{Operation, SINK_LEN},
    plain,
};

/// Most bytes one inline call moves: about 60 us of copying.
pub const INLINE_LEN_MAX: usize = 256 * 1024;

/// Bytes whose results may be taken at once between two visits.
const AT_ONCE_LEN_MAX: u64 = INLINE_LEN_MAX as u64;
/// A call takes about as long as moving so many bytes, and longer for more.
const CALL_LEN: u64 = 4096;

const FINISHED_MAX: usize = 1024;

/// Plain system calls on the executor's thread.
#[derive(Debug)]
pub(crate) struct Inline {
    finished: VecDeque<(Token, io::Result<u64>, Option<Operation>)>,
    sink: Buffer,
    /// Remainder of [`AT_ONCE_LEN_MAX`] until the next visit.
    at_once_left: u64,
}

impl Inline {
    /// An engine with nothing to reap.
    #[must_use]
    pub(crate) fn new() -> Self {
        let sink = Heap::buffer(SINK_LEN);
        Self { finished: VecDeque::new(), sink, at_once_left: AT_ONCE_LEN_MAX }
    }

    /// True if a submission would be refused.
    pub(crate) fn is_full(&self) -> bool {
        self.finished.len() == FINISHED_MAX
    }

    /// Takes the result of the operation that was submitted last, if it is this one and short.
    pub(crate) fn take_at_once(&mut self, token: Token) -> Option<io::Result<u64>> {
        let (last, result, _) = self.finished.back()?;
        let cost = result.as_ref().map_or(0, |len| *len).max(CALL_LEN);
        let left = self.at_once_left.checked_sub(cost).filter(|_| *last == token)?;
        self.at_once_left = left;
        self.finished.pop_back().map(|(_, result, _)| result)
    }

    /// Performs a read if the page cache can serve it, or hands it back.
    pub(crate) fn submit_cached(
        &mut self,
        operation: Operation,
        token: Token,
    ) -> Option<Operation> {
        let Operation::Read { file, at, into } = &operation else { return Some(operation) };
        match plain::read_cached(file, *at, into, INLINE_LEN_MAX) {
            Ok(len) => {
                self.finished.push_back((token, Ok(len), Some(operation)));
                None
            }
            Err(_) => Some(operation), // What the error was, the engine that may block will say.
        }
    }
}

impl Default for Inline {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine for Inline {
    fn submit(&mut self, operation: Operation, token: Token) -> Result<(), Operation> {
        if self.is_full() {
            return Err(operation);
        }
        let (result, operation) = plain::perform(operation, INLINE_LEN_MAX, &self.sink);
        self.finished.push_back((token, result, operation));
        Ok(())
    }

    fn reap(&mut self, budget: usize, done: &mut dyn FnMut(Token, io::Result<u64>)) -> usize {
        self.at_once_left = AT_ONCE_LEN_MAX;
        if self.finished.is_empty() {
            return 0;
        }
        let count = self.finished.len().min(budget);
        for (token, result, operation) in self.finished.drain(..count) {
            drop(operation);
            done(token, result);
        }
        count
    }

    fn arm(&mut self) -> Armed {
        if self.finished.is_empty() { Armed::Waits } else { Armed::Busy }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::OwnedFd, sync::Arc};

    use super::*;

    #[test]
    fn what_is_taken_at_once_between_two_visits_has_an_end_and_begins_anew() {
        let file = File::options().write(true).open("/dev/null").expect("is there");
        let file = Arc::new(OwnedFd::from(file));
        let mut inline = Inline::new();
        for (len, count_max) in [(1, 64), (INLINE_LEN_MAX / 4, 4), (INLINE_LEN_MAX, 1)] {
            let mut write = || {
                let from = Heap::buffer(len).into();
                let write =
                    Operation::Write { file: Arc::clone(&file), at: 0, from, is_whole: false };
                inline.submit(write, Token(7)).expect("room");
                inline.take_at_once(Token(7)).and_then(Result::ok)
            };
            for _ in 0..count_max {
                assert_eq!(write(), Some(len as u64));
            }
            assert_eq!(write(), None);

            let mut done = Vec::new();
            inline.reap(1, &mut |token, result| done.push((token, result.ok())));

            assert_eq!(done, [(Token(7), Some(len as u64))]);
        }
    }
}
