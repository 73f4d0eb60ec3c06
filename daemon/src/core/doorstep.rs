//! An executor's board on its poll list.

use std::sync::Arc;

use executor::{Armed, Attendant, Found, SharedSource};
use shm::Board;

use crate::node::Node;

/// One executor's board on its poll list: any core may look at it, and have its executor woken.
pub(super) struct Doorstep {
    pub(super) node: Arc<Node>,
    /// Index of the executor.
    pub(super) core: usize,
    /// Clients ring for every request anyway.
    pub(super) rings_always: bool,
}

impl SharedSource for Doorstep {
    fn poll(&self, _budget: usize) -> Found {
        let board = self.node.board(self.core);
        if board.is_some_and(Board::is_ready) { Found::ForItsCore } else { Found::Handled(0) }
    }

    fn attend(&self, by: Attendant<'_>) -> Armed {
        let Some(board) = self.node.board(self.core) else { return Armed::Waits };
        match by {
            _ if self.rings_always => {}
            Attendant::ItsCore => board.parked.withdraw(),
            Attendant::Poller => board.parked.leave_to_poller(),
            Attendant::Nobody(_) => board.parked.announce(),
        }
        if board.is_ready() { Armed::Busy } else { Armed::Waits }
    }
}
