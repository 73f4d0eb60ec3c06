//! Latencies of many processes, to be added up.

use std::time::Duration;

use hdrhistogram::{Histogram as Counts, RecordError};
use serde::{Deserialize, Serialize};

/// Significant digits of a latency.
const DIGITS: u8 = 2;
/// The longest, ns: longer ones count as this.
const LONGEST: u64 = 3_600_000_000_000;

/// Latencies in nanoseconds; on the way between processes each with its count.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
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

impl From<Histogram> for Vec<(u64, u64)> {
    fn from(histogram: Histogram) -> Self {
        let recorded = histogram.0.iter_recorded();
        recorded.map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
    }
}

impl TryFrom<Vec<(u64, u64)>> for Histogram {
    type Error = RecordError;

    fn try_from(recorded: Vec<(u64, u64)>) -> Result<Self, RecordError> {
        let mut histogram = Self::default();
        recorded.iter().try_for_each(|(value, count)| histogram.0.record_n(*value, *count))?;
        Ok(histogram)
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
        let sent = |one: &Histogram| {
            let text = serde_json::to_string(one).expect("a text");
            serde_json::from_str::<Histogram>(&text).expect("a histogram")
        };
        let mut one = Histogram::default();
        for nanos in [3, 17, 5_000_000_000] {
            one.add(Duration::from_nanos(nanos));
        }
        let read = sent(&one);
        assert_eq!(read, one);
        one.merge(&read);
        assert_eq!(one.count(), 6);
        assert_eq!(sent(&Histogram::default()), Histogram::default());
        for text in ["", "[1]", "[[1, -1]]"] {
            assert!(serde_json::from_str::<Histogram>(text).is_err(), "{text}");
        }
    }
}
