//! The way of a read: what is cached is read here, what is cold the daemon fetches first.

use core::sync::atomic::Ordering;

use rustix::{
    fd::{BorrowedFd, RawFd},
    fs::{self, SeekFrom},
    io::{self, Errno, IoSliceMut, ReadWriteFlags},
};
use wire::Request;

use crate::{
    client::Client,
    cursor::AT_END,
    file::FileEntry,
    locked_file::Locked,
    sampler::times_read,
    staging,
    table::{Entry, FileId},
    watch::add,
};

/// Reads in a row found cached, after which the question is asked only now and then.
const WARM: u32 = 8;
/// How often it is asked then: one read in so many.
const ASK_EVERY: u32 = 64;
/// The file system cannot say whether a range is cached, or the file goes past the page cache.
const NEVER: u32 = u32::MAX;
/// Bytes that are cached together, at least.
const PAGE: u64 = 4096;

/// Buffers that most vectored reads have, and the most that one system call takes.
const FEW: usize = 16;
const MOST: usize = 1024;

/// The page cache's answer for a range.
#[derive(Clone, Copy)]
enum Cached {
    Yes,
    No,
    /// The file system cannot say.
    Unknown,
}

impl Client {
    /// Reads at the file position. As `read(2)`.
    ///
    /// # Errors
    ///
    /// As `read(2)`.
    pub fn read(&'static self, fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(fd, &mut [buffer], None)
    }

    /// Reads at `at` bytes from the start. As `pread(2)`.
    ///
    /// # Errors
    ///
    /// As `pread(2)`.
    pub fn read_at(&'static self, fd: RawFd, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.read_vectored(fd, &mut [buffer], Some(at))
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
        // A fresh file whose last reads were all found cached. What comes before the system call
        // counts here: a read of 4 KiB takes half a microsecond.
        let Entry::File(id) = self.table.get(fd) else { return None };
        let entry = self.files.get(id)?;
        let streak = entry.streak.load(Ordering::Relaxed);
        let read_len = entry.read_len.load(Ordering::Relaxed);
        let is_due = asks(streak) || times_read(read_len, buffer.len());
        if entry.cursor.is_clients() || is_due || self.has_news(entry) {
            return None;
        }
        entry.streak.store(next(streak), Ordering::Relaxed);
        let (fd, watched) = (self.borrow(fd), self.watch.begin());
        let read = match at {
            None => io::read(fd, buffer),
            Some(at) => io::pread(fd, buffer, at),
        };
        match read {
            Ok(len) => {
                add(&entry.read_len, len as u64, shm::is_alone());
                if let Some(call) = watched {
                    self.watch_read(call, id, entry, len);
                }
            }
            Err(Errno::BADF) => return None, // There is a placeholder.
            Err(_) => {}
        }
        Some(read)
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
        let id = match self.table.get(fd) {
            Entry::File(id) => id,
            Entry::Foreign | Entry::Unknown | Entry::Opened(_) => {
                return self.kernel_read(fd, buffers, at);
            }
            Entry::Own => return Err(Errno::BADF),
        };
        let Some(entry) = self.files.get(id) else { return self.kernel_read(fd, buffers, at) };
        let watched = self.watch.begin();
        let read = if entry.cursor.is_clients() {
            self.read_staged(fd, id, buffers, at)
        } else {
            self.read_cached(fd, entry, buffers, at)
        };
        let len = read.map_err(|errno| match errno {
            Errno::BADF => self.why_refused(fd),
            errno => errno,
        })?;
        entry.read_len.fetch_add(len as u64, Ordering::Relaxed);
        if let Some(call) = watched {
            self.watch_read(call, id, entry, len);
        }
        Ok(len)
    }

