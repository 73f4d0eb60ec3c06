//! Arguments and results that cross the border as pointers.

use std::{
    ffi::{CStr, OsStr, c_char},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::error::{Failure, Result};

/// Stores `value` where `at` points, unless it is null.
///
/// # Safety
///
/// `at` is null or valid for writing.
pub(crate) unsafe fn put<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: not null, so the caller promised that it can be written.
        unsafe { at.write(value) };
    }
}

/// Stores answers behind pointers of a caller of the C interface: null or valid, as it asks.
macro_rules! answer {
    ($($at:expr => $value:expr),+ $(,)?) => {$(
        // SAFETY: the promise that every caller of the C interface makes.
        unsafe { $crate::pointer::put($at, $value) };
    )+};
}

pub(crate) use answer;

/// Reads what `at` points to.
///
/// # Safety
///
/// `at` is null or valid for reading.
pub(crate) unsafe fn take<T: Copy>(at: *const T, name: &'static str) -> Result<T> {
    if at.is_null() {
        return Err(Failure::Argument(name));
    }
    // SAFETY: not null, so the caller promised that it can be read.
    Ok(unsafe { at.read() })
}

/// The text that `at` points to.
///
/// # Safety
///
/// `at` is null or a C string that lives for `'a`.
pub(crate) unsafe fn text<'a>(at: *const c_char, name: &'static str) -> Result<&'a [u8]> {
    if at.is_null() {
        return Err(Failure::Argument(name));
    }
    // SAFETY: not null, so the caller promised a C string.
    Ok(unsafe { CStr::from_ptr(at) }.to_bytes())
}

/// The path that `at` names.
///
/// # Safety
///
/// As [`text`].
pub(crate) unsafe fn path(at: *const c_char) -> Result<PathBuf> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { text(at, "the file name is NULL") }?;
    Ok(Path::new(OsStr::from_bytes(bytes)).to_owned())
}

/// `len` bytes at `at`.
///
/// # Safety
///
/// `at` is null, or valid for reading `len` bytes for `'a`.
pub(crate) unsafe fn bytes<'a>(at: *const u8, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if at.is_null() {
        return Err(Failure::Argument("the data is NULL"));
    }
    // SAFETY: not null, so the caller promised `len` bytes.
    Ok(unsafe { std::slice::from_raw_parts(at, len) })
}

/// `len` values at `at`, to change.
///
/// # Safety
///
/// `at` is null, or valid for reading and writing `len` values for `'a`, and nobody else uses them.
pub(crate) unsafe fn values_mut<'a, T>(at: *mut T, len: usize) -> Result<&'a mut [T]> {
    if len == 0 {
        return Ok(&mut []);
    }
    if at.is_null() {
        return Err(Failure::Argument("an array is NULL"));
    }
    // SAFETY: not null, so the caller promised `len` values of its own.
    Ok(unsafe { std::slice::from_raw_parts_mut(at, len) })
}

/// Hands `values` to the caller: does nothing when `at` is null, fills the array that it points
/// to, or points it to a new one that the caller frees.
///
/// # Safety
///
/// `at` is null or valid; `*at` is null or an array of at least `values.len()`.
pub(crate) unsafe fn give<T: Copy>(at: *mut *mut T, values: &[T]) -> Result<()> {
    if at.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let mut target = unsafe { at.read() };
    if target.is_null() {
        target = allocate(values.len())?;
        // SAFETY: as above.
        unsafe { at.write(target) };
    }
    // SAFETY: the array has room for all values, and is not one of ours.
    unsafe { target.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    Ok(())
}

/// A C string that the caller frees.
pub(crate) fn new_text(bytes: &[u8]) -> Result<*mut c_char> {
    let target: *mut c_char = allocate(bytes.len() + 1)?;
    // SAFETY: the allocation is one byte longer than `bytes`.
    unsafe { target.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    // SAFETY: as above.
    let end = unsafe { target.add(bytes.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(target)
}

fn allocate<T>(count: usize) -> Result<*mut T> {
    let too_large = Failure::Argument("too many values");
    let len = count.max(1).checked_mul(size_of::<T>()).ok_or(too_large)?;
    // SAFETY: malloc may be called with any size; its memory is aligned for every C type.
    let target = unsafe { libc::malloc(len) };
    if target.is_null() {
        return Err(Failure::Stream(std::io::ErrorKind::OutOfMemory.into()));
    }
    Ok(target.cast())
}
