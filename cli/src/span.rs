//! Durations as people write them: a whole number and a unit, `500ms`, `30s`, `5min`.

use std::{fmt, str::FromStr, time::Duration};

/// Nanoseconds of each unit, largest first.
const UNITS: [(&str, u128); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A duration; prints exactly, and what it prints it also parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let exact = |scale: u128| nanos >= scale && nanos % scale == 0;
        let (unit, scale) =
            UNITS.into_iter().find(|(_, scale)| exact(*scale)).unwrap_or(("s", 1_000_000_000));
        write!(f, "{}{unit}", nanos / scale)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("'{text}' is not a duration like 500ms, 30s, or 5min");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wanted())?;
        let unit = unit.trim_start();
        let scale = UNITS.into_iter().find_map(|(name, scale)| (name == unit).then_some(scale));
        let nanos = scale.ok_or_else(wanted)?.checked_mul(u128::from(number));
        let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok());
        nanos
            .map(|nanos| Self(Duration::from_nanos(nanos)))
            .ok_or_else(|| format!("'{text}' exceeds 2^64 nanoseconds"))
    }
}

/// Waits for so long; a signal may cut it short.
pub(crate) fn pause(time: Duration) {
    rustix::event::poll(&mut [], time.try_into().ok().as_ref()).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_to_the_same_span() {
        for text in ["1ns", "1500us", "500ms", "30s", "90min", "24h", "0s"] {
            assert_eq!(text.parse::<Span>().map(|span| span.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("60s".parse::<Span>().map(|span| span.to_string()), Ok("1min".to_owned()));
    }

    #[test]
    fn a_bare_number_and_odd_units_are_refused() {
        for text in ["", "30", "s", "-1s", "1.5s", "3 weeks", "99999999999h"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
