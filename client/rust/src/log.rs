//! The staging log of an open file, as its producer has it, and the side that drains it.

use core::time::Duration;

use shm::{
    Costs,
    staging::{Consumer, FileSlot, Producer},
};

use crate::slot::Link;

/// The side that drains a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drains {
    /// The client, when it is full.
    Here,
    /// The daemon, ahead of a client that could: the file system is slow.
    Ahead,
    /// The daemon, by its ring past the page cache, beside a client that could.
    Beside,
    /// The daemon: the client has no descriptor of the file, or its writes are large.
    AtDaemon,
}

impl Drains {
    /// A KiB that takes longer keeps a program waiting for more than memory: the daemon drains
    /// ahead of it, ns. Below the second the program drains its log itself again.
    pub(crate) const AHEAD_KIB_NS: (u64, u64) = (4_000, 2_000);

    /// True if the daemon is to drain a log of `device` ahead of its client, or still is. All
    /// processes of the job have found what decides: a thread that lost its core in a few drains
    /// changes nothing.
    pub(crate) fn is_ahead(self, costs: &Costs, device: u64) -> bool {
        let (is_so, (above, below)) = (self != Self::Here, Self::AHEAD_KIB_NS);
        let kib_ns = costs.of(device).and_then(|cost| cost.kib_ns);
        kib_ns.map_or(is_so, |kib_ns| kib_ns > if is_so { below } else { above })
    }
}

/// A file's staging log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    /// Start in the arena, bytes.
    pub(crate) at: u64,
    pub(crate) producer: Producer,
    pub(crate) drains: Drains,
    /// Device number of its file.
    pub(crate) device: u64,
    /// Average cost of its drains.
    pub(crate) drain_cost: Cost,
    /// How long longer writes have gone the way that they go.
    pub(crate) compared: Compared,
    /// Log position up to which the daemon was told to hurry.
    pub(crate) kicked: u64,
    /// End of the last staged write that a trace shows; 0 once it is drained.
    pub(crate) traced_to: u64,
    /// Log position up to which staged bytes are in the counters.
    pub(crate) counted: u64,
    /// When the daemon was last seen to live, by the coarse clock.
    pub(crate) looked_at: Duration,
    /// File range that holds everything staged since the log was last seen empty.
    pub(crate) dirty: (u64, u64),
}

impl Log {
    /// True if the client drains it when it is full.
    pub(crate) fn is_own(&self) -> bool {
        self.drains == Drains::Here
    }

    /// True if `len` bytes find room.
    pub(crate) fn has_room(&mut self, link: Link, len: u64) -> bool {
        let fits = |waiting, log: &Self| log.producer.capacity().saturating_sub(waiting) >= len;
        fits(self.producer.waiting(), self) || fits(self.producer.refresh(link.shared), self)
    }

    /// Compares two ways of a longer write of `len` bytes. True if it costs less, at `direct`, than
    /// to copy and to drain it, as measured. What either costs changes while memory fills, so the
    /// one that is not in use is measured again after some bytes.
    pub(crate) fn compare(&mut self, direct: &mut Cost, len: u64) -> bool {
        if !self.is_own() || !self.drain_cost.is_known() {
            return false;
        }
        if !direct.is_known() {
            return direct.mean > 0; // It is being measured again.
        }
        let is_dear = direct.is_no_dearer(self.drain_cost.mean);
        if !self.compared.count(is_dear, len) {
            return is_dear;
        }
        let other = if is_dear { &mut self.drain_cost } else { direct };
        other.doubt();
        !is_dear
    }

    /// Remembers that `len` bytes at `at` were staged.
    pub(crate) fn note(&mut self, at: u64, len: u64) {
        debug_assert!(len > 0, "staged bytes have a range");
        let (from, to) = self.dirty;
        self.dirty = (from.min(at), to.max(at.saturating_add(len)));
    }

    /// True if something staged for `from..to` may not be in the file yet.
    pub(crate) fn is_dirty(&mut self, shared: &FileSlot, from: u64, to: u64) -> bool {
        if self.producer.waiting() == 0 || self.producer.refresh(shared) == 0 {
            self.dirty = (u64::MAX, 0);
        }
        from < self.dirty.1 && to > self.dirty.0
    }

