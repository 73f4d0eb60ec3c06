//! Files that come and go: which are ours, and what the last close waits for.

use core::{ffi::CStr, ptr};

use rustix::{
    fd::{BorrowedFd, RawFd},
    fs::{self, AtFlags, FileType, Mode, OFlags, StatxFlags},
    io,
};
use shm::Linked;
use wire::{Counter, LockOwner, Reason, Request};

use crate::{
    client::Client,
    connection::Connection,
    file::{self, FileEntry, OpenFile},
    locked_file::Locked,
    marks::identity,
    names::Name,
    paths::AbsolutePath,
    rules::{Policy, policy_without_rules},
    socket::OwnNumber,
    staging,
    state::State,
    table::{Entry, FileId},
};

/// Numbers of the standard streams: libc reads and writes them by itself, past every wrapper.
pub(crate) const STREAMS_MAX: RawFd = 2;

impl Client {
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
        let (flags, mode) = (OFlags::from_bits_retain(flags), Mode::from_bits_retain(mode));
        let name = Name { dir, path };
        let ruled = self.if_ruled(|| {
            let resolved = self.resolve(dir, path)?;
            let rule = resolved.rule();
            let opened = self.open_resolved(name, Some(resolved), flags, mode);
            if let (Ok(_), Some(rule)) = (opened, rule) {
                self.count(Counter::OfRule(rule), 1);
            }
            Some(opened)
        });
        ruled.unwrap_or_else(|| self.open_resolved(name, None, flags, mode))
    }

    /// Opens a path; `resolved`: as a rule says.
    fn open_resolved(
        &'static self,
        name: Name<'_>,
        resolved: Option<AbsolutePath>,
        flags: OFlags,
        mode: Mode,
    ) -> io::Result<RawFd> {
        let Name { dir, path } = name;
        let policy = match &resolved {
            Some(resolved) => Some(resolved.policy()),
            None => self.active().map(|_| policy_without_rules(dir, path)),
        };
        let policy =
            policy.filter(|policy| *policy == Policy::Remote || !self.attention.is_exiting());
        // The kernel opens nothing without a name; to others that would be the folder `dir`.
        let policy = policy.filter(|_| !path.is_empty());
        if policy.is_some() && flags.contains(OFlags::TRUNC) {
            self.settle_path(dir, path);
            self.sweep();
        }
        let opened = match (policy, &resolved) {
            (Some(Policy::Kernels), _) => {
                self.detach_number(path)?;
                None
            }
            (Some(Policy::Remote), Some(resolved)) => {
                // A link is not the last part of such a name.
                let is_passed = [&b"/"[..], b"/."].iter().any(|end| path.to_bytes().ends_with(end));
                let ignored = if is_passed { OFlags::NOFOLLOW } else { OFlags::empty() };
                let opened = self.open_remote(name, resolved, flags - ignored, mode);
                let opened = opened.inspect(|&fd| self.detach_opened(fd));
                self.unless_elsewhere(resolved, Some(opened))
            }
            (Some(Policy::Delegate), Some(resolved)) if self.attention.refusal().is_none() => {
                self.open_delegated(name, resolved, flags, mode)
            }
            _ => None,
        };
        if let Some(opened) = opened {
            if let Ok(fd @ ..=STREAMS_MAX) = opened {
                self.detach(fd, Reason::StandardStream);
            }
            return opened;
        }
        // The kernel may wait for long, as for the other end of a pipe: all threads share the room.
        drop(resolved);
        let is_file = matches!(policy, Some(Policy::Hybrid | Policy::Delegate | Policy::Pass));
        let timed = if is_file { self.sampler.open_begins() } else { None };
        let fd = self.host.open(dir, path, flags.bits(), mode.bits())?;
        let sample = timed.map(|timed| timed.open_sample(flags));
        match policy {
            Some(policy) => {
                self.opened(fd, flags, policy);
                if let Some(sample) = sample {
                    self.learn_opened(fd, sample);
                }
                self.sweep();
            }
            None => self.forget(fd),
        }
        Ok(fd)
    }

    /// True if calls on `fd` are delegated, or may become so.
    #[must_use]
    pub fn is_delegated(&'static self, fd: RawFd) -> bool {
        self.locked_fd_as_is(fd).is_some_and(|file| file.state.refusal().is_none())
    }

    /// True if the client has the position of `fd`, or may come to have it: calls on it are
    /// delegated, and it can be written, or only the daemon has it open.
    #[must_use]
    pub fn may_keep_position(&'static self, fd: RawFd) -> bool {
        self.locked_fd_as_is(fd).is_some_and(|file| {
            file.state.refusal().is_none() && (file.access.writable || file.state.is_placeholder())
        })
    }

    /// True if calls on `fd` are delegated, and there is a daemon; connects first if need be.
    #[must_use]
    pub fn is_served(&'static self, fd: RawFd) -> bool {
        self.is_delegated(fd) && self.connection().is_some_and(|c| !c.is_lost())
    }

    /// True if `fd` is nothing that could be delegated: no regular file. Costs a table look-up, and
    /// a system call at a number's first time.
    #[must_use]
    pub fn is_foreign(&'static self, fd: RawFd) -> bool {
        matches!(self.look_up(fd), Entry::Foreign | Entry::Unknown)
    }

    /// True if `fd` is known as a regular file. Costs a table look-up.
    #[must_use]
    #[inline]
    pub fn is_file(&'static self, fd: RawFd) -> bool {
        matches!(self.table.get(fd), Entry::File(_))
    }

    /// True if the kernel knows nothing of the file that `fd` is: it has a placeholder. Takes no
    /// lock, and asks the kernel of files alone.
    #[must_use]
    pub fn is_placeholder(&'static self, fd: RawFd) -> bool {
        let flags = self.is_file(fd).then(|| fs::fcntl_getfl(self.borrow(fd)));
        matches!(flags, Some(Ok(flags)) if flags.contains(OFlags::PATH))
    }

    /// The numbers below `end` that are known as regular files.
    pub fn files_below(&'static self, end: u32) -> impl Iterator<Item = RawFd> {
        let last = end.checked_sub(1);
        last.into_iter().flat_map(|last| self.table.files(0, last)).map(|(fd, _)| fd)
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
        let watched = self.watch.close_begins(|| matches!(self.table.get(fd), Entry::File(_)));
        self.before_unlock(Some(fd));
        let closed = self.let_go(fd);
        self.sweep();
        self.watch.close_ends(watched);
        closed
    }

    /// Takes a descriptor that was just opened into the table.
    pub(crate) fn opened(&'static self, fd: RawFd, flags: OFlags, policy: Policy) {
        if policy == Policy::Hybrid && self.leave_unexamined(fd, flags) {
            return;
        }
        // What asks for a file without a name has the bit of a folder, too.
        let is_folder = flags.contains(OFlags::DIRECTORY) && !flags.contains(OFlags::TMPFILE);
        let entry = if is_folder || flags.contains(OFlags::PATH) {
            None
        } else {
            let reason = match policy {
                Policy::Pass => Some(Reason::Rule),
                Policy::Kernels => Some(Reason::Pseudo),
                _ if fd <= STREAMS_MAX => Some(Reason::StandardStream),
                _ => self.attention.refusal(),
            };
            let kept = identify(self.host.borrow(fd)).ok();
            let kept = kept
                .and_then(|(mode, (device, inode))| self.keep(mode, device, inode, flags, reason));
            kept.inspect(|_| self.count(reason.map_or(Counter::Files, Counter::Fallbacks), 1))
        };
        self.table.set(fd, entry.map_or(Entry::Foreign, Entry::File));
    }

    /// Keeps a regular file. What anybody has staged for it is in it from now on.
    pub(crate) fn keep(
        &'static self,
        mode: u32,
        device: u64,
        inode: u64,
        flags: OFlags,
        reason: Option<Reason>,
    ) -> Option<FileId> {
        if FileType::from_raw_mode(mode) != FileType::RegularFile {
            return None;
        }
        let settled = self.linked(device, inode);
        self.settle_all(device, inode);
        let reason = reason.or_else(|| self.is_of_view(device).then_some(Reason::Unsupported));
        let state = reason.map_or(State::Fresh, State::Detached);
        let id = self.add_file(OpenFile { state, ..file::fresh(device, inode, flags) });
        id.and_then(|id| self.files.get(id)).into_iter().for_each(|entry| entry.settle(settled));
        id
    }

    /// Returns the file of a number. One that is not known is a file that somebody else opened,
    /// which is left to the kernel, or none.
    pub(crate) fn look_up(&'static self, fd: RawFd) -> Entry {
        match self.table.get(fd) {
            entry @ Entry::Opened(_) => self.examine(fd, entry),
            Entry::Unknown if self.active().is_some() => self.examine(fd, Entry::Unknown),
            entry => entry,
        }
    }

    /// Frees the place of a file that no number stands for.
    pub(crate) fn forget_file(&'static self, id: FileId) {
        if let Some(mut file) = self.files.get(id).and_then(|entry| entry.lock.lock().ok()) {
            file.number_count = 0;
            self.files.freed(id);
        }
    }

    /// Lets go of a number as [`close`](Self::close), and looks after no other file.
    pub(crate) fn let_go(&'static self, fd: RawFd) -> io::Result<()> {
        let Some(mut file) = self.known_as_is(fd) else {
            self.table.take(fd);
            return Ok(());
        };
        if file.number_count > 1 {
            // The record locks of this process are gone, as those that close its last number are.
            self.unlock(&file, LockOwner::Process);
            file.number_count -= 1;
            self.table.take(fd);
            return Ok(());
        }
        file.state.release_window();
        self.count_reads(file.entry);
        file.close_bundled();
        self.watch_closing(&file);
        file.close_at_rest();
        staging::unlink(&mut file);
        // Only now, when the kernel has the position: a thread that still writes finds it right.
        self.table.take(fd);
        file.number_count = 0;
        self.files.freed(file.id);
        file.owed.tell().map_or(Ok(()), Err)
    }

    /// Lets go of every number in `first..=last`, which the caller is about to close but for those
    /// that are the [client's own](Self::own_number).
    pub fn close_range(&'static self, first: u32, last: u32) {
        self.before_unlock(None);
        for (fd, _) in self.table.files(first, last) {
            // `close_range` reports no error of the files it closes.
            match self.let_go(fd) {
                Ok(()) | Err(_) => {}
            }
        }
        let is_closed = |fd: &RawFd| u32::try_from(*fd).is_ok_and(|n| (first..=last).contains(&n));
        self.sampler.unfollow(|fd| is_closed(&fd));
        let own = self.connected();
        // A parent's may be closed.
        let is_parents = |other: &&Connection| !own.is_some_and(|own| ptr::eq(own, *other));
        let parents = self.all_connections().filter(is_parents).flat_map(Connection::own_numbers);
        for fd in parents.map(OwnNumber::number).filter(is_closed) {
            if self.is_own(fd) {
                self.table.take(fd);
            }
        }
    }

    /// The lowest number in `first..=last` that the client keeps for itself: it must stay open.
    #[must_use]
    pub fn own_number(&'static self, first: u32, last: u32) -> Option<u32> {
        let numbers = self.connected().into_iter().flat_map(Connection::own_numbers);
        let numbers = numbers.filter_map(|own| u32::try_from(own.number()).ok());
        numbers.filter(|number| (first..=last).contains(number)).min()
    }

    /// The program made `new` a duplicate of `old`.
    pub fn duplicated(&'static self, old: RawFd, new: RawFd) {
        let entry = match self.table.get(old) {
            Entry::Own => Entry::Foreign, // The program has asked for this one.
            Entry::Opened(_) => self.look_up(old), // Two numbers are one open file.
            entry => entry,
        };
        if let Entry::File(id) = entry {
            let Some(mut file) = self.locked_as_is(old, id) else { return };
            file.number_count += 1;
            if new <= STREAMS_MAX && self.table.set(new, entry) {
                drop(file);
                self.detach(new, Reason::StandardStream);
                return;
            }
            if !self.table.set(new, entry) {
                // The kernel serves a number beyond the table, so it must serve them all.
                file.number_count -= 1;
                drop(file);
                self.detach(old, Reason::Unsupported);
            }
        } else {
            self.table.set(new, entry);
        }
    }

    /// The number now refers to something that is no file of ours.
    pub fn forget(&'static self, fd: RawFd) {
        self.sampler.unfollow(|followed| followed == fd);
        self.table.take(fd);
    }

    /// The number now refers to what may be a file of ours, opened past the client.
    pub fn appeared(&'static self, fd: RawFd) {
        self.table.take(fd);
        self.look_up(fd);
    }

    /// Has what anybody staged for this inode in the file when it returns, and asks others that it
    /// stays so. Returns whether there was something, so that an earlier `stat` is out of date.
    #[inline]
    pub fn settle(&'static self, device: u64, inode: u64) -> bool {
        !self.is_nothing_staged() && self.settle_staged(device, inode)
    }

    fn settle_staged(&'static self, device: u64, inode: u64) -> bool {
        let linked = self.linked(device, inode);
        if linked.count() == 0 {
            return false;
        }
        let mut own = 0;
        self.each_linked_to(device, inode, |file| {
            own += 1;
            file.drain();
        });
        // All were this process's, unless another has come in the place of one.
        let is_own = own >= linked.count() && linked == self.linked(device, inode);
        is_own || self.settle_all(device, inode)
    }

    /// Before somebody opens an inode: what anybody staged for it is drained, and stays so.
    fn settle_all(&'static self, device: u64, inode: u64) -> bool {
        self.linked(device, inode).count() > 0
            && self.connection().is_some_and(|connection| {
                connection.call(Request::Settle { device, inode, demote: true }).is_ok()
            })
    }

    /// Files that anybody has linked with this inode, and some with others perhaps.
    fn linked(&'static self, device: u64, inode: u64) -> Linked {
        let inodes = self.job().map(|job| &job.shared().inodes).filter(|i| !i.is_empty());
        inodes.map_or(Linked::NOBODY, |inodes| inodes.linked(device, inode))
    }

    /// Before the kernel reads or changes a file past staging: what others staged goes first. Those
    /// who opened it before that was staged have not been told otherwise. Whoever the daemon knew
    /// when it was last asked stages nothing from then on that it does not wait for.
    pub(crate) fn settle_others(&'static self, file: &Locked) {
        if self.has_news(file.entry) {
            let own = u64::from(file.state.link().is_some());
            let linked = self.linked(file.device, file.inode);
            if linked.count() > own {
                self.settle_all(file.device, file.inode);
            }
            file.entry.settle(linked);
        }
    }

    /// As [`settle_others`](Self::settle_others), for a file that is not locked.
    pub(crate) fn settle_news(&'static self, fd: RawFd, entry: &FileEntry) {
        if self.has_news(entry) {
            if let Some(file) = self.locked_fd(fd) {
                self.settle_others(&file);
            }
        }
    }

    /// True if others may have staged to a file's inode since it was last settled.
    #[inline]
    pub(crate) fn has_news(&'static self, entry: &FileEntry) -> bool {
        let inodes = self.job().map(|job| &job.shared().inodes).filter(|i| !i.is_empty());
        inodes.is_some_and(|inodes| entry.has_news(inodes))
    }

    /// How many open files of this process are the inode's.
    pub(crate) fn open_count(&'static self, device: u64, inode: u64) -> usize {
        let wanted = identity(device, inode);
        let same = |entry: &&FileEntry| entry.identity() == wanted;
        self.files.all().filter(same).count()
    }

    /// Before a file is truncated by opening it: what others staged goes first, or it would come
    /// back.
    fn settle_path(&'static self, dir: RawFd, path: &CStr) {
        if self.job().is_none_or(|job| job.shared().inodes.is_empty()) {
            return;
        }
        if let Ok(stat) = fs::statat(self.borrow(dir), path, AtFlags::empty()) {
            self.settle_all(stat.st_dev, stat.st_ino);
        }
    }

    pub(crate) fn borrow(&self, fd: RawFd) -> BorrowedFd<'static> {
        self.host.borrow(fd)
    }
}

/// Mode, device, and inode of an open file. Asks no server for what whoever opened it has learnt: a
/// plain `fstat` is a round trip to some, and others write what is dirty first.
pub(crate) fn identify(fd: BorrowedFd<'_>) -> io::Result<(u32, (u64, u64))> {
    let (flags, mask) =
        (AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE | StatxFlags::INO);
    let known = fs::statx(fd, c"", flags, mask).ok();
    if let Some(known) = known.filter(|known| known.stx_mask & mask.bits() == mask.bits()) {
        let device = fs::makedev(known.stx_dev_major, known.stx_dev_minor);
        return Ok((known.stx_mode.into(), (device, known.stx_ino)));
    }
    let stat = fs::fstat(fd)?; // An old kernel, or a filter.
    Ok((stat.st_mode, (stat.st_dev, stat.st_ino)))
}
