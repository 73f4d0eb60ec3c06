//! Statistics of a daemon: counted by sessions, read for each status, and when they end.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde::{Deserialize, Serialize};
use shm::COUNTERS;
use wire::{COUNTER_COUNT, Counter, Kind, RULES_COUNTED, Reason};

use crate::file_systems::FileSystem;

/// Summary of a job's I/O, for people and scripts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Client processes served.
    pub sessions: u64,
    /// Files opened under a policy other than `pass`.
    pub files: u64,
    /// Bytes the programs wrote to them.
    pub bytes_written: u64,
    /// Bytes the programs read from them.
    pub bytes_read: u64,
    /// Bytes staged, or written by the daemon on request or from a pipe.
    pub bytes_delegated: u64,
    /// Bytes accepted into staging.
    pub bytes_staged: u64,
    /// Bytes written past the daemon, by reason.
    pub bytes_undelegated: BTreeMap<String, u64>,
    /// Requests answered, by kind.
    pub requests: BTreeMap<String, u64>,
    /// Files that left delegation, by reason.
    pub fallbacks: BTreeMap<String, u64>,
    /// Staged writes that were given up, and files of which the file system refuses some now.
    pub drain_errors: u64,
    /// Those of them whose server was lost; the file system has refused the others.
    #[serde(default)]
    pub lost_errors: u64,
    /// Drains of their own logs that clients had begun, and the daemon completed: the client was
    /// killed, or stopped.
    #[serde(default)]
    pub drains_taken_over: u64,
    /// Files that a program ended with, and whose error it was not told of.
    #[serde(default)]
    pub unreported_errors: u64,
    /// Files opened that each of the first rules names.
    #[serde(default)]
    pub of_rules: Vec<u64>,
    /// Multifiles that could not be closed, and why.
    #[serde(default)]
    pub unclosed: BTreeMap<String, String>,
    /// Multifiles that were removed while the job wrote them.
    #[serde(default)]
    pub removed: BTreeSet<String>,
    /// Calls that failed because their folder has no view.
    #[serde(default)]
    pub unviewed: u64,
    /// Most memory the daemon has had resident, bytes.
    pub peak_rss_bytes: u64,
    /// Costs of the file systems that the job has used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_systems: Vec<FileSystem>,
    /// The counters over time, if [`Config::takes_samples`](crate::Config::takes_samples).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// Sampled requests and drains, if [`Config::takes_trace`](crate::Config::takes_trace).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traced: Vec<Traced>,
}

/// A request or a drain, as the daemon served it. Times are those of `CLOCK_MONOTONIC`, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// The session's number, as its client knows it.
    pub session: u32,
    /// The work.
    pub work: TracedWork,
    /// When the daemon found it.
    pub taken_ns: u64,
    /// When it began the I/O.
    pub issued_ns: u64,
    /// When it answered, or had written the bytes.
    pub completed_ns: u64,
}

/// The work that a [`Traced`] tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TracedWork {
    /// The request of this number on a lane.
    Request {
        /// The lane's number.
        lane: usize,
        /// The request's number on it.
        seq: u32,
    },
    /// Bytes of a staging log, between two positions.
    Drain {
        /// The file's slot.
        slot: u32,
        /// The first byte's position.
        from: u64,
        /// The position behind the last byte.
        to: u64,
    },
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Milliseconds since the daemon began to serve.
    pub at_ms: u64,
    /// Bytes the programs wrote.
    pub written: u64,
    /// Bytes the programs read.
    pub read: u64,
    /// Bytes accepted into staging.
    pub staged: u64,
    /// Bytes in staging that are not in their files.
    pub pending: u64,
    /// Share of the time since the last sample that the busiest executor worked, in thousandths.
    pub busy: u32,
}

/// Counts of one session, or of many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) sessions: u64,
    /// Bytes written by requests.
    pub(crate) bytes_executed: u64,
    pub(crate) drain_errors: u64,
    pub(crate) lost_errors: u64,
    pub(crate) drains_taken_over: u64,
    /// By number on the wire.
    requests: [u64; Kind::NUMBERS],
    /// As the clients counted; any value may stand here.
    counters: [u64; COUNTER_COUNT],
}

const _: () = assert!(COUNTER_COUNT <= COUNTERS);

impl Totals {
    /// Of one session that has done nothing yet.
    pub(crate) fn of_session() -> Self {
        Self { sessions: 1, ..Self::default() }
    }

    /// Counts a request.
    pub(crate) fn count(&mut self, kind: Kind) {
        if let Some(count) = self.requests.get_mut(kind as usize) {
            *count += 1;
        }
    }

