//! Costs of the file systems of this process, and their consequences for writes.
//!
//! A file is handed over once its small writes have taken as long as that costs: what the client
//! and the daemon do, and what they ask a server: the attributes and one more close.
//!
//! A large write is staged where its file system is slower than to copy the bytes, so that the
//! program goes on at the speed of memory and the daemon drains beside it. Elsewhere it passes.

use core::time::Duration;

use shm::{CallKind, Costs};

use crate::{
    client::Client, clock::nanoseconds, locked_file::Locked, log::Drains, staging::LARGE_SHARE,
    write::LONG, writes::Writes,
};

/// A KiB that takes longer makes a file system slow, ns: less than 128 MB/s. To copy it to fresh
/// memory and to drain it takes up to 5 us where every core is busy; a file system on the same
/// node, which uses these cores itself, gained nothing at 3 us.
const SLOW_KIB_NS: u64 = 8_000;
/// The same with memory granted for a whole burst: the program goes on long before that is drained.
const SLOW_KIB_OF_BURST_NS: u64 = 3_000;
/// A KiB that takes less ends staging even where there is room, ns.
const FAST_KIB_NS: u64 = 1_000;
/// No close is taken to last longer: it may have been learned of files with much that was dirty,
/// which the daemon's close would only write earlier.
const CLOSE_MAX: Duration = Duration::from_millis(2);
/// Part of a short write's time that a KiB of a longer one has, about as long as its copy, ns.
const CALL_KIB_NS: u64 = 100;
/// Time of a file's longer writes after which the two ways are compared again: a hundred times what
/// that takes.
const COMPARED_AFTER: Duration = Duration::from_millis(300);
/// A log from this length on holds a burst.
const BURST_LEN: u64 = 64 << 20;

impl Client {
    /// Tells everybody of the job what a write took.
    pub(crate) fn learn_cost(&'static self, device: u64, len: usize, time: Duration) {
        let ns = nanoseconds(time);
        self.watch.measured(len as u64, ns);
        if let Some(job) = self.job() {
            job.shared().costs.learn(device, len as u64, ns);
        }
    }

    /// The job's table, if this process has mapped it.
    pub(crate) fn costs(&'static self) -> Option<&'static Costs> {
        let mapped = self.job.get().and_then(Option::as_ref);
        let job = mapped.or_else(|| self.connected().map(|connection| &connection.job));
        job.map(|job| &job.shared().costs)
    }

    /// Time that a KiB takes to the file system of `device`, ns.
    pub(crate) fn kib_ns(&'static self, device: u64) -> Option<u64> {
        self.job().and_then(|job| job.shared().costs.of(device)?.kib_ns)
    }
}

impl Locked {
    /// True if the file's small writes have taken as long as handing it over costs: `stage_after`,
    /// and two requests of a file system that asks a server at a close. One is for the attributes,
    /// one the close of the daemon's descriptor, which the program's close waits for.
    pub(crate) fn repays_hand_over(&self, stage_after: Duration) -> bool {
        let spent = self.spent.time;
        let close = || {
            let ns = self.client.costs().and_then(|costs| costs.call(self.device, CallKind::Close));
            Duration::from_nanos(ns.unwrap_or(0)).min(CLOSE_MAX)
        };
        spent >= stage_after && (stage_after.is_zero() || spent - stage_after >= 2 * close())
    }

    /// True if a longer write gains nothing by staging, as far as the job knows, which measures
    /// that again where there are many: each file's log compares.
    pub(crate) fn passes_long(&self, len: usize) -> bool {
        let (_, fast) = Drains::AHEAD_KIB_NS;
        let drained_ns = || self.client.kib_ns(self.device).filter(|kib_ns| *kib_ns <= fast);
        // What such writes cost is what a KiB costs: there the calls decide.
        let has_short_calls = || {
            let known = self.client.costs();
            let call = known.and_then(|known| known.call(self.device, CallKind::Write));
            call.is_some_and(|ns| ns <= CALL_KIB_NS * (len as u64 >> 10))
        };
        let may = len >= LONG && self.drains() == Drains::Here && self.spent.time < COMPARED_AFTER;
        may && drained_ns().is_some_and(|ns| self.write_cost.gains_nothing(ns))
            && ((len as u64) < Costs::LONG || has_short_calls())
    }

    /// True if a large write is staged all the same. What is appended by one call others see in one
    /// piece, which a log does not promise of much; a log that is too short for two such writes
    /// would only be waited for. Once begun it goes on while there is room, as a direct write waits
    /// for all that is staged.
    pub(crate) fn stages_large(&mut self, len: usize) -> bool {
        let is_plain = !self.access.append && !self.state.is_remote();
        let kib_ns = self.client.kib_ns(self.device).filter(|_| is_plain).unwrap_or(0);
        if kib_ns <= FAST_KIB_NS || self.open_elsewhere() {
            return false;
        }
        let len = len as u64;
        if self.writes == Writes::Large && self.has_room(len) {
            return true;
        }
        if kib_ns <= SLOW_KIB_OF_BURST_NS {
            return false;
        }
        let log_len = self.log_len();
        let fits = log_len / 2 >= len && is_slow(kib_ns, self.granted_len().min(log_len));
        self.writes.stage_large(fits);
        fits
    }

    /// True if the log that large writes are staged in holds `len` bytes more.
    fn has_room(&mut self, len: u64) -> bool {
        self.state.staging().is_some_and(|(link, log)| !log.is_own() && log.has_room(link, len))
    }

    /// Length of the log that large writes are staged in, or would be.
    fn log_len(&mut self) -> u64 {
        let log = self.state.log().filter(|log| !log.is_own());
        let has = log.map_or(0, |log| log.producer.capacity());
        let may_have = self.client.connected().map_or(u64::MAX, |connection| {
            connection.arena.lock().map_or(0, |arena| arena.share(LARGE_SHARE))
        });
        has.max(may_have)
    }

    /// Length of the log that the memory granted at first has room for.
    fn granted_len(&self) -> u64 {
        self.client
            .connected()
            .map_or(u64::MAX, |connection| connection.growth.granted / LARGE_SHARE)
    }

    /// Others have the file open, or will not see what is staged.
    fn open_elsewhere(&self) -> bool {
        self.client.attention.is_exiting()
            || self.state.log().is_none() && self.client.open_count(self.device, self.inode) > 1
    }
}

/// True if a KiB takes so long that large writes are staged in a log of `log_len` bytes.
const fn is_slow(kib_ns: u64, log_len: u64) -> bool {
    kib_ns > if log_len >= BURST_LEN { SLOW_KIB_OF_BURST_NS } else { SLOW_KIB_NS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_a_burst_is_used_where_the_file_system_is_less_slow() {
        for (kib_ns, short, long) in
            [(2_000, false, false), (4_000, false, true), (9_000, true, true)]
        {
            let found = [16 << 20, BURST_LEN].map(|len| is_slow(kib_ns, len));
            assert_eq!(found, [short, long], "{kib_ns}");
        }
    }
}