    /// The same, looked for in the log, of a file of `size` bytes.
    pub(crate) fn holds(&mut self, shared: &FileSlot, size: u64, from: u64, to: u64) -> bool {
        let consumer = Consumer::resume(shared, self.producer.capacity());
        let places = consumer.places(shared, size).unwrap_or(0..u64::MAX);
        self.dirty = (places.start, places.end);
        self.is_dirty(shared, from, to)
    }
}

/// How long a file's longer writes have gone one of two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    /// KiB since the other way was measured.
    len: u32,
    /// MiB after which it is measured again: twice as many each time that nothing has changed.
    until: u16,
    is_direct: bool,
}

impl Compared {
    /// Least and most MiB between two measurements, which stage 1 MiB or write four times directly.
    const BETWEEN: (u16, u16) = (16, 64);

    /// Counts `len` bytes that go one way; true if it is time to measure the other.
    fn count(&mut self, is_direct: bool, len: u64) -> bool {
        if is_direct != self.is_direct {
            *self = Self { is_direct, ..Self::default() };
        }
        self.len = self.len.saturating_add(u32::try_from(len >> 10).unwrap_or(u32::MAX));
        let is_time = self.len >= u32::from(self.until) << 10;
        if is_time {
            *self = Self { len: 0, until: (2 * self.until).min(Self::BETWEEN.1), is_direct };
        }
        is_time
    }
}

impl Default for Compared {
    fn default() -> Self {
        Self { len: 0, until: Self::BETWEEN.0, is_direct: false }
    }
}

/// Average cost of moving bytes, in ns for a KiB. A thread that lost its core in between
/// says little: no time counts for more than twice what was known before, also by an earlier
/// measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    mean: u32,
    samples: u32,
}

impl Cost {
    pub(crate) const UNKNOWN: Self = Self { mean: 0, samples: 0 };
    /// A copy within the core's cache, measured as 30 to 70 ns.
    const COPY: u32 = 50;
    /// Staging is to save this part of what it costs: what it does to caches is not measured.
    const GAIN: u32 = 8;
    /// How many times say enough; and how much a later one counts for.
    const ENOUGH: u32 = 4;
    const WEIGHT: u32 = 8;

    /// Learns what moving `len` bytes took.
    pub(crate) fn learn(&mut self, len: u64, time: Duration) {
        debug_assert!(len > 0, "a cost is of bytes");
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let cost = ns.saturating_mul(1024) / len.max(1);
        self.samples = self.samples.saturating_add(1);
        let weight = u64::from(self.samples.min(Self::WEIGHT));
        let before = u64::from(self.mean);
        let cost = if before == 0 { cost } else { cost.min(before * 2) };
        let cost = cost.min(u32::MAX.into());
        self.mean = u32::try_from((before * (weight - 1) + cost) / weight).unwrap_or(u32::MAX);
    }

    fn is_known(self) -> bool {
        self.samples >= Self::ENOUGH
    }

    /// True if direct writes that cost this are known to be no dearer than to copy the bytes, and
    /// to drain a KiB of them in `drained_ns`.
    pub(crate) fn gains_nothing(self, drained_ns: u64) -> bool {
        self.is_known() && self.is_no_dearer(u32::try_from(drained_ns).unwrap_or(u32::MAX))
    }

    fn is_no_dearer(self, drained_ns: u32) -> bool {
        let staged = drained_ns.saturating_add(Self::COPY);
        self.mean <= staged.saturating_add(staged / Self::GAIN)
    }

