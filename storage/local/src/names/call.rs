//! Calls on names and on open files, and how each lies in a request and in what comes with it: for
//! a lane and for a connection alike.
//!
//! A call is decoded from a copy that nobody else can change: paths are absolute, and without NUL.

use std::{ffi::CString, ops::Deref};

use rustix::{
    fs::{OFlags, SeekFrom},
    io::Errno,
};
use wire::{Base, PathPair, Request, Times, Uses};

use crate::scope::Sought;

/// A path of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPath {
    /// Absolute.
    pub text: CString,
    /// The open folder that it is relative to, which is among the first of its parts.
    pub base: Option<Base>,
}

impl From<CString> for CallPath {
    fn from(text: CString) -> Self {
        Self { text, base: None }
    }
}

impl<'a> From<&'a CallPath> for Sought<'a> {
    fn from(path: &'a CallPath) -> Self {
        Self { path: path.to_bytes(), base: path.base }
    }
}

impl Deref for CallPath {
    type Target = CString;

    fn deref(&self) -> &CString {
        &self.text
    }
}

impl CallPath {
    fn decode(bytes: &[u8]) -> Result<Self, Errno> {
        let (base, path) = Base::decode(bytes).ok_or(Errno::INVAL)?;
        match path.first() {
            None | Some(b'/') => Ok(Self { text: terminated(path)?, base }),
            Some(_) => Err(Errno::INVAL),
        }
    }

    /// Has it begin at a folder that it leads through.
    pub fn enter(&mut self, rest: CString) {
        // Else a link has led there, and nothing says where the base is.
        let is_behind = self.text.to_bytes().ends_with(rest.to_bytes());
        *self = Self { text: rest, base: self.base.filter(|_| is_behind) };
    }

    fn encode(&self) -> Vec<u8> {
        let base = self.base.map(|base| base.encode());
        [base.as_ref().map_or(&[][..], |base| base), self.text.to_bytes()].concat()
    }
}

/// Opening a file by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenCall {
    /// Leads to it.
    pub path: CallPath,
    /// `O_*` bits.
    pub flags: u32,
    /// Permission bits of a created file.
    pub mode: u32,
    /// The file that it is, whatever the path leads to; 0: what that leads to.
    pub inode: u64,
}

/// Any other call on names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "these are the system calls of such names, and their arguments")]
pub enum NameCall {
    Stat { path: CallPath, follow: bool },
    Truncate { path: CallPath, len: u64 },
    Unlink { path: CallPath },
    Rename { from: CallPath, to: CallPath, flags: u32 },
    MakeDir { path: CallPath, mode: u32 },
    RemoveDir { path: CallPath },
    ReadDir { path: CallPath, from: u64, room: usize },
    Link { from: CallPath, to: CallPath },
    Symlink { text: CString, name: CallPath },
    ReadLink { path: CallPath },
    Set { path: CallPath, follow: bool, what: Attributes },
    Access { path: CallPath, mode: u32 },
    FileSystem { path: CallPath },
    SyncFolder { path: CallPath },
    Lease { path: CallPath, session: u32, uses: Uses },
}

/// A call on an open file that moves no bytes between it and a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCall {
    /// Type, identity, and size.
    Status,
    /// The file system that has it.
    FileSystem,
    /// Makes it durable.
    Sync {
        /// Without what is not needed to read it.
        data_only: bool,
    },
    /// Sets its length.
    Truncate {
        /// In bytes.
        len: u64,
    },
    /// Changes which bytes have space, as `fallocate(2)`.
    Allocate {
        /// `FALLOC_FL_*` bits.
        mode: u32,
        /// The first of the bytes.
        at: u64,
        /// Their number.
        len: u64,
    },
    /// Closes a duplicate of its descriptor, which tells what a close would.
    CloseDuplicate,
    /// Resolves a position as `lseek(2)`; how far a file may reach its file system says.
    Seek(SeekFrom),
    /// Has it written at its end from now on, or where each write says.
    SetAppend(bool),
    /// Sets attributes.
    Set(Attributes),
}

/// Attributes to set, of a name or of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// Permission bits.
    Mode(u32),
    /// User and group; 2^32-1 leaves one as it is.
    Owner(u32, u32),
    /// When it was accessed and modified.
    Times(Times),
}

