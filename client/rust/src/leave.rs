//! Files that must be seen by others, and files that go back to the kernel for good.
//!
//! Leaving always means the same: everything staged is in the file, the daemon has let go of it,
//! and the kernel has the position, so that whoever shares the descriptor finds what it expects.

use core::sync::atomic::{Ordering, fence};

use rustix::{
    fd::{AsFd, OwnedFd, RawFd},
    io::{self, FdFlags},
};
use wire::{Counter, Reason};

use crate::{
    client::Client,
    file::{FileEntry, Link, OpenFile},
    staging,
    table::Entry,
};

impl Client {
    /// Has everything staged for `fd` in the file when it returns, and a real descriptor behind the
    /// number. For calls that then go to the kernel: `fallocate`, `sync_file_range`,
    /// `posix_fadvise`. What a write behind owes is kept for the next write, sync, or close.
    pub fn drain(&'static self, fd: RawFd) {
        let Some((entry, mut file)) = self.locked_fd(fd) else { return };
        if file.placeholder && !file.is_remote {
            self.leave_file(fd, entry, &mut file, Reason::Unsupported);
        }
        self.drain_file(fd, entry, &mut file);
        self.settle_others(&mut file);
    }

    pub(crate) fn drain_file(&'static self, fd: RawFd, entry: &FileEntry, file: &mut OpenFile) {
        let (Some(link), Some(log)) = (file.link, file.log.as_mut()) else { return };
        if staging::flush(link, log, log.producer.head()).is_err() {
            self.leave_file(fd, entry, file, Reason::DaemonLost);
        }
    }

    /// Has everything that was accepted for `fd` in the file when it returns.
    ///
    /// # Errors
    ///
    /// What a write behind owes.
    pub fn flush(&'static self, fd: RawFd) -> io::Result<()> {
        let Some((entry, mut file)) = self.locked_fd(fd) else { return Ok(()) };
        self.drain_file(fd, entry, &mut file);
        let owed = file.owed.take().or_else(|| file.link.and_then(staging::take_error));
        let is_gone = file.is_gone();
        drop(file);
        self.sweep();
        match owed {
            Some(errno) => Err(errno),
            None if is_gone => Err(io::Errno::IO),
            None => Ok(()),
        }
    }

    /// Has everything staged for any file of this process in the files when it returns.
    pub fn drain_all(&'static self) {
        self.each_linked(|fd, entry, file| self.drain_file(fd, entry, file));
    }

    /// Once the daemon is found to be lost: takes over every file, not just the one in use.
    pub(crate) fn sweep(&'static self) {
        if self.is_newly_lost() {
            self.each_linked(|fd, entry, file| {
                self.leave_file(fd, entry, file, Reason::DaemonLost);
            });
        }
    }

    /// The program takes a lock, or gives it up: drains everything, and makes every later write to
    /// this file wait until it is drained.
    pub fn lock(&'static self, fd: RawFd) {
        self.before_lock(fd);
        let Some((_, file)) = self.locked_fd(fd) else { return };
        if file.is_remote {
            return; // There is nothing here to lock: the kernel says so.
        }
        let (device, inode) = (file.device, file.inode);
        drop(file);
        // A thread that opens it meanwhile sees `has_locks`, or is found here.
        fence(Ordering::SeqCst);
        self.leave_placeholders(device, inode);
        let Some((entry, mut file)) = self.locked_fd(fd) else { return };
        self.drain_file(fd, entry, &mut file);
        file.is_synchronous = true;
    }

    /// Before a file is locked. The lock belongs to the descriptor, so there has to be a real one;
    /// and behind all others of the file: to make a placeholder real a number has to be closed, and
    /// the kernel would take the record locks with it.
    fn leave_placeholders(&'static self, device: u64, inode: u64) {
        self.each_linked(|fd, entry, file| {
            let is_same = (file.device, file.inode) == (device, inode);
            if is_same && file.placeholder && !file.is_remote {
                self.leave_file(fd, entry, file, Reason::Unsupported);
            }
        });
    }

