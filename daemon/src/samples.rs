//! The counters over time: a bounded number of samples, whatever the length of the job.
//!
//! Samples are taken often at first. Once there are [`SAMPLES_MAX`] of them every other one is
//! dropped, and from then on half as many are taken.

use std::time::{Duration, Instant};

use crate::statistics::Sample;

/// Most samples that are kept.
const SAMPLES_MAX: usize = 512;
/// Time between the first samples.
const PERIOD: Duration = Duration::from_millis(20);

/// Samples, and how they are taken.
#[derive(Debug)]
pub(crate) struct Samples {
    taken: Vec<Sample>,
    period: Duration,
    /// When the last one was taken, and for how long each executor had worked by then.
    last: (Instant, Vec<Duration>),
}

impl Default for Samples {
    fn default() -> Self {
        Self { taken: Vec::new(), period: PERIOD, last: (Instant::now(), Vec::new()) }
    }
}

impl Samples {
    /// All samples, in the order they were taken.
    pub(crate) fn taken(&self) -> Vec<Sample> {
        self.taken.clone()
    }

    /// Time until the next one.
    pub(crate) fn period(&self) -> Duration {
        self.period
    }

    pub(crate) fn push(&mut self, sample: Sample) {
        if self.taken.len() >= SAMPLES_MAX {
            let mut index = 0;
            self.taken.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.period *= 2;
        }
        self.taken.push(sample);
    }

    /// Share of the time since the last call that the busiest executor worked, in thousandths.
    /// `working` is how long each has worked in its life.
    pub(crate) fn busy(&mut self, working: Vec<Duration>) -> u32 {
        let now = Instant::now();
        let (before, worked) = std::mem::replace(&mut self.last, (now, working));
        let time = now.duration_since(before).as_micros().max(1);
        let since = |(now, before): (&Duration, &Duration)| now.saturating_sub(*before).as_micros();
        let most = self.last.1.iter().zip(&worked).map(since).max().unwrap_or(0);
        u32::try_from(most * 1000 / time).unwrap_or(1000).min(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stay_few_and_cover_all_time_in_a_long_job() {
        let mut samples = Samples::default();
        (0..10_000).for_each(|at_ms| samples.push(Sample { at_ms, ..Sample::default() }));
        let taken = samples.taken();
        assert!(taken.len() <= SAMPLES_MAX);
        assert_eq!((taken[0].at_ms, taken[taken.len() - 1].at_ms), (0, 9_999));
        assert!(taken.windows(2).all(|pair| pair[0].at_ms < pair[1].at_ms));
        assert!(samples.period > PERIOD);
    }
}
