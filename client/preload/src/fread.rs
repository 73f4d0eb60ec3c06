//! Reads of many bytes from a stream that has seen the end of its file, which may have grown since.
//!
//! libc's own streams read such bytes past their buffer, and look at the end anew. One with
//! callbacks reads all by its buffer, and what has seen the end once says so until it is told
//! otherwise.

use libc::{FILE, c_int, c_void, size_t};

use crate::{
    cookie,
    interpose::{interpose, next},
};

interpose! {
    fn fread|_IO_fread(
        data: *mut c_void, size: size_t, count: size_t, stream: *mut FILE,
    ) -> size_t {
        reading(stream, size.saturating_mul(count), || next!(
            fread(
                data => *mut c_void, size => size_t, count => size_t, stream => *mut FILE,
            ) -> size_t
        ))
    }

    fn fread_unlocked(
        data: *mut c_void, size: size_t, count: size_t, stream: *mut FILE,
    ) -> size_t {
        reading(stream, size.saturating_mul(count), || next!(
            fread_unlocked(
                data => *mut c_void, size => size_t, count => size_t, stream => *mut FILE,
            ) -> size_t
        ))
    }

    fn __fread_chk(
        data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE,
    ) -> size_t {
        reading(stream, size.saturating_mul(count), || next!(
            __fread_chk(
                data => *mut c_void, room => size_t, size => size_t, count => size_t,
                stream => *mut FILE,
            ) -> size_t
        ))
    }

    fn __fread_unlocked_chk(
        data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE,
    ) -> size_t {
        reading(stream, size.saturating_mul(count), || next!(
            __fread_unlocked_chk(
                data => *mut c_void, room => size_t, size => size_t, count => size_t,
                stream => *mut FILE,
            ) -> size_t
        ))
    }
}

unsafe extern "C" {
    fn feof_unlocked(stream: *mut FILE) -> c_int;
}

/// Reads `len` bytes from a stream by libc's function.
///
/// # Safety
///
/// The stream is open, if there is anything to read.
#[inline]
unsafe fn reading(stream: *mut FILE, len: usize, read: impl FnOnce() -> size_t) -> size_t {
    // SAFETY: as the caller promises. Of nothing, there may be no stream.
    if len == 0 || unsafe { feof_unlocked(stream) } == 0 {
        return read();
    }
    // SAFETY: as the caller promises.
    let looks_again = unsafe { cookie::forget_end(stream, len) };
    let count = read();
    if looks_again {
        // SAFETY: as the caller promises; the stream is ours.
        unsafe { cookie::remember_end(stream) };
    }
    count
}
