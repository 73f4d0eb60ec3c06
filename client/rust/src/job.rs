//! The memory that all processes of the job share, and when a process asks for a daemon by it.

use core::{sync::atomic::Ordering, time::Duration};

use rustix::fs::{self, Mode, OFlags};
use shm::Job;

use crate::{
    client::Client, clock::nanoseconds, config::PATH_MAX, connection::knock, sessions::Reach,
    socket::with_one_more,
};

/// Cost of a session to a process, in costs of staging one file: 0.4 ms with its end, and staging
/// saves half of the time that calls take beyond the copies of their bytes.
const SESSION_COST: u32 = 25;
/// Cost of starting and ending a daemon, beside programs that have a core each, in the same costs.
const DAEMON_COST: u32 = 40;
/// Time in which the kernel at least copies a KiB to the page cache, ns, unless the job knows of
/// less. Where a copy takes longer, as on tmpfs, staging finds out that it gains nothing.
const COPIED_KIB_NS: u64 = 100;

impl Client {
    /// Returns the memory that all processes of the job share, if its daemon lives.
    #[inline]
    pub(crate) fn job(&'static self) -> Option<&'static Job> {
        match self.job.get() {
            Some(Some(job)) => Some(job),
            _ => self.open_job(),
        }
    }

    #[cold]
    #[inline(never)]
    fn open_job(&'static self) -> Option<&'static Job> {
        if let Some(connection) = self.connected() {
            return Some(&connection.job);
        }
        let config = self.active()?;
        if self.job.get().is_some() {
            return None;
        }
        // The daemon's folder has a link to the job segment, by way of the daemon's own in `/proc`.
        let mut path = [0; PATH_MAX];
        let link = config.path_of(b"job", &mut path)?;
        let opened =
            with_one_more(|| fs::open(link, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()));
        let job = match opened.and_then(Job::open) {
            Ok(job) => self.job.set(Some(job)).ok().and_then(Option::as_ref),
            // To a process of another container, which is to be asked then.
            Err(_) if fs::lstat(link).is_ok() => {
                self.connection().map(|connection| &connection.job)
            }
            Err(_) => None,
        };
        if job.is_none() && self.sessions.reach() != Reach::WithoutNumber {
            match self.job.set(None) {
                Ok(_) | Err(_) => {}
            }
        }
        job
    }

    /// True if a session is there, or the calls of small writes have taken as long as making one
    /// costs: that is so many times what staging a file does.
    pub(crate) fn repays_session(&'static self, stage_after: Duration) -> bool {
        let session = nanoseconds(stage_after.saturating_mul(SESSION_COST));
        self.connected().is_some() || self.overhead_ns.load(Ordering::Relaxed) >= session
    }

    /// Asks for a daemon; true if one serves already. One that is yet to be started is once that is
    /// repaid: small writes of the job's processes have taken as long, or this one `is_urgent`.
    pub(crate) fn ask_for_daemon(&'static self, stage_after: Duration, is_urgent: bool) -> bool {
        if self.connected().is_some() {
            return true;
        }
        // Where the segment cannot be opened the connection tells.
        let Some(job) = self.job() else { return true };
        if job.shared().served.load(Ordering::Acquire) != 0 {
            return true;
        }
        let overhead = self.overhead_ns.load(Ordering::Relaxed);
        let untold = overhead.saturating_sub(self.told_ns.load(Ordering::Relaxed));
        if !is_urgent && untold < nanoseconds(stage_after.saturating_mul(SESSION_COST)) {
            return false;
        }
        self.told_ns.store(overhead, Ordering::Relaxed);
        let before = job.shared().overhead_ns.fetch_add(untold, Ordering::Relaxed);
        let of_job = before.saturating_add(untold);
        let is_repaid = is_urgent || of_job >= nanoseconds(stage_after.saturating_mul(DAEMON_COST));
        if is_repaid && !self.has_knocked.swap(true, Ordering::Relaxed) {
            self.active().into_iter().for_each(knock);
        }
        false
    }
}

/// Time of calls that staging saves, ns, of writes that took `all_ns`, one of `len` bytes `ns`: the
/// kernel copies their bytes all the same, a KiB of long writes in `kib_ns` if that is known.
pub(crate) fn overhead_ns(len: usize, ns: u64, all_ns: u64, kib_ns: Option<u64>) -> u64 {
    let kib_ns = kib_ns.map_or(COPIED_KIB_NS, |kib_ns| kib_ns.min(COPIED_KIB_NS));
    let copied = (len as u64).saturating_mul(kib_ns) >> 10;
    ns.saturating_sub(copied).saturating_mul(all_ns / ns.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_of_calls_is_saved_and_not_that_of_their_bytes() {
        assert_eq!(overhead_ns(4096, 4_600, 3 * 4_600, None), 3 * 4_200);
        assert_eq!(overhead_ns(4096, 4_600, 3 * 4_600, Some(900)), 3 * 4_200);
        assert_eq!(overhead_ns(4096, 4_600, 3 * 4_600, Some(50)), 3 * 4_400);
        assert_eq!(overhead_ns(512, 660, 8 * 660, None), 8 * 610);
        assert_eq!(
            [(4096, 400, 800), (0, 0, 0)].map(|(len, ns, all)| overhead_ns(len, ns, all, None)),
            [0, 0]
        );
    }
}
