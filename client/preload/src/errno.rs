//! How a C function answers: its value, or its failure value and `errno`.

use client::Errno;
use libc::c_int;

use crate::{bits::returned, kernel::Outcome};

/// A C function's return value.
pub(crate) trait Answer: Sized {
    /// The value of failure.
    const FAILED: Self;

    /// The value itself; every system call's fits its function's type.
    fn of(value: isize) -> Self;
}

impl Answer for c_int {
    const FAILED: Self = -1;

    #[expect(clippy::cast_possible_truncation, reason = "a descriptor, a process id, or zero")]
    fn of(value: isize) -> Self {
        value as Self
    }
}

impl Answer for isize {
    const FAILED: Self = -1;

    fn of(value: isize) -> Self {
        value
    }
}

impl Answer for i64 {
    const FAILED: Self = -1;

    fn of(value: isize) -> Self {
        value as Self
    }
}

/// A client's or the kernel's result as a register holds it.
pub(crate) trait Value {
    fn value(self) -> isize;
}

impl Value for isize {
    fn value(self) -> isize {
        self
    }
}

impl Value for usize {
    fn value(self) -> isize {
        returned(self)
    }
}

impl Value for c_int {
    fn value(self) -> isize {
        self as isize
    }
}

impl Value for i64 {
    #[expect(clippy::cast_possible_truncation, reason = "64-bit machines only")]
    fn value(self) -> isize {
        self as isize
    }
}

impl<T> Value for *mut T {
    #[expect(clippy::cast_possible_wrap, reason = "a register holds the bits")]
    fn value(self) -> isize {
        self.expose_provenance() as isize
    }
}

impl Value for () {
    fn value(self) -> isize {
        0
    }
}

/// Answers as C does.
pub(crate) fn answer<T: Answer>(outcome: Outcome<impl Value>) -> T {
    match outcome {
        Ok(value) => T::of(value.value()),
        Err(errno) => {
            set(errno);
            T::FAILED
        }
    }
}

/// Answers with the error itself, as `posix_fallocate` and its like do.
pub(crate) fn code(outcome: Outcome) -> c_int {
    outcome.err().map_or(0, Errno::raw_os_error)
}

/// Sets the calling thread's `errno`.
pub(crate) fn set(errno: Errno) {
    // SAFETY: the place is this thread's alone, and a number may always be put there.
    unsafe { place().write(errno.raw_os_error()) };
}

/// The calling thread's `errno`.
pub(crate) fn last() -> Errno {
    // SAFETY: the place is this thread's alone, and always has a number.
    Errno::from_raw_os_error(unsafe { place().read() })
}

fn place() -> *mut c_int {
    // SAFETY: the function takes nothing, and may be called in any state of the thread.
    unsafe { libc::__errno_location() }
}
