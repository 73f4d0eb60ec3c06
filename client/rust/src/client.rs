//! The calls of a program, one method each.

use core::ffi::CStr;

use rustix::{
    fd::{BorrowedFd, IntoRawFd, RawFd},
    fs::{self, Mode, OFlags, SeekFrom},
    io::{self, Errno, IoSlice, IoSliceMut},
};
use wire::Reason;

use crate::config::Config;

/// What a process does with its own descriptors, which no safe code can vouch for.
pub trait Host: Sync {
    /// Makes a number usable that the program passed in or still has open.
    fn borrow(&self, fd: RawFd) -> BorrowedFd<'static>;

    /// Makes the number `fd` refer to what `with` refers to, keeping its close-on-exec flag.
    ///
    /// # Errors
    ///
    /// As `dup3(2)`.
    fn replace(&self, fd: RawFd, with: BorrowedFd<'_>) -> io::Result<()>;
}

/// What a file is, in the words of `stat(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of `struct stat`; times in seconds and nanoseconds")]
pub struct Status {
    pub device: u64,
    pub inode: u64,
    pub mode: u32,
    pub link_count: u64,
    pub user: u32,
    pub group: u32,
    pub special_device: u64,
    pub size: u64,
    pub block_size: u64,
    pub block_count: u64,
    pub accessed: (i64, u32),
    pub modified: (i64, u32),
    pub changed: (i64, u32),
}

/// The process's connection to its daemon, and what it knows of its open files.
pub struct Client {
    host: &'static dyn Host,
}

impl Client {
    /// A client that leaves everything to the kernel until it is [started](Self::start).
    #[must_use]
    pub const fn new(host: &'static dyn Host) -> Self {
        Self { host }
    }

    /// Takes the settings. Connects to nothing: that happens at the first delegated call.
    pub fn start(&self, _config: &Config) {}

    // ---- descriptors

    /// Opens `path` relative to `dir` (`AT_FDCWD` for the current folder).
    ///
    /// # Errors
    ///
    /// As `openat(2)`.
    pub fn open(&self, dir: RawFd, path: &CStr, flags: u32, mode: u32) -> io::Result<RawFd> {
        let (flags, mode) = (OFlags::from_bits_retain(flags), Mode::from_bits_retain(mode));
        fs::openat(self.host.borrow(dir), path, flags, mode).map(IntoRawFd::into_raw_fd)
    }

    /// Whether calls on `fd` are delegated, or may become so.
    #[must_use]
    pub fn is_delegated(&self, _fd: RawFd) -> bool {
        false
    }

    /// Lets go of a number that the caller is about to close (or to reuse by `dup2`), whatever this
    /// returns. With the file's last number, everything staged is in the file afterwards and the
    /// daemon holds it no longer.
    ///
    /// # Errors
    ///
    /// What a write behind still owes.
    pub fn close(&self, _fd: RawFd) -> io::Result<()> {
        Ok(())
    }

    /// The program made `new` a duplicate of `old`.
    pub fn duplicated(&self, _old: RawFd, _new: RawFd) {}

    /// The number now refers to something that is no file of ours.
    pub fn forget(&self, _fd: RawFd) {}

    /// Calls `each` with every number in `first..=last` that a `close_range` would close; the
    /// caller closes what is left by itself. Returns the lowest number the client keeps for itself
    /// in that range, which must stay open.
    pub fn close_range(&self, _first: u32, _last: u32) -> Option<RawFd> {
        None
    }

    // ---- data

    /// Reads at the file position. As `read(2)`.
    ///
    /// # Errors
    ///
    /// As `read(2)`.
    pub fn read(&self, fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
        io::read(self.host.borrow(fd), buffer)
    }

    /// Reads at `at` bytes from the start. As `pread(2)`.
    ///
    /// # Errors
    ///
    /// As `pread(2)`.
    pub fn read_at(&self, fd: RawFd, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        io::pread(self.host.borrow(fd), buffer, at)
    }

