//! Kinds of requests.

use super::Request;
use crate::kind::Kind;

impl Request {
    /// The request's kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Open { .. } => Kind::Open,
            Self::Close { .. } => Kind::Close,
            Self::Read { .. } => Kind::Read,
            Self::Write { .. } => Kind::Write,
            Self::FlushAll => Kind::FlushAll,
            Self::Sync { .. } => Kind::Sync,
            Self::Datasync { .. } => Kind::Datasync,
            Self::SetPosition { .. } => Kind::SetPosition,
            Self::Flush { .. } => Kind::Flush,
            Self::Attach { .. } => Kind::Attach,
            Self::Settle { .. } => Kind::Settle,
            Self::Fetch { .. } => Kind::Fetch,
            Self::Materialize { .. } => Kind::Materialize,
            Self::Stat { .. } => Kind::Stat,
            Self::FileStat { .. } => Kind::FileStat,
            Self::Name { .. } => Kind::Name,
            Self::Truncate { .. } => Kind::Truncate,
            Self::Unlink { .. } => Kind::Unlink,
            Self::Rename { .. } => Kind::Rename,
            Self::MakeDir { .. } => Kind::MakeDir,
            Self::RemoveDir { .. } => Kind::RemoveDir,
            Self::ReadDir { .. } => Kind::ReadDir,
            Self::Link { .. } => Kind::Link,
            Self::Symlink { .. } => Kind::Symlink,
            Self::Nothing => Kind::Nothing,
            Self::ReadLink { .. } => Kind::ReadLink,
            Self::SetMode { .. } => Kind::SetMode,
            Self::SetOwner { .. } => Kind::SetOwner,
            Self::SetTimes { .. } => Kind::SetTimes,
            Self::Access { .. } => Kind::Access,
            Self::FileSystem { .. } => Kind::FileSystem,
            Self::SyncFolder { .. } => Kind::SyncFolder,
            Self::Lease { .. } => Kind::Lease,
            Self::Share { .. } => Kind::Share,
            Self::Lock { .. } => Kind::Lock,
            Self::FindLock { .. } => Kind::FindLock,
            Self::Allocate { .. } => Kind::Allocate,
        }
    }
}
