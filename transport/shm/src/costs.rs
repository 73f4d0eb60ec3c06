//! Costs of calls on each mounted file system, as all processes of a job have found.
//!
//! Callers time a call now and then and tell how long it took; decisions look here. An estimate
//! follows the median: the least of the first samples, then a step up or down with each one. A
//! thread that lost its core in a call moves it no more than any other.
//!
//! # Trust
//!
//! Any value may stand here. A wrong one makes calls slower, and never wrong.
//!
//! # Memory ordering
//!
//! Everything is `Relaxed`: a word holds an estimate with its number of samples, and nothing else
//! depends on it. Of two that tell at the same time one may be lost.

use crate::sync::{AtomicU64, Ordering};

/// File systems that are told apart; of more nothing is known.
const FILE_SYSTEMS: usize = 16;
/// Samples from which on an estimate counts.
const SAMPLES: u64 = 4;
/// A step is this part of the estimate.
const STEP: u64 = 8;
/// Marks a device's place as taken, whatever its number.
const TAKEN: u64 = 1 << 63;

/// A kind of call whose cost is learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// A write of less than 64 KiB.
    Write,
    /// A read of less than 64 KiB.
    Read,
    /// An open of a file that is there.
    Open,
    /// An open with `O_CREAT`.
    Create,
    /// The close of a descriptor that was opened on its own.
    Close,
    /// `fsync` or `fdatasync`.
    Sync,
    /// The status of a name that is there.
    Stat,
}

impl CallKind {
    /// All, in the order of the table.
    pub const ALL: [Self; 7] =
        [Self::Write, Self::Read, Self::Open, Self::Create, Self::Close, Self::Sync, Self::Stat];

    /// Its name, for people and scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Open => "open",
            Self::Create => "create",
            Self::Close => "close",
            Self::Sync => "sync",
            Self::Stat => "stat",
        }
    }
}

/// A call that was timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its kind.
    pub kind: CallKind,
    /// Bytes that it moved.
    pub len: u64,
    /// Its time.
    pub ns: u64,
    /// Calls that it stands for.
    pub calls: u64,
}

/// The shared table.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Costs {
    systems: [System; FILE_SYSTEMS],
}

#[derive(Debug, Default)]
#[repr(C)]
struct System {
    device: AtomicU64,
    /// Of a KiB of long writes, and of long reads, ns.
    kibs: [Estimate; 2],
    calls: [Calls; CallKind::ALL.len()],
}

/// Calls of a kind.
#[derive(Debug, Default)]
#[repr(C)]
struct Calls {
    /// Of one, ns.
    cost: Estimate,
    count: AtomicU64,
}

/// An estimate in the lower half, and its number of samples in the upper.
#[derive(Debug, Default)]
#[repr(transparent)]
struct Estimate(AtomicU64);

/// Cost of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Device number.
    pub device: u64,
    /// Time of a short write, ns.
    pub call_ns: Option<u64>,
    /// Time of a KiB of a long write, ns.
    pub kib_ns: Option<u64>,
    /// Time of a KiB of a long read, ns.
    pub read_kib_ns: Option<u64>,
    calls: [(Option<u64>, u64); CallKind::ALL.len()],
}

impl Cost {
    /// Time of a call, ns.
    #[must_use]
    pub fn of(&self, kind: CallKind) -> Option<u64> {
        self.calls.get(kind as usize)?.0
    }

    /// Calls of this kind that were made, about, but for transfers. Those that are timed stand for
    /// others.
    #[must_use]
    pub fn count(&self, kind: CallKind) -> u64 {
        self.calls.get(kind as usize).map_or(0, |(_, count)| *count)
    }
}

impl Costs {
    /// Transfers from this length on say what a byte costs, shorter ones what a call does; bytes.
    pub const LONG: u64 = 64 << 10;

    /// Learns that a write of `len` bytes to a file of `device` took `ns`.
    pub fn learn(&self, device: u64, len: u64, ns: u64) {
        self.learn_call(device, Sample { kind: CallKind::Write, len, ns, calls: 1 });
    }

