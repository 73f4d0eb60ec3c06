//! The choice of the calls that are timed for the job's table of costs.
//!
//! A call that is passed by costs a few instructions: a count, or a comparison. One file in many is
//! followed from its open to its close. No descriptor is examined for this on a fast file system:
//! only where two opens in a row have been slow, one system call tells the device of all calls on
//! the file. Threads count in several lines, as in a single one they would wait for each other.

use core::{
    num::NonZeroU64,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering},
};

use rustix::{fd::RawFd, fs::OFlags};
use shm::{CallKind, Sample};

use crate::clock::now_ns;

/// One call in so many is timed, and more of a process's first ones. Odd, as are these: who makes
/// two kinds of calls in turn has both timed.
const EVERY: u32 = 127;
/// The first call that is timed.
const FIRST: u32 = 7;
/// The device of a slow open is asked for if it stands for so many, at the 63rd for the first time:
/// who opens a few files pays nothing.
const ASKED_CALLS: u64 = 32;
/// The same of the transfers of a followed file, and of syncs, which are dear.
const EVERY_TRANSFER: u32 = 31;
const EVERY_SYNC: u32 = 7;
/// Bytes of an examined file between two reads that are timed, a power of two.
const READ_LEN: u64 = 512 << 10;
/// An open that takes longer is slow, ns: to ask for the device takes a 300th of it.
const SLOW_NS: u64 = 100_000;
/// Lines that threads count in.
const LINES: usize = 8;
/// Bits of a thread's pointer below those that differ from the next thread's, at its end.
const STACK_BITS: u32 = 20;
/// Bits of the place of a device; a followed file's number is above.
const PLACE_BITS: u32 = 8;
/// No file is followed: the number is nobody's.
const NOTHING: i64 = i64::MIN;

/// Counts by which calls are chosen.
pub(crate) struct Sampler {
    lines: [Line; LINES],
    /// The followed file: its number, and the place of its device in the table.
    followed: AtomicI64,
    /// True if the last timed open was slow.
    is_slow: AtomicBool,
}

#[repr(align(64))]
struct Line {
    opens: Count<FIRST, EVERY>,
    stats: Count<FIRST, EVERY>,
    syncs: Count<1, EVERY_SYNC>,
    transfers: Count<1, EVERY_TRANSFER>,
}

/// A count of calls of which one in `EVERY` is timed, and more of the first ones. Two threads that
/// count at once may count one.
struct Count<const FIRST: u32, const EVERY: u32> {
    /// Calls that are passed by before the next one that is timed.
    left: AtomicU32,
    /// Number of the last one that was timed.
    last: AtomicU32,
}

impl<const FIRST: u32, const EVERY: u32> Count<FIRST, EVERY> {
    const fn new() -> Self {
        Self { left: AtomicU32::new(FIRST - 1), last: AtomicU32::new(0) }
    }

    /// Counts a call; if it is one to be timed, begins.
    #[inline]
    fn begin(&self, place: usize) -> Option<Timed> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Timed::begin(self.due(), place);
        }
        self.left.store(left - 1, Ordering::Relaxed);
        None
    }

    /// The number of calls that the one which is due stands for.
    #[cold]
    fn due(&self) -> u32 {
        let last = self.last.load(Ordering::Relaxed);
        let number = Self::after(last);
        self.left
            .store(Self::after(number).wrapping_sub(number).wrapping_sub(1), Ordering::Relaxed);
        self.last.store(number, Ordering::Relaxed);
        number.wrapping_sub(last)
    }

    /// The number of the next one that is timed: one less than a power of two, or a multiple.
    const fn after(number: u32) -> u32 {
        match number {
            0 => FIRST,
            number if number < EVERY => 2 * number + 1,
            number => number.wrapping_add(EVERY),
        }
    }

    fn restart(&self) {
        self.left.store(FIRST - 1, Ordering::Relaxed);
        self.last.store(0, Ordering::Relaxed);
    }
}

