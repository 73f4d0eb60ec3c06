//! Reads of many bytes from a stream that has seen the end of its file, which may have grown since.
//!
//! libc's own streams read such bytes past their buffer, and look at the end anew. One with
//! callbacks reads all by its buffer, and what has seen the end once says so until it is told
//! otherwise.

use libc::{c_void, size_t};

use crate::{cookie, glibc::Stream, interpose::interpose};

interpose! {
    fn fread|_IO_fread(
        data: *mut c_void, size: size_t, count: size_t, stream: Stream<'_>,
    ) -> size_t, next {
        reading(stream, size.saturating_mul(count), next)
    }

    fn fread_unlocked(
        data: *mut c_void, size: size_t, count: size_t, stream: Stream<'_>,
    ) -> size_t, next {
        reading(stream, size.saturating_mul(count), next)
    }

    fn __fread_chk(
        data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: Stream<'_>,
    ) -> size_t, next {
        reading(stream, size.saturating_mul(count), next)
    }

    fn __fread_unlocked_chk(
        data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: Stream<'_>,
    ) -> size_t, next {
        reading(stream, size.saturating_mul(count), next)
    }
}

/// Reads `len` bytes from a stream by libc's function. Of nothing, there may be no stream.
#[inline]
fn reading(stream: Stream<'_>, len: usize, read: impl FnOnce() -> size_t) -> size_t {
    if len == 0 || !stream.has_ended() {
        return read();
    }
    let looks_again = cookie::forget_end(stream, len);
    let count = read();
    if looks_again {
        // SAFETY: only a stream of ours looks again.
        unsafe { cookie::remember_end(stream) };
    }
    count
}
