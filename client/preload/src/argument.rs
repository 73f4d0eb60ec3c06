//! A register's value as an argument of a function.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a register holds an argument's bits, and the kernel looks at as many as its type has"
)]

use core::ptr::with_exposed_provenance_mut as pointer;

use libc::{c_int, c_uint, off_t};

/// A register's value as an argument of a function.
pub(crate) trait Argument {
    fn of(register: usize) -> Self;
}

macro_rules! arguments {
    ($($integer:ty)+) => {
        $(impl Argument for $integer {
            fn of(register: usize) -> Self {
                register as Self
            }
        })+
    };
}

arguments! { c_int c_uint off_t u64 usize }

impl<T> Argument for *const T {
    fn of(register: usize) -> Self {
        pointer::<T>(register)
    }
}

impl<T> Argument for *mut T {
    fn of(register: usize) -> Self {
        pointer(register)
    }
}
