//! An executor's board as a source on the poll lists.

use std::sync::Arc;

use executor::{Armed, Attendant, SharedSource};
use shm::Board;

use crate::node::Node;

/// One executor's board on its poll list: any core may look at it, and have its executor woken.
pub(super) struct BoardSource {
    pub(super) node: Arc<Node>,
    /// Index of the executor.
    pub(super) core: usize,
    /// Clients ring for every request anyway.
    pub(super) rings_always: bool,
}

impl SharedSource for BoardSource {
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
