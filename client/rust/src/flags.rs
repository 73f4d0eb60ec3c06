//! File flags that `fcntl` gets and sets where the descriptor is a placeholder or a pipe, which
//! have other flags.

use rustix::{
    fd::RawFd,
    fs::OFlags,
    io::{self, Errno},
};
use wire::Request;

use crate::{client::Client, locked_file::Locked};

/// Flags that change nothing of a regular file.
const NOTED: u32 = OFlags::NONBLOCK.bits();

impl Client {
    /// `F_GETFL` of a file whose descriptor is a placeholder, or a pipe that stands for it.
    #[must_use]
    pub fn flags(&'static self, fd: RawFd) -> Option<u32> {
        let file = self.locked_fd_as_is(fd)?;
        let once = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC | OFlags::CLOEXEC;
        let is_known = file.state.is_unasked() || file.state.daemons_link().is_some();
        is_known.then_some(file.flags & !once.bits())
    }

    /// Notes the flags of such a file that change nothing of a regular one. Returns whether `fd` is
    /// one.
    pub fn set_flags(&'static self, fd: RawFd, flags: u32) -> bool {
        let Some(mut file) = self.locked_fd(fd).filter(|file| file.state.daemons_link().is_some())
        else {
            return false;
        };
        file.flags = file.flags & !NOTED | flags & NOTED;
        true
    }

    /// As `fcntl(F_SETFL)`, of a remote file; `None`: it is none.
    ///
    /// # Errors
    ///
    /// `EIO`: the server is lost.
    pub fn set_remote_flags(&'static self, fd: RawFd, flags: u32) -> Option<io::Result<()>> {
        if !self.has_remote() {
            return None;
        }
        let mut file = self.locked_fd(fd).filter(|file| file.state.is_remote())?;
        let appends = flags & OFlags::APPEND.bits() != 0;
        if appends != file.access.append {
            if let Err(errno) = file.set_append(appends) {
                return Some(Err(errno));
            }
        }
        file.flags = file.flags & !NOTED | flags & NOTED;
        Some(Ok(()))
    }
}

impl Locked {
    fn set_append(&mut self, appends: bool) -> io::Result<()> {
        // Behind what is appended the position is the daemon's to tell.
        self.position()?;
        let link = self.drained_link().ok_or(Errno::IO)?;
        let request = Request::SetAppend { file: link.slot, appends };
        link.connection.call(request).map_err(|_| Errno::IO)??;
        self.access.append = appends;
        self.flags ^= OFlags::APPEND.bits();
        Ok(())
    }
}
