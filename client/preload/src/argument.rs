//! A register's value as an argument of a function.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a register holds an argument's bits, and the kernel looks at as many as its type has"
)]

use core::ptr::with_exposed_provenance_mut as pointer;

use libc::{c_int, c_uint, off_t};

use crate::pointers::{Given, Out, Text};

/// A register's value as an argument of a function.
pub(crate) trait Argument {
    /// # Safety
    ///
    /// The register holds such an argument: what its type promises of memory is there.
    unsafe fn of(register: usize) -> Self;
}

/// A register's value as a number.
pub(crate) fn number(register: usize) -> c_int {
    register as c_int
}

macro_rules! arguments {
    ($($integer:ty)+) => {
        $(impl Argument for $integer {
            unsafe fn of(register: usize) -> Self {
                register as Self
            }
        })+
    };
}

arguments! { c_int c_uint off_t u64 usize }

impl<T> Argument for *const T {
    unsafe fn of(register: usize) -> Self {
        pointer::<T>(register)
    }
}

impl<T> Argument for *mut T {
    unsafe fn of(register: usize) -> Self {
        pointer(register)
    }
}

impl Argument for Text<'_> {
    unsafe fn of(register: usize) -> Self {
        // SAFETY: the register holds null, or the address of a C string.
        unsafe { Self::new(pointer(register)) }
    }
}

impl<T: Copy> Argument for Given<'_, T> {
    unsafe fn of(register: usize) -> Self {
        // SAFETY: the register holds null, or the address of a value that the call reads.
        unsafe { Self::new(pointer(register)) }
    }
}

impl<T: Copy> Argument for Out<'_, T> {
    unsafe fn of(register: usize) -> Self {
        // SAFETY: the register holds null, or the address of room for the call's answer.
        unsafe { Self::new(pointer(register)) }
    }
}
