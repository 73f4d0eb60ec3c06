//! Files that must be seen by others, and files that are detached: given back to the kernel.
//!
//! To detach always means the same: everything staged is in the file, the daemon has let go of it,
//! and the kernel has the position, so that whoever shares the descriptor finds what it expects.

use core::sync::atomic::{Ordering, fence};

use rustix::{
    fd::{AsFd, OwnedFd, RawFd},
    io::{self, Errno, FdFlags},
};
use shm::Job;
use wire::{Counter, Reason, Request};

use crate::{
    attention::Event,
    client::Client,
    connection::Lost,
    locked_file::Locked,
    marks::{Marks, identity},
    open::identify,
    rooms::Room,
    slot::Link,
    staging::{self, Failure, drain},
    table::Entry,
};

impl Client {
    /// Has everything staged for `fd` in the file when it returns, and a real descriptor behind the
    /// number. For calls that then go to the kernel: `fallocate`, `sync_file_range`,
    /// `posix_fadvise`. What a write behind owes is kept for the next write, sync, or close.
    pub fn drain(&'static self, fd: RawFd) {
        if self.is_unexamined(fd) {
            return;
        }
        let Some(mut file) = self.locked_fd(fd) else { return };
        if file.state.is_delegated() {
            file.detach(Reason::Unsupported);
        }
        file.drain();
        self.settle_others(&file);
    }

    /// Has everything that was accepted for `fd` in the file when it returns.
    ///
    /// # Errors
    ///
    /// The error that a write behind owes.
    pub fn flush(&'static self, fd: RawFd) -> io::Result<()> {
        if self.is_unexamined(fd) {
            return Ok(());
        }
        let Some(mut file) = self.locked_fd(fd) else { return Ok(()) };
        file.drain();
        let owed = file.tell_error();
        let is_gone = file.state.is_lost();
        drop(file);
        self.sweep();
        match owed {
            Some(errno) => Err(errno),
            None if is_gone => Err(Errno::IO),
            None => Ok(()),
        }
    }

    /// Has everything staged for any file of this process in the files when it returns.
    pub fn drain_all(&'static self) {
        self.drain_each(|_| true);
    }

    /// Has everything staged for any file of the job in the files when it returns.
    pub fn drain_job(&'static self) {
        self.drain_all();
        if self.is_nothing_staged() {
            return;
        }
        if let Some(connection) = self.connection() {
            match connection.call(Request::FlushAll { of_job: true }) {
                Ok(_) | Err(Lost) => {}
            }
        }
    }

    /// Drains the files that are `wanted`. The daemon drains those that are not released soon: a
    /// signal handler may have stopped the call that has one, or left it for good.
    pub(crate) fn drain_each(&'static self, wanted: impl Fn(&Locked) -> bool) {
        let is_any_kept = self.each_linked_soon(|file| {
            if wanted(file) {
                file.drain();
            }
        });
        if let Some(connection) = self.sessions.current().filter(|_| is_any_kept) {
            // Where the daemon is lost, whoever has a file finds that by its next call on it.
            match connection.call(Request::FlushAll { of_job: false }) {
                Ok(_) | Err(Lost) => {}
            }
        }
    }

    /// Once the daemon is found to be lost: takes over every file, not just the one in use.
    pub(crate) fn sweep(&'static self) {
        if self.begin_sweep() {
            self.each_linked(|file| {
                file.detach(Reason::DaemonLost);
            });
        }
    }

    /// The program takes a lock, or gives it up: leaves the file to the kernel. The daemon must not
    /// have a descriptor of it, for it would hold the lock beyond the owner's death; and every
    /// write to it has to be in the file before the lock is given up.
    pub fn lock(&'static self, fd: RawFd) {
        self.before_lock(fd);
        let Some(file) = self.locked_fd(fd) else { return };
        if file.state.is_remote() {
            return; // There is nothing here to lock: the kernel says so.
        }
        let (device, inode) = (file.device, file.inode);
        drop(file);
        // A thread that opens it meanwhile sees the locks, or is found here.
        fence(Ordering::SeqCst);
        self.detach_placeholders(device, inode);
        let Some(mut file) = self.locked_fd(fd) else { return };
        file.detach(Reason::Synchronous);
    }

    /// Before a file is locked. The lock belongs to the descriptor, so there has to be a real one;
    /// and behind all others of the file: to make a placeholder real a number has to be closed, and
    /// the kernel would take the record locks with it.
    fn detach_placeholders(&'static self, device: u64, inode: u64) {
        self.each_linked_to(device, inode, |file| {
            if file.state.is_delegated() {
                file.detach(Reason::Unsupported);
            }
        });
    }

