//! Integers as C sees them: the same bits under another sign.

use client::Errno;
use libc::{c_int, c_uint};

use crate::kernel::Outcome;

pub(crate) const fn unsigned(value: c_int) -> c_uint {
    c_uint::from_le_bytes(value.to_le_bytes())
}

pub(crate) const fn signed(value: c_uint) -> c_int {
    c_int::from_le_bytes(value.to_le_bytes())
}

/// A count of bytes as a system call returns it.
pub(crate) fn returned(len: usize) -> isize {
    isize::try_from(len).unwrap_or(isize::MAX)
}

/// The count of bytes that a system call returned.
pub(crate) fn counted(returned: isize) -> usize {
    usize::try_from(returned).unwrap_or(0)
}

/// A descriptor that the kernel returned.
pub(crate) fn number(fd: isize) -> Outcome<c_int> {
    c_int::try_from(fd).map_err(|_| Errno::BADF)
}