    /// Drains, gives the kernel the file position, and leaves the file to it from now on.
    pub fn leave(&'static self, fd: RawFd, reason: Reason) {
        let Some((entry, mut file)) = self.locked_fd(fd) else { return };
        self.leave_file(fd, entry, &mut file, reason);
    }

    /// The program maps the file: no descriptor of it begins to stage from now on.
    pub fn mapping(&'static self, fd: RawFd) {
        if let Some((_, file)) = self.locked_fd(fd) {
            self.mapped.add(file.device, file.inode);
        }
    }

    /// Counts bytes that a system call wrote to `fd` past the client.
    pub fn count_undelegated(&'static self, fd: RawFd, reason: Reason, bytes: usize) {
        if self.locked_fd(fd).is_some_and(|(_, file)| !file.is_remote) {
            self.count_written(reason, bytes);
        }
    }

    /// Leaves every file of this node that the program has open, or will open: anything may be done
    /// with any of them that nobody sees.
    pub fn leave_all(&'static self) {
        self.leaves_all.store(true, Ordering::Release);
        for (fd, id) in self.table.files(0, u32::MAX) {
            let Some((entry, mut file)) = self.locked(id) else { continue };
            if !file.is_remote {
                self.leave_file(fd, entry, &mut file, Reason::Unsupported);
            }
        }
    }

    pub(crate) fn leave_file(
        &'static self,
        fd: RawFd,
        entry: &FileEntry,
        file: &mut OpenFile,
        reason: Reason,
    ) {
        self.release_window(file);
        if let Some(link) = file.link.filter(|_| file.placeholder) {
            // Either way the daemon drains it first.
            let real = if file.is_remote {
                self.stand_in(entry, link, !file.access.writable)
            } else {
                self.materialize(fd, file, link)
            };
            match real {
                Ok(real) => self.replace_numbers(fd, &real),
                Err(errno) => file.owed = Some(errno),
            }
            file.placeholder = false;
        }
        if file.is_remote && file.link.is_some_and(|link| !link.connection.is_lost()) {
            // The daemon keeps the file, for what is not a pipe's: its mode, owner, and times.
            entry.is_staged.store(false, Ordering::Release);
        } else {
            self.end_link(entry, file, fd);
        }
        self.fall_back(file, reason);
    }

    /// Remembers why the kernel serves a file from now on; of a remote one, a pipe to the daemon.
    pub(crate) fn fall_back(&'static self, file: &mut OpenFile, reason: Reason) {
        if file.left.is_none() && file.access.writable && !file.is_remote {
            self.count(Counter::Fallbacks(reason), 1);
        }
        file.left = file.left.or(Some(reason));
    }

    /// Ends a file's link, if it has one.
    pub(crate) fn end_link(&'static self, entry: &FileEntry, file: &mut OpenFile, fd: RawFd) {
        if let Some(log) = &file.log {
            if file.link.is_some_and(|link| link.connection.is_lost()) {
                self.count(Counter::BytesTakenOver, log.producer.waiting());
            }
        }
        staging::unlink(entry, file, self.borrow(fd));
    }

    /// A real descriptor for a placeholder: the daemon's, or, without a daemon, a new one.
    fn materialize(&'static self, fd: RawFd, file: &OpenFile, link: Link) -> io::Result<OwnedFd> {
        if let Ok(Ok(real)) = link.connection.materialize(link.slot, 0, false) {
            return Ok(real);
        }
        staging::reopen(fd, file)
    }

    /// Makes every number of the file that `fd` stands for refer to `real`.
    pub(crate) fn replace_numbers(&'static self, fd: RawFd, real: &OwnedFd) {
        let Entry::File(id) = self.table.get(fd) else { return };
        for (number, _) in self.table.files(0, u32::MAX).filter(|(_, other)| *other == id) {
            self.replace_number(number, real);
        }
    }

