//! The kinds of requests, as they are numbered on the wire.
//!
//! The first eight are those of Fukazawa et al. (2012), table 3. A request is answered twice
//! (ACKNOWLEDGED, then COMPLETED), but for what takes no I/O: see [`Kind::is_acknowledged`].

use crate::entry::Invalid;

/// Kind of a request, as numbered on the wire.
///
/// Retired numbers stay reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "each kind is described at its `Request`")]
pub enum Kind {
    Open = 1,
    Close = 2,
    Read = 3,
    Write = 4,
    FlushAll = 5,
    Sync = 6,
    Datasync = 7,
    SetPosition = 8,
    Flush = 9,
    Attach = 10,
    Settle = 11,
    Fetch = 12,
    Materialize = 13,
    Stat = 14,
    Truncate = 15,
    Unlink = 16,
    Rename = 17,
    MakeDir = 18,
    RemoveDir = 19,
    ReadDir = 20,
    Link = 21,
    Symlink = 22,
    FileStat = 23,
    Nothing = 24,
    ReadLink = 25,
    SetMode = 26,
    SetOwner = 27,
    SetTimes = 28,
    Access = 29,
    FileSystem = 30,
    Lock = 32,
    FindLock = 33,
    Allocate = 35,
    SyncFolder = 36,
    Lease = 37,
    Share = 38,
    Name = 39,
}

impl Kind {
    /// Every kind, in wire order.
    pub const ALL: [Self; 37] = [
        Self::Open,
        Self::Close,
        Self::Read,
        Self::Write,
        Self::FlushAll,
        Self::Sync,
        Self::Datasync,
        Self::SetPosition,
        Self::Flush,
        Self::Attach,
        Self::Settle,
        Self::Fetch,
        Self::Materialize,
        Self::Stat,
        Self::Truncate,
        Self::Unlink,
        Self::Rename,
        Self::MakeDir,
        Self::RemoveDir,
        Self::ReadDir,
        Self::Link,
        Self::Symlink,
        Self::FileStat,
        Self::Nothing,
        Self::ReadLink,
        Self::SetMode,
        Self::SetOwner,
        Self::SetTimes,
        Self::Access,
        Self::FileSystem,
        Self::Lock,
        Self::FindLock,
        Self::Allocate,
        Self::SyncFolder,
        Self::Lease,
        Self::Share,
        Self::Name,
    ];

    /// The kind numbered `number` on the wire.
    ///
    /// # Errors
    ///
    /// [`Invalid::Kind`] when no kind has that number.
    pub fn from_wire(number: u8) -> Result<Self, Invalid> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number).ok_or(Invalid::Kind(number))
    }

    /// True if the daemon answers ACKNOWLEDGED before COMPLETED.
    #[must_use]
    pub const fn is_acknowledged(self) -> bool {
        !matches!(self, Self::SetPosition | Self::Attach | Self::Nothing | Self::Share)
    }

    /// The name used in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Close => "close",
            Self::Read => "read",
            Self::Write => "write",
            Self::FlushAll => "flush_all",
            Self::Sync => "fsync",
            Self::Datasync => "fdatasync",
            Self::SetPosition => "set_position",
            Self::Flush => "flush",
            Self::Attach => "attach",
            Self::Settle => "settle",
            Self::Fetch => "fetch",
            Self::Materialize => "materialize",
            Self::Stat => "stat",
            Self::Truncate => "truncate",
            Self::Unlink => "unlink",
            Self::Rename => "rename",
            Self::MakeDir => "mkdir",
            Self::RemoveDir => "rmdir",
            Self::ReadDir => "readdir",
            Self::Link => "link",
            Self::Symlink => "symlink",
            Self::FileStat => "fstat",
            Self::Nothing => "nothing",
            Self::ReadLink => "readlink",
            Self::SetMode => "chmod",
            Self::SetOwner => "chown",
            Self::SetTimes => "utimens",
            Self::Access => "access",
            Self::FileSystem => "statfs",
            Self::Lock => "lock",
            Self::FindLock => "find_lock",
            Self::Allocate => "fallocate",
            Self::SyncFolder => "fsync_folder",
            Self::Lease => "lease",
            Self::Share => "share",
            Self::Name => "name",
        }
    }
}