/// A call that is timed, from its start. In one word, for a register: the calls that it stands for,
/// the place of its device in the table if that is known, and when it began, ns.
#[derive(Clone, Copy, Debug)]
pub struct Timed(NonZeroU64);

impl Timed {
    const TIME_BITS: u32 = 48;
    const CALLS_AT: u32 = Self::TIME_BITS + PLACE_BITS;
    const TIME: u64 = (1 << Self::TIME_BITS) - 1;

    #[cold]
    pub(crate) fn begin(calls: u32, place: usize) -> Option<Self> {
        let calls = u64::from(calls).clamp(1, 0xff);
        let place = u64::try_from(place).unwrap_or(u64::MAX).min((1 << PLACE_BITS) - 1);
        let word = calls << Self::CALLS_AT | place << Self::TIME_BITS | now_ns() & Self::TIME;
        NonZeroU64::new(word).map(Self)
    }

    /// The call was an open with such flags, and has just ended.
    #[cold]
    pub(crate) fn open_sample(self, flags: OFlags) -> Sample {
        let creates = flags.contains(OFlags::CREATE);
        self.sample(if creates { CallKind::Create } else { CallKind::Open }, 0)
    }

    /// The call has just ended.
    pub(crate) fn sample(self, kind: CallKind, len: usize) -> Sample {
        let ns = now_ns().wrapping_sub(self.0.get()) & Self::TIME;
        Sample { kind, len: len as u64, ns, calls: self.0.get() >> Self::CALLS_AT }
    }

    /// The place of its device, which a table need not have.
    pub(crate) fn place(self) -> usize {
        let place = self.0.get() >> Self::TIME_BITS & ((1 << PLACE_BITS) - 1);
        usize::try_from(place).unwrap_or(usize::MAX)
    }
}

impl Sampler {
    pub(crate) const fn new() -> Self {
        Self {
            lines: [const {
                Line {
                    opens: Count::new(),
                    stats: Count::new(),
                    syncs: Count::new(),
                    transfers: Count::new(),
                }
            }; LINES],
            followed: AtomicI64::new(NOTHING),
            is_slow: AtomicBool::new(false),
        }
    }

    /// True if the device of an open is to be asked for: it and the timed one before were slow, as
    /// a thread may lose its core in one.
    pub(crate) fn is_asked(&self, open: Sample) -> bool {
        let is_slow = open.ns >= SLOW_NS;
        let was_slow = self.is_slow.swap(is_slow, Ordering::Relaxed);
        is_slow && was_slow && open.calls >= ASKED_CALLS
    }

    /// An open begins. `None`: it is passed by.
    #[inline]
    pub(crate) fn open_begins(&self) -> Option<Timed> {
        self.line().opens.begin(usize::MAX)
    }

    #[inline]
    pub(crate) fn stat_begins(&self) -> Option<Timed> {
        self.line().stats.begin(usize::MAX)
    }

    pub(crate) fn sync_begins(&self) -> Option<Timed> {
        self.line().syncs.begin(usize::MAX)
    }

    /// The place of a followed file's device in the table.
    #[inline]
    pub(crate) fn place_of(&self, fd: RawFd) -> Option<usize> {
        let followed = self.followed.load(Ordering::Relaxed);
        let place = || usize::try_from(followed & ((1 << PLACE_BITS) - 1)).ok();
        if followed >> PLACE_BITS == i64::from(fd) { place() } else { None }
    }

    /// Follows a file no more whose number is not its own from now on.
    pub(crate) fn unfollow(&self, is_reused: impl FnOnce(RawFd) -> bool) {
        let followed = self.followed.load(Ordering::Relaxed);
        if i32::try_from(followed >> PLACE_BITS).is_ok_and(is_reused) {
            self.followed.store(NOTHING, Ordering::Relaxed);
        }
    }

