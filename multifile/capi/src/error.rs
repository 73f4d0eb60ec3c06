//! Errors at the C border: remembered per thread as code, text, and system error number.
//!
//! Codes are those of `sion_error.h` and never change. Nothing is printed unless the program runs
//! in compatibility mode (see `config`).

use std::{
    cell::{Cell, RefCell},
    ffi::{CString, c_int},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::OnceLock,
};

use multifile::{Argument, Error, error::Cause};

use crate::config;

pub(crate) type Result<T, E = Failure> = core::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No such handle, or not one for this call.
    Handle,
    /// An argument that cannot be.
    Argument(&'static str),
    /// The mode string, or a call that the mode does not allow.
    Mode(&'static str),
    /// The multifile or its storage.
    File(Error),
    /// A stdio stream.
    Stream(io::Error),
    /// A fault of this library.
    Internal,
}

impl Failure {
    const fn code(&self) -> c_int {
        match self {
            Self::Handle => 1,
            Self::Argument(_) => 2,
            Self::Mode(_) => 3,
            Self::File(error) => code_of(error),
            Self::Stream(_) => 6,
            Self::Internal => 11,
        }
    }

    /// As other ranks get to know it.
    pub(crate) fn shared(self) -> Error {
        match self {
            Self::File(error) => error,
            Self::Stream(error) => Error::io(0, &error),
            _ => Error::Poisoned,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Handle => "no such handle, or not one for this call".to_owned(),
            Self::Argument(what) | Self::Mode(what) => (*what).to_owned(),
            Self::File(error) => error.to_string(),
            Self::Stream(error) => match error.raw_os_error() {
                Some(os) => format!("stream: {}", multifile::error::reason(os)),
                None => format!("stream: {error}"),
            },
            Self::Internal => "a fault of this library".to_owned(),
        }
    }

    fn errno(&self) -> c_int {
        match self {
            Self::File(Error::Io { os, .. } | Error::OnRank { cause: Cause::Io(_, os), .. }) => *os,
            Self::Stream(error) => error.raw_os_error().unwrap_or(0),
            _ => 0,
        }
    }

    fn rank(&self) -> c_int {
        match self {
            Self::File(Error::OnRank { rank, .. }) => c_int::try_from(*rank).unwrap_or(-1),
            _ => -1,
        }
    }
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::File(error.into())
    }
}

const fn code_of(error: &Error) -> c_int {
    match error {
        Error::Argument(what) | Error::OnRank { cause: Cause::Argument(what), .. } => match what {
            Argument::ChunkEmpty | Argument::ChunkSmall => 5,
            Argument::Position | Argument::Record | Argument::Task => 4,
            Argument::Disagree => 9,
            _ => 2,
        },
        Error::Io { .. } | Error::OnRank { cause: Cause::Io(..), .. } => 6,
        Error::Damaged { .. } | Error::OnRank { cause: Cause::Damaged(..), .. } => 7,
        Error::Unclosed { .. } | Error::OnRank { cause: Cause::Unclosed(_), .. } => 8,
        Error::Group { .. } | Error::OnRank { cause: Cause::Group(_), .. } => 9,
        Error::Poisoned | Error::OnRank { cause: Cause::Poisoned, .. } => 10,
        Error::TooLarge | Error::OnRank { cause: Cause::TooLarge, .. } => 2,
        _ => 11,
    }
}

/// The last error of a thread.
pub(crate) struct Last {
    pub(crate) code: c_int,
    pub(crate) errno: c_int,
    pub(crate) rank: c_int,
    pub(crate) text: CString,
}

thread_local! {
    /// This thread's rank among those that opened the multifile in use; -1 outside of one.
    static RANK: Cell<c_int> = const { Cell::new(-1) };

    static LAST: RefCell<Last> =
        RefCell::new(Last { code: 0, errno: 0, rank: -1, text: CString::default() });
}

/// Runs the body of a C function; after a failure the caller gets `failed`.
pub(crate) fn guarded<T>(failed: T, body: impl FnOnce() -> Result<T>) -> T {
    RANK.set(-1);
    // Handles are behind locks that survive a panic of their holder, so nothing is left torn.
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Failure::Internal));
    result.unwrap_or_else(|failure| {
        remember(&failure);
        failed
    })
}

/// Notes that errors from here to the end of the call are `rank`'s.
pub(crate) fn on_rank(rank: c_int) {
    RANK.set(rank);
}

/// Makes `failure` this thread's last error, and prints it in compatibility mode with the rank that
/// it happened on: the one that all ranks agreed upon, or this one.
pub(crate) fn remember(failure: &Failure) {
    let text = failure.text();
    let rank = Some(failure.rank()).filter(|rank| *rank >= 0).unwrap_or_else(|| RANK.get());
    // SAFETY: `sion_group_threads` was promised a function that any thread may call.
    let thread = THREADS.get().map(|number| unsafe { number() });
    if config::compatible(rank, thread.unwrap_or(0)) {
        print(rank, thread, &text);
    }
    let text = CString::new(text).unwrap_or_default();
    LAST.with_borrow_mut(|last| {
        *last = Last { code: failure.code(), errno: failure.errno(), rank: failure.rank(), text };
    });
}

#[expect(clippy::print_stderr, reason = "what compatibility mode is for")]
fn print(rank: c_int, thread: Option<c_int>, text: &str) {
    let thread = thread.map(|thread| format!(", thread {thread}")).unwrap_or_default();
    eprintln!("SION_ERROR_RETURN on rank {rank}{thread}, rc=-1: {text}");
}

/// Gives the calling thread's number in its team.
pub(crate) type ThreadNumber = unsafe extern "C" fn() -> c_int;

/// Set by the first open of a team of threads.
static THREADS: OnceLock<ThreadNumber> = OnceLock::new();

/// Gives the numbers of threads from here on; the first one of a process stays.
pub(crate) fn number_threads(number: ThreadNumber) {
    THREADS.get_or_init(|| number);
}

/// This thread's last error.
pub(crate) fn last<T>(look: impl FnOnce(&Last) -> T) -> T {
    LAST.with_borrow(look)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of `sion_error.h`.
    #[test]
    fn every_error_has_its_code() {
        let io = Error::Io { file: 0, os: 28, kind: io::ErrorKind::StorageFull };
        let damaged = Error::Damaged { part: multifile::Part::Magic, file: 0 };
        let cases = [
            (Failure::Handle, 1),
            (Failure::Argument("x"), 2),
            (Failure::Mode("x"), 3),
            (Argument::Position.into(), 4),
            (Argument::ChunkSmall.into(), 5),
            (io.into(), 6),
            (Failure::Stream(io::ErrorKind::Other.into()), 6),
            (damaged.into(), 7),
            (Error::Unclosed { file: 0 }.into(), 8),
            (Error::Group { code: 1 }.into(), 9),
            (Error::Poisoned.into(), 10),
            (Failure::Internal, 11),
        ];
        for (failure, code) in cases {
            assert_eq!(failure.code(), code, "{failure:?}");
            if let Failure::File(error) = failure {
                assert_eq!(code_of(&error.on_rank(3)), code, "{error:?} on a rank");
            }
        }
    }

    #[test]
    fn a_panic_is_an_error_to_the_caller() {
        assert_eq!(guarded(-1, || panic!("on purpose")), -1);
        assert_eq!(LAST.with_borrow(|last| last.code), 11);
    }
}
