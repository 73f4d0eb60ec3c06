//! The engine that performs an operation on the spot, bounded so that a slice stays short.
//!
//! An operation is complete when it is submitted while there is a share for it: so much may be done
//! at once between two visits of the executor to its sources. What exceeds the share completes at
//! the next visit, so a task makes one more call a poll, and every source is visited between two of
//! them.

use std::{collections::VecDeque, io};

use executor::Armed;

use crate::{
    engine::{Engine, Refusal, Refused, Token},
    memory::{Buffer, Heap},
    operation::{Operation, SINK_LEN},
    plain,
};

/// Most bytes one inline call moves: about 60 us of copying.
pub const INLINE_LEN_MAX: usize = 256 * 1024;

const FINISHED_MAX: usize = 1024;

/// Most operations that are complete at once between two visits; together they move at most
/// [`INLINE_LEN_MAX`] bytes.
const SHARE_COUNT: usize = 16;

/// Plain system calls on the executor's thread.
#[derive(Debug)]
pub struct Inline {
    finished: VecDeque<(Token, io::Result<u64>, Option<Operation>)>,
    sink: Buffer,
    /// Operations and bytes of the share since the last visit.
    used_count: usize,
    used_len: usize,
}

impl Inline {
    /// An engine with nothing to reap.
    #[must_use]
    pub fn new() -> Self {
        let (finished, sink) = (VecDeque::new(), Heap::buffer(SINK_LEN));
        Self { finished, sink, used_count: 0, used_len: 0 }
    }

    /// Whether a submission would be refused as [`Refusal::Full`].
    pub(crate) fn is_full(&self) -> bool {
        self.finished.len() == FINISHED_MAX
    }

    /// Performs an operation that is no call, if there is a share for it, or hands it back.
    pub(crate) fn perform(&mut self, operation: Operation) -> Result<io::Result<u64>, Operation> {
        if !self.take_share(&operation) {
            return Err(operation);
        }
        Ok(plain::perform(operation, INLINE_LEN_MAX, &self.sink).0)
    }

    /// Performs a read if the page cache can serve it, or hands it back. Of one for which there is
    /// no share, the completion comes later: `Ok(None)`.
    pub(crate) fn perform_cached(
        &mut self,
        operation: Operation,
        token: Token,
    ) -> Result<Option<u64>, Operation> {
        let Operation::Read { file, at, into } = &operation else { return Err(operation) };
        match plain::read_cached(file, *at, into, INLINE_LEN_MAX) {
            Ok(len) if self.take_share(&operation) => Ok(Some(len)),
            Ok(len) => {
                self.finished.push_back((token, Ok(len), Some(operation)));
                Ok(None)
            }
            Err(_) => Err(operation), // What the error was, the engine that may block will say.
        }
    }

    fn take_share(&mut self, operation: &Operation) -> bool {
        let used_len = self.used_len + operation.len().min(INLINE_LEN_MAX);
        let fits = self.used_count < SHARE_COUNT && used_len <= INLINE_LEN_MAX;
        if fits {
            (self.used_count, self.used_len) = (self.used_count + 1, used_len);
        }
        fits
    }
}

impl Default for Inline {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine for Inline {
    fn submit(&mut self, operation: Operation, token: Token) -> Result<(), Refused> {
        if self.is_full() {
            return Err(Refused { operation, refusal: Refusal::Full });
        }
        if matches!(operation, Operation::Call(_)) {
            return Err(Refused { operation, refusal: Refusal::Unsupported });
        }
        let (result, operation) = plain::perform(operation, INLINE_LEN_MAX, &self.sink);
        self.finished.push_back((token, result, operation));
        Ok(())
    }

    fn reap(&mut self, budget: usize, done: &mut dyn FnMut(Token, io::Result<u64>)) -> usize {
        (self.used_count, self.used_len) = (0, 0);
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

    fn disarm(&mut self) {}
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::OwnedFd, sync::Arc};

    use super::*;

    #[test]
    fn the_share_of_a_visit_has_an_end_and_begins_anew() {
        let file = File::options().write(true).open("/dev/null").expect("is there");
        let file = Arc::new(OwnedFd::from(file));
        let write = |len| {
            let from = Heap::buffer(len).into();
            Operation::Write { file: Arc::clone(&file), at: 0, from }
        };
        let mut inline = Inline::new();
        for (len, count_max) in [(1, SHARE_COUNT), (INLINE_LEN_MAX / 4, 4), (INLINE_LEN_MAX, 1)] {
            for _ in 0..count_max {
                assert_eq!(inline.perform(write(len)).expect("a share").ok(), Some(len as u64));
            }
            let refused = inline.perform(write(len)).expect_err("no share is left");
            inline.submit(refused, Token(7)).expect("room");

            let mut done = Vec::new();
            inline.reap(1, &mut |token, result| done.push((token, result.ok())));

            assert_eq!(done, [(Token(7), Some(len as u64))]);
        }
    }
}
