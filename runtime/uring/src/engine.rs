//! What every engine offers: take an operation, hand out its completion later.

use std::{error, fmt, io};

use executor::Armed;

use crate::operation::Operation;

/// Chosen by the submitter to recognise a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// Executes operations. Used by one thread; no call here blocks for longer than an inline call.
pub trait Engine {
    /// Takes an operation; its completion comes from a later [`reap`](Self::reap).
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the operation back untouched.
    fn submit(&mut self, operation: Operation, token: Token) -> Result<(), Refused>;

    /// Passes about `budget` completions to `done`, oldest first, and returns how many: those that
    /// come together with the last are not held back.
    ///
    /// Also gives the kernel what is due. The operation is freed before `done` hears of it.
    fn reap(&mut self, budget: usize, done: &mut dyn FnMut(Token, io::Result<u64>)) -> usize;

    /// Prepares for the executor to block: has the next completion wake it, until the next
    /// [`reap`](Self::reap).
    fn arm(&mut self) -> Armed;
}

/// An operation not taken.
#[derive(Debug)]
pub struct Refused {
    /// As it was submitted.
    pub operation: Operation,
    /// Why.
    pub refusal: Refusal,
}

/// Why an engine does not take an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Too many are in flight. Retry after a completion.
    Full,
    /// This engine never executes this kind.
    Unsupported,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.refusal {
            Refusal::Full => f.write_str("too many operations are in flight"),
            Refusal::Unsupported => write!(f, "engine does not execute {:?}", self.operation),
        }
    }
}

impl error::Error for Refused {}
