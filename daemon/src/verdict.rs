//! Results of requests as the completion carries them.

use std::io;

use rustix::io::Errno;

/// What a request comes to: its value, or the error the program sees.
pub(crate) type Verdict = Result<u64, Errno>;

/// The value word of a completion: the value, or the negated error number.
pub(crate) fn value(verdict: Verdict) -> u64 {
    match verdict {
        Ok(value) => value,
        Err(errno) => {
            let negative = i64::from(errno.raw_os_error()).wrapping_neg();
            u64::from_le_bytes(negative.to_le_bytes())
        }
    }
}

/// What a value word says.
pub(crate) fn verdict(value: u64) -> Verdict {
    match i32::try_from(value.wrapping_neg()) {
        Ok(errno @ 1..4096) => Err(Errno::from_raw_os_error(errno)),
        _ => Ok(value),
    }
}

/// The error number of an I/O error; `EIO` when it has none.
pub(crate) fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_negative_values() {
        assert_eq!(value(Ok(7)), 7);
        assert_eq!(value(Err(Errno::NOSPC)), u64::MAX - 27);
        for said in [Ok(0), Ok(u64::MAX >> 1), Err(Errno::NOSPC), Err(Errno::PERM)] {
            assert_eq!(verdict(value(said)), said);
        }
        assert_eq!(errno(&io::Error::from_raw_os_error(5)), Errno::IO);
        assert_eq!(errno(&io::Error::other("no number")), Errno::IO);
    }
}
