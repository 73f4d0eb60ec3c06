//! Latencies counted in buckets, so that those of many processes can be added up.
//!
//! A bucket is a sixteenth of an octave wide: a quantile is off by 6 % at most.

use std::{fmt, str::FromStr, time::Duration};

use anyhow::Context as _;

const STEPS: usize = 16;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = 64 * STEPS;

/// Latencies, and how long it took to collect them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    pub(crate) sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], sum_ns: 0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns = self.sum_ns.saturating_add(nanos);
        if let Some(count) = self.counts.get_mut(bucket(nanos)) {
            *count += 1;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Mean latency, ns; `None` of nothing.
    pub(crate) fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_ns as f64 / count as f64)
    }

    /// The latency that this part of all stays below, ns; `None` of nothing.
    pub(crate) fn quantile(&self, part: f64) -> Option<f64> {
        let mut left = self.count() as f64 * part;
        self.counts.iter().enumerate().find_map(|(index, count)| {
            left -= *count as f64;
            (*count > 0 && left <= 0.0).then(|| middle(index))
        })
    }
}

/// The bucket of a latency: where its highest bit is, and the bits after it.
fn bucket(nanos: u64) -> usize {
    let octave = (nanos | 1).ilog2().saturating_sub(STEP_BITS - 1);
    let bits = usize::try_from(nanos >> octave.saturating_sub(1)).unwrap_or(usize::MAX);
    octave as usize * STEPS + bits % STEPS
}

/// A latency in the middle of a bucket, ns.
fn middle(index: usize) -> f64 {
    let (octave, step) = (index / STEPS, index % STEPS);
    if octave == 0 {
        return step as f64;
    }
    let scale = i32::try_from(octave - 1).map_or(f64::INFINITY, |power| 2f64.powi(power));
    ((STEPS + step) as f64 + 0.5) * scale
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.sum_ns)?;
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.into_iter().try_for_each(|(index, count)| write!(f, " {index}:{count}"))
    }
}

impl FromStr for Histogram {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut words = text.split(' ');
        let mut histogram =
            Self { sum_ns: words.next().context("a sum")?.parse()?, ..Self::default() };
        for word in words {
            let (index, count) = word.split_once(':').context("index:count")?;
            let place = histogram.counts.get_mut(index.parse::<usize>()?).context("a bucket")?;
            *place = count.parse()?;
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_sixteenth() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|nanos| histogram.add(Duration::from_nanos(nanos)));
        assert_eq!(histogram.mean(), Some(5000.5));
        for (part, exact) in [(0.5, 5000.0), (0.99, 9900.0), (0.001, 10.0)] {
            let found = histogram.quantile(part).expect("not empty");
            assert!((found / exact - 1.0).abs() < 0.0625, "{part}: {found}");
        }
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn histograms_survive_the_pipe_and_add_up() {
        let mut one = Histogram::default();
        for nanos in [3, 17, 5_000_000_000] {
            one.add(Duration::from_nanos(nanos));
        }
        let read: Histogram = one.to_string().parse().expect("a histogram");
        assert_eq!(read, one);
        one.merge(&read);
        assert_eq!((one.count(), one.sum_ns), (6, 10_000_000_040));
        assert!("".parse::<Histogram>().is_err());
        assert!("1 9999999:1".parse::<Histogram>().is_err());
    }
}
