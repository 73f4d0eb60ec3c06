//! Measurements of a case, one a round, or why there are none.

use crate::spread::{Spread, interval};

/// Values of one case, one a round, or why there are none.
pub(crate) type Rounds<T> = Result<Vec<T>, String>;

/// Measures once more, unless it failed before.
pub(crate) fn push<T>(values: &mut Rounds<T>, measure: impl FnOnce() -> Result<T, String>) {
    if let Ok(list) = values {
        match measure() {
            Ok(value) => list.push(value),
            Err(why) => *values = Err(why),
        }
    }
}

/// A value of each round.
pub(crate) fn map<T, U>(values: &Rounds<T>, value: impl Fn(&T) -> U) -> Rounds<U> {
    values.as_ref().map(|list| list.iter().map(value).collect()).map_err(String::clone)
}

/// A value of each two measurements of one round.
pub(crate) fn combine<T, U, V>(
    one: &Rounds<T>,
    other: &Rounds<U>,
    value: impl Fn(&T, &U) -> V,
) -> Rounds<V> {
    let one = one.as_ref().map_err(String::clone)?;
    let other = other.as_ref().map_err(String::clone)?;
    Ok(one.iter().zip(other).map(|(one, other)| value(one, other)).collect())
}

/// The median of a value of each round, between the smallest and the largest.
pub(crate) fn spread<T>(values: &Rounds<T>, value: impl Fn(&T) -> f64) -> Result<Spread, String> {
    let values = values.as_ref().map_err(String::clone)?;
    Spread::of(values.iter().map(value)).ok_or_else(too_late)
}

/// The same of one value by another, round by round.
pub(crate) fn ratio<T>(
    one: &Rounds<T>,
    other: &Rounds<T>,
    value: impl Fn(&T) -> f64,
) -> Result<Spread, String> {
    spread(&combine(one, other, |one, other| value(one) / value(other)), |ratio| *ratio)
}

/// The median, between the ends of its confidence interval.
pub(crate) fn interval_of(values: Rounds<f64>) -> Result<Spread, String> {
    interval(values?).ok_or_else(too_late)
}

/// Why a case has no round.
pub(crate) fn too_late() -> String {
    "the time was used up".to_owned()
}
