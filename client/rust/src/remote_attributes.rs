//! Attributes of remote files and folders, read and changed by name or by descriptor.
//!
//! `None`: it is not remote, the caller asks the kernel.

use core::ffi::CStr;

use rustix::{fd::RawFd, io};
use shm::copy::copy_out;
use wire::{FileSystem, Request, Times};

use crate::{client::Client, connection::Lane, names::Ending, paths::apart};

impl Client {
    /// As `readlinkat(2)`.
    pub fn read_link(
        &'static self,
        dir: RawFd,
        path: &CStr,
        text: &mut [u8],
    ) -> Option<io::Result<usize>> {
        let answer =
            self.about_remote(dir, path, &[], |path_len| Request::ReadLink { path_len })?;
        // What ends as a folder's name is the folder that a link leads to, which is none.
        let answer = match Ending::of(path) {
            Ending::Plain | Ending::Empty => answer,
            Ending::Slash | Ending::Dot | Ending::DotDot => answer.and(Err(io::Errno::INVAL)),
        };
        Some(answer.map(|(len, lane)| {
            let len = usize::try_from(len).unwrap_or(usize::MAX).min(text.len());
            copy_out(text.get_mut(..len).unwrap_or_default(), lane.buffer())
        }))
    }

    /// As `faccessat(2)`.
    pub fn access(&'static self, dir: RawFd, path: &CStr, mode: u32) -> Option<io::Result<()>> {
        let is_plain = self.has_remote() && Ending::of(path) == Ending::Plain;
        let may = || self.remote_path(dir, path).is_some_and(|name| self.may_at_rest(&name, mode));
        if is_plain && apart(may) {
            return Some(Ok(()));
        }
        let request = |path_len| Request::Access { path_len, mode };
        Some(self.about_remote(dir, path, &[], request)?.map(drop))
    }

    /// As `fchmodat(2)` without flags.
    pub fn set_mode(&'static self, dir: RawFd, path: &CStr, mode: u32) -> Option<io::Result<()>> {
        let request = |path_len| Request::SetMode { file: 0, path_len, mode };
        Some(self.about_remote(dir, path, &[], request)?.map(drop))
    }

    /// As `fchownat(2)`; 2^32-1 leaves an id as it is.
    pub fn set_owner(
        &'static self,
        dir: RawFd,
        path: &CStr,
        user: u32,
        group: u32,
        follow: bool,
    ) -> Option<io::Result<()>> {
        let request = |path_len| Request::SetOwner { file: 0, path_len, user, group, follow };
        Some(self.about_remote(dir, path, &[], request)?.map(drop))
    }

    /// As `utimensat(2)`.
    pub fn set_times(
        &'static self,
        dir: RawFd,
        path: &CStr,
        times: Times,
        follow: bool,
    ) -> Option<io::Result<()>> {
        let request = |path_len| Request::SetTimes { file: 0, path_len, follow };
        Some(self.about_remote(dir, path, &times.encode(), request)?.map(drop))
    }

    /// As `fchmod(2)`.
    pub fn set_mode_of(&'static self, fd: RawFd, mode: u32) -> Option<io::Result<()>> {
        let request = |file| Request::SetMode { file, path_len: 0, mode };
        let done = self.about_remote_file(fd, &[], request);
        done.map(|done| done.map(drop))
    }

    /// As `fchown(2)`.
    pub fn set_owner_of(&'static self, fd: RawFd, user: u32, group: u32) -> Option<io::Result<()>> {
        let request = |file| Request::SetOwner { file, path_len: 0, user, group, follow: true };
        let done = self.about_remote_file(fd, &[], request);
        done.map(|done| done.map(drop))
    }

    /// As `futimens(2)`.
    pub fn set_times_of(&'static self, fd: RawFd, times: Times) -> Option<io::Result<()>> {
        let request = |file| Request::SetTimes { file, path_len: 0, follow: true };
        let done = self.about_remote_file(fd, &times.encode(), request);
        done.map(|done| done.map(drop))
    }

    /// As `statfs(2)`.
    pub fn file_system(&'static self, dir: RawFd, path: &CStr) -> Option<io::Result<FileSystem>> {
        let request = |path_len| Request::FileSystem { file: 0, path_len };
        let found = self.about_remote(dir, path, &[], request)?;
        Some(found.and_then(|(_, lane)| file_system_in(&lane)))
    }

    /// As `fstatfs(2)`.
    pub fn file_system_of(&'static self, fd: RawFd) -> Option<io::Result<FileSystem>> {
        let request = |file| Request::FileSystem { file, path_len: 0 };
        let found = self.about_remote_file(fd, &[], request);
        found.map(|found| found.and_then(|(_, lane)| file_system_in(&lane)))
    }
}

/// Reads an answer in a lane's buffer.
fn file_system_in(lane: &Lane<'_>) -> io::Result<FileSystem> {
    let mut bytes = [0; FileSystem::LEN];
    copy_out(&mut bytes, lane.buffer());
    FileSystem::decode(&bytes).ok_or(io::Errno::IO)
}
