//! Costs of writes on each mounted file system, as all processes of a job have found.
//!
//! Writers tell how long a write took, and look before they decide whether to stage. An
//! estimate follows the median: the least of the first samples, then a step up or down with each
//! one. A thread that lost its core in a call moves it no more than any other.
//!
//! # Trust
//!
//! Any value may stand here. A wrong one makes writes slower, and never wrong.
//!
//! # Memory ordering
//!
//! Everything is `Relaxed`: a word holds an estimate with its number of samples, and nothing else
//! depends on it. Of two that tell at the same time one may be lost.

use crate::sync::{AtomicU64, Ordering};

/// File systems that are told apart; of more nothing is known.
const FILE_SYSTEMS: usize = 16;
/// Writes from this length on say what a byte costs; shorter ones what a call does.
const LONG: u64 = 64 << 10;
/// Samples from which on an estimate counts.
const SAMPLES: u64 = 4;
/// A step is this part of the estimate.
const STEP: u64 = 8;
/// Marks a device's place as taken, whatever its number.
const TAKEN: u64 = 1 << 63;

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
    /// Of a call that writes little, ns.
    call: Estimate,
    /// Of a KiB of long writes, ns.
    kib: Estimate,
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
}

impl Costs {
    /// Learns that a write of `len` bytes to a file of `device` took `ns`.
    pub fn learn(&self, device: u64, len: u64, ns: u64) {
        let Some(system) = self.find_or_take(device) else { return };
        if len >= LONG {
            system.kib.learn(ns / (len >> 10));
        } else if len > 0 {
            system.call.learn(ns);
        }
    }

    /// Returns the cost of the file system of `device`.
    #[must_use]
    pub fn of(&self, device: u64) -> Option<Cost> {
        let is_it = |system: &&System| system.device.load(Ordering::Relaxed) == device | TAKEN;
        self.systems.iter().find(is_it).map(|system| system.cost(device))
    }

    /// Returns all costs.
    pub fn all(&self) -> impl Iterator<Item = Cost> {
        let taken = |system: &System| Some(system.device.load(Ordering::Relaxed) ^ TAKEN);
        let device = move |system| taken(system).filter(|device| device & TAKEN == 0);
        self.systems.iter().filter_map(move |system| Some(system.cost(device(system)?)))
    }

    fn find_or_take(&self, device: u64) -> Option<&System> {
        let wanted = device | TAKEN;
        self.systems.iter().find(|system| {
            let took =
                system.device.compare_exchange(0, wanted, Ordering::Relaxed, Ordering::Relaxed);
            took.map_or_else(|found| found == wanted, |_| true)
        })
    }
}

impl System {
    fn cost(&self, device: u64) -> Cost {
        Cost { device, call_ns: self.call.get(), kib_ns: self.kib.get() }
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
        assert_eq!(costs.of(7), Some(Cost { device: 7, call_ns: None, kib_ns: Some(2000) }));
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
}
