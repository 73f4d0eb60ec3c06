//! Payload of a request: paths and times lie in the lane's buffer, or like the bytes to write
//! behind the entry in a frame (`docs/reference/protocol.md`, sections 3 and 8).

use crate::{request::Request, times::Times};

/// Most bytes that one request reads or writes at a server.
pub const TRANSFER_LEN_MAX: usize = 64 << 10;

impl Request {
    /// Length in bytes of the paths and times that come with the request; `None` when it is not of
    /// those that name something.
    #[must_use]
    pub fn names_len(&self) -> Option<u64> {
        let has_times = matches!(self, Self::SetTimes { .. });
        let times_len = if has_times { Times::LEN as u64 } else { 0 };
        self.paths_len().map(|len| len + times_len)
    }

    /// Length in bytes of the payload that the request comes with in a frame; `None` when it never
    /// leaves its node.
    #[cfg(feature = "frames")]
    pub(crate) fn payload_len(&self) -> Option<u64> {
        match *self {
            Self::Write { len, .. } => Some(u64::from(len)),
            Self::Read { len, .. } if len as usize > TRANSFER_LEN_MAX => None,
            _ => self.leaves_node().then(|| self.names_len().unwrap_or(0)),
        }
    }
}