impl OpenCall {
    /// The call of a request, and of the path that came with it.
    ///
    /// # Errors
    ///
    /// As [`NameCall::decode`].
    pub fn decode(request: &Request, payload: &[u8]) -> Result<Self, Errno> {
        let Request::Open { flags, mode, inode, .. } = *request else { return Err(Errno::NOSYS) };
        Ok(Self { path: CallPath::decode(payload)?, flags, mode, inode })
    }

    /// The request that opens into `file`, and the path that goes with it.
    ///
    /// # Errors
    ///
    /// `ENAMETOOLONG`.
    pub fn encode(&self, file: u32) -> Result<(Request, Vec<u8>), Errno> {
        let Self { ref path, flags, mode, inode } = *self;
        about(path, |path_len| Request::Open { file, flags, mode, path_len, inode })
    }

    /// True if it makes a file that must not be there.
    pub fn is_exclusive(&self) -> bool {
        OFlags::from_bits_retain(self.flags).contains(OFlags::CREATE | OFlags::EXCL)
    }

    /// True if it follows a link that the path ends in.
    pub fn follows(&self) -> bool {
        !OFlags::from_bits_retain(self.flags).contains(OFlags::NOFOLLOW) && !self.is_exclusive()
    }

    /// True if it waits for whoever has a lease on the file: that is there then.
    pub fn waits(&self) -> bool {
        !self.is_exclusive() && !OFlags::from_bits_retain(self.flags).contains(OFlags::NONBLOCK)
    }

    /// True if it may not happen twice: it makes a file that must not be there, or cuts one that
    /// others may write to as soon as it is cut.
    pub fn is_once(&self) -> bool {
        self.is_exclusive() || OFlags::from_bits_retain(self.flags).contains(OFlags::TRUNC)
    }
}

impl NameCall {
    /// The call of a request, and of what came with it, [`Request::names_len`] bytes. A listing may
    /// have `room` bytes.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: a path is empty, or the text of a link.
    /// - `EINVAL`: it is relative, or has a NUL; a length that no file has; too few bytes came.
    /// - `ENOSYS`: it is not a request on names.
    pub fn decode(request: &Request, payload: &[u8], room: usize) -> Result<Self, Errno> {
        let one = || CallPath::decode(payload);
        let split = |at: u32| payload.split_at_checked(at as usize).ok_or(Errno::INVAL);
        let set = |path_len: u32, follow: bool| {
            let (path, rest) = split(path_len)?;
            let what = Attributes::decode(request, rest)?;
            Ok(Self::Set { path: CallPath::decode(path)?, follow, what })
        };
        Ok(match *request {
            Request::Stat { follow, .. } => Self::Stat { path: one()?, follow },
            Request::Truncate { len, .. } => {
                i64::try_from(len).map_err(|_| Errno::INVAL)?;
                Self::Truncate { path: one()?, len }
            }
            Request::Unlink { .. } => Self::Unlink { path: one()? },
            Request::Rename { paths, flags } => {
                let (from, to) = split(paths.from_len)?;
                Self::Rename { from: CallPath::decode(from)?, to: CallPath::decode(to)?, flags }
            }
            Request::MakeDir { mode, .. } => Self::MakeDir { path: one()?, mode },
            Request::RemoveDir { .. } => Self::RemoveDir { path: one()? },
            Request::ReadDir { from, .. } => Self::ReadDir { path: one()?, from, room },
            Request::Link { paths } => {
                let (from, to) = split(paths.from_len)?;
                Self::Link { from: CallPath::decode(from)?, to: CallPath::decode(to)? }
            }
            Request::Symlink { paths } => {
                let (text, name) = split(paths.from_len)?;
                Self::Symlink { text: terminated(text)?, name: CallPath::decode(name)? }
            }
            Request::ReadLink { .. } => Self::ReadLink { path: one()? },
            Request::SetMode { path_len, .. } => set(path_len, true)?,
            Request::SetOwner { path_len, follow, .. }
            | Request::SetTimes { path_len, follow, .. } => set(path_len, follow)?,
            Request::Access { mode, .. } => Self::Access { path: one()?, mode },
            Request::FileSystem { .. } => Self::FileSystem { path: one()? },
            Request::SyncFolder { .. } => Self::SyncFolder { path: one()? },
            Request::Lease { session, uses, .. } => Self::Lease { path: one()?, session, uses },
            _ => return Err(Errno::NOSYS),
        })
    }

