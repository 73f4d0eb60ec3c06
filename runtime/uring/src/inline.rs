//! The engine that performs an operation on the spot, bounded so that a slice stays short.
//!
//! The completion still comes from `reap`, so a task makes one call a poll and every source is
//! visited between two of them.

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

/// Plain system calls on the executor's thread.
#[derive(Debug)]
pub struct Inline {
    finished: VecDeque<(Token, io::Result<u64>, Option<Operation>)>,
    sink: Buffer,
}

impl Inline {
    /// An engine with nothing to reap.
    #[must_use]
    pub fn new() -> Self {
        Self { finished: VecDeque::new(), sink: Heap::buffer(SINK_LEN) }
    }

    /// Whether a submission would be refused as [`Refusal::Full`].
    pub(crate) fn is_full(&self) -> bool {
        self.finished.len() == FINISHED_MAX
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
