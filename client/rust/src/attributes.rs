//! What is asked and changed of remote files and folders, by name or by descriptor.
//!
//! `None`: it is not remote, the caller asks the kernel.

use core::ffi::CStr;

use rustix::{fd::RawFd, io};
use shm::copy::copy_out;
use wire::Request;

use crate::{
    client::Client,
    connection::Lane,
    rules::{CURRENT_FOLDER, PATH_MAX},
};

/// Words that describe a file system.
pub(crate) const FILE_SYSTEM_WORDS: usize = 8;

impl Client {
    /// As `readlinkat(2)`.
    pub fn read_link(
        &'static self,
        dir: RawFd,
        path: &CStr,
        text: &mut [u8],
    ) -> Option<io::Result<usize>> {
        let answer =
            self.0.about_remote(dir, path, &[], |path_len| Request::ReadLink { path_len })?;
        Some(answer.map(|(len, lane)| {
            let len = usize::try_from(len).unwrap_or(usize::MAX).min(text.len());
            copy_out(text.get_mut(..len).unwrap_or_default(), lane.buffer())
        }))
    }

    /// As `faccessat(2)`.
    pub fn access(&'static self, dir: RawFd, path: &CStr, mode: u32) -> Option<io::Result<()>> {
        let request = |path_len| Request::Access { path_len, mode };
        Some(self.0.about_remote(dir, path, &[], request)?.map(drop))
    }

    /// As `fchmodat(2)` without flags.
    pub fn set_mode(&'static self, dir: RawFd, path: &CStr, mode: u32) -> Option<io::Result<()>> {
        let request = |path_len| Request::SetMode { file: 0, path_len, mode };
        Some(self.0.about_remote(dir, path, &[], request)?.map(drop))
    }

    /// As `fchownat(2)`; 2^32-1 leaves an id as it is.
    pub fn set_owner(
        &'static self,
        dir: RawFd,
        path: &CStr,
        (user, group): (u32, u32),
        follow: bool,
    ) -> Option<io::Result<()>> {
        let request = |path_len| Request::SetOwner { file: 0, path_len, user, group, follow };
        Some(self.0.about_remote(dir, path, &[], request)?.map(drop))
    }

    /// As `utimensat(2)`: seconds and nanoseconds of access, then of modification.
    pub fn set_times(
        &'static self,
        dir: RawFd,
        path: &CStr,
        times: [i64; 4],
        follow: bool,
    ) -> Option<io::Result<()>> {
        let request = |path_len| Request::SetTimes { file: 0, path_len, follow };
        let times = times.map(i64::to_le_bytes);
        Some(self.0.about_remote(dir, path, times.as_flattened(), request)?.map(drop))
    }

    /// As `fchmod(2)`.
    pub fn set_mode_of(&'static self, fd: RawFd, mode: u32) -> Option<io::Result<()>> {
        let request = |file| Request::SetMode { file, path_len: 0, mode };
        let done = self.0.about_remote_file(fd, &[], request);
        done.map(|done| done.map(drop)).or_else(|| {
            let mut path = [0; PATH_MAX];
            self.set_mode(CURRENT_FOLDER, self.0.path_of_mirror(fd, &mut path)?, mode)
        })
    }

    /// As `fchown(2)`.
    pub fn set_owner_of(
        &'static self,
        fd: RawFd,
        (user, group): (u32, u32),
    ) -> Option<io::Result<()>> {
        let request = |file| Request::SetOwner { file, path_len: 0, user, group, follow: true };
        let done = self.0.about_remote_file(fd, &[], request);
        done.map(|done| done.map(drop)).or_else(|| {
            let mut path = [0; PATH_MAX];
            let path = self.0.path_of_mirror(fd, &mut path)?;
            self.set_owner(CURRENT_FOLDER, path, (user, group), true)
        })
    }

    /// As `futimens(2)`.
    pub fn set_times_of(&'static self, fd: RawFd, times: [i64; 4]) -> Option<io::Result<()>> {
        let bytes = times.map(i64::to_le_bytes);
        let request = |file| Request::SetTimes { file, path_len: 0, follow: true };
        let done = self.0.about_remote_file(fd, bytes.as_flattened(), request);
        done.map(|done| done.map(drop)).or_else(|| {
            let mut path = [0; PATH_MAX];
            let path = self.0.path_of_mirror(fd, &mut path)?;
            self.set_times(CURRENT_FOLDER, path, times, true)
        })
    }

    /// As `statfs(2)`: block size, blocks, free blocks, blocks free to anybody, inodes, free
    /// inodes, longest name, type.
    pub fn file_system(
        &'static self,
        dir: RawFd,
        path: &CStr,
    ) -> Option<io::Result<[u64; FILE_SYSTEM_WORDS]>> {
        let request = |path_len| Request::FileSystem { file: 0, path_len };
        Some(self.0.about_remote(dir, path, &[], request)?.map(|(_, lane)| words(&lane)))
    }

    /// As `fstatfs(2)`, also of an open folder that is a mirror.
    pub fn file_system_of(
        &'static self,
        fd: RawFd,
    ) -> Option<io::Result<[u64; FILE_SYSTEM_WORDS]>> {
        let request = |file| Request::FileSystem { file, path_len: 0 };
        let found = self.0.about_remote_file(fd, &[], request);
        found.map(|found| found.map(|lane| words(&lane))).or_else(|| {
            let mut path = [0; PATH_MAX];
            self.file_system(CURRENT_FOLDER, self.0.path_of_mirror(fd, &mut path)?)
        })
    }
}

/// The words of an answer that are in a lane.
fn words(lane: &Lane<'_>) -> [u64; FILE_SYSTEM_WORDS] {
    let mut bytes = [0; FILE_SYSTEM_WORDS * size_of::<u64>()];
    copy_out(&mut bytes, lane.buffer());
    let mut words = bytes.chunks_exact(size_of::<u64>());
    core::array::from_fn(|_| {
        let word = words.next().and_then(<[u8]>::first_chunk);
        word.map_or(0, |word| u64::from_le_bytes(*word))
    })
}
