//! Where a transfer goes in its file.

use std::os::fd::{AsRawFd as _, RawFd};

use crate::operation::Operation;

/// A transfer up to so many bytes costs a device more by itself than as a part of a longer one.
pub(crate) const SHORT_LEN_MAX: usize = 16 * 1024;

/// The bytes of a file that a transfer, or a run of them, reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    fd: RawFd,
    pub(crate) is_write: bool,
    /// Bytes from the start of the file.
    at: u64,
    /// Bytes.
    pub(crate) len: usize,
    /// Each of its buffers is short, and so perhaps the whole.
    pub(crate) is_of_short: bool,
}

impl Span {
    /// `None` when it is no transfer, or ends beyond every file.
    pub(crate) fn of(operation: &Operation) -> Option<Self> {
        let (file, at, buffers) = operation.transfer()?;
        let len = buffers.len();
        at.checked_add(len as u64)?;
        Some(Self {
            fd: file.as_raw_fd(),
            is_write: matches!(operation, Operation::Write { .. }),
            at,
            len,
            is_of_short: buffers.as_slice().iter().all(|one| one.len() <= SHORT_LEN_MAX),
        })
    }

    /// True if it begins where `before` ends, in the same file.
    pub(crate) fn continues(&self, before: &Self) -> bool {
        self.fd == before.fd && self.at.checked_sub(before.at) == Some(before.len as u64)
    }
}
