//! File flags that `fcntl` gets and sets where the descriptor is a placeholder or a pipe, which
//! have other flags.

use rustix::{fd::RawFd, fs};

use crate::client::Client;

impl Client {
    /// `F_GETFL` of a file whose descriptor is a placeholder, or a pipe that stands for it.
    #[must_use]
    pub fn flags(&'static self, fd: RawFd) -> Option<u32> {
        let file = self.locked_fd_as_is(fd)?;
        let once = fs::OFlags::CREATE | fs::OFlags::EXCL | fs::OFlags::TRUNC | fs::OFlags::CLOEXEC;
        let is_known = file.state.is_unasked() || file.state.daemons_link().is_some();
        is_known.then_some(file.flags & !once.bits())
    }

    /// Notes whether such a file is not to be waited for, which changes nothing else of a regular
    /// file. Returns whether `fd` is one.
    pub fn set_flags(&'static self, fd: RawFd, flags: u32) -> bool {
        const NOTED: u32 = fs::OFlags::NONBLOCK.bits();
        let Some(mut file) = self.locked_fd(fd).filter(|file| file.state.daemons_link().is_some())
        else {
            return false;
        };
        file.flags = file.flags & !NOTED | flags & NOTED;
        true
    }
}
