//! An open file in this thread's hands.

use core::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use rustix::fd::{BorrowedFd, RawFd};
use shm::Guard;

use crate::{
    client::Client,
    file::{FileEntry, OpenFile},
    table::{Entry, FileId},
};

/// For how long a file may stay locked before whoever has it is given up: a signal handler may have
/// stopped that thread for good, as natively it may. At an exit the daemon has what is left over. A
/// child of a fork would go on at the kernel's position, so only a holder that is slower than any
/// device is given up there.
const AT_EXIT: Duration = Duration::from_secs(1);
const AT_FORK: Duration = Duration::from_secs(30);

/// An open file that this thread has locked, by one of its numbers.
pub(crate) struct Locked {
    pub(crate) client: &'static Client,
    pub(crate) fd: RawFd,
    pub(crate) id: FileId,
    /// State outside of the lock.
    pub(crate) entry: &'static FileEntry,
    pub(crate) file: Guard<'static, OpenFile>,
}

impl Locked {
    /// The number, for system calls.
    pub(crate) fn borrow(&self) -> BorrowedFd<'static> {
        self.client.borrow(self.fd)
    }

    /// True if the file has not been closed since it was looked up.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open_as(self.id)
    }
}

impl Deref for Locked {
    type Target = OpenFile;

    fn deref(&self) -> &OpenFile {
        &self.file
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut OpenFile {
        &mut self.file
    }
}

impl Client {
    /// Locks a file; `None` when it is gone, or when this thread was interrupted while it had it.
    /// One of a bundle is promoted.
    pub(crate) fn locked(&'static self, fd: RawFd, id: FileId) -> Option<Locked> {
        self.locked_as_is(fd, id).map(promoted)
    }

    /// As [`locked`](Self::locked), for who knows what may be done with a file of a bundle.
    pub(crate) fn locked_as_is(&'static self, fd: RawFd, id: FileId) -> Option<Locked> {
        self.locked_unnamed(fd, id).and_then(|locked| self.held(locked))
    }

    /// As [`locked`](Self::locked), by a number that is about to stand for the file.
    pub(crate) fn locked_unnamed(&'static self, fd: RawFd, id: FileId) -> Option<Locked> {
        let entry = self.files.get(id)?;
        let file = entry.lock.lock().ok()?;
        Some(Locked { client: self, fd, id, entry, file }).filter(Locked::is_open)
    }

    /// Keeps the lock if the number still stands for the file: it may have been closed, and be
    /// another file now.
    fn held(&self, locked: Locked) -> Option<Locked> {
        let is_its = self.table.get(locked.fd) == Entry::File(locked.id);
        Some(locked).filter(|locked| is_its && locked.is_open())
    }

    /// As [`locked`](Self::locked), before the process ends. A holder that does not let go of the
    /// file is given up, and the file left out.
    pub(crate) fn locked_at_exit(&'static self, fd: RawFd, id: FileId) -> Option<Locked> {
        self.locked_within(fd, id, AT_EXIT)
    }

    /// As [`locked_at_exit`](Self::locked_at_exit), before the process is copied.
    pub(crate) fn locked_at_fork(&'static self, fd: RawFd, id: FileId) -> Option<Locked> {
        self.locked_within(fd, id, AT_FORK).map(promoted)
    }

    fn locked_within(&'static self, fd: RawFd, id: FileId, time: Duration) -> Option<Locked> {
        let entry = self.files.get(id)?;
        let file = entry.lock.lock_within(time)?;
        self.held(Locked { client: self, fd, id, entry, file })
    }

    /// Locks the file that a number stands for.
    pub(crate) fn locked_fd(&'static self, fd: RawFd) -> Option<Locked> {
        self.look_up(fd);
        self.known(fd)
    }

    /// As [`locked_fd`](Self::locked_fd), for who knows what may be done with a file of a bundle.
    pub(crate) fn locked_fd_as_is(&'static self, fd: RawFd) -> Option<Locked> {
        self.look_up(fd);
        self.known_as_is(fd)
    }

    /// As [`known`](Self::known), for who knows what may be done with a file of a bundle.
    pub(crate) fn known_as_is(&'static self, fd: RawFd) -> Option<Locked> {
        let Entry::File(id) = self.table.get(fd) else { return None };
        self.locked_as_is(fd, id)
    }

    /// Locks the file that a number is known to stand for, once it is locked.
    pub(crate) fn known(&'static self, fd: RawFd) -> Option<Locked> {
        let Entry::File(id) = self.table.get(fd) else { return None };
        self.locked(fd, id)
    }

    pub(crate) fn each_linked(&'static self, each: impl FnMut(&mut Locked)) {
        self.each_linked_by(Self::locked_as_is, each);
    }

    /// As [`each_linked`](Self::each_linked), with what `lock` locks.
    pub(crate) fn each_linked_by(
        &'static self,
        lock: impl Fn(&'static Self, RawFd, FileId) -> Option<Locked>,
        mut each: impl FnMut(&mut Locked),
    ) {
        if !self.sessions.may_have_one() {
            return;
        }
        for (fd, id) in self.table.files(0, u32::MAX) {
            if let Some(mut file) = lock(self, fd, id).filter(|file| file.state.link().is_some()) {
                each(&mut file);
            }
        }
    }
}

/// A file as any other: what it could not become it owes an error for.
fn promoted(mut file: Locked) -> Locked {
    if let Err(errno) = file.promote() {
        file.owed.owe(errno);
    }
    file
}