    /// Reads a file whose position the client keeps and of which something may be staged.
    pub(crate) fn read_staged(
        &'static self,
        fd: RawFd,
        id: FileId,
        buffers: &mut [&mut [u8]],
        at: Option<u64>,
    ) -> io::Result<usize> {
        let Some(entry) = self.files.get(id) else { return self.kernel_read(fd, buffers, at) };
        let Ok(file) = entry.lock.lock() else {
            let position = Some(entry.cursor.at()).filter(|position| *position != AT_END);
            return self.kernel_read(fd, buffers, at.or(position));
        };
        let mut file = Locked { client: self, fd, id, entry, file };
        if file.generation != id.generation {
            return self.kernel_read(fd, buffers, at);
        }
        if let Some(read) = file.read_at_rest(buffers, at) {
            return read;
        }
        file.promote()?;
        if !entry.cursor.is_clients() {
            return self.kernel_read(fd, buffers, at);
        }
        let wanted = total(buffers);
        let from = match at {
            Some(at) => at,
            None => file.position()?,
        };
        if file.state.is_placeholder() {
            let len = file.read_delegated(buffers, from)?;
            if at.is_none() {
                // The kernel's, if the daemon is gone since.
                file.put_position(from + len as u64)?;
            }
            return Ok(len);
        }
        let refused_at = file.drain_to_read(from, from.saturating_add(wanted as u64))?;
        // Before the read: the daemon may drain it meanwhile.
        let has_more_staged = file.is_dirty(from, u64::MAX);
        let mut len = self.kernel_read(fd, buffers, Some(from))?;
        if len < wanted && has_more_staged {
            // What is staged beyond the end makes the file longer than the kernel knows.
            let behind = from.saturating_add(len as u64);
            if file.is_drained_for(behind, u64::MAX) {
                len = self.kernel_read(fd, buffers, Some(from))?;
            } else if len == 0 {
                return Err(file.tell_error().unwrap_or(Errno::IO));
            }
        }
        len = len.min(usize::try_from(refused_at - from).unwrap_or(usize::MAX));
        if at.is_none() {
            file.put_position(from + len as u64)?;
        }
        Ok(len)
    }

    /// Reads a file that only the kernel knows, by one call: threads, and processes, that share its
    /// position get a record each. So whether the range is cached is asked before.
    fn read_cached(
        &'static self,
        fd: RawFd,
        entry: &FileEntry,
        buffers: &mut [&mut [u8]],
        at: Option<u64>,
    ) -> io::Result<usize> {
        let streak = entry.streak.load(Ordering::Relaxed);
        let wanted = total(buffers);
        let fetches = || self.connected().is_some_and(|connection| !connection.is_lost());
        if asks(streak) && wanted > 0 && fetches() {
            let from = at.or_else(|| fs::seek(self.borrow(fd), SeekFrom::Current(0)).ok());
            let found = from.map_or(Cached::Unknown, |from| self.look_cached(fd, from, wanted));
            let streak = match found {
                Cached::Yes => next(streak),
                Cached::Unknown => NEVER,
                Cached::No => 0,
            };
            entry.streak.store(streak, Ordering::Relaxed);
            if let (Cached::No, Some(from)) = (found, from) {
                self.fetch(fd, from, wanted);
            }
        } else {
            entry.streak.store(next(streak), Ordering::Relaxed);
        }
        self.settle_news(fd, entry);
        let timed = self.read_begins(entry, wanted);
        let read = self.kernel_read(fd, buffers, at);
        if let (Some(timed), Ok(len)) = (timed, read) {
            self.learn_read_of(entry, timed, len);
        }
        read
    }

    /// Looks at the first and the last byte of a range.
    fn look_cached(&self, fd: RawFd, from: u64, len: usize) -> Cached {
        let last = from.saturating_add(len as u64 - 1);
        let ends = [from, last];
        let ends = if from / PAGE == last / PAGE { &ends[..1] } else { &ends[..] };
        for at in ends {
            let byte = &mut [0];
            let byte = &mut [IoSliceMut::new(byte)];
            match io::preadv2(self.borrow(fd), byte, *at, ReadWriteFlags::NOWAIT) {
                Err(Errno::AGAIN) => return Cached::No,
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Cached::Unknown,
                // What is wrong the read itself is told.
                Ok(_) | Err(_) => {}
            }
        }
        Cached::Yes
    }