    /// Reads into several buffers, at the file position when `at` is `None`. As `preadv(2)`.
    ///
    /// # Errors
    ///
    /// As `preadv(2)`.
    pub fn read_vectored(
        &self,
        fd: RawFd,
        buffers: &mut [IoSliceMut<'_>],
        at: Option<u64>,
    ) -> io::Result<usize> {
        match at {
            None => io::readv(self.host.borrow(fd), buffers),
            Some(at) => io::preadv(self.host.borrow(fd), buffers, at),
        }
    }

    /// Writes at the file position. As `write(2)`.
    ///
    /// # Errors
    ///
    /// As `write(2)`, and what an earlier write behind owes.
    pub fn write(&self, fd: RawFd, data: &[u8]) -> io::Result<usize> {
        io::write(self.host.borrow(fd), data)
    }

    /// Writes at `at` bytes from the start. As `pwrite(2)`.
    ///
    /// # Errors
    ///
    /// As `pwrite(2)`, and what an earlier write behind owes.
    pub fn write_at(&self, fd: RawFd, data: &[u8], at: u64) -> io::Result<usize> {
        io::pwrite(self.host.borrow(fd), data, at)
    }

    /// Writes several buffers, at the file position when `at` is `None`. As `pwritev(2)`.
    ///
    /// # Errors
    ///
    /// As `pwritev(2)`, and what an earlier write behind owes.
    pub fn write_vectored(
        &self,
        fd: RawFd,
        data: &[IoSlice<'_>],
        at: Option<u64>,
    ) -> io::Result<usize> {
        match at {
            None => io::writev(self.host.borrow(fd), data),
            Some(at) => io::pwritev(self.host.borrow(fd), data, at),
        }
    }

    /// Moves the file position. As `lseek(2)`, `whence` being `SEEK_*`.
    ///
    /// # Errors
    ///
    /// As `lseek(2)`.
    pub fn seek(&self, fd: RawFd, offset: i64, whence: u32) -> io::Result<u64> {
        let fd = self.host.borrow(fd);
        match whence {
            0 => fs::seek(fd, SeekFrom::Start(offset.try_into().map_err(|_| Errno::INVAL)?)),
            1 => fs::seek(fd, SeekFrom::Current(offset)),
            2 => fs::seek(fd, SeekFrom::End(offset)),
            3 => fs::seek(fd, SeekFrom::Data(offset.try_into().map_err(|_| Errno::NXIO)?)),
            4 => fs::seek(fd, SeekFrom::Hole(offset.try_into().map_err(|_| Errno::NXIO)?)),
            _ => Err(Errno::INVAL),
        }
    }

    /// Makes everything written durable. As `fsync(2)`, or `fdatasync(2)` when `data_only`.
    ///
    /// # Errors
    ///
    /// As `fsync(2)`, and what a write behind owes.
    pub fn sync(&self, fd: RawFd, data_only: bool) -> io::Result<()> {
        let fd = self.host.borrow(fd);
        if data_only { fs::fdatasync(fd) } else { fs::fsync(fd) }
    }

    /// Sets the file's size. As `ftruncate(2)`.
    ///
    /// # Errors
    ///
    /// As `ftruncate(2)`.
    pub fn truncate(&self, fd: RawFd, len: u64) -> io::Result<()> {
        fs::ftruncate(self.host.borrow(fd), len)
    }

    // ---- what others must see

    /// Has everything staged for `fd` in the file when it returns. For calls that then go to the
    /// kernel: `fstat`, `fallocate`, `sync_file_range`, `posix_fadvise`.
    ///
    /// # Errors
    ///
    /// None of its own: what a write behind owes is kept for the program's next write or close.
    pub fn drain(&self, _fd: RawFd) {}

    /// Has everything staged for any file of this process in the files when it returns.
    pub fn drain_all(&self) {}

    /// Has what anybody staged for this inode in the file when it returns, and asks that it stays
    /// so. Returns whether there was something, so that an earlier `stat` is out of date.
    pub fn settle(&self, _device: u64, _inode: u64) -> bool {
        false
    }

    /// The program takes a lock: drains, and makes every later write wait until it is drained.
    pub fn lock(&self, _fd: RawFd) {}

    /// Drains, gives the kernel the file position, and leaves the file to it from now on.
    pub fn leave(&self, _fd: RawFd, _reason: Reason) {}

    /// Counts bytes that a system call wrote to `fd` past the client.
    pub fn count_undelegated(&self, _fd: RawFd, _reason: Reason, _bytes: usize) {}

    // ---- the process

    /// Before `fork`: every open file is left to the kernel, position and all, in both processes.
    pub fn before_fork(&self) {}

    /// After `fork`, in the child: it starts without a session.
    pub fn after_fork_in_child(&self) {}

    /// Before another program takes over: `exec` when `replaces` (this process is that program),
    /// else `posix_spawn` and its like. Files it will inherit are left to the kernel.
    pub fn before_exec(&self, _replaces: bool) {}

    /// The last destructor has run: drains everything; later calls go to the kernel.
    pub fn exiting(&self) {}

    // ---- names, under policy `delegate`; `None`: the caller makes the system call itself

    /// As `fstatat(2)`.
    pub fn stat_path(
        &self,
        _dir: RawFd,
        _path: &CStr,
        _follow: bool,
    ) -> Option<io::Result<Status>> {
        None
    }

    /// As `fstat(2)`.
    pub fn stat(&self, _fd: RawFd) -> Option<io::Result<Status>> {
        None
    }

    /// As `truncate(2)`.
    pub fn truncate_path(&self, _path: &CStr, _len: u64) -> Option<io::Result<()>> {
        None
    }

    /// As `unlinkat(2)`, for a folder when `folder`.
    pub fn unlink(&self, _dir: RawFd, _path: &CStr, _folder: bool) -> Option<io::Result<()>> {
        None
    }

    /// As `mkdirat(2)`.
    pub fn make_dir(&self, _dir: RawFd, _path: &CStr, _mode: u32) -> Option<io::Result<()>> {
        None
    }

    /// As `renameat2(2)`.
    pub fn rename(
        &self,
        _from: (RawFd, &CStr),
        _to: (RawFd, &CStr),
        _flags: u32,
    ) -> Option<io::Result<()>> {
        None
    }

    /// As `linkat(2)` without flags.
    pub fn link(&self, _from: (RawFd, &CStr), _to: (RawFd, &CStr)) -> Option<io::Result<()>> {
        None
    }

    /// As `symlinkat(2)`.
    pub fn symlink(&self, _text: &CStr, _to: (RawFd, &CStr)) -> Option<io::Result<()>> {
        None
    }
}
