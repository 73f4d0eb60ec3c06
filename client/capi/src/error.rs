//! How a C function fails: -1, or null, and `errno`.

use std::{ffi::c_int, io};

/// Sets the calling thread's `errno`.
pub(crate) fn set(errno: c_int) {
    // SAFETY: libc's own accessor; it has no preconditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the calling thread's `errno`, which nobody else touches.
    unsafe { place.write(errno) };
}

/// The errno that the last call of libc failed with.
pub(crate) fn last() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Answers 0, or fails.
pub(crate) fn answer(outcome: Result<(), c_int>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(errno) => {
            set(errno);
            -1
        }
    }
}
