//! The middle and the ends of repeated measurements.

const CONFIDENCE: f64 = 0.95;

/// Median, smallest, and largest of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of these values; `None` when there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let upper = *values.get(values.len() / 2)?;
        let lower = *values.get((values.len() - 1) / 2)?;
        Some(Self { median: f64::midpoint(lower, upper), min, max })
    }
}

/// The median, between the ends of its confidence interval; of too few values, between the ends of
/// all. `None` of nothing.
pub(crate) fn interval(mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    let rank = rank(values.len()).unwrap_or(1);
    let (min, max) = (*values.get(rank - 1)?, *values.get(values.len() - rank)?);
    Spread::of(values).map(|Spread { median, .. }| Spread { median, min, max })
}

/// The largest n for which the n-th smallest and the n-th largest of `count` values enclose the
/// median with [`CONFIDENCE`]; `None` when there are too few values for any.
pub(crate) fn rank(count: usize) -> Option<usize> {
    let mut outside = 0.0;
    let mut ways = 1.0;
    let mut rank = None;
    for below in 0..count {
        outside += 2.0 * ways / 2f64.powi(i32::try_from(count).ok()?);
        if 1.0 - outside < CONFIDENCE {
            break;
        }
        rank = Some(below + 1);
        ways *= (count - below) as f64 / (below + 1) as f64;
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_sign_test() {
        let table = [(5, None), (6, Some(1)), (8, Some(1)), (9, Some(2)), (10, Some(2))];
        for (count, expected) in table.into_iter().chain([(12, Some(3)), (20, Some(6))]) {
            assert_eq!(rank(count), expected, "{count}");
        }
    }

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 2.0, 10.0]).expect("values");
        assert_eq!((spread.median, spread.min, spread.max), (3.0, 1.0, 10.0));
        let spread = Spread::of([5.0, 1.0, 2.0]).expect("values");
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 5.0));
        assert_eq!(Spread::of([]), None);
    }
}
