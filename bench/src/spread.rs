//! The middle and the ends of repeated measurements.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 2.0, 10.0]).expect("values");
        assert_eq!((spread.median, spread.min, spread.max), (3.0, 1.0, 10.0));
        let spread = Spread::of([5.0, 1.0, 2.0]).expect("values");
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 5.0));
        assert_eq!(Spread::of([]), None);
    }
}