    /// The request, and what goes with it. The room of a listing is whoever's who answers.
    ///
    /// # Errors
    ///
    /// `ENAMETOOLONG`; `ENOTSUP`: there is no mode of a link to set.
    pub fn encode(&self) -> Result<(Request, Vec<u8>), Errno> {
        match *self {
            Self::Stat { ref path, follow } => {
                about(path, |path_len| Request::Stat { path_len, follow })
            }
            Self::Truncate { ref path, len } => {
                about(path, |path_len| Request::Truncate { file: 0, path_len, len })
            }
            Self::Unlink { ref path } => about(path, |path_len| Request::Unlink { path_len }),
            Self::Rename { ref from, ref to, flags } => {
                about_both(&from.encode(), to, |paths| Request::Rename { paths, flags })
            }
            Self::MakeDir { ref path, mode } => {
                about(path, |path_len| Request::MakeDir { path_len, mode })
            }
            Self::RemoveDir { ref path } => about(path, |path_len| Request::RemoveDir { path_len }),
            Self::ReadDir { ref path, from, .. } => {
                about(path, |path_len| Request::ReadDir { path_len, from })
            }
            Self::Link { ref from, ref to } => {
                about_both(&from.encode(), to, |paths| Request::Link { paths })
            }
            Self::Symlink { ref text, ref name } => {
                about_both(text.to_bytes(), name, |paths| Request::Symlink { paths })
            }
            Self::ReadLink { ref path } => about(path, |path_len| Request::ReadLink { path_len }),
            Self::Set { what: Attributes::Mode(_), follow: false, .. } => Err(Errno::NOTSUP),
            Self::Set { ref path, follow, what } => what.encode(0, Some(path), follow),
            Self::Access { ref path, mode } => {
                about(path, |path_len| Request::Access { path_len, mode })
            }
            Self::FileSystem { ref path } => {
                about(path, |path_len| Request::FileSystem { file: 0, path_len })
            }
            Self::SyncFolder { ref path } => {
                about(path, |path_len| Request::SyncFolder { path_len })
            }
            Self::Lease { ref path, session, uses } => {
                about(path, |path_len| Request::Lease { path_len, session, uses })
            }
        }
    }

    /// True if it may not be executed twice.
    pub const fn is_once(&self) -> bool {
        matches!(
            self,
            Self::Truncate { .. }
                | Self::Unlink { .. }
                | Self::Rename { .. }
                | Self::MakeDir { .. }
                | Self::RemoveDir { .. }
                | Self::Link { .. }
                | Self::Symlink { .. }
        )
    }

    /// The paths of the call, the one it is about first. The text of a link is none.
    pub fn paths_mut(&mut self) -> [Option<&mut CallPath>; 2] {
        match self {
            Self::Stat { path, .. }
            | Self::Truncate { path, .. }
            | Self::Unlink { path }
            | Self::MakeDir { path, .. }
            | Self::RemoveDir { path }
            | Self::ReadDir { path, .. }
            | Self::ReadLink { path }
            | Self::Set { path, .. }
            | Self::Access { path, .. }
            | Self::FileSystem { path }
            | Self::SyncFolder { path }
            | Self::Lease { path, .. }
            | Self::Symlink { name: path, .. } => [Some(path), None],
            Self::Rename { from, to, .. } | Self::Link { from, to } => [Some(from), Some(to)],
        }
    }

    /// True if it is about what a path leads to where its last part is a link.
    pub fn follows(&self) -> bool {
        match self {
            Self::Stat { follow, .. } | Self::Set { follow, .. } => *follow,
            Self::Truncate { .. }
            | Self::ReadDir { .. }
            | Self::Access { .. }
            | Self::FileSystem { .. }
            | Self::SyncFolder { .. }
            | Self::Lease { .. } => true,
            _ => false,
        }
    }
}

impl FileCall {
    /// The call of a request on an open file, and of what came with it.
    ///
    /// # Errors
    ///
    /// As [`Attributes::decode`]. `ENOSYS`, too: it is another request.
    pub fn decode(request: &Request, payload: &[u8]) -> Result<Self, Errno> {
        Ok(match *request {
            Request::FileStat { .. } => Self::Status,
            Request::FileSystem { .. } => Self::FileSystem,
            Request::Sync { .. } => Self::Sync { data_only: false },
            Request::Datasync { .. } => Self::Sync { data_only: true },
            Request::Truncate { len, .. } => {
                i64::try_from(len).map_err(|_| Errno::INVAL)?;
                Self::Truncate { len }
            }
            Request::CloseDuplicate { .. } => Self::CloseDuplicate,
            Request::Allocate { mode, at, len, .. } => Self::Allocate { mode, at, len },
            Request::SetPosition { at, .. } => Self::Seek(SeekFrom::Start(at)),
            Request::FindData { at, .. } => Self::Seek(SeekFrom::Data(at)),
            Request::FindHole { at, .. } => Self::Seek(SeekFrom::Hole(at)),
            Request::SetAppend { appends, .. } => Self::SetAppend(appends),
            _ => Self::Set(Attributes::decode(request, payload)?),
        })
    }

