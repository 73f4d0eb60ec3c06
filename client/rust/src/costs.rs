//! Costs of the file systems of this process, and their consequence for large writes.
//!
//! A large write is staged where its file system is slower than to copy the bytes, so that the
//! program goes on at the speed of memory and the daemon drains beside it. Elsewhere it passes.

use core::time::Duration;

use crate::{client::Client, clock::nanoseconds, locked::Locked};

/// A KiB that takes longer makes a file system slow, ns: less than 128 MB/s. To copy it to fresh
/// memory and to drain it takes up to 5 us where every core is busy; a file system on the same
/// node, which uses these cores itself, gained nothing at 3 us.
const SLOW_KIB_NS: u64 = 8_000;

impl Client {
    /// Tells everybody of the job what a write took.
    pub(crate) fn learn_cost(&'static self, device: u64, len: usize, time: Duration) {
        let ns = nanoseconds(time);
        self.watch.measured(len as u64, ns);
        if let Some(job) = self.job() {
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
        let is_plain = !self.access.append && !self.state.is_remote();
        if !is_plain || self.open_elsewhere() || !self.client.is_slow(self.device) {
            return false;
        }
        let has_long_log = |file: &Self| {
            file.state
                .log()
                .is_some_and(|log| !log.is_own() && log.producer.capacity() / 2 >= len as u64)
        };
        let has_room = self.client.connected().is_none_or(|connection| {
            let room = connection.arena.lock().map_or(0, |arena| arena.share(2));
            room / 2 >= len as u64
        });
        let fits = has_long_log(self) || has_room;
        self.writes.stage_large(fits);
        fits
    }

    /// Others have the file open, or will not see what is staged.
    fn open_elsewhere(&self) -> bool {
        self.client.is_exiting()
            || self.state.log().is_none() && self.client.open_count(self.device, self.inode) > 1
    }
}
