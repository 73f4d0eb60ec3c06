//! The command line as SIONlib's tools read it: an option is one letter behind a dash, its value
//! the next argument, and the last arguments are names whatever they look like.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    path::Path,
};

use crate::failure::Failure;

/// Meaning of a command line.
#[derive(Debug)]
pub(super) enum Asked {
    Run(Options),
    Version,
    Usage,
}

/// A command line that names everything.
#[derive(Debug)]
pub(super) struct Options {
    letters: HashMap<u8, OsString>,
    names: Vec<OsString>,
}

impl Options {
    /// Reads `arguments`: letters of `flags` stand alone, those of `valued` have a value, the last
    /// `count` are names.
    pub(super) fn parse(
        mut arguments: Vec<OsString>,
        flags: &str,
        valued: &str,
        count: usize,
    ) -> Asked {
        let letter_of = |argument: &OsStr| match argument.as_encoded_bytes() {
            [b'-', letter, ..] => Some(*letter),
            _ => None,
        };
        let last = arguments.last().and_then(|last| letter_of(last));
        match (arguments.len().checked_sub(count), last) {
            (None, Some(b'V')) | (Some(_), Some(b'V')) => return Asked::Version,
            (None, _) | (Some(_), Some(b'h')) => return Asked::Usage,
            _ => {}
        }
        let names = arguments.split_off(arguments.len() - count);
        let mut letters = HashMap::new();
        let mut rest = arguments.into_iter();
        while let Some(argument) = rest.next() {
            let value = match letter_of(&argument) {
                Some(b'V') => return Asked::Version,
                Some(letter) if flags.as_bytes().contains(&letter) => Some(OsString::new()),
                Some(letter) if valued.as_bytes().contains(&letter) => rest.next(),
                _ => None,
            };
            match letter_of(&argument).zip(value) {
                Some((letter, value)) => letters.insert(letter, value),
                None => return Asked::Usage,
            };
        }
        Asked::Run(Self { letters, names })
    }

    /// True if an option was given.
    pub(super) fn has(&self, letter: u8) -> bool {
        self.letters.contains_key(&letter)
    }

    /// The value of an option.
    pub(super) fn value(&self, letter: u8) -> Option<&OsStr> {
        self.letters.get(&letter).map(OsString::as_os_str)
    }

    /// The value of an option that is a number.
    pub(super) fn number(&self, letter: u8) -> Result<Option<u64>, Failure> {
        let Some(value) = self.value(letter) else { return Ok(None) };
        let number = value.to_str().and_then(|text| text.parse().ok());
        number.map(Some).ok_or_else(|| {
            let what = format!("-{}", char::from(letter));
            Failure::usage(
                what,
                format_args!("'{}' is no number", value.to_string_lossy()),
                "see -h",
            )
        })
    }

    /// Name number `index`.
    pub(super) fn name(&self, index: usize) -> &OsStr {
        self.names.get(index).map_or(OsStr::new(""), OsString::as_os_str)
    }

    /// The same, of a file.
    pub(super) fn path(&self, index: usize) -> &Path {
        Path::new(self.name(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Asked {
        let arguments = line.split_whitespace().map(OsString::from).collect();
        Options::parse(arguments, "ag", "d", 2)
    }

    #[test]
    fn the_last_arguments_are_names_whatever_they_look_like() {
        let Asked::Run(options) = parse("-a -d 7 in -out") else { panic!("refused") };
        assert!(options.has(b'a') && !options.has(b'g'));
        assert_eq!(options.number(b'd').expect("a number"), Some(7));
        assert_eq!((options.name(0), options.name(1)), (OsStr::new("in"), OsStr::new("-out")));
    }

    #[test]
    fn only_the_first_letter_counts() {
        assert!(matches!(parse("-abc in out"), Asked::Run(options) if options.has(b'a')));
    }

    #[test]
    fn what_is_not_understood_shows_the_usage() {
        for line in ["", "in", "-x in out", "word in out", "-h", "-h in out", "in -h"] {
            assert!(matches!(parse(line), Asked::Usage), "{line}");
        }
        for line in ["-V", "-V in out"] {
            assert!(matches!(parse(line), Asked::Version), "{line}");
        }
    }
}