    /// Drains, gives the kernel the file position, and leaves the file to it from now on. What
    /// others have staged for it so far does not come over what the kernel does next.
    pub fn detach(&'static self, fd: RawFd, reason: Reason) {
        let Some(mut file) = self.locked_fd(fd) else { return };
        file.detach(reason);
        self.settle_others(&file);
    }

    /// The program was told the status of a number by the kernel: which file that is.
    #[inline]
    pub fn note_status(&'static self, fd: RawFd, device: u64, inode: u64) {
        if let Entry::Opened(opened) = self.table.get(fd) {
            if shm::is_alone() {
                self.last_status.note(fd, opened, identity(device, inode));
            }
        }
    }

    /// The program maps a file that was not examined since it was opened, and is none that is
    /// staged to: it is noted which, and the kernel can map it as it is. False where more may
    /// depend on it.
    pub fn map_unexamined(&'static self, fd: RawFd, is_shared: bool) -> bool {
        let Entry::Opened(opened) = self.table.get(fd) else { return false };
        if !self.is_nothing_staged() {
            return false;
        }
        let known = shm::is_alone().then(|| self.last_status.identity(fd, opened)).flatten();
        let ask = || identify(self.host.borrow(fd)).ok();
        let found = known.or_else(|| ask().map(|(_, (device, inode))| identity(device, inode)));
        found.into_iter().for_each(|identity| self.mark_mapped(identity, is_shared));
        self.is_unexamined(fd)
    }

    /// The program maps a file. The caller then has it drained if anybody stages to it.
    pub(crate) fn mark_mapped(&'static self, identity: u64, is_shared: bool) {
        self.mapped.add_identity(identity);
        if let Some(job) = self.job().filter(|_| is_shared) {
            Marks::new(&job.shared().mapped).add_identity(identity);
        }
        fence(Ordering::SeqCst);
    }

    /// True if this process has mapped the file, or one of the job as shared.
    pub(crate) fn is_mapped(&'static self, device: u64, inode: u64) -> bool {
        let is_shared = |job: &'static Job| Marks::new(&job.shared().mapped).has(device, inode);
        self.mapped.has(device, inode) || self.job().is_some_and(is_shared)
    }

    /// The program maps the file: no descriptor of it begins to stage from now on, of any process
    /// of the job if the mapping `is_shared`.
    pub fn mapping(&'static self, fd: RawFd, is_shared: bool) {
        let Some(file) = self.locked_fd(fd) else { return };
        let identity = identity(file.device, file.inode);
        drop(file);
        self.mark_mapped(identity, is_shared);
        self.detach_mapped(identity);
    }

    /// Counts bytes that a system call wrote to `fd` past the client.
    pub fn count_undelegated(&'static self, fd: RawFd, reason: Reason, bytes: usize) {
        let is_here = || self.locked_fd(fd).is_some_and(|file| !file.state.is_remote());
        if self.is_unexamined(fd) || is_here() {
            self.count_written(reason, bytes);
        }
    }

    /// Leaves every file of this node that the program has open, or will open: anything may be done
    /// with any of them that nobody sees.
    pub fn detach_all(&'static self) {
        self.attention.note(Event::Detach);
        self.detach_open();
    }

    /// Leaves every file of this node that the program has open now.
    pub fn detach_open(&'static self) {
        self.examine_all();
        for (fd, id) in self.table.files(0, u32::MAX) {
            let Some(mut file) = self.locked_among_all(fd, id) else { continue };
            if !file.state.is_remote() {
                file.detach(Reason::Unsupported);
            }
        }
    }

