//! The program's memory, as C functions get it: a type for each promise that C makes in prose.
//!
//! Each is passed as the pointer that it is, so that an interposed function is declared with these
//! types. Whoever makes one vouches for the promise: a C caller by the call itself, code in here by
//! an `unsafe` constructor. What is done with one is safe. A pointer is looked at when it is
//! needed, not before: the kernel refuses a bad one with `EFAULT`, as without this library.

use core::{
    ffi::{CStr, c_char, c_void},
    marker::PhantomData,
    ptr, slice,
};

use client::Errno;

use crate::kernel::{Outcome, Word};

/// A C string, or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a> Text<'a> {
    pub(crate) const NULL: Self = Self(ptr::null(), PhantomData);

    /// # Safety
    ///
    /// A pointer that is not null points to a C string that stays as it is for `'a`.
    pub(crate) const unsafe fn new(pointer: *const c_char) -> Self {
        Self(pointer, PhantomData)
    }

    pub(crate) const fn of(text: &'a CStr) -> Self {
        Self(text.as_ptr(), PhantomData)
    }

    /// The string; `None` for a null pointer, which the kernel refuses by itself.
    #[inline]
    pub(crate) fn get(self) -> Option<&'a CStr> {
        // SAFETY: not null, so a C string for `'a`: that is what `new` was promised.
        (!self.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }

    pub(crate) const fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl Word for Text<'_> {
    #[inline]
    fn word(self) -> usize {
        self.0.word()
    }
}

/// A value that the function reads, or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Given<'a, T>(*const T, PhantomData<&'a T>);

impl<'a, T: Copy> Given<'a, T> {
    pub(crate) const NULL: Self = Self(ptr::null(), PhantomData);

    /// # Safety
    ///
    /// A pointer that is not null points to a `T` that stays as it is for `'a`.
    pub(crate) const unsafe fn new(pointer: *const T) -> Self {
        Self(pointer, PhantomData)
    }

    pub(crate) const fn of(value: &'a T) -> Self {
        Self(ptr::from_ref(value), PhantomData)
    }

    /// The value, unless the pointer is null.
    #[inline]
    pub(crate) fn get(self) -> Option<T> {
        // SAFETY: not null, so a `T`, as `new` was promised. C does not always align what it gives.
        (!self.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    pub(crate) const fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> Word for Given<'_, T> {
    #[inline]
    fn word(self) -> usize {
        self.0.word()
    }
}

/// Room for an answer, or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Out<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T: Copy> Out<'_, T> {
    /// # Safety
    ///
    /// A pointer that is not null points to room for a `T` that nobody else uses for `'a`.
    pub(crate) const unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer, PhantomData)
    }

    /// Puts the answer there.
    ///
    /// # Errors
    ///
    /// `EFAULT`: there is no room.
    #[inline]
    pub(crate) fn put(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: not null, so room for a `T`, as `new` was promised.
        unsafe { self.0.write_unaligned(value) };
        Ok(0)
    }

    /// The answer that stands there.
    ///
    /// # Safety
    ///
    /// The pointer is not null, and somebody has put an answer there: [`put`](Self::put), or the
    /// kernel by a call that has succeeded.
    pub(crate) const unsafe fn answer(self) -> T {
        // SAFETY: there is a `T`.
        unsafe { self.0.read_unaligned() }
    }
}

impl<T: Copy> Word for Out<'_, T> {
    #[inline]
    fn word(self) -> usize {
        self.0.word()
    }
}

/// Memory that a call writes to.
pub(crate) struct Buffer<'a> {
    at: *mut c_void,
    len: usize,
    program: PhantomData<&'a mut [u8]>,
}

impl<'a> Buffer<'a> {
    /// # Safety
    ///
    /// A pointer that is not null has room for `len` bytes that nobody else uses for `'a`.
    #[inline]
    pub(crate) const unsafe fn new(at: *mut c_void, len: usize) -> Self {
        Self { at, len, program: PhantomData }
    }

    pub(crate) const fn at(&mut self) -> *mut c_void {
        self.at
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Only to be written to: what was not written may be anything.
    ///
    /// # Errors
    ///
    /// `EFAULT`: no slice can be made of it. An empty one may be anywhere.
    #[inline]
    pub(crate) fn slice(&mut self) -> Outcome<&mut [u8]> {
        Buffer { at: self.at, len: self.len, program: PhantomData }.into_slice()
    }

    /// As [`slice`](Self::slice), for as long as the program gives the memory.
    #[inline]
    pub(crate) fn into_slice(self) -> Outcome<&'a mut [u8]> {
        if self.len == 0 {
            return Ok(&mut []);
        }
        if !is_slice(self.at, self.len) {
            return Err(Errno::FAULT);
        }
        // SAFETY: `new` was promised so many bytes, which are neither at null nor too many.
        Ok(unsafe { slice::from_raw_parts_mut(self.at.cast(), self.len) })
    }
}

/// Bytes that a call reads.
#[derive(Clone, Copy)]
pub(crate) struct Data<'a> {
    at: *const c_void,
    len: usize,
    program: PhantomData<&'a [u8]>,
}

impl<'a> Data<'a> {
    /// # Safety
    ///
    /// A pointer that is not null has `len` bytes behind it that stay as they are for `'a`.
    #[inline]
    pub(crate) const unsafe fn new(at: *const c_void, len: usize) -> Self {
        Self { at, len, program: PhantomData }
    }

    pub(crate) const fn at(&self) -> *const c_void {
        self.at
    }

    /// True if it is not empty, and a slice can be made of it.
    #[inline]
    pub(crate) fn has_bytes(self) -> bool {
        self.len != 0 && is_slice(self.at, self.len)
    }

    /// The same without the first `len` bytes, of which there are no more than that.
    pub(crate) fn behind(self, len: usize) -> Self {
        let len = len.min(self.len);
        Self { at: self.at.wrapping_byte_add(len), len: self.len - len, ..self }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// # Errors
    ///
    /// `EFAULT`: no slice can be made of it. An empty one may be anywhere.
    #[inline]
    pub(crate) fn slice(self) -> Outcome<&'a [u8]> {
        if self.len == 0 {
            return Ok(&[]);
        }
        if !is_slice(self.at, self.len) {
            return Err(Errno::FAULT);
        }
        // SAFETY: `new` was promised so many bytes, which are neither at null nor too many.
        Ok(unsafe { slice::from_raw_parts(self.at.cast(), self.len) })
    }
}

/// True if memory that is not empty can be a slice.
#[inline]
fn is_slice(at: *const c_void, len: usize) -> bool {
    !at.is_null() && isize::try_from(len).is_ok()
}