    /// Learns from a call on a file of `device`.
    pub fn learn_call(&self, device: u64, sample: Sample) {
        if let Some(system) = self.find_or_take(device) {
            system.learn(sample);
        }
    }

    /// Learns from a call on a file of `device`, if others have told of that. Calls on names lead
    /// to file systems that the job has no files on.
    pub fn learn_known(&self, device: u64, sample: Sample) {
        if let Some(system) = self.find(device) {
            system.learn(sample);
        }
    }

    /// Learns from a call on a file of the device that has this [place](Self::place).
    pub fn learn_at(&self, place: usize, sample: Sample) {
        if let Some(system) = self.systems.get(place) {
            system.learn(sample);
        }
    }

    /// The place of a device in the table, which it takes if need be; `None`: there is no room.
    #[must_use]
    pub fn place(&self, device: u64) -> Option<usize> {
        let wanted = device | TAKEN;
        self.systems.iter().position(|system| {
            let found = system.device.load(Ordering::Relaxed);
            let take =
                || system.device.compare_exchange(0, wanted, Ordering::Relaxed, Ordering::Relaxed);
            found == wanted || found == 0 && take().map_or_else(|found| found == wanted, |_| true)
        })
    }

    /// Returns the cost of the file system of `device`.
    #[must_use]
    pub fn of(&self, device: u64) -> Option<Cost> {
        self.find(device).map(|system| system.cost(device))
    }

    /// Returns the time of a call on the file system of `device`, ns.
    #[must_use]
    pub fn call(&self, device: u64, kind: CallKind) -> Option<u64> {
        self.find(device)?.calls.get(kind as usize)?.cost.get()
    }

    /// Returns all costs.
    pub fn all(&self) -> impl Iterator<Item = Cost> {
        let taken = |system: &System| Some(system.device.load(Ordering::Relaxed) ^ TAKEN);
        let device = move |system| taken(system).filter(|device| device & TAKEN == 0);
        self.systems.iter().filter_map(move |system| Some(system.cost(device(system)?)))
    }

    fn find(&self, device: u64) -> Option<&System> {
        let is_it = |system: &&System| system.device.load(Ordering::Relaxed) == device | TAKEN;
        self.systems.iter().find(is_it)
    }

    fn find_or_take(&self, device: u64) -> Option<&System> {
        self.systems.get(self.place(device)?)
    }
}

impl System {
    fn learn(&self, sample: Sample) {
        let Sample { kind, len, ns, calls } = sample;
        let of_kib = match kind {
            CallKind::Write => self.kibs.first(),
            CallKind::Read => self.kibs.last(),
            _ => None,
        };
        match (of_kib, self.calls.get(kind as usize)) {
            (Some(_), _) if len == 0 => {}
            (Some(of_kib), _) if len >= Costs::LONG => of_kib.learn(ns / (len >> 10)),
            (Some(_), Some(of_kind)) => of_kind.cost.learn(ns),
            (None, Some(of_kind)) => {
                of_kind.cost.learn(ns);
                of_kind.count.fetch_add(calls, Ordering::Relaxed);
            }
            (_, None) => {}
        }
    }

    fn cost(&self, device: u64) -> Cost {
        let calls = self.calls.each_ref();
        let calls = calls.map(|of| (of.cost.get(), of.count.load(Ordering::Relaxed)));
        let [kib_ns, read_kib_ns] = self.kibs.each_ref().map(Estimate::get);
        let [(call_ns, _), ..] = calls;
        Cost { device, call_ns, kib_ns, read_kib_ns, calls }
    }
}

impl Estimate {
    fn learn(&self, sample: u64) {
        let sample = sample.clamp(1, u32::MAX.into());
        let word = self.0.load(Ordering::Relaxed);
        let (count, before) = (word >> 32, word & u64::from(u32::MAX));
        let step = before.div_ceil(STEP);
        let estimate = match count {
            0 => sample,
            1..SAMPLES => sample.min(before),
            _ if sample > before => (before + step).min(sample),
            _ => before.saturating_sub(step).max(sample),
        };
        let count = (count + 1).min(u32::MAX.into());
        self.0.store(count << 32 | estimate, Ordering::Relaxed);
    }