    #[cold]
    pub(crate) fn follow(&self, fd: RawFd, place: usize) {
        let place = i64::try_from(place).ok().filter(|place| place >> PLACE_BITS == 0);
        let word = place.map_or(NOTHING, |place| i64::from(fd) << PLACE_BITS | place);
        self.followed.store(word, Ordering::Relaxed);
        // Its first one is timed.
        self.line().transfers.restart();
    }

    #[cold]
    pub(crate) fn transfer_begins(&self, place: usize) -> Option<Timed> {
        self.line().transfers.begin(place)
    }

    #[cold]
    pub(crate) fn last_close_begins(&self, place: usize) -> Option<Timed> {
        self.followed.store(NOTHING, Ordering::Relaxed);
        Timed::begin(EVERY, place)
    }

    /// The line that this thread counts in.
    #[inline]
    fn line(&self) -> &Line {
        let address = shm::thread() >> STACK_BITS;
        let [first, ..] = &self.lines;
        self.lines.get((address ^ address >> 3) % LINES).unwrap_or(first)
    }
}

/// True if a read of `len` bytes is one to be timed, after `before` bytes of the same file.
#[inline]
pub(crate) const fn times_read(before: u64, len: usize) -> bool {
    (before ^ before.wrapping_add(len as u64)) >= READ_LEN
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn calls_are_timed_ever_more_rarely_and_stand_for_those_between() {
        let (count, mut all) = (Count::<FIRST, EVERY>::new(), Vec::new());
        for number in 1..=1_000_u64 {
            let timed = count.begin(3);
            all.extend(timed.map(|timed| (number, timed.sample(CallKind::Stat, 0).calls)));
        }
        let [first @ .., (last, _)] = &all[..] else { panic!("none") };
        assert_eq!(first[..6], [(7, 7), (15, 8), (31, 16), (63, 32), (127, 64), (254, 127)]);
        assert_eq!(all.iter().map(|(_, calls)| calls).sum::<u64>(), *last);
        assert_eq!(all.len(), 11);
    }

    #[test]
    fn one_file_is_followed_until_it_is_closed() {
        let sampler = Sampler::new();
        assert!([0, -1, RawFd::MIN].iter().all(|fd| sampler.place_of(*fd).is_none()));
        sampler.follow(7, 3);
        assert_eq!([7, 8].map(|fd| sampler.place_of(fd)), [Some(3), None]);
        let first = sampler.transfer_begins(3).expect("the first is timed");
        let sample = first.sample(CallKind::Read, 5);
        assert_eq!((first.place(), sample.calls, sample.len), (3, 1, 5));
        assert!(sample.ns < 10_000_000_000, "{sample:?}");
        assert_eq!(sampler.last_close_begins(3).map(Timed::place), Some(3));
        assert!(sampler.place_of(7).is_none());
        sampler.follow(7, 1 << PLACE_BITS);
        assert!(sampler.place_of(7).is_none(), "a table is not as long");
        sampler.follow(7, 3);
        sampler.unfollow(|fd| fd == 8);
        assert_eq!(sampler.place_of(7), Some(3));
        sampler.unfollow(|fd| fd == 7);
        assert!(sampler.place_of(7).is_none(), "its number is another file's");
    }

    #[test]
    fn device_is_asked_for_only_where_opens_are_slow_in_a_row() {
        let sampler = Sampler::new();
        let opens = [1_000, 150_000, 1_000, 150_000, 150_000, 200_000, 1_000, 150_000];
        let open = |ns, calls| Sample { kind: CallKind::Open, len: 0, ns, calls };
        let asked = opens.map(|ns| sampler.is_asked(open(ns, 127)));
        assert_eq!(asked, [false, false, false, false, true, true, false, false]);
        assert!([8, 16].iter().all(|calls| !sampler.is_asked(open(150_000, *calls))), "few files");
    }

    #[test]
    fn reads_are_timed_by_the_bytes_between_them() {
        let timed = (0..1024_u64).filter(|number| times_read(number * 4096, 4096));
        assert_eq!(timed.count(), 8);
        assert!(times_read(5, 1 << 20) && !times_read(0, 0) && !times_read(100, 100));
    }
}
