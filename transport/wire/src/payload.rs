//! Payload of a request: paths and times lie in the lane's buffer, or like the bytes to write
//! behind the entry in a frame (`docs/reference/protocol.md`, sections 3 and 8).

use crate::{request::Request, times::Times};

/// Most bytes that one request reads or writes at a server.
pub const PIECE_LEN_MAX: usize = 64 << 10;

impl Request {
    /// Length in bytes of the paths and times that come with the request; `None` when it is not of
    /// those that name something.
    #[must_use]
    pub fn names_len(&self) -> Option<u64> {
        Some(match *self {
            Self::Open { path_len, .. }
            | Self::Stat { path_len, .. }
            | Self::Truncate { path_len, .. }
            | Self::Unlink { path_len }
            | Self::MakeDir { path_len, .. }
            | Self::RemoveDir { path_len }
            | Self::ReadDir { path_len, .. }
            | Self::ReadLink { path_len }
            | Self::SetMode { path_len, .. }
            | Self::SetOwner { path_len, .. }
            | Self::Access { path_len, .. }
            | Self::FileSystem { path_len, .. }
            | Self::SyncFolder { path_len }
            | Self::Lease { path_len, .. } => u64::from(path_len),
            Self::SetTimes { path_len, .. } => u64::from(path_len) + Times::LEN as u64,
            Self::Rename { paths, .. } | Self::Link { paths } | Self::Symlink { paths } => {
                u64::from(paths.from_len) + u64::from(paths.to_len)
            }
            _ => return None,
        })
    }

    /// Length in bytes of the payload that the request comes with in a frame; `None` when it never
    /// leaves its node.
    #[cfg(feature = "frames")]
    pub(crate) fn payload_len(&self) -> Option<u64> {
        match *self {
            Self::Write { len, .. } => Some(u64::from(len)),
            Self::Read { len, .. } if len as usize <= PIECE_LEN_MAX => Some(0),
            Self::Close { .. }
            | Self::Sync { .. }
            | Self::Datasync { .. }
            | Self::SetPosition { .. }
            | Self::FindData { .. }
            | Self::FindHole { .. }
            | Self::FileStat { .. }
            | Self::Lock { .. }
            | Self::FindLock { .. }
            | Self::Allocate { .. }
            | Self::Reclaimed => Some(0),
            _ => self.names_len(),
        }
    }
}
