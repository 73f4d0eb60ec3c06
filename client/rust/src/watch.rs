//! Counts of a process for `kakehi run --report`: its calls by size, the time of some, its files.
//!
//! Nothing is kept, and nothing is read but one flag, unless `KAKEHI_WATCH` names the file to which
//! records are appended (`watch_records.rs`). A watched call costs a few stores: one in [`TIMED`]
//! is timed, and a process of one thread counts without atomic additions.

use core::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use shm::Lock;
use wire::is_sampled;

use crate::{
    clock::{nanoseconds, now, now_ns},
    file::FILES_MAX,
    recorder::{Lines, Recorder},
};

/// Classes of sizes: below 64 bytes, below 256, and so on by factors of 4.
const SIZES: usize = 11;
/// One call in so many is timed, a power of two.
const TIMED: u64 = 16;

/// Which way a call moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Write = 0,
    Read = 1,
}

/// Row of the writes that the kernel has executed while their time was measured anyway.
const MEASURED: usize = 2;

/// A call that is watched, from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) began: Option<Duration>,
    /// A trace shows it.
    pub(crate) is_traced: bool,
    /// The process had one thread when it began.
    is_alone: bool,
}

impl Call {
    pub(crate) const UNTIMED: Self = Self { began: None, is_traced: false, is_alone: false };
}

/// Calls of one size and way.
pub(crate) struct Class {
    calls: AtomicU64,
    bytes: AtomicU64,
    timed: AtomicU64,
    timed_ns: AtomicU64,
}

/// Calls and bytes of an open file, by [`Way`].
pub(crate) struct FileWatch {
    pub(crate) opened_ns: AtomicU64,
    pub(crate) bytes: [AtomicU64; 2],
    pub(crate) calls: [AtomicU64; 2],
}

/// A place for each open file.
pub(crate) type FileWatches = [FileWatch; FILES_MAX];

/// Counts of a process and of its open files.
pub(crate) struct Watch {
    is_on: AtomicBool,
    pub(crate) started_ns: AtomicU64,
    calls: AtomicU64,
    pub(crate) closes: AtomicU64,
    pub(crate) close_ns: AtomicU64,
    /// By [`Way`], and those [`MEASURED`].
    pub(crate) classes: [[Class; SIZES]; 3],
    pub(crate) files: &'static FileWatches,
    pub(crate) recorder: Recorder,
}