    /// Gives every open file to the kernel, with its position. The caller makes plain system calls
    /// from then on.
    pub fn detach_served(&'static self) {
        self.examine_all();
        for (fd, id) in self.table.files(0, u32::MAX) {
            let Some(mut file) = self.locked_among_all(fd, id) else { continue };
            if file.may_be_staged() {
                file.detach(Reason::Unsupported);
            }
        }
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

    /// Before `fork`: every open file is left to the kernel, position and all, in both processes. A
    /// remote one that has no view, or a lock of this process, stays the parent's, as does what
    /// another thread does not let go of.
    pub fn before_fork(&'static self) {
        if self.active().is_none() {
            return;
        }
        self.examine_all();
        for (fd, id) in self.table.files(0, u32::MAX) {
            let Some(mut file) = self.locked_among_all(fd, id) else { continue };
            // The position is shared from now on, so the kernel has to keep it.
            if file.may_be_staged() {
                file.detach(Reason::Forked);
            }
        }
    }

    /// After `fork`, in the child: it starts without a session.
    pub fn after_fork_in_child(&'static self) {
        self.forget_connection();
        Room::free_others();
        for entry in self.files.all() {
            entry.lock.break_open();
            entry.cursor.forget();
            if let Ok(mut file) = entry.lock.lock() {
                let is_writable = file.access.writable;
                file.state.fork(is_writable);
            }
        }
    }

    /// Before another program takes over: `exec` when `replaces` (this process is that program),
    /// else `posix_spawn` and its like. Files it will inherit are left to the kernel.
    pub fn before_exec(&'static self, replaces: bool) {
        if self.active().is_none() {
            return;
        }
        self.examine_all();
        for (fd, id) in self.table.files(0, u32::MAX) {
            let Some(mut file) = self.locked_among_all(fd, id) else { continue };
            let flags = io::fcntl_getfd(self.borrow(fd));
            if flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
                if file.may_be_staged() {
                    file.detach(Reason::PassedOn);
                }
            } else if replaces {
                file.drain();
            }
        }
        if replaces {
            self.leave_counters();
        }
    }

    /// The last destructor has run: drains everything. What is opened or first written later is the
    /// kernel's if it is on this node; each write to a file of a server waits until it is done.
    /// A file that another thread does not let go of is drained by the daemon, once the process has
    /// ended.
    pub fn exiting(&'static self) {
        if !self.attention.note(Event::Exit) || self.active().is_none() {
            return;
        }
        if self.locks.are_any() {
            self.each_linked_by(Self::locked_at_exit, Locked::drain);
        }
        self.each_linked_by(Self::locked_at_exit, |file| {
            file.state.release_window();
            if file.state.is_remote() && file.access.writable {
                self.unlock_at_exit(file);
                file.drain();
                file.writes.synchronize();
            } else if file.state.is_delegated() {
                file.detach(Reason::Exiting);
            } else {
                staging::unlink(file);
            }
            if file.owed.tell().is_some() {
                self.count(Counter::ErrorsUnreported, 1);
            }
            file.state.refuse(Reason::Exiting);
        });
        self.leave_counters();
    }
}

impl Locked {
    /// Has everything staged for it in the file, whatever else is staged to its inode.
    pub(crate) fn drain(&mut self) {
        let (fd, file) = (self.borrow(), &mut *self.file);
        let Some((link, log)) = file.state.staging() else { return };
        match drain(link, log, fd) {
            Ok(()) if log.producer.waiting() == 0 => file.owed.drain(),
            Ok(()) => {}
            Err(Failure::Lost) => self.detach(Reason::DaemonLost),
            Err(Failure::Refused(errno)) => file.owed.hold(errno),
        }
    }

    /// Leaves it to the kernel, drained and with its position. A remote one may have to stay.
    pub(crate) fn detach(&mut self, reason: Reason) {
        let client = self.client;
        if let Some(link) = self.state.link().filter(|_| self.state.is_remote()) {
            if !link.connection.is_lost() {
                if self.detach_to_view(reason).is_err() {
                    self.drain();
                }
                return;
            }
            self.owed.owe(Errno::IO);
        }
        self.state.release_window();
        if let Some(link) = self.state.link().filter(|_| self.state.is_delegated()) {
            // The daemon drains it first.
            match self.materialize(link) {
                Ok(real) => client.replace_numbers(self.fd, &real),
                // What is staged is drained all the same, and nobody is there to be told.
                Err(Errno::MFILE) if reason == Reason::Exiting => {}
                Err(errno) => self.owed.owe(errno),
            }
            self.state.substitute();
        }
        staging::unlink(self);
        self.fall_back(reason);
    }

    /// Remembers why the kernel serves a file from now on.
    pub(crate) fn fall_back(&mut self, reason: Reason) {
        if self.state.refusal().is_none() && self.access.writable && !self.state.is_remote() {
            self.client.count(Counter::Fallbacks(reason), 1);
        }
        self.state.refuse(reason);
    }

    /// A real descriptor for a placeholder: the daemon's, or, without a daemon, a new one.
    fn materialize(&self, link: Link) -> io::Result<OwnedFd> {
        if let Ok(Ok(real)) = link.connection.materialize(link.slot) {
            return Ok(real);
        }
        staging::reopen(self.fd, self)
    }
}
