//! What a signal handler does to the very file that the code beneath it is using. The file is
//! locked, so the kernel does it, once what was staged before is in the file.
//!
//! The interrupted write may have taken its place already and not be staged yet. Where a handler
//! moves the position that write is behind its old one. Where it cuts the file, which is to be
//! before the write or after it, that write was before: what it brings behind the end is cut off.

use core::sync::atomic::Ordering;

use rustix::{
    fd::{AsFd, OwnedFd, RawFd},
    fs::{self, Mode, OFlags},
    io::{self, Errno},
};
use wire::{Reason, Request, SEEK_CUR, SEEK_END, SEEK_SET};

use crate::{
    client::Client,
    file::{AT_END, FileEntry},
    locked::Locked,
    paths::link_of,
    table::Entry,
    write::{kernel_write_pieces, total},
};

impl Client {
    /// Whether the client has the position of `fd`. Takes no lock.
    #[must_use]
    pub fn keeps_position(&'static self, fd: RawFd) -> bool {
        self.entry_of(fd).is_some_and(|entry| entry.is_staged.load(Ordering::Acquire))
    }

    fn entry_of(&'static self, fd: RawFd) -> Option<&'static FileEntry> {
        let Entry::File(id) = self.table.get(fd) else { return None };
        self.files.get(id)
    }

    /// The file of `fd`, if this thread was interrupted while it had it.
    pub(crate) fn interrupted(&'static self, fd: RawFd) -> Option<&'static FileEntry> {
        self.entry_of(fd).filter(|entry| entry.lock.is_mine())
    }

    /// Has what is staged for the inode, by anybody, in the file, if the daemon is to be asked.
    pub(crate) fn settle_nested(&'static self, fd: RawFd, entry: &FileEntry) {
        if !entry.is_staged.load(Ordering::Acquire) {
            return;
        }
        let Some(mut lane) = self.connected().and_then(|connection| connection.free_lane()) else {
            return;
        };
        if let Ok(stat) = fs::fstat(self.borrow(fd)) {
            let (device, inode) = (stat.st_dev, stat.st_ino);
            // A lost daemon is found by the code beneath.
            match lane.call(Request::Settle { device, inode, demote: false }) {
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// As `lseek(2)`.
    pub(crate) fn seek_nested(
        &'static self,
        fd: RawFd,
        entry: &FileEntry,
        offset: i64,
        whence: u32,
    ) -> io::Result<u64> {
        if !entry.is_staged.load(Ordering::Acquire) {
            // It is about to be taken from the kernel.
            entry.position.fetch_add(1, Ordering::Relaxed);
            return self.kernel_seek(fd, offset, whence);
        }
        let from = entry.position.load(Ordering::Relaxed);
        let to = match whence {
            SEEK_SET => u64::try_from(offset).ok(),
            SEEK_CUR if from != AT_END => from.checked_add_signed(offset),
            SEEK_CUR => {
                self.settle_nested(fd, entry);
                Some(self.kernel_seek(fd, offset, SEEK_END)?)
            }
            _ => {
                self.settle_nested(fd, entry);
                Some(self.kernel_seek(fd, offset, whence)?)
            }
        };
        let to = to.filter(|to| i64::try_from(*to).is_ok()).ok_or(Errno::INVAL)?;
        entry.position.store(to, Ordering::Relaxed);
        Ok(to)
    }

    /// As `ftruncate(2)`.
    pub(crate) fn truncate_nested(
        &'static self,
        fd: RawFd,
        entry: &FileEntry,
        len: u64,
    ) -> io::Result<()> {
        self.settle_nested(fd, entry);
        self.kernel_truncate(fd, len)?;
        entry.cut.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Also of the file behind a placeholder.
    fn kernel_truncate(&self, fd: RawFd, len: u64) -> io::Result<()> {
        match fs::ftruncate(self.borrow(fd), len) {
            Err(Errno::BADF) => fs::ftruncate(self.behind_placeholder(fd, OFlags::empty())?, len),
            done => done,
        }
    }

    /// A signal handler writes to the file that the code beneath it is using.
    pub(crate) fn write_nested(
        &'static self,
        fd: RawFd,
        entry: &FileEntry,
        data: &[&[u8]],
        at: Option<u64>,
    ) -> io::Result<usize> {
        self.settle_nested(fd, entry);
        let len = total(data) as u64;
        let is_staged = entry.is_staged.load(Ordering::Acquire);
        let keeps_position = is_staged && entry.position.load(Ordering::Relaxed) != AT_END;
        let at = match at {
            // Behind what the interrupted write has reserved; a file opened to append ignores it.
            None if keeps_position => Some(entry.position.fetch_add(len, Ordering::Relaxed)),
            at => at,
        };
        let len = match self.kernel_write(fd, data, at) {
            Err(Errno::BADF) => self.write_behind_placeholder(fd, data, at)?,
            wrote => wrote?,
        };
        if at.is_none() && !is_staged {
            // It is about to be taken from the kernel.
            entry.position.fetch_add(len as u64, Ordering::Relaxed);
        }
        if let Some(at) = at {
            // What it adds to a file that it has cut is not to be cut again; `UNCUT` stays that.
            entry.cut.fetch_max(at + len as u64, Ordering::Relaxed);
        }
        self.count_written(Reason::Nested, len);
        Ok(len)
    }

    /// Writes to the file behind a placeholder, when the lanes and locks of this thread may be in
    /// use beneath it.
    fn write_behind_placeholder(
        &self,
        fd: RawFd,
        data: &[&[u8]],
        at: Option<u64>,
    ) -> io::Result<usize> {
        let how = if at.is_none() { OFlags::APPEND } else { OFlags::empty() };
        kernel_write_pieces(self.behind_placeholder(fd, how)?.as_fd(), data, at)
    }

    /// Opens the file behind a placeholder, to write.
    fn behind_placeholder(&self, fd: RawFd, how: OFlags) -> io::Result<OwnedFd> {
        let mut name = [0; 32];
        let name = link_of(fd, &mut name).ok_or(Errno::BADF)?;
        fs::open(name, OFlags::WRONLY | OFlags::CLOEXEC | how, Mode::empty())
    }
}

impl Locked {
    /// Cuts off what a write has brought to `from`, if a handler has cut the file meanwhile.
    pub(crate) fn cut_again(&mut self, from: u64) {
        let end = self.entry.cut.load(Ordering::Relaxed);
        if end <= from {
            self.drain();
            // It could be cut before.
            match self.client.kernel_truncate(self.fd, end) {
                Ok(()) | Err(_) => {}
            }
        }
    }
}