    /// Adds what clients have counted, which may be nonsense.
    pub(crate) fn add_counters(&mut self, counters: impl Iterator<Item = u64>) {
        for (sum, count) in self.counters.iter_mut().zip(counters) {
            *sum = sum.saturating_add(count);
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.bytes_executed += other.bytes_executed;
        self.drain_errors += other.drain_errors;
        self.lost_errors += other.lost_errors;
        self.drains_taken_over += other.drains_taken_over;
        for (sum, count) in self.requests.iter_mut().zip(other.requests) {
            *sum += count;
        }
        self.add_counters(other.counters.iter().copied());
    }

    pub(crate) fn summary(&self) -> Summary {
        let by_reason = |counter: fn(Reason) -> Counter| {
            let counts = Reason::ALL.map(|reason| (reason.name(), self.counter(counter(reason))));
            counts
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .map(|(name, count)| (name.to_owned(), count))
                .collect()
        };
        let requests = Kind::ALL.into_iter().map(|kind| {
            let count = self.requests.get(kind as usize).copied().unwrap_or_default();
            (kind.name(), count)
        });
        Summary {
            sessions: self.sessions,
            files: self.counter(Counter::Files),
            bytes_written: self.counter(Counter::BytesWritten),
            bytes_read: self.counter(Counter::BytesRead),
            bytes_delegated: self.counter(Counter::BytesStaged).saturating_add(self.bytes_executed),
            bytes_staged: self.counter(Counter::BytesStaged),
            bytes_undelegated: by_reason(Counter::BytesUndelegated),
            requests: requests
                .filter(|(_, count)| *count > 0)
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
            fallbacks: by_reason(Counter::Fallbacks),
            drain_errors: self.drain_errors,
            lost_errors: self.lost_errors,
            drains_taken_over: self.drains_taken_over,
            unreported_errors: self.counter(Counter::ErrorsUnreported),
            of_rules: (0..RULES_COUNTED).map(|rule| self.counter(Counter::OfRule(rule))).collect(),
            unclosed: BTreeMap::new(),
            removed: BTreeSet::new(),
            unviewed: self.counter(Counter::Unviewed),
            peak_rss_bytes: peak_rss(),
            file_systems: Vec::new(),
            samples: Vec::new(),
            traced: Vec::new(),
        }
    }

    fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter.index()).copied().unwrap_or_default()
    }
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            sessions: 0,
            bytes_executed: 0,
            drain_errors: 0,
            lost_errors: 0,
            drains_taken_over: 0,
            requests: [0; Kind::NUMBERS],
            counters: [0; COUNTER_COUNT],
        }
    }
}

/// Most memory this process has had resident, bytes; zero when the kernel does not say.
pub(crate) fn peak_rss() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Losses of a daemon that ends: data that is not where its programs meant it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loss {
    /// Multifiles that could not be closed, and why.
    pub(crate) unclosed: BTreeMap<String, String>,
    /// Multifiles that were removed while they were written.
    pub(crate) removed: BTreeSet<String>,
}

impl Loss {
    /// Puts it into a summary.
    pub(crate) fn told_in(self, summary: Summary) -> Summary {
        let Self { unclosed, removed } = self;
        Summary { unclosed, removed, ..summary }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_told_by_name_and_zeros_left_out() {
        let mut session = Totals { sessions: 1, bytes_executed: 5, ..Totals::default() };
        session.count(Kind::Close);
        let mut counters = [0; COUNTER_COUNT];
        counters[Counter::BytesStaged.index()] = 37;
        counters[Counter::ErrorsUnreported.index()] = 3;
        counters[Counter::Fallbacks(Reason::Mapped).index()] = 2;
        session.add_counters(counters.into_iter());

        let mut all = Totals::default();
        all.add(&session);
        all.add(&session);
        let summary = all.summary();

        assert_eq!((summary.sessions, summary.bytes_staged), (2, 74));
        assert_eq!((summary.bytes_delegated, summary.unreported_errors), (84, 6));
        assert_eq!(summary.requests, BTreeMap::from([("close".to_owned(), 2)]));
        assert_eq!(summary.fallbacks, BTreeMap::from([("mapped".to_owned(), 4)]));
        assert!(summary.bytes_undelegated.is_empty());
        assert!(summary.peak_rss_bytes > 0);
    }

    #[test]
    fn every_kind_of_request_is_counted() {
        let mut totals = Totals::default();
        Kind::ALL.into_iter().for_each(|kind| totals.count(kind));
        assert_eq!(totals.summary().requests, Kind::ALL.map(|kind| (kind.name().into(), 1)).into());
    }

    #[test]
    fn forged_counters_do_not_overflow() {
        let mut totals = Totals::default();
        totals.add_counters([u64::MAX; COUNTER_COUNT].into_iter());
        totals.add_counters([u64::MAX; COUNTER_COUNT].into_iter());
        assert_eq!(totals.summary().bytes_delegated, u64::MAX);
    }
}
