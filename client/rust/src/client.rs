//! The calls of a program, one method each.

use core::{ffi::CStr, fmt};

use rustix::{
    fd::{BorrowedFd, RawFd},
    fs, io,
    process::Pid,
};
use wire::{Reason, Request};

use crate::{
    config::Config,
    file::{Link, OpenFile},
    limit::{exceeded, size_limit},
    process::Process,
    rules::CURRENT_FOLDER,
    table::Entry,
};

/// Who listens at the other end of a socket, in the words of `SO_PEERCRED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user.
    pub user: u32,
    /// The process; `None` where it has no number in this one's pid namespace.
    pub process: Option<Pid>,
}

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

    /// Who listens at the other end of a connected Unix socket.
    ///
    /// # Errors
    ///
    /// As `getsockopt(2)`.
    fn peer(&self, socket: BorrowedFd<'_>) -> io::Result<Peer>;

    /// Tells the user something, once, in one line.
    fn notice(&self, _text: &str) {}
}

pub use wire::Status;

/// The process's connection to its daemon, and what it knows of its open files.
pub struct Client(pub(crate) Process);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// A client that leaves everything to the kernel until it is [started](Self::start).
    #[must_use]
    pub const fn new(host: &'static dyn Host) -> Self {
        Self(Process::new(host))
    }

    /// Takes the settings, once. Connects to nothing: that happens at the first delegated call.
    pub fn start(&'static self, config: &Config) {
        match self.0.config.set(*config) {
            Ok(_) | Err(_) => {}
        }
        self.0.leave_limited();
    }

    pub(crate) fn process(&'static self) -> &'static Process {
        &self.0
    }

    /// Asks the daemon for nothing and waits for the answer: one round trip, connecting first if
    /// need be. For measurements.
    ///
    /// # Errors
    ///
    /// - `NOTCONN`: no daemon serves this process.
    /// - `PIPE`: the daemon was lost on the way.
    pub fn nothing(&'static self) -> io::Result<()> {
        let connection = self.0.connection().ok_or(io::Errno::NOTCONN)?;
        connection.call(Request::Nothing).map_err(|_| io::Errno::PIPE)?.map(drop)
    }

    // ---- descriptors

    /// Opens `path` relative to `dir` (`AT_FDCWD` for the current folder).
    ///
    /// # Errors
    ///
    /// As `openat(2)`.
    pub fn open(
        &'static self,
        dir: RawFd,
        path: &CStr,
        flags: u32,
        mode: u32,
    ) -> io::Result<RawFd> {
        self.0.open(dir, path, flags, mode)
    }

    /// Whether calls on `fd` are delegated, or may become so.
    #[must_use]
    pub fn is_delegated(&'static self, fd: RawFd) -> bool {
        self.0.locked_fd(fd).is_some_and(|(_, file)| file.left.is_none())
    }

    /// Whether the client has the position of `fd`, or may come to have it: calls on it are
    /// delegated, and it can be written, or only the daemon has it open.
    #[must_use]
    pub fn may_keep_position(&'static self, fd: RawFd) -> bool {
        self.0.locked_fd(fd).is_some_and(|(_, file)| {
            file.left.is_none() && (file.access.writable || file.placeholder)
        })
    }

    /// Whether calls on `fd` are delegated, and there is a daemon; connects first if need be.
    #[must_use]
    pub fn is_served(&'static self, fd: RawFd) -> bool {
        self.is_delegated(fd) && self.0.connection().is_some_and(|c| !c.is_lost())
    }

    /// Whether `fd` is nothing that could be delegated: no regular file. Costs a table look-up, and
    /// a system call at a number's first time.
    #[must_use]
    pub fn is_foreign(&'static self, fd: RawFd) -> bool {
        matches!(self.0.look_up(fd), Entry::Foreign | Entry::Unknown)
    }

    /// Whether the number is the client's own and must stay open.
    #[must_use]
    pub fn keeps(&'static self, fd: RawFd) -> bool {
        self.0.keeps(fd)
    }

    /// Whether `fd` is known as a regular file. Costs a table look-up.
    #[must_use]
    pub fn is_file(&'static self, fd: RawFd) -> bool {
        matches!(self.0.table.get(fd), Entry::File(_))
    }

    /// Whether the kernel knows nothing of the file that `fd` is: it has a placeholder. Takes no
    /// lock, and asks the kernel of files alone.
    #[must_use]
    pub fn is_placeholder(&'static self, fd: RawFd) -> bool {
        let flags = self.is_file(fd).then(|| fs::fcntl_getfl(self.0.borrow(fd)));
        matches!(flags, Some(Ok(flags)) if flags.contains(fs::OFlags::PATH))
    }

    /// The numbers below `end` that are known as regular files.
    pub fn files_below(&'static self, end: u32) -> impl Iterator<Item = RawFd> {
        let last = end.checked_sub(1);
        last.into_iter().flat_map(|last| self.0.table.files(0, last)).map(|(fd, _)| fd)
    }

    /// Lets go of a number that the caller is about to close (or to reuse by `dup2`), whatever this
    /// returns. With the file's last number, everything staged is in the file afterwards and the
    /// daemon holds it no longer. With a number that may have had a lock, everything staged is in
    /// all files.
    ///
    /// # Errors
    ///
    /// What a write behind still owes.
    pub fn close(&'static self, fd: RawFd) -> io::Result<()> {
        self.0.before_unlock(Some(fd));
        let closed = self.0.close(fd);
        self.0.sweep();
        closed
    }

    /// The program made `new` a duplicate of `old`.
    pub fn duplicated(&'static self, old: RawFd, new: RawFd) {
        self.0.duplicated(old, new);
    }

    /// The number now refers to something that is no file of ours.
    pub fn forget(&'static self, fd: RawFd) {
        self.0.table.take(fd);
    }

    /// The number now refers to what may be a file of ours, opened past the client.
    pub fn appeared(&'static self, fd: RawFd) {
        self.0.table.take(fd);
        self.0.look_up(fd);
    }

    /// Lets go of every number in `first..=last`, which the caller is about to close. Returns the
    /// number the client keeps for itself in that range, which must stay open.
    pub fn close_range(&'static self, first: u32, last: u32) -> Option<RawFd> {
        self.0.before_unlock(None);
        for (fd, _) in self.0.table.files(first, last) {
            // `close_range` reports no error of the files it closes.
            match self.0.close(fd) {
                Ok(()) | Err(_) => {}
            }
        }
        let own = self.0.connected()?.socket_number();
        (first..=last).contains(&u32::try_from(own).ok()?).then_some(own)
    }

    // ---- data

    /// Reads at the file position. As `read(2)`.
    ///
    /// # Errors
    ///
    /// As `read(2)`.
    pub fn read(&'static self, fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(fd, &mut [buffer], None)
    }

    /// Reads at the file position, or `at` bytes from the start, when nothing is known to be in the
    /// way: the short way of most reads. `None` when [`read`](Self::read) has to be asked.
    ///
    /// # Errors
    ///
    /// As `pread(2)`.
    #[inline]
    pub fn read_warm(
        &'static self,
        fd: RawFd,
        buffer: &mut [u8],
        at: Option<u64>,
    ) -> Option<io::Result<usize>> {
        self.0.read_warm(fd, buffer, at)
    }

    /// Reads at `at` bytes from the start. As `pread(2)`.
    ///
    /// # Errors
    ///
    /// As `pread(2)`.
    pub fn read_at(&'static self, fd: RawFd, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read(fd, &mut [buffer], Some(at))
    }

    /// Reads into several buffers, at the file position when `at` is `None`. As `preadv(2)`.
    ///
    /// # Errors
    ///
    /// As `preadv(2)`.
    pub fn read_vectored(
        &'static self,
        fd: RawFd,
        buffers: &mut [&mut [u8]],
        at: Option<u64>,
    ) -> io::Result<usize> {
        self.0.read(fd, buffers, at)
    }

    /// Writes at the file position. As `write(2)`.
    ///
    /// # Errors
    ///
    /// As `write(2)`, and what an earlier write behind owes.
    pub fn write(&'static self, fd: RawFd, data: &[u8]) -> io::Result<usize> {
        self.0.write(fd, &[data], None)
    }

    /// Writes at `at` bytes from the start. As `pwrite(2)`.
    ///
    /// # Errors
    ///
    /// As `pwrite(2)`, and what an earlier write behind owes.
    pub fn write_at(&'static self, fd: RawFd, data: &[u8], at: u64) -> io::Result<usize> {
        self.0.write(fd, &[data], Some(at))
    }

    /// Writes several buffers, at the file position when `at` is `None`. As `pwritev(2)`.
    ///
    /// # Errors
    ///
    /// As `pwritev(2)`, and what an earlier write behind owes.
    pub fn write_vectored(
        &'static self,
        fd: RawFd,
        data: &[&[u8]],
        at: Option<u64>,
    ) -> io::Result<usize> {
        self.0.write(fd, data, at)
    }

    /// Moves the file position. As `lseek(2)`, `whence` being `SEEK_*`.
    ///
    /// # Errors
    ///
    /// As `lseek(2)`.
    pub fn seek(&'static self, fd: RawFd, offset: i64, whence: u32) -> io::Result<u64> {
        self.0.seek(fd, offset, whence)
    }

    /// Makes everything written durable. As `fsync(2)`, or `fdatasync(2)` when `data_only`.
    ///
    /// # Errors
    ///
    /// As `fsync(2)`, and what a write behind owes.
    pub fn sync(&'static self, fd: RawFd, data_only: bool) -> io::Result<()> {
        self.0.sync(fd, data_only)
    }

    /// Sets the file's size. As `ftruncate(2)`.
    ///
    /// # Errors
    ///
    /// As `ftruncate(2)`.
    pub fn truncate(&'static self, fd: RawFd, len: u64) -> io::Result<()> {
        self.0.truncate(fd, len)
    }

    /// Changes which of `len` bytes at `at` have space. As `fallocate(2)`, for a file that only the
    /// daemon has open; `None` for others, which are the kernel's.
    pub fn allocate(
        &'static self,
        fd: RawFd,
        mode: u32,
        range: (u64, u64),
    ) -> Option<io::Result<()>> {
        self.0.allocate(fd, mode, range)
    }

    // ---- what others must see

    /// Has everything staged for `fd` in the file when it returns, and a real descriptor behind the
    /// number. For calls that then go to the kernel: `fallocate`, `sync_file_range`,
    /// `posix_fadvise`. What a write behind owes is kept for the next write, sync, or close.
    pub fn drain(&'static self, fd: RawFd) {
        let is_placeholder =
            |(_, file): (_, shm::Guard<'_, OpenFile>)| file.placeholder && !file.is_remote;
        if self.0.locked_fd(fd).is_some_and(is_placeholder) {
            self.0.leave(fd, Reason::Unsupported);
        }
        self.0.drain(fd);
        if let Some((_, mut file)) = self.0.locked_fd(fd) {
            self.0.settle_others(&mut file);
        }
    }

    /// Has everything that was accepted for `fd` in the file when it returns.
    ///
    /// # Errors
    ///
    /// What a write behind owes.
    pub fn flush(&'static self, fd: RawFd) -> io::Result<()> {
        self.0.flush(fd)
    }

    /// Has everything staged for any file of this process in the files when it returns.
    pub fn drain_all(&'static self) {
        self.0.drain_all();
    }

    /// Has what anybody staged for this inode in the file when it returns, and asks that it stays
    /// so. Returns whether there was something, so that an earlier `stat` is out of date.
    pub fn settle(&'static self, device: u64, inode: u64) -> bool {
        self.0.settle(device, inode)
    }

    /// The program takes a lock, or gives it up: drains everything, and makes every later write to
    /// this file wait until it is drained.
    pub fn lock(&'static self, fd: RawFd) {
        self.0.lock(fd);
    }

    /// The program maps the file: no descriptor of it begins to stage from now on.
    pub fn mapping(&'static self, fd: RawFd) {
        if let Some((_, file)) = self.0.locked_fd(fd) {
            self.0.mapped.add(file.device, file.inode);
        }
    }

    /// Drains, gives the kernel the file position, and leaves the file to it from now on.
    pub fn leave(&'static self, fd: RawFd, reason: Reason) {
        self.0.leave(fd, reason);
    }

    /// Leaves every file of this node that the program has open, or will open: anything may be done
    /// with any of them that nobody sees.
    pub fn leave_all(&'static self) {
        self.0.leave_all();
    }

    /// Counts bytes that a system call wrote to `fd` past the client.
    pub fn count_undelegated(&'static self, fd: RawFd, reason: Reason, bytes: usize) {
        if self.0.locked_fd(fd).is_some_and(|(_, file)| !file.is_remote) {
            self.0.count_written(reason, bytes);
        }
    }

    // ---- the process

    /// Before `fork`: every open file is left to the kernel, position and all, in both processes;
    /// but for remote ones with close-on-exec, which stay the parent's until a child wants them.
    pub fn before_fork(&'static self) {
        self.0.before_fork();
    }

    /// After `fork`, in the child: it starts without a session.
    pub fn after_fork_in_child(&'static self) {
        self.0.after_fork_in_child();
    }

    /// Before another program takes over: `exec` when `replaces` (this process is that program),
    /// else `posix_spawn` and its like. Files it will inherit are left to the kernel.
    pub fn before_exec(&'static self, replaces: bool) {
        self.0.before_exec(replaces);
    }

    /// The last destructor has run: drains everything. What is opened or first written later is the
    /// kernel's if it is on this node; each write to a file of a server waits until it is done.
    pub fn exiting(&'static self) {
        self.0.exiting();
    }

    /// The process may have changed its limit of file sizes.
    pub fn limited(&'static self) {
        self.0.leave_limited();
    }

    /// Before `fd` is duplicated, or stays open in the program that this process becomes: a remote
    /// file that a parent has open is replaced by what stands for it.
    pub fn borrow_file(&'static self, fd: RawFd) {
        match self.0.borrow_file(fd) {
            Ok(_) | Err(_) => {}
        }
    }

    // ---- attributes, under policy `delegate`; `None`: the caller makes the system call itself

    /// As `fstat(2)`. Also drains a file that is not delegated by name, and then returns `None`.
    pub fn stat(&'static self, fd: RawFd) -> Option<io::Result<Status>> {
        let (_, file) = self.0.locked_fd(fd)?;
        let kept = file.link.filter(|_| file.placeholder).map(Link::keep);
        let is_remote = file.is_remote;
        drop(file);
        let Some(kept) = kept else {
            self.0.drain(fd);
            return None;
        };
        let answer = self.0.status(|_| Request::FileStat { file: kept.number() }, &[]);
        // Another thread has left it meanwhile.
        let answer = answer.filter(|answer| is_remote || *answer != Err(io::Errno::BADF));
        answer.or(is_remote.then_some(Err(io::Errno::IO)))
    }

    /// As `truncate(2)`.
    pub fn truncate_path(&'static self, path: &CStr, len: u64) -> Option<io::Result<()>> {
        if let Err(errno) = self.0.check_folder((CURRENT_FOLDER, path)) {
            return Some(Err(errno));
        }
        if size_limit().is_some_and(|limit| len > limit) {
            if !self.is_remote(CURRENT_FOLDER, path) {
                return None;
            }
            let status = self.stat_path(CURRENT_FOLDER, path, true);
            if status.and_then(Result::ok).is_some_and(|status| len > status.size) {
                return Some(Err(exceeded()));
            }
        }
        let request = |path_len| Request::Truncate { file: 0, path_len, len };
        let done = self.0.about_path(CURRENT_FOLDER, path, request);
        if done.is_some() {
            // Which of the open files it is only the daemon knows.
            self.0.forget_read_ahead();
        }
        done
    }
}
