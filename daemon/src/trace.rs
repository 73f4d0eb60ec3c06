//! The daemon's side of a trace: when sampled requests and drains were taken, issued, completed.
//!
//! The samples are bounded: once there are [`KEPT_MAX`], every other one is dropped, and from then
//! on half as many are kept.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};

use crate::statistics::{Traced, TracedWork};

/// Most requests and drains that are kept.
const KEPT_MAX: usize = 8192;

/// The samples so far.
#[derive(Debug, Default)]
pub(crate) struct Trace(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    all: Vec<Traced>,
    /// Of 2 to the power of this many one is kept.
    thinned: u32,
    seen: u64,
}

/// A request that is traced, from when it was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) taken_ns: u64,
    pub(crate) issued_ns: u64,
}

impl Open {
    /// A request was just taken.
    pub(crate) fn new() -> Self {
        Self { taken_ns: now_ns(), issued_ns: 0 }
    }
}

impl Trace {
    /// It is completed now. One that needed no I/O was issued when it was completed.
    pub(crate) fn complete(&self, session: u32, work: TracedWork, open: Open) {
        let completed_ns = now_ns();
        let Open { taken_ns, issued_ns } = open;
        let issued_ns = if issued_ns == 0 { completed_ns } else { issued_ns };
        let mut kept = self.lock();
        kept.push(Traced { session, work, taken_ns, issued_ns, completed_ns });
    }

    /// All that was kept.
    pub(crate) fn kept(&self) -> Vec<Traced> {
        self.lock().all.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn push(&mut self, traced: Traced) {
        self.seen += 1;
        if self.seen % (1 << self.thinned) != 0 {
            return;
        }
        if self.all.len() >= KEPT_MAX {
            let mut index = 0;
            self.all.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.thinned += 1;
        }
        self.all.push(traced);
    }
}

/// By the clock of the clients' records.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_requests_stay_few_and_cover_a_long_job() {
        let trace = Trace::default();
        for seq in 0..100_000 {
            let work = TracedWork::Request { lane: 0, seq };
            trace.complete(1, work, Open { taken_ns: seq.into(), issued_ns: 0 });
        }
        let kept = trace.kept();
        assert!(kept.len() <= KEPT_MAX, "{}", kept.len());
        assert!(kept[kept.len() - 1].taken_ns > 95_000);
        assert!(kept.windows(2).all(|pair| pair[0].taken_ns < pair[1].taken_ns));
    }
}