    /// Is not known before it was measured anew: what it was earlier, perhaps with cold memory,
    /// counts for nothing then.
    fn doubt(&mut self) {
        self.samples = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn log() -> Log {
        Log {
            at: 0,
            producer: Producer::new(256 << 10),
            drains: Drains::Here,
            device: 7,
            drain_cost: Cost::UNKNOWN,
            compared: Compared::default(),
            kicked: 0,
            traced_to: 0,
            counted: 0,
            looked_at: Duration::ZERO,
            dirty: (u64::MAX, 0),
        }
    }

    fn learn(costs: &Costs, kib_ns: u64, times: usize) {
        (0..times).for_each(|_| costs.learn(7, MIB, kib_ns << 10));
    }

    #[test]
    fn daemon_drains_ahead_where_the_file_system_is_slow_and_as_long_as_it_is() {
        let costs = Costs::default();
        assert!(!Drains::Here.is_ahead(&costs, 7), "nothing is known");
        learn(&costs, 9_000, 4);
        assert!(Drains::Here.is_ahead(&costs, 7) && !Drains::Here.is_ahead(&costs, 8));
        learn(&costs, 3_000, 40);
        assert!(Drains::Ahead.is_ahead(&costs, 7), "it stays, in between");
        assert!(!Drains::Here.is_ahead(&costs, 7));
        learn(&costs, 300, 40);
        assert!(!Drains::Ahead.is_ahead(&costs, 7));
    }

    #[test]
    fn longer_writes_go_the_cheaper_way_which_is_measured_again_and_again() {
        const WRITE: u64 = 16 << 10;
        let cost = |ns: u64| {
            let mut cost = Cost::UNKNOWN;
            (0..8).for_each(|_| cost.learn(MIB, Duration::from_nanos(ns << 10)));
            cost
        };
        let mut log = log();
        let (mut fast, mut slow) = (cost(200), cost(400));
        assert!(!log.compare(&mut fast, WRITE), "no drain is known");
        log.drain_cost = cost(300);
        assert!(!log.compare(&mut { Cost::UNKNOWN }, WRITE), "nothing is known to cost less");
        for mib in [16, 32, 64] {
            log.drain_cost = cost(300);
            let count = (1..).find(|_| !log.compare(&mut fast, WRITE)).expect("at last");
            assert_eq!(count * WRITE / MIB, mib, "less and less often");
            assert!(!log.drain_cost.is_known(), "drains are measured");
        }
        log.drain_cost = cost(300);
        for mib in [16, 32, 64] {
            let count = (1..).find(|_| log.compare(&mut slow, WRITE)).expect("at last");
            assert_eq!(count * WRITE / MIB, mib, "and so the other way round");
            assert!(!slow.is_known(), "direct writes are measured");
            slow = cost(400);
        }
        log.drains = Drains::Ahead;
        log.drain_cost = cost(300);
        assert!(!log.compare(&mut fast, WRITE), "the daemon copies it anyway");
    }

    #[test]
    fn cost_that_is_measured_again_is_what_it_is_by_then() {
        let mut cost = Cost::UNKNOWN;
        (0..8).for_each(|_| cost.learn(MIB, Duration::from_nanos(476 << 10)));
        cost.doubt();
        assert!(!cost.is_known() && cost.mean > 0, "it is being measured");
        (0..4).for_each(|_| cost.learn(MIB, Duration::from_nanos(190 << 10)));
        assert!(cost.is_known() && cost.mean == 190, "{cost:?}");
        cost.doubt();
        cost.learn(MIB, Duration::from_millis(900));
        assert_eq!(cost.mean, 380, "a lost core says little");
    }

    #[test]
    fn direct_writes_gain_nothing_that_are_known_to_cost_no_more_than_copies_and_drains() {
        let mut cost = Cost::UNKNOWN;
        cost.learn(MIB, Duration::from_nanos(400 << 10));
        assert!(!cost.gains_nothing(10_000), "little is known");
        (0..8).for_each(|_| cost.learn(MIB, Duration::from_nanos(400 << 10)));
        let gains_nothing = [100, 300, 310, 400].map(|drained_ns| cost.gains_nothing(drained_ns));
        assert_eq!(gains_nothing, [false, false, true, true]);
    }

    #[test]
    fn thread_that_lost_its_core_in_some_drains_drains_on() {
        let costs = Costs::default();
        learn(&costs, 300, 8);
        learn(&costs, 40_000, 8);
        assert!(!Drains::Here.is_ahead(&costs, 7));
    }
}