    /// Has the daemon bring a range into the page cache, and read ahead of it.
    ///
    /// Only in a process that has a session already: for a program that reads one cold file, a
    /// connection would cost more than the read.
    fn fetch(&'static self, fd: RawFd, at: u64, len: usize) {
        let Some(connection) = self.connected().filter(|connection| !connection.is_lost()) else {
            return;
        };
        let Some(mut file) = self.locked_fd(fd) else { return };
        if file.state.refusal().is_some() || file.state.is_over() {
            return;
        }
        if file.state.link().is_none()
            && staging::link(connection, &mut file, self.borrow(fd), false).is_err()
        {
            return;
        }
        let Some(link) = file.state.link() else { return };
        drop(file);
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        // What it does not find the read will.
        match connection.call(Request::Fetch { file: link.slot, at, len }) {
            Ok(_) | Err(_) => {}
        }
    }

    /// Why a call fails that the kernel has refused on a placeholder.
    pub(crate) fn why_refused(&'static self, fd: RawFd) -> Errno {
        let is_gone = self.locked_fd(fd).is_some_and(|file| file.state.is_lost());
        if is_gone { Errno::IO } else { Errno::BADF }
    }

    pub(crate) fn kernel_read(
        &self,
        fd: RawFd,
        buffers: &mut [&mut [u8]],
        at: Option<u64>,
    ) -> io::Result<usize> {
        let fd = self.borrow(fd);
        match (buffers, at) {
            ([buffer], None) => io::read(fd, &mut buffer[..]),
            ([buffer], Some(at)) => io::pread(fd, &mut buffer[..], at),
            (buffers, at) => kernel_read_vectored(fd, buffers, at),
        }
    }
}

/// True if the next read finds out first if what it wants is cached.
const fn asks(streak: u32) -> bool {
    streak != NEVER && (streak < WARM || streak % ASK_EVERY == 0)
}

/// The streak after one more read.
const fn next(streak: u32) -> u32 {
    match streak {
        NEVER => NEVER,
        streak if streak + 1 == NEVER => WARM,
        streak => streak + 1,
    }
}

/// Reads into several buffers by as few calls as there can be: only what one call reads follows one
/// position.
fn kernel_read_vectored(
    fd: BorrowedFd<'_>,
    buffers: &mut [&mut [u8]],
    at: Option<u64>,
) -> io::Result<usize> {
    if buffers.len() <= FEW {
        read_batches::<FEW>(fd, buffers, at)
    } else {
        read_batches::<MOST>(fd, buffers, at)
    }
}

/// As [`kernel_read_vectored`], at most `N` by one call. Apart, for the list's room on the stack.
#[inline(never)]
fn read_batches<const N: usize>(
    fd: BorrowedFd<'_>,
    buffers: &mut [&mut [u8]],
    at: Option<u64>,
) -> io::Result<usize> {
    let mut done = 0;
    for batch in buffers.chunks_mut(N) {
        let (wanted, count) = (total(batch), batch.len());
        let mut rest = batch.iter_mut();
        let mut parts: [IoSliceMut<'_>; N] = core::array::from_fn(|_| {
            IoSliceMut::new(rest.next().map_or(&mut [], |buffer| &mut buffer[..]))
        });
        let parts = invariant!(some parts.get_mut(..count), "a batch has N buffers at most",
            else return Err(Errno::IO));
        let read = match at {
            None => io::readv(fd, parts),
            Some(at) => io::preadv(fd, parts, at + done as u64),
        };
        match read {
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
            Ok(len) => done += len,
        }
        if read != Ok(wanted) {
            break;
        }
    }
    Ok(done)
}

fn total(buffers: &[&mut [u8]]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
}
