//! Descriptors that were opened and not examined since.
//!
//! Most files are read once, or written by one call, and closed. While neither this process nor any
//! other of the job stages, nothing depends on which file such a descriptor refers to: the kernel
//! executes all calls, and `open` costs no system call of ours. The fourth write, or any call that
//! depends on the file, examines it first ([`Client::look_up`]).
//!
//! All descriptors are examined before this process connects, and before it shares them with a
//! child. An `open` meanwhile sees that, or the scan sees its descriptor: each side stores what it
//! has done, then a fence, then looks for the other.

use core::{
    ffi::CStr,
    sync::atomic::{Ordering, fence},
};

use rustix::{
    fd::RawFd,
    fs::{self, OFlags},
    io,
};
use wire::{Counter, Reason, SEEK_CUR, SEEK_SET};

use crate::{
    attention::Event,
    client::Client,
    open::{STREAMS_MAX, identify},
    rules::{Policy, is_kernels},
    table::{Entry, Opened},
    watch::Way,
};

impl Client {
    /// True if the kernel alone has `fd`: it is nothing that could be delegated, or not known to be
    /// yet. Costs a table look-up, and a system call at the first time of a number that somebody
    /// else opened.
    #[must_use]
    #[inline]
    pub fn is_kernels(&'static self, fd: RawFd) -> bool {
        match self.table.get(fd) {
            Entry::File(_) | Entry::Own => false,
            Entry::Foreign | Entry::Opened(_) => true,
            Entry::Unknown => self.is_foreign(fd),
        }
    }

    /// Leaves the next write to `fd`, at its position, to the kernel. True if that is safe: another
    /// thread that begins to stage meanwhile would stage to the same place.
    #[must_use]
    #[inline]
    pub fn leave_write(&'static self, fd: RawFd) -> bool {
        if shm::is_alone() { self.leave_write_at(fd) } else { self.is_foreign(fd) }
    }

    /// Leaves the next write to a place of `fd` to the kernel. True if that is safe: as
    /// [`is_kernels`](Self::is_kernels) says, and it is one of the first.
    #[must_use]
    #[inline]
    pub fn leave_write_at(&'static self, fd: RawFd) -> bool {
        match self.table.get(fd) {
            Entry::Opened(opened) => match opened.written() {
                Some(written) if self.is_nothing_staged() => {
                    let after = Entry::Opened(written);
                    self.table.learn(fd, Entry::Opened(opened), after) == after
                }
                _ => self.is_foreign(fd),
            },
            _ => self.is_kernels(fd),
        }
    }

    /// Leaves a read of `fd` to the kernel. True if that is safe: as
    /// [`is_kernels`](Self::is_kernels) says, and nobody has staged what it would miss.
    #[must_use]
    #[inline]
    pub fn leave_read(&'static self, fd: RawFd) -> bool {
        match self.table.get(fd) {
            Entry::Opened(_) => self.is_nothing_staged() || self.is_foreign(fd),
            _ => self.is_kernels(fd),
        }
    }

    /// True if nothing that was staged can concern `fd`, because it was not examined since it was
    /// opened: the kernel can execute any call on it as it is.
    #[must_use]
    #[inline]
    pub fn is_unexamined(&'static self, fd: RawFd) -> bool {
        self.table.is_opened(fd) && self.is_nothing_staged()
    }

    /// As [`is_unexamined`](Self::is_unexamined) for a seek, which can be concerned only if it
    /// depends on the file's size or holes.
    #[must_use]
    #[inline]
    pub fn leave_seek(&'static self, fd: RawFd, whence: u32) -> bool {
        let is_relative = matches!(whence, SEEK_SET | SEEK_CUR);
        self.table.is_opened(fd) && (is_relative || self.is_nothing_staged())
    }

    /// Counts bytes that the kernel has read of a file that is not examined.
    #[inline]
    pub fn count_unexamined_read(&'static self, fd: RawFd, len: usize) {
        self.count_here(Counter::BytesRead, len as u64);
        self.watch_unexamined(fd, Way::Read, len);
    }

    /// Counts bytes that the kernel has written to `fd`, if that may be a file.
    #[inline]
    pub fn count_unexamined_write(&'static self, fd: RawFd, len: usize) {
        if matches!(self.table.get(fd), Entry::Opened(_)) {
            self.count_written(Reason::First, len);
            self.watch_unexamined(fd, Way::Write, len);
        }
    }

