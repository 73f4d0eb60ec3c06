//! Options of every bench.

use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::{ValueEnum, builder::RangedU64ValueParser};

use crate::rounds::too_late;

/// Options of every bench.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Common {
    /// Ends within a minute: fewer cases and rounds, less data a round.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measures only what cases need whose name begins so, as write/1MiB; several between commas.
    #[arg(long = "only", value_name = "PREFIX", value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds of a case. Of fewer than 6 idle and rpc have no confidence interval.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) rounds: Option<usize>,
    /// Begins no case later than this, as 300s. Default: no limit, or that of --quick.
    #[arg(long, value_name = "TIME", value_parser = time)]
    within: Option<Duration>,
    /// Prints one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also writes the JSON to results/DATE-MACHINE/ below the current folder.
    #[arg(long)]
    pub(crate) save: bool,
}

impl Common {
    /// Which cases are measured.
    pub(crate) fn only(&self) -> Only {
        Only(self.only.clone())
    }

    /// When the last case begins; `quick` after the start with --quick. With --within, as much of
    /// that as `quick` is of the `whole` of --quick.
    pub(crate) fn end(&self, quick: Duration, whole: Duration) -> Deadline {
        let within = self.within.map(|within| within.mul_f64(quick.div_duration_f64(whole)));
        let time = within.or_else(|| self.quick.then_some(quick));
        Deadline(time.map(|time| Instant::now() + time))
    }

    /// Rounds of a case that usually has so many.
    pub(crate) fn rounds_or(&self, usual: usize) -> usize {
        self.rounds.unwrap_or(usual)
    }
}

/// When nothing more is begun; by default there is no such time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deadline(pub(crate) Option<Instant>);

impl Deadline {
    pub(crate) fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }

    /// Says why nothing more is begun.
    pub(crate) fn check(self) -> Result<(), String> {
        if self.is_over() { Err(too_late()) } else { Ok(()) }
    }
}

/// A value as the command line has it.
pub(crate) fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// How the names of cases begin that are measured; without any all are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Only(Vec<String>);

impl Only {
    /// True if any of these cases is to be measured.
    pub(crate) fn wants<S: AsRef<str>>(&self, cases: impl IntoIterator<Item = S>) -> bool {
        let begins = |case: S| self.0.iter().any(|prefix| case.as_ref().starts_with(prefix));
        self.is_all() || cases.into_iter().any(begins)
    }

    /// True if all cases are.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses what no case was found for.
    pub(crate) fn check(&self, is_empty: bool) -> anyhow::Result<()> {
        ensure!(!is_empty || self.is_all(), "--only {}: no case begins so", self.0.join(","));
        Ok(())
    }
}

/// A number that is one of these.
pub(crate) fn one_of(known: &[usize], text: &str) -> Result<usize, String> {
    named(known, text, usize::to_string)
}

/// A size that is one of these, as it is called in the cases.
pub(crate) fn size_of(known: &[usize], text: &str) -> Result<usize, String> {
    named(known, text, |size| size_name(*size))
}

fn named(known: &[usize], text: &str, name: impl Fn(&usize) -> String) -> Result<usize, String> {
    let found = known.iter().find(|number| name(number) == text).copied();
    let names = || known.iter().map(&name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("one of {}", names()))
}

/// A size as in the cases: whole KiB or MiB.
pub(crate) fn size_name(size: usize) -> String {
    match size >> 20 {
        0 => format!("{}KiB", size >> 10),
        mib => format!("{mib}MiB"),
    }
}

/// A time as `120ms` or `2s`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let time = match (number.parse(), unit) {
        (Ok(number), "us") => Duration::from_micros(number),
        (Ok(number), "ms") => Duration::from_millis(number),
        (Ok(number), "s") => Duration::from_secs(number),
        _ => Duration::ZERO,
    };
    if time.is_zero() { Err("not a time like 120ms or 2s".to_owned()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_wanted_by_how_they_begin() {
        assert!(Only::default().wants(["any"]));
        let only = Only(vec!["write/4KiB/".to_owned(), "exec".to_owned()]);
        assert!(only.wants(["read/4KiB", "write/4KiB/hybrid"]) && only.wants(["exec/native"]));
        assert!(!only.wants(["write/4KiB", "write/64KiB/hybrid"]));
        assert!(only.check(false).is_ok() && only.check(true).is_err());
    }

    #[test]
    fn sizes_and_times_have_units() {
        let known = [4 << 10, 1 << 20];
        assert_eq!(size_of(&known, "4KiB"), Ok(4 << 10));
        assert_eq!(size_of(&known, "1MiB"), Ok(1 << 20));
        assert_eq!(size_of(&known, "4"), Err("one of 4KiB, 1MiB".to_owned()));
        assert_eq!(time("120ms"), Ok(Duration::from_millis(120)));
        assert_eq!(time("2s"), Ok(Duration::from_secs(2)));
        for text in ["120", "ms", "0ms", "1.5s", ""] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