    /// The request on the open file `file`, and what goes with it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a position that is not counted from the file's start.
    pub fn encode(self, file: u32) -> Result<(Request, Vec<u8>), Errno> {
        let request = match self {
            Self::Status => Request::FileStat { file },
            Self::FileSystem => Request::FileSystem { file, path_len: 0 },
            Self::Sync { data_only: false } => Request::Sync { file },
            Self::Sync { data_only: true } => Request::Datasync { file },
            Self::Truncate { len } => Request::Truncate { file, path_len: 0, len },
            Self::CloseDuplicate => Request::CloseDuplicate { file },
            Self::Allocate { mode, at, len } => Request::Allocate { file, mode, at, len },
            Self::Seek(SeekFrom::Start(at)) => Request::SetPosition { file, at },
            Self::Seek(SeekFrom::Data(at)) => Request::FindData { file, at },
            Self::Seek(SeekFrom::Hole(at)) => Request::FindHole { file, at },
            Self::Seek(_) => return Err(Errno::INVAL),
            Self::SetAppend(appends) => Request::SetAppend { file, appends },
            Self::Set(what) => return what.encode(file, None, true),
        };
        Ok((request, Vec::new()))
    }

    /// True if it may not be executed twice.
    pub fn is_once(self) -> bool {
        match self {
            Self::Truncate { .. } => true,
            Self::Allocate { .. } => self.encode(0).is_ok_and(|(request, _)| request.shifts()),
            _ => false,
        }
    }
}

impl Attributes {
    /// Decodes the attributes that a request sets, of a path or a slot; times follow the path.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no times came. `ENOSYS`: it sets nothing.
    pub fn decode(request: &Request, times: &[u8]) -> Result<Self, Errno> {
        Ok(match *request {
            Request::SetMode { mode, .. } => Self::Mode(mode),
            Request::SetOwner { user, group, .. } => Self::Owner(user, group),
            Request::SetTimes { .. } => Self::Times(Times::decode(times).ok_or(Errno::INVAL)?),
            _ => return Err(Errno::NOSYS),
        })
    }

    /// The request that sets them, of a path, or of a slot when there is none; and what goes with
    /// it.
    ///
    /// # Errors
    ///
    /// `ENAMETOOLONG`.
    pub fn encode(
        self,
        file: u32,
        path: Option<&CallPath>,
        follow: bool,
    ) -> Result<(Request, Vec<u8>), Errno> {
        let mut payload = path.map(CallPath::encode).unwrap_or_default();
        let path_len = len_of(&payload)?;
        let request = match self {
            Self::Mode(mode) => Request::SetMode { file, path_len, mode },
            Self::Owner(user, group) => Request::SetOwner { file, path_len, user, group, follow },
            Self::Times(_) => Request::SetTimes { file, path_len, follow },
        };
        if let Self::Times(times) = self {
            payload.extend(times.encode());
        }
        Ok((request, payload))
    }
}

fn terminated(bytes: &[u8]) -> Result<CString, Errno> {
    if bytes.is_empty() {
        return Err(Errno::NOENT);
    }
    CString::new(bytes).map_err(|_| Errno::INVAL)
}

/// The request about a path of some length, and the path.
fn about(
    path: &CallPath,
    request: impl FnOnce(u32) -> Request,
) -> Result<(Request, Vec<u8>), Errno> {
    let path = path.encode();
    Ok((request(len_of(&path)?), path))
}

/// The request about two paths, and the paths.
fn about_both(
    from: &[u8],
    to: &CallPath,
    request: impl FnOnce(PathPair) -> Request,
) -> Result<(Request, Vec<u8>), Errno> {
    let to = to.encode();
    let paths = PathPair { from_len: len_of(from)?, to_len: len_of(&to)? };
    Ok((request(paths), [from, &to].concat()))
}

fn len_of(path: &[u8]) -> Result<u32, Errno> {
    u32::try_from(path.len()).map_err(|_| Errno::NAMETOOLONG)
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
