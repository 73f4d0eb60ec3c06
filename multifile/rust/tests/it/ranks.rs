//! Runs a function on many ranks at once, each a thread, and counts what they do together.

use std::{cell::Cell, sync::mpsc, thread, time::Duration};

use multifile::{Group, Result, group::Threads};

const DEADLINE: Duration = Duration::from_secs(120);

/// Runs `rank` on `size` threads and returns what they returned, in the order of ranks. Panics if
/// one of them is not done in time: nothing may hang.
pub(crate) fn on_ranks<T: Send + 'static>(
    size: u32,
    rank: impl Fn(&Counting<Threads>) -> T + Send + Sync + Clone + 'static,
) -> Vec<T> {
    let (sender, receiver) = mpsc::channel();
    for group in Threads::new(size) {
        let (sender, rank) = (sender.clone(), rank.clone());
        thread::spawn(move || {
            let group = Counting { group, calls: Cell::new(0) };
            let outcome = rank(&group);
            sender.send((group.rank(), outcome)).unwrap();
        });
    }
    let mut outcomes: Vec<_> =
        (0..size).map(|_| receiver.recv_timeout(DEADLINE).expect("no rank hangs")).collect();
    outcomes.sort_by_key(|(rank, _)| *rank);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// A group that counts the operations of its rank.
#[derive(Debug)]
pub(crate) struct Counting<G> {
    pub(crate) group: G,
    calls: Cell<u32>,
}

impl<G> Counting<G> {
    /// Operations since the last call.
    pub(crate) fn calls(&self) -> u32 {
        self.calls.take()
    }

    fn count(&self) {
        self.calls.set(self.calls.get() + 1);
    }
}

impl<G: Group> Group for Counting<G> {
    fn rank(&self) -> u32 {
        self.group.rank()
    }

    fn size(&self) -> u32 {
        self.group.size()
    }

    fn gather(&self, mine: &[u8]) -> Result<Vec<u8>> {
        self.count();
        self.group.gather(mine)
    }

    fn scatter(&self, all: &[u8], mine: &mut [u8]) -> Result<()> {
        self.count();
        self.group.scatter(all, mine)
    }

    fn broadcast(&self, bytes: &mut [u8]) -> Result<()> {
        self.count();
        self.group.broadcast(bytes)
    }

    fn barrier(&self) -> Result<()> {
        self.count();
        self.group.barrier()
    }
}
