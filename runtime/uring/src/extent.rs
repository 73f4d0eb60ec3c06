//! Where a transfer goes in its file.

use std::os::fd::{AsRawFd as _, RawFd};

use crate::operation::Operation;

/// A transfer up to so many bytes costs a device more by itself than as a part of a longer one.
pub(crate) const SHORT_LEN_MAX: usize = 16 * 1024;

/// The bytes of a file that a transfer reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) fd: RawFd,
    pub(crate) is_write: bool,
    /// Bytes from the start of the file,
    pub(crate) at: u64,
    /// and where it ends, as far as a number can tell.
    pub(crate) end: u64,
    /// Each of its buffers is short, and so perhaps the whole.
    pub(crate) is_of_short: bool,
}

impl Extent {
    /// `None` when it is no transfer.
    pub(crate) fn of(operation: &Operation) -> Option<Self> {
        let (file, at, buffers) = operation.transfer()?;
        let buffers = buffers.as_slice();
        let (len, longest) = match buffers {
            [one] => (one.len(), one.len()),
            many => many
                .iter()
                .map(|one| one.len())
                .fold((0, 0), |(sum, longest), len| (len.saturating_add(sum), len.max(longest))),
        };
        Some(Self {
            fd: file.as_raw_fd(),
            is_write: matches!(operation, Operation::Write { .. }),
            at,
            end: at.saturating_add(len as u64),
            is_of_short: longest <= SHORT_LEN_MAX,
        })
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.at
    }

    /// Whether it begins where `before` ended, in the same file.
    pub(crate) fn continues(&self, before: &Self) -> bool {
        (self.fd, self.at) == (before.fd, before.end)
    }
}
