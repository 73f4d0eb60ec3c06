//! Interface of every engine: take an operation, hand out its completion later.

use std::io;

use executor::Armed;

use crate::operation::Operation;

/// Chosen by the submitter to recognise a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token(pub(crate) u64);

/// Executes operations. Used by one thread; no call here blocks for longer than an inline call.
pub(crate) trait Engine {
    /// Takes an operation; its completion comes from a later [`reap`](Self::reap). One that has
    /// too many in flight hands it back untouched.
    fn submit(&mut self, operation: Operation, token: Token) -> Result<(), Operation>;

    /// Passes about `budget` completions to `done`, oldest first, and returns how many: those that
    /// come together with the last are not held back.
    ///
    /// Also gives the kernel what is due. The operation is freed before `done` hears of it.
    fn reap(&mut self, budget: usize, done: &mut dyn FnMut(Token, io::Result<u64>)) -> usize;

    /// Prepares for the executor to block: has the next completion wake it, until the next
    /// [`reap`](Self::reap).
    fn arm(&mut self) -> Armed;
}
