//! Operations on a process's own descriptors, which the preload library brings.

use core::ffi::CStr;

use rustix::{
    fd::{BorrowedFd, IntoRawFd, RawFd},
    fs::{self, Mode, OFlags},
    io,
    process::Pid,
};

/// The process at the other end of a socket, in the words of `SO_PEERCRED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user.
    pub user: u32,
    /// The process; `None` where it has no number in this one's pid namespace.
    pub process: Option<Pid>,
}

/// Operations on a process's own descriptors, which no safe code can vouch for.
pub trait Host: Sync {
    /// Makes a number usable that the program passed in or still has open.
    fn borrow(&self, fd: RawFd) -> BorrowedFd<'static>;

    /// Makes the number `fd` refer to what `with` refers to, keeping its close-on-exec flag.
    ///
    /// # Errors
    ///
    /// As `dup3(2)`.
    fn replace(&self, fd: RawFd, with: BorrowedFd<'_>) -> io::Result<()>;

    /// Opens a file. Its thread may be cancelled meanwhile, as one that waits for a pipe's writer.
    ///
    /// # Errors
    ///
    /// As `openat(2)`.
    fn open(&self, dir: RawFd, path: &CStr, flags: u32, mode: u32) -> io::Result<RawFd> {
        let (flags, mode) = (OFlags::from_bits_retain(flags), Mode::from_bits_retain(mode));
        fs::openat(self.borrow(dir), path, flags, mode).map(IntoRawFd::into_raw_fd)
    }

    /// Writes the path of the current folder to `into`; returns its length, bytes. `None`: it is
    /// longer, or the folder has none.
    fn current_folder(&self, into: &mut [u8]) -> Option<usize> {
        fs::readlinkat_raw(fs::CWD, c"/proc/thread-self/cwd", into).ok()
    }

    /// Returns the number by which the daemon knows an open folder in a view; `AT_FDCWD` is the
    /// current one. `None`: it is not in one. Asks nobody.
    fn node_in_view(&self, _dir: RawFd) -> Option<u64> {
        None
    }

    /// Returns the process at the other end of a connected Unix socket.
    ///
    /// # Errors
    ///
    /// As `getsockopt(2)`.
    fn peer(&self, socket: BorrowedFd<'_>) -> io::Result<Peer>;

    /// Tells the user something, once, in one line.
    fn notice(&self, _text: &str) {}
}
