//! Results of requests as the completion carries them.

use std::{borrow::Borrow, io};

use rustix::io::Errno;
use wire::Value;

/// Result of a request: its value, or the error the program sees.
pub type Verdict = Result<u64, Errno>;

/// The value word of a completion.
pub fn value(verdict: Verdict) -> u64 {
    Value(verdict.map_err(Errno::raw_os_error)).encode()
}

/// Decodes a value word.
///
/// # Errors
///
/// The error that the word says.
pub fn verdict(value: u64) -> Verdict {
    Value::decode(value).0.map_err(Errno::from_raw_os_error)
}

/// The error number of an I/O error; `EIO` when it has none.
pub fn errno(error: impl Borrow<io::Error>) -> Errno {
    error.borrow().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_numbers() {
        for said in [Ok(0), Ok(u64::MAX >> 1), Err(Errno::NOSPC), Err(Errno::PERM)] {
            assert_eq!(verdict(value(said)), said);
        }
        assert_eq!(errno(io::Error::from_raw_os_error(5)), Errno::IO);
        assert_eq!(errno(io::Error::other("no number")), Errno::IO);
    }
}
