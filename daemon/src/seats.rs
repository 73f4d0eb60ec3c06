//! How many executors there are, and which of them serves a client.
//!
//! One that polls answers a few clients within microseconds, without handing over to another, and
//! leaves the other cores to their programs. Many clients that sleep until they are answered leave
//! a core idle that one executor has no use for: then the next one shares them.

use std::fs;

use executor::Idle;
use shm::EXECUTORS_MAX;

use crate::Config;

/// Clients that the first executor serves before the next one gets any.
const FEW: usize = 8;
/// Executors of a daemon that was given no cores of its own, at least.
const SHARING_MIN: usize = 2;
/// Cores of a node for which such a daemon has one executor. Clients drain their own logs, so what
/// is left for the daemon is 3 to 6 % of their time.
const CORES_EACH: usize = 16;
/// The cores of this node that are online, as `0-63,128`.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The sessions of every executor that runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seats {
    taken: Vec<usize>,
    /// Sessions of one executor before the next one gets any.
    few: usize,
    /// Executors there may be.
    most: usize,
}

impl Seats {
    /// One executor for each core that is the daemon's own. Those that share the job's cores are as
    /// many as suits the node, where they pay: a remote folder is served over one connection, and
    /// one that spins is enough. Which cores are the job's is known only once all ranks have come.
    /// All but the first of these start when they are needed: on a busy node a thread waits for its
    /// first turn for milliseconds, and a job of few clients would wait with it.
    pub(crate) fn new(config: &Config) -> Self {
        if !config.cores.is_empty() {
            return Self::spread(config.cores.len());
        }
        let is_single =
            config.idle == Idle::Spin || config.remote.is_some() || config.serving.is_some();
        let online = || fs::read_to_string(ONLINE).map_or(1, |list| count_listed(&list));
        let most = if is_single { 1 } else { sharing(online()) };
        Self { taken: vec![0], few: FEW, most }
    }

    /// So many executors, that share the clients from the first one on.
    pub(crate) fn spread(count: usize) -> Self {
        let most = count.max(1);
        Self { taken: vec![0; most], few: 1, most }
    }

    /// Executors that run, or are to run from the start.
    pub(crate) fn count(&self) -> usize {
        self.taken.len()
    }

    /// Executors there may be.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The next executor, if it is time to start it: before those that run have as many sessions as
    /// they serve well, for the ranks of a job come within milliseconds.
    pub(crate) fn wanted(&self) -> Option<usize> {
        let is_filling = self.taken.iter().all(|taken| *taken >= self.few.div_ceil(2));
        (is_filling && self.count() < self.most).then_some(self.count())
    }

    /// The next executor runs.
    pub(crate) fn open(&mut self) {
        self.taken.push(0);
        debug_assert!(self.count() <= self.most, "no more executors than there may be");
    }

    /// There are no more executors than those that run.
    pub(crate) fn close(&mut self) {
        self.most = self.count();
    }

    /// Takes a seat for a session; returns its executor.
    pub(crate) fn take(&mut self) -> usize {
        debug_assert!(!self.taken.is_empty(), "a daemon has an executor");
        let few = self.taken.iter().position(|taken| *taken < self.few);
        let fewest = || self.taken.iter().enumerate().min_by_key(|(_, taken)| **taken);
        let executor = few.or_else(|| fewest().map(|(index, _)| index)).unwrap_or(0);
        if let Some(taken) = self.taken.get_mut(executor) {
            *taken += 1;
        }
        executor
    }

    /// Gives back the seat of a session that has ended.
    pub(crate) fn leave(&mut self, executor: usize) {
        if let Some(taken) = self.taken.get_mut(executor) {
            debug_assert!(*taken > 0, "a session is on executor {executor}");
            *taken -= 1;
        }
    }
}

/// Executors that share the cores of a node of so many.
fn sharing(cores: usize) -> usize {
    (cores / CORES_EACH).clamp(SHARING_MIN, EXECUTORS_MAX)
}

/// Numbers in a list of ranges, `0-3,8`: 5.
fn count_listed(list: &str) -> usize {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.trim().split(',').filter_map(count).fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Seats {
        Seats { taken: vec![0; 2], few: FEW, most: 2 }
    }

    #[test]
    fn executors_that_share_cores_grow_with_the_node() {
        let counts = ["", "0\n", "0-1\n", "0-63\n", "0-63,128-191\n", "0-4095\n", "x-3"];
        let counts = counts.map(|list| sharing(count_listed(list)));
        assert_eq!(counts, [2, 2, 2, 4, 8, EXECUTORS_MAX, 2]);
    }

    fn take(seats: &mut Seats) {
        seats.take();
    }

    #[test]
    fn few_clients_have_one_executor_and_many_are_shared_evenly() {
        let mut seats = shared();
        assert!((0..FEW).all(|_| seats.take() == 0));
        assert!((0..FEW).all(|_| seats.take() == 1));
        (0..48).for_each(|_| take(&mut seats));
        assert_eq!(seats.taken, [32, 32]);
    }

    #[test]
    fn next_executor_is_wanted_before_those_that_run_have_their_few() {
        let mut seats = Seats { taken: vec![0], few: FEW, most: 2 };
        (1..FEW / 2).for_each(|_| take(&mut seats));
        assert_eq!(seats.wanted(), None);
        take(&mut seats);
        assert_eq!(seats.wanted(), Some(1));
        (0..=FEW / 2).for_each(|_| take(&mut seats)); // Before it runs.
        seats.open();
        assert_eq!((seats.take(), seats.wanted(), &*seats.taken), (1, None, &[9, 1][..]));
        let mut seats = Seats { taken: vec![FEW], few: FEW, most: 2 };
        seats.close();
        assert_eq!((seats.take(), seats.wanted()), (0, None));
    }

    #[test]
    fn a_seat_that_is_left_is_taken_next() {
        let mut seats = shared();
        (0..20).for_each(|_| take(&mut seats));
        seats.leave(1);
        assert_eq!(seats.take(), 1);
        (0..9).for_each(|_| seats.leave(0));
        assert_eq!((seats.take(), &*seats.taken), (0, &[2, 10][..]));
    }

    #[test]
    fn cores_of_the_daemon_are_used_from_the_first_client_on() {
        let config = Config { cores: vec![0, 3, 4], ..Config::new("/nowhere".into()) };
        let mut seats = Seats::new(&config);
        assert_eq!([seats.take(), seats.take(), seats.take(), seats.take()], [0, 1, 2, 0]);
    }

    #[test]
    fn a_daemon_that_shares_its_cores_spins_on_one_at_most() {
        let config = Config { idle: Idle::Spin, ..Config::new("/nowhere".into()) };
        assert_eq!(Seats::new(&config).most(), 1);
        let config = Config { idle: Idle::PollIdle, ..config };
        assert!(Seats::new(&config).most() >= SHARING_MIN);
    }
}