    fn get(&self) -> Option<u64> {
        let word = self.0.load(Ordering::Relaxed);
        (word >> 32 >= SAMPLES).then_some(word & u64::from(u32::MAX))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::vec::Vec;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn estimate_counts_after_four_samples_and_begins_with_the_least() {
        let costs = Costs::default();
        for ns in [9_000_000, 2_048_000, 4_000_000] {
            costs.learn(7, MIB, ns);
            assert_eq!(costs.of(7).and_then(|cost| cost.kib_ns), None);
        }
        costs.learn(7, MIB, 5_000_000);
        let cost = costs.of(7).expect("samples");
        assert_eq!((cost.device, cost.call_ns, cost.kib_ns), (7, None, Some(2000)));
        assert_eq!(costs.of(8), None);
    }

    #[test]
    fn estimate_follows_the_median_and_not_what_happens_now_and_then() {
        let costs = Costs::default();
        let estimate = || costs.of(7).and_then(|cost| cost.kib_ns).expect("samples");
        for round in 0..200 {
            // A thread that loses its core takes a hundred times as long.
            costs.learn(7, MIB, if round % 4 == 0 { 102_400_000 } else { 1_024_000 });
        }
        assert!((1000..1500).contains(&estimate()), "{}", estimate());
        (0..50).for_each(|_| costs.learn(7, MIB, 10_240_000));
        assert!((8_000..=10_000).contains(&estimate()), "{}", estimate());
    }

    #[test]
    fn file_systems_beyond_the_table_are_not_known() {
        let costs = Costs::default();
        for device in 0..20 {
            (0..SAMPLES).for_each(|_| costs.learn(device, 100, 5_000));
        }
        let found: Vec<_> = costs.all().map(|cost| (cost.device, cost.call_ns)).collect();
        assert_eq!(found, (0..16).map(|device| (device, Some(5_000))).collect::<Vec<_>>());
        assert_eq!(costs.of(16), None);
    }

    #[test]
    fn calls_of_each_kind_have_a_cost_and_a_number() {
        let costs = Costs::default();
        for (number, kind) in (1..).zip(CallKind::ALL) {
            let sample = Sample { kind, len: 100, ns: number * 1_000, calls: 32 };
            (0..SAMPLES).for_each(|_| costs.learn_call(7, sample));
        }
        let cost = costs.of(7).expect("samples");
        for (number, kind) in (1..).zip(CallKind::ALL) {
            let count = if number <= 2 { 0 } else { 128 };
            assert_eq!(
                (cost.of(kind), cost.count(kind)),
                (Some(number * 1_000), count),
                "{kind:?}"
            );
            assert_eq!(costs.call(7, kind), cost.of(kind));
        }
        assert_eq!((cost.call_ns, cost.kib_ns, cost.read_kib_ns), (Some(1_000), None, None));
        assert_eq!(costs.call(8, CallKind::Open), None);
    }

    #[test]
    fn long_transfers_say_what_a_byte_costs_and_empty_ones_nothing() {
        let costs = Costs::default();
        let place = costs.place(7).expect("room");
        for kind in [CallKind::Read, CallKind::Write] {
            let sample = |len, ns| Sample { kind, len, ns, calls: 1 };
            (0..SAMPLES).for_each(|_| costs.learn_at(place, sample(MIB, 1_024_000)));
            (0..SAMPLES).for_each(|_| costs.learn_at(place, sample(0, 5)));
            assert_eq!(costs.call(7, kind), None);
        }
        let cost = costs.of(7).expect("samples");
        assert_eq!((cost.kib_ns, cost.read_kib_ns), (Some(1_000), Some(1_000)));
        costs.learn_known(8, Sample { kind: CallKind::Open, len: 0, ns: 1, calls: 1 });
        assert_eq!(costs.of(8), None);
        costs.learn_at(99, Sample { kind: CallKind::Open, len: 0, ns: 1, calls: 1 });
    }
}
