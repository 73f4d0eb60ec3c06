//! Advice on the measurements, for scientists.

use super::Row;

/// A gain that means nothing: rounds of a busy machine differ by as much.
pub(super) const SAME: f64 = 1.1;
/// A gain that is worth a flag.
const WORTH: f64 = 1.3;

/// Meaning of each case for a program.
const CASES: [(&str, &str); 7] = [
    ("lines", "logs written line by line"),
    ("small", "small writes"),
    ("files", "many small files"),
    ("large", "large writes"),
    ("checkpoint", "checkpoints beside a computation"),
    ("cold", "reads"),
    ("warm", "repeated reads"),
];

/// One line of advice.
pub(super) fn advice(rows: &[Row]) -> String {
    let gain = |name: &str| rows.iter().find(|row| row.name == name).and_then(Row::gain);
    let known = || CASES.iter().filter_map(|(name, words)| Some((gain(name)?, *words)));
    let mut gained: Vec<_> = known().filter(|(gain, _)| *gain >= WORTH).collect();
    gained.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let coalesced = gain("coalesce").filter(|gain| *gain >= WORTH);
    let worst = known().min_by(|(one, _), (other, _)| one.total_cmp(other));
    let slower = worst.filter(|(gain, _)| *gain < 1.0 / SAME).map_or_else(String::new, |worst| {
        format!(" Not for programs that mostly do {}: {:.1} times slower.", worst.1, 1.0 / worst.0)
    });
    let coalesce = coalesced.map_or_else(String::new, |gain| {
        let flag = "--coalesce DIR=FILE.sion";
        format!(" For one file per rank add '{flag}': {gain:.1} times faster.")
    });
    match gained.first() {
        Some((gain, words)) => {
            let first = format!("Run programs with 'kakehi run -- PROGRAM' here: {words} are");
            format!("{first} {gain:.1} times faster.{coalesce}{slower}")
        }
        None if coalesced.is_some() => {
            format!("Kakehi gains nothing for single files here.{coalesce}{slower}")
        }
        None => format!("Do not use Kakehi here: this file system is as fast without.{slower}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Outcome, *};

    fn rows(gains: &[(&'static str, f64)]) -> Vec<Row> {
        let row = |&(name, gain): &(&'static str, f64)| Row {
            name,
            case: name.to_owned(),
            result: Outcome::Measured { without_s: gain, with_s: 1.0, gain, rounds: 3 },
        };
        gains.iter().map(row).collect()
    }

    #[test]
    fn advice_names_what_gains_most_and_what_loses() {
        let said = advice(&rows(&[("lines", 34.0), ("small", 2.0), ("files", 0.8)]));
        assert_eq!(
            said,
            "Run programs with 'kakehi run -- PROGRAM' here: logs written line by line are 34.0 \
             times faster. Not for programs that mostly do many small files: 1.2 times slower."
        );
        let said = advice(&rows(&[("lines", 1.4), ("coalesce", 5.0)]));
        assert!(said.ends_with("add '--coalesce DIR=FILE.sion': 5.0 times faster."), "{said}");
    }

    #[test]
    fn advice_is_not_to_use_it_where_nothing_is_gained() {
        let said = advice(&rows(&[("lines", 1.2), ("coalesce", 1.0), ("cold", 0.95)]));
        assert_eq!(said, "Do not use Kakehi here: this file system is as fast without.");
        let said = advice(&rows(&[("lines", 1.0), ("coalesce", 2.0)]));
        assert!(said.starts_with("Kakehi gains nothing for single files here."), "{said}");
    }
}
