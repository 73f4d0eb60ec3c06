//! An open file in this thread's hands.

use core::{
    cell::Cell,
    ops::{Deref, DerefMut},
    time::Duration,
};

use rustix::fd::{BorrowedFd, RawFd};
use shm::Guard;

use crate::{
    client::Client,
    file::{FileEntry, OpenFile},
    marks::identity,
    table::{Entry, FileId},
};

/// For how long a file may stay locked before whoever has it is given up: a signal handler may have
/// stopped that thread for good, or left the call by a jump, as natively it may. Where the daemon
/// drains the file instead, it waits for a drain that is under way. At an exit it has the
/// remainder. Everywhere else only a holder that is slower than any device is given up: a child of
/// a fork would go on at the kernel's position.
const BEFORE_DAEMON: Duration = Duration::from_millis(10);
const AT_EXIT: Duration = Duration::from_secs(1);
const AT_MOST: Duration = Duration::from_secs(30);

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

    /// As [`locked`](Self::locked), of one of all files. Calls that are about other files do not
    /// wait for this one for ever.
    pub(crate) fn locked_among_all(&'static self, fd: RawFd, id: FileId) -> Option<Locked> {
        self.locked_within(fd, id, AT_MOST).map(promoted)
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

    /// True if the calling thread has the file locked: it is in a handler that came in between.
    pub(crate) fn is_held_here(&'static self, fd: RawFd) -> bool {
        let Entry::File(id) = self.table.get(fd) else { return false };
        self.files.get(id).is_some_and(|entry| entry.lock.is_mine())
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
        self.each_linked_by(|client, fd, id| client.locked_within(fd, id, AT_MOST), each);
    }

    /// As [`each_linked`](Self::each_linked), of one inode.
    pub(crate) fn each_linked_to(
        &'static self,
        device: u64,
        inode: u64,
        mut each: impl FnMut(&mut Locked),
    ) {
        let wanted = identity(device, inode);
        let lock = |client: &'static Self, fd, id| {
            let is_its = |entry: &&FileEntry| entry.identity() == wanted;
            client.files.get(id).filter(is_its)?;
            client.locked_within(fd, id, AT_MOST)
        };
        self.each_linked_by(lock, |file| {
            if (file.device, file.inode) == (device, inode) {
                each(file);
            }
        });
    }

    /// As [`each_linked`](Self::each_linked), without files that are not released soon. Returns
    /// true if there are any.
    pub(crate) fn each_linked_soon(&'static self, each: impl FnMut(&mut Locked)) -> bool {
        let time = Cell::new(BEFORE_DAEMON);
        let lock = |client: &'static Self, fd, id| {
            let entry = client.files.get(id)?;
            let file = entry.lock.lock_within(time.get());
            if file.is_none() {
                time.set(Duration::ZERO);
            }
            client.held(Locked { client, fd, id, entry, file: file? })
        };
        self.each_linked_by(lock, each);
        time.get().is_zero()
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