    fn replace_number(&self, number: RawFd, real: &OwnedFd) {
        // The number is open and stays so; nothing can fail but a signal that is retried below.
        match io::retry_on_intr(|| self.host.replace(number, real.as_fd())) {
            Ok(()) | Err(_) => {}
        }
    }

    // ---- the process

    /// Before `fork`: every open file is left to the kernel, position and all, in both processes;
    /// but for remote ones with close-on-exec, which stay the parent's until a child wants them.
    pub fn before_fork(&'static self) {
        if self.active().is_none() {
            return;
        }
        for (fd, id) in self.table.files(0, u32::MAX) {
            let Some((entry, mut file)) = self.locked(id) else { continue };
            self.take_back(fd, entry, &mut file);
            // The position is shared from now on, so the kernel has to keep it.
            if self.stays_over_fork(fd, &file) {
                self.drain_file(fd, entry, &mut file);
            } else if file.access.writable || file.link.is_some() {
                self.leave_file(fd, entry, &mut file, Reason::Forked);
            }
        }
    }

    /// After `fork`, in the child: it starts without a session.
    pub fn after_fork_in_child(&'static self) {
        self.forget_connection();
        for entry in self.files.all() {
            entry.lock.break_open();
            entry.is_staged.store(false, Ordering::Release);
            if let Ok(mut file) = entry.lock.lock() {
                file.lender =
                    file.link.filter(|_| file.placeholder && file.is_remote).or(file.lender);
                // What the parent's other threads linked meanwhile is theirs.
                file.link = None;
                file.log = None;
                file.window = None;
                file.placeholder = false;
                file.left = file.left.or(file.access.writable.then_some(Reason::Forked));
            }
        }
    }

    /// Before another program takes over: `exec` when `replaces` (this process is that program),
    /// else `posix_spawn` and its like. Files it will inherit are left to the kernel.
    pub fn before_exec(&'static self, replaces: bool) {
        if self.active().is_none() {
            return;
        }
        for (fd, id) in self.table.files(0, u32::MAX) {
            let Some((entry, mut file)) = self.locked(id) else { continue };
            let flags = io::fcntl_getfd(self.borrow(fd));
            if flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
                if file.access.writable || file.link.is_some() {
                    self.leave_file(fd, entry, &mut file, Reason::PassedOn);
                }
            } else if replaces {
                self.drain_file(fd, entry, &mut file);
            }
        }
        if replaces {
            self.leave_counters();
        }
    }

    /// The last destructor has run: drains everything. What is opened or first written later is the
    /// kernel's if it is on this node; each write to a file of a server waits until it is done.
    pub fn exiting(&'static self) {
        if self.exiting.swap(true, Ordering::AcqRel) || self.active().is_none() {
            return;
        }
        self.before_unlock(None);
        self.each_linked(|fd, entry, file| {
            self.release_window(file);
            if file.placeholder && (file.access.writable || !file.is_remote) {
                self.unlock_at_exit(file);
                self.leave_file(fd, entry, file, Reason::Exiting);
            } else {
                self.end_link(entry, file, fd);
            }
            if file.owed.take().is_some() {
                self.count(Counter::ErrorsUnreported, 1);
            }
            file.left = file.left.or(Some(Reason::Exiting));
        });
        self.leave_counters();
    }

    pub(crate) fn is_exiting(&self) -> bool {
        self.exiting.load(Ordering::Acquire)
    }

    pub(crate) fn each_linked(
        &'static self,
        mut each: impl FnMut(RawFd, &FileEntry, &mut OpenFile),
    ) {
        if self.connected().is_none() {
            return;
        }
        for (fd, id) in self.table.files(0, u32::MAX) {
            if let Some((entry, mut file)) = self.locked(id) {
                if file.link.is_some() {
                    each(fd, entry, &mut file);
                }
            }
        }
    }
}
