//! Sizes in bytes as people write them: IEC units, powers of 1024, `4KiB`.

use std::{fmt, str::FromStr};

/// Largest first, so that printing takes the largest unit that fits.
const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A number of bytes; prints exactly, and what it prints it also parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

impl Size {
    /// One decimal in the largest unit that fits, for people: `15.6GiB`.
    pub(crate) fn approximate(self) -> String {
        let (unit, scale) =
            UNITS.into_iter().find(|(_, scale)| self.0 >= *scale).unwrap_or(("B", 1));
        let tenths = u128::from(self.0) * 10 / u128::from(scale);
        match tenths % 10 {
            0 => format!("{}{unit}", tenths / 10),
            tenth => format!("{}.{tenth}{unit}", tenths / 10),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |scale: u64| self.0 >= scale && self.0 % scale == 0;
        let (unit, scale) = UNITS.into_iter().find(|(_, scale)| exact(*scale)).unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / scale)
    }
}

impl FromStr for Size {
    type Err = String;

    /// A whole number and a unit; a bare number is bytes. Case does not matter, and `M` is `MiB`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("'{text}' is not a size like 4KiB, 32MiB, or 1GiB");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wanted())?;
        let unit = unit.trim_start();
        let scale = UNITS.into_iter().find_map(|(name, scale)| {
            let short = name.strip_suffix("iB").unwrap_or(name);
            (unit.eq_ignore_ascii_case(name) || unit.eq_ignore_ascii_case(short)).then_some(scale)
        });
        let scale = if unit.is_empty() { 1 } else { scale.ok_or_else(wanted)? };
        number.checked_mul(scale).map(Self).ok_or_else(|| format!("'{text}' exceeds 2^64 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_to_the_same_size() {
        for bytes in [0, 1, 1023, 1024, 1025, 32 << 20, (1 << 40) + 1, u64::MAX] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
    }

    #[test]
    fn units_are_powers_of_1024_in_any_case() {
        for text in ["32MiB", "32mib", "32M", "32 MiB", "33554432", "33554432B"] {
            assert_eq!(text.parse(), Ok(Size(32 << 20)), "{text}");
        }
    }

    #[test]
    fn bad_sizes_are_refused() {
        for text in ["", "MiB", "-1", "1.5GiB", "3MB", "1 2", "18446744073709551616", "99999999T"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn approximate_sizes_have_one_decimal() {
        assert_eq!(Size(1536).approximate(), "1.5KiB");
        assert_eq!(Size(4096).approximate(), "4KiB");
        assert_eq!(Size(1023).approximate(), "1023B");
    }
}
