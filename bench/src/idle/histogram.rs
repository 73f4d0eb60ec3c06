//! Latencies of many processes, to be added up.

use std::{fmt, str::FromStr, time::Duration};

use anyhow::Context as _;
use hdrhistogram::Histogram as Counts;

/// Significant digits of a latency.
const DIGITS: u8 = 2;
/// The longest, ns: longer ones count as this.
const LONGEST: u64 = 3_600_000_000_000;

/// Latencies in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Histogram(Counts<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self(Counts::new_with_bounds(1, LONGEST, DIGITS).expect("few digits"))
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("of the same bounds");
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Mean latency, ns; `None` of nothing.
    pub(crate) fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.mean())
    }

    /// The latency that this part of all stays below, ns; `None` of nothing.
    pub(crate) fn quantile(&self, part: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(part) as f64)
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count())?;
        let mut recorded = self.0.iter_recorded();
        recorded.try_for_each(|value| {
            write!(f, " {}:{}", value.value_iterated_to(), value.count_at_value())
        })
    }
}

impl FromStr for Histogram {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut histogram = Self::default();
        for word in text.split_whitespace().skip(1) {
            let (value, count) = word.split_once(':').context("value:count")?;
            histogram.0.record_n(value.parse()?, count.parse()?)?;
        }
        let is_whole = text.split(' ').next() == Some(&*histogram.count().to_string());
        is_whole.then_some(histogram).context("as many as it says")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_quantiles_are_right_to_a_hundredth() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|nanos| histogram.add(Duration::from_nanos(nanos)));
        let found = [Some(0.5), Some(0.99), Some(0.001), None];
        for (part, exact) in found.into_iter().zip([5000.0, 9900.0, 10.0, 5000.5]) {
            let found = part.map_or(histogram.mean(), |part| histogram.quantile(part));
            let found = found.expect("not empty");
            assert!((found / exact - 1.0).abs() < 0.01, "{part:?}: {found}");
        }
        assert_eq!((Histogram::default().quantile(0.5), Histogram::default().mean()), (None, None));
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
        assert_eq!(one.count(), 6);
        let empty = Histogram::default();
        assert_eq!(empty.to_string().parse::<Histogram>().expect("a histogram"), empty);
        for text in ["", "1", "1 1:x", "2 1:1"] {
            assert!(text.parse::<Histogram>().is_err(), "{text}");
        }
    }
}