    /// The short way of an [`open`](Self::open): by the kernel, which is `asked`, and the
    /// descriptor left unexamined. `None` where more may depend on it.
    ///
    /// # Errors
    ///
    /// As `openat(2)`.
    #[inline(always)]
    pub fn open_unexamined(
        &'static self,
        path: &CStr,
        flags: u32,
        asked: impl FnOnce() -> io::Result<RawFd>,
    ) -> Option<io::Result<RawFd>> {
        let flags = OFlags::from_bits_retain(flags);
        let is_plain = !self.is_ruled() && may_be_short(flags);
        if !is_plain || is_kernels(path.to_bytes()) || !self.may_stay_unexamined() {
            return None;
        }
        let timed = self.sampler.open_begins();
        let opened = asked();
        if let Some(timed) = timed {
            self.open_ends(opened, flags, timed);
        }
        if let Ok(fd) = opened {
            if !self.keep_unexamined(fd) {
                self.opened(fd, flags, Policy::Hybrid);
            }
        }
        Some(opened)
    }

    /// Leaves a descriptor unexamined that was just opened with such `flags`. Returns whether that
    /// is safe.
    pub(crate) fn leave_unexamined(&'static self, fd: RawFd, flags: OFlags) -> bool {
        may_be_short(flags) && self.may_stay_unexamined() && self.keep_unexamined(fd)
    }

    #[inline]
    fn keep_unexamined(&'static self, fd: RawFd) -> bool {
        let is_alone = shm::is_alone();
        let turn = if is_alone {
            let turn = self.opened_turn.load(Ordering::Relaxed);
            self.opened_turn.store(turn.wrapping_add(1), Ordering::Relaxed);
            turn
        } else {
            self.opened_turn.fetch_add(1, Ordering::Relaxed)
        };
        if fd <= STREAMS_MAX || !self.table.set(fd, Entry::Opened(Opened::new(turn))) {
            return false;
        }
        if is_alone {
            return true; // Nobody else is there who could connect.
        }
        fence(Ordering::SeqCst);
        self.may_stay_unexamined()
    }

    /// The short way of a close: forgets a number that was not examined since it was opened. False
    /// where more may depend on it.
    #[inline]
    pub fn close_unexamined(&'static self, fd: RawFd) -> bool {
        !self.locks.are_any() && self.table.forget_opened(fd)
    }

    #[inline]
    fn may_stay_unexamined(&'static self) -> bool {
        self.attention.is_lazy() && self.is_nothing_staged()
    }

    /// True if nobody in the job has a file linked.
    pub(crate) fn is_nothing_staged(&'static self) -> bool {
        self.job().is_none_or(|job| job.shared().inodes.is_empty())
    }

    /// Before this process connects: examines every descriptor, now or when it is opened.
    pub(crate) fn examine_from_now_on(&'static self) {
        // Else another thread may be at it still.
        if self.connected().is_some() {
            return;
        }
        self.attention.note(Event::Connect);
        fence(Ordering::SeqCst);
        self.examine_all();
    }

    /// Examines every descriptor that has not been examined since it was opened.
    pub(crate) fn examine_all(&'static self) {
        for fd in self.table.unexamined() {
            self.look_up(fd);
        }
    }

    /// Finds out what an unknown or unexamined number stands for.
    #[cold]
    pub(crate) fn examine(&'static self, fd: RawFd, before: Entry) -> Entry {
        // A number that is closed stays unknown.
        let number = self.host.borrow(fd);
        let found = fs::fcntl_getfl(number).and_then(|flags| Ok((flags, identify(number)?)));
        let Ok((flags, (mode, (device, inode)))) = found else { return before };
        let reason = match before {
            Entry::Opened(_) => self.attention.refusal(),
            _ => Some(Reason::Inherited),
        };
        let is_file = !flags.contains(OFlags::PATH);
        let id = is_file.then(|| self.keep(mode, device, inode, flags, reason)).flatten();
        let learned = self.table.learn(fd, before, id.map_or(Entry::Foreign, Entry::File));
        if let Some(id) = id {
            if learned != Entry::File(id) {
                self.forget_file(id);
            } else if matches!(before, Entry::Opened(_)) {
                self.count(reason.map_or(Counter::Files, Counter::Fallbacks), 1);
            }
        }
        learned
    }
}

/// True if nothing depends on the file of a descriptor that is opened with such flags.
#[inline]
fn may_be_short(flags: OFlags) -> bool {
    !flags.intersects(OFlags::PATH | OFlags::DIRECTORY | OFlags::DIRECT)
}