impl Class {
    const fn new() -> Self {
        Self {
            calls: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            timed: AtomicU64::new(0),
            timed_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn words(&self) -> [&AtomicU64; 4] {
        [&self.calls, &self.bytes, &self.timed, &self.timed_ns]
    }

    fn count(&self, len: u64, is_alone: bool) {
        add(&self.calls, 1, is_alone);
        add(&self.bytes, len, is_alone);
    }

    fn time(&self, ns: u64, is_alone: bool) {
        add(&self.timed, 1, is_alone);
        add(&self.timed_ns, ns, is_alone);
    }
}

/// Adds to a count, which no other thread changes if the process `is_alone`: then by a plain store,
/// an eighth of the cost. A signal handler that comes in between is not counted.
#[inline]
pub(crate) fn add(count: &AtomicU64, amount: u64, is_alone: bool) {
    if is_alone {
        count.store(count.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    } else {
        count.fetch_add(amount, Ordering::Relaxed);
    }
}

impl FileWatch {
    pub(crate) const fn new() -> Self {
        Self {
            opened_ns: AtomicU64::new(0),
            bytes: [const { AtomicU64::new(0) }; 2],
            calls: [const { AtomicU64::new(0) }; 2],
        }
    }

    fn begin(&self) {
        self.opened_ns.store(now_ns(), Ordering::Relaxed);
        self.bytes.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.calls.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

impl Watch {
    pub(crate) const fn new(files: &'static FileWatches, lines: &'static Lock<Lines>) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            started_ns: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            closes: AtomicU64::new(0),
            close_ns: AtomicU64::new(0),
            classes: [const { [const { Class::new() }; SIZES] }; 3],
            files,
            recorder: Recorder::new(lines),
        }
    }

    /// Begins to count in this process, from zero in a child, which has `files` open.
    pub(crate) fn start(&self, files: impl Iterator<Item = u16>) {
        self.started_ns.store(now_ns(), Ordering::Relaxed);
        let classes = self.classes.iter().flatten().flat_map(Class::words);
        let words = classes.chain([&self.closes, &self.close_ns]);
        words.for_each(|word| word.store(0, Ordering::Relaxed));
        self.is_on.store(true, Ordering::Relaxed);
        files.for_each(|index| self.opened(index));
    }

    /// True if a report is written.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// A call begins; `None` without a report.
    #[inline]
    pub(crate) fn begin(&self) -> Option<Call> {
        self.is_on.load(Ordering::Relaxed).then(|| self.begin_watched())
    }

    #[cold]
    fn begin_watched(&self) -> Call {
        let is_alone = shm::is_alone();
        let number = self.calls.load(Ordering::Relaxed);
        add(&self.calls, 1, is_alone);
        let is_timed = number % TIMED == 0;
        let is_traced = is_timed
            && self.recorder.traces()
            && u32::try_from(number / TIMED).is_ok_and(is_sampled);
        Call { began: is_timed.then(now), is_traced, is_alone }
    }

    /// A call has moved `len` bytes.
    #[cold]
    pub(crate) fn end(&self, call: Call, way: Way, index: u16, len: usize) {
        let (len, way) = (len as u64, way as usize);
        let class = self.classes.get(way).and_then(|classes| classes.get(class_of(len)));
        let (Some(class), Some(file)) = (class, self.files.get(usize::from(index))) else {
            return;
        };
        class.count(len, call.is_alone);
        if let Some(began) = call.began {
            class.time(nanoseconds(now().saturating_sub(began)), call.is_alone);
        }
        if let (Some(bytes), Some(calls)) = (file.bytes.get(way), file.calls.get(way)) {
            add(bytes, len, call.is_alone);
            add(calls, 1, call.is_alone);
        }
    }

    /// The kernel took `ns` for a write of `len` bytes.
    #[inline]
    pub(crate) fn measured(&self, len: u64, ns: u64) {
        if self.is_on() {
            let is_alone = shm::is_alone();
            let class = self.classes.get(MEASURED).and_then(|classes| classes.get(class_of(len)));
            if let Some(class) = class {
                class.count(len, is_alone);
                class.time(ns, is_alone);
            }
        }
    }

    /// A file was opened.
    pub(crate) fn opened(&self, index: u16) {
        if self.is_on.load(Ordering::Relaxed) {
            if let Some(file) = self.files.get(usize::from(index)) {
                file.begin();
            }
        }
    }

    /// The time at which a descriptor begins to be closed, if there is a report and `is_file`.
    #[inline]
    pub(crate) fn close_begins(&self, is_file: impl FnOnce() -> bool) -> Option<Duration> {
        (self.is_on() && is_file()).then(now)
    }

    /// A file was closed.
    pub(crate) fn close_ends(&self, began: Option<Duration>) {
        if let Some(began) = began {
            self.closes.fetch_add(1, Ordering::Relaxed);
            let time = nanoseconds(now().saturating_sub(began));
            self.close_ns.fetch_add(time, Ordering::Relaxed);
        }
    }
}

/// The class of calls of this many bytes.
fn class_of(len: u64) -> usize {
    let class = len.checked_ilog2().map_or(0, |log| (log.saturating_sub(4) / 2) as usize);
    class.min(SIZES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_four_from_64_bytes_on() {
        for (len, class) in
            [(0, 0), (63, 0), (64, 1), (255, 1), (256, 2), (1024, 3), (4096, 4), (1 << 20, 8)]
        {
            assert_eq!(class_of(len), class, "{len}");
        }
        assert_eq!(class_of(u64::MAX), SIZES - 1);
    }
}
