//! Costs of the file systems of this process, and their consequences for large writes and for who
//! drains a log.
//!
//! A large write is staged where its file system is slower than to copy the bytes, so that the
//! program goes on at the speed of memory and the daemon drains beside it. Elsewhere it passes.

use core::time::Duration;

use shm::Costs;

use crate::{client::Client, locked::Locked};

/// A KiB that takes longer makes a file system slow, ns: less than 128 MB/s. To copy it to fresh
/// memory and to drain it takes up to 5 us where every core is busy; a file system on the same
/// node, which uses these cores itself, gained nothing at 3 us.
const SLOW_KIB_NS: u64 = 8_000;
/// A KiB that takes longer keeps a program waiting for more than memory: the daemon drains ahead of
/// it, ns. Below the second the program drains its log itself again.
const AHEAD_KIB_NS: (u64, u64) = (4_000, 2_000);

/// True if the daemon is to drain a log of `device` ahead of the program, which it does not do yet
/// (`is_ahead`), or still. All processes of the job have found what decides: a thread that lost its
/// core in a few drains changes nothing.
pub(crate) fn drains_ahead(costs: &Costs, device: u64, is_ahead: bool) -> bool {
    let bound = if is_ahead { AHEAD_KIB_NS.1 } else { AHEAD_KIB_NS.0 };
    let kib_ns = costs.of(device).and_then(|cost| cost.kib_ns);
    kib_ns.map_or(is_ahead, |kib_ns| kib_ns > bound)
}

impl Client {
    /// Tells everybody of the job what a write took.
    pub(crate) fn learn_cost(&'static self, device: u64, len: usize, time: Duration) {
        if let Some(job) = self.job() {
            let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            job.shared().costs.learn(device, len as u64, ns);
        }
    }

    /// True if bytes take longer to the file system of `device` than a copy.
    fn is_slow(&'static self, device: u64) -> bool {
        let cost = self.job().and_then(|job| job.shared().costs.of(device));
        cost.and_then(|cost| cost.kib_ns).is_some_and(|ns| ns > SLOW_KIB_NS)
    }
}

impl Locked {
    /// True if a large write is staged all the same. What is appended by one call others see in one
    /// piece, which a log does not promise of much; a log that is too short for two such writes
    /// would only be waited for.
    pub(crate) fn stages_large(&mut self, len: usize) -> bool {
        let is_plain = !self.access.append && !self.is_remote();
        if !is_plain || self.open_elsewhere() || !self.client.is_slow(self.device) {
            return false;
        }
        let has_long_log = |file: &Self| {
            file.log.is_some_and(|log| !log.is_own() && log.producer.capacity() / 2 >= len as u64)
        };
        let has_room = self.client.connected().is_none_or(|connection| {
            let room = connection.arena.lock().map_or(0, |arena| arena.share(2));
            room / 2 >= len as u64
        });
        self.is_large = has_long_log(self) || has_room;
        self.is_large
    }

    /// Others have the file open, or will not see what is staged.
    fn open_elsewhere(&self) -> bool {
        self.client.is_exiting()
            || self.log.is_none() && self.client.open_count(self.device, self.inode) > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn learn(costs: &Costs, kib_ns: u64, times: usize) {
        (0..times).for_each(|_| costs.learn(7, MIB, kib_ns << 10));
    }

    #[test]
    fn daemon_drains_ahead_where_the_file_system_is_slow_and_as_long_as_it_is() {
        let costs = Costs::default();
        assert!(!drains_ahead(&costs, 7, false), "nothing is known");
        learn(&costs, 9_000, 4);
        assert!(drains_ahead(&costs, 7, false) && !drains_ahead(&costs, 8, false));
        learn(&costs, 3_000, 40);
        assert!(drains_ahead(&costs, 7, true), "it stays, in between");
        assert!(!drains_ahead(&costs, 7, false));
        learn(&costs, 300, 40);
        assert!(!drains_ahead(&costs, 7, true));
    }

    #[test]
    fn thread_that_lost_its_core_in_some_drains_drains_on() {
        let costs = Costs::default();
        learn(&costs, 300, 8);
        learn(&costs, 40_000, 8);
        assert!(!drains_ahead(&costs, 7, false));
    }
}
