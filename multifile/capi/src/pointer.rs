//! Arguments and results that cross the border as pointers. A function of the C interface is
//! declared with the types of this module, each of which is the pointer that it is in C: only a C
//! caller makes one, and vouches by the call for what the type says. What is done with one is safe,
//! but for arrays, whose length stands elsewhere.

use std::{
    ffi::{CStr, OsStr, c_char},
    marker::PhantomData,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr::null_mut,
};

use crate::error::{Failure, Result};

/// A C string, or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a> Text<'a> {
    pub(crate) fn bytes(self, null: &'static str) -> Result<&'a [u8]> {
        if self.0.is_null() {
            return Err(Failure::Argument(null));
        }
        // SAFETY: not null, so a C string for `'a`.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    pub(crate) fn path(self) -> Result<PathBuf> {
        Ok(Path::new(OsStr::from_bytes(self.bytes("the file name is NULL")?)).to_owned())
    }
}

/// A value that the function reads, or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Given<'a, T>(*const T, PhantomData<&'a T>);

impl<T: Copy> Given<'_, T> {
    pub(crate) fn get(self) -> Option<T> {
        // SAFETY: not null, so a `T`.
        (!self.0.is_null()).then(|| unsafe { self.0.read() })
    }
}

/// Room for an answer, in which a value stands where the function reads one first; or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct InOut<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T: Copy> InOut<'_, T> {
    pub(crate) const NULL: Self = Self(null_mut(), PhantomData);

    pub(crate) const fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn get(self) -> Option<T> {
        Given(self.0, PhantomData).get()
    }

    /// Stores the answer, unless nobody asks for it.
    pub(crate) fn put(self, value: T) {
        if !self.is_null() {
            // SAFETY: not null, so room for a `T`.
            unsafe { self.0.write(value) };
        }
    }
}

/// Where an array of the caller is, or is to be: null, or points to null or to the array.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Array<'a, T>(InOut<'a, *mut T>);

impl<'a, T: Copy> Array<'a, T> {
    /// True if there is an array already.
    pub(crate) fn is_there(self) -> bool {
        self.0.get().is_some_and(|array| !array.is_null())
    }

    /// The caller's array, to read and to change.
    ///
    /// # Safety
    ///
    /// It is so long, if it is there.
    pub(crate) unsafe fn values(self, len: usize, null: &'static str) -> Result<&'a mut [T]> {
        let array = self.0.get().ok_or(Failure::Argument(null))?;
        // SAFETY: the caller's promise.
        unsafe { values_mut(array, len) }
    }

    /// Hands `values` to the caller: does nothing when nobody asks, fills the array, or points to a
    /// new one that the caller frees.
    ///
    /// # Safety
    ///
    /// The array is as long as `values`, if it is there.
    pub(crate) unsafe fn give(self, values: &[T]) -> Result<()> {
        match self.0.get() {
            None => {}
            Some(array) if array.is_null() => self.0.put(new_array(values)?),
            // SAFETY: the array has room for all values, and is not one of ours.
            Some(array) => unsafe {
                array.copy_from_nonoverlapping(values.as_ptr(), values.len());
            },
        }
        Ok(())
    }
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

/// A copy of `values` that the caller frees.
pub(crate) fn new_array<T: Copy>(values: &[T]) -> Result<*mut T> {
    let too_large = Failure::Argument("too many values");
    let len = values.len().max(1).checked_mul(size_of::<T>()).ok_or(too_large)?;
    // SAFETY: malloc may be called with any size; its memory is aligned for every C type.
    let target: *mut T = unsafe { libc::malloc(len) }.cast();
    if target.is_null() {
        return Err(Failure::Stream(std::io::ErrorKind::OutOfMemory.into()));
    }
    // SAFETY: the allocation is new, and has room for all values.
    unsafe { target.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    Ok(target)
}

/// A C string that the caller frees.
pub(crate) fn new_text(bytes: &[u8]) -> Result<*mut c_char> {
    Ok(new_array(&[bytes, b"\0"].concat())?.cast())
}
