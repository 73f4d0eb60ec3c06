//! Locks on remote files. The server has them, for the programs of all nodes: nothing is decided
//! here but who asks, and for which bytes.
//!
//! A lock is asked for while nothing of the open file is held, so others go on with it meanwhile.
//!
//! Which files a lock guards, remote or not, only the program knows. So whatever it has staged is
//! in the files before it gives up a lock, by whichever call; and once there is one, nothing counts
//! any more that was read ahead before.

use rustix::{
    fd::RawFd,
    io::{self, Errno},
};
use shm::copy::copy_out;
use wire::{FoundLock, LockKind, LockOwner, LockTerms, Request, SEEK_CUR, SEEK_END, SEEK_SET};

use crate::{
    client::Client,
    file::OpenFile,
    slot::{Link, Slot},
    table::Entry,
};

/// Bytes as `fcntl(2)` names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockRange {
    /// From where `start` counts: `SEEK_SET`, `SEEK_CUR`, or `SEEK_END`.
    pub whence: u32,
    /// The first byte.
    pub start: i64,
    /// How many; negative: so many before `start`; zero: all from there on.
    pub len: i64,
}

/// A file, and the bytes of it that are meant.
struct Region {
    slot: Slot,
    start: u64,
    len: u64,
}

impl Client {
    /// Locks bytes of a remote file, or unlocks them. With `waits` it may take a while until a lock
    /// of somebody else counts as an obstacle. `None`: the file is not remote.
    ///
    /// # Errors
    ///
    /// - `EAGAIN`: somebody else has a lock there.
    /// - `EBADF`: the file is not open for that.
    /// - `EINVAL`, `EOVERFLOW`: no such bytes.
    /// - `EIO`: the server is lost, or an earlier lock on the file.
    /// - `ENOLCK`: the server has no lock left.
    pub fn lock_remote(
        &'static self,
        fd: RawFd,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        waits: bool,
    ) -> Option<io::Result<()>> {
        let region = match self.region(fd, owner, kind, range)? {
            Ok(region) => region,
            Err(errno) => return Some(Err(errno)),
        };
        self.before_lock(fd);
        let terms = LockTerms { kind, owner, waits, reclaims: false, process: 0 }.encode();
        let Region { slot, start, len } = region;
        let request = Request::Lock { file: slot.number(), terms, start, len };
        let done = slot.connection().call(request).unwrap_or(Err(Errno::IO)).map(drop);
        if done.is_ok() {
            if kind != LockKind::Unlocked {
                self.forget_read_ahead();
            }
            if let Some(mut file) = self.locked_fd(fd) {
                let by_owner = 1 << owner as u8;
                match (kind, start, len) {
                    (LockKind::Unlocked, 0, 0) => file.locks &= !by_owner,
                    (LockKind::Unlocked, ..) => {} // Others may be left.
                    _ => file.locks |= by_owner,
                }
            }
        }
        Some(done)
    }

    /// Looks for a lock that is in the way of one on bytes of a remote file. `None`: the file is
    /// not remote.
    ///
    /// # Errors
    ///
    /// As [`lock_remote`](Self::lock_remote), without `EAGAIN`.
    pub fn find_remote_lock(
        &'static self,
        fd: RawFd,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
    ) -> Option<io::Result<Option<FoundLock>>> {
        let region = self.region(fd, owner, LockKind::Unlocked, range)?;
        Some(region.and_then(|region| {
            let Region { slot, start, len } = region;
            let terms = LockTerms { kind, owner, waits: false, reclaims: false, process: 0 };
            let terms = terms.encode();
            let mut lane = slot.connection().lane().map_err(|_| Errno::IO)?;
            let request = Request::FindLock { file: slot.number(), terms, start, len };
            if lane.call(request).map_err(|_| Errno::IO)?? == 0 {
                return Ok(None);
            }
            let mut bytes = [0; FoundLock::LEN];
            copy_out(&mut bytes, lane.buffer());
            FoundLock::decode(&bytes).map(Some).ok_or(Errno::IO)
        }))
    }

    /// The file that a number stands for, if it is remote, and the bytes of it that are meant.
    fn region(
        &'static self,
        fd: RawFd,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
    ) -> Option<io::Result<Region>> {
        self.active().filter(|config| config.rules().has_remote())?;
        let file = self.locked_fd(fd).filter(|file| file.state.is_remote());
        let (file, link) = file.and_then(|file| file.state.link().map(|link| (file, link)))?;
        if let Some(errno) = refusal(&file, owner, kind) {
            return Some(Err(errno));
        }
        let slot = link.keep();
        drop(file);
        let bytes = self.bytes(fd, link, range);
        Some(bytes.map(|(start, len)| Region { slot, start, len }))
    }

    /// First byte and length of a range; length zero: all from there on.
    fn bytes(&'static self, fd: RawFd, link: Link, range: LockRange) -> io::Result<(u64, u64)> {
        let end = || -> io::Result<u64> {
            let request = Request::FindEnd { file: link.slot };
            link.connection.call(request).map_err(|_| Errno::IO)?
        };
        let base = match range.whence {
            SEEK_SET => 0,
            SEEK_CUR => self.seek(fd, 0, SEEK_CUR)?,
            SEEK_END => end()?,
            _ => return Err(Errno::INVAL),
        };
        let base = i64::try_from(base).map_err(|_| Errno::OVERFLOW)?;
        resolve(base, range)
    }

    /// Before a lock is asked for, which may be less than there is already.
    pub(crate) fn before_lock(&'static self, fd: RawFd) {
        match self.locked_fd(fd) {
            Some(file) => self.locks.add(file.device, file.inode),
            None => self.locks.add_untracked(),
        }
        self.before_unlock(None);
    }

    /// Before a lock may be given up, perhaps by closing the number `closing`: a file that has no
    /// other is drained as that is closed.
    pub(crate) fn before_unlock(&'static self, closing: Option<RawFd>) {
        if !self.locks.are_any() || closing.is_some_and(|fd| !self.may_unlock(fd)) {
            return;
        }
        self.drain_each(|file| Some(file.fd) != closing || file.number_count > 1);
    }

    /// True if closing the number may give up a lock.
    fn may_unlock(&'static self, fd: RawFd) -> bool {
        match self.look_up(fd) {
            Entry::File(id) => self
                .locked_as_is(fd, id)
                .is_none_or(|file| self.locks.may_be_on(file.device, file.inode)),
            _ => self.locks.may_be_untracked(),
        }
    }

    /// True if this process may have a record lock on the inode by open files other than the
    /// `own_count` of its own: then each number of it is real.
    pub(crate) fn may_have_locked(
        &'static self,
        device: u64,
        inode: u64,
        own_count: usize,
    ) -> bool {
        if !self.locks.are_any() {
            return false;
        }
        self.examine_all();
        self.open_count(device, inode) > own_count
    }

    /// The process ends with a file that it has not passed on: the file's locks are gone, on all
    /// nodes, before anybody can know of that end.
    pub(crate) fn unlock_at_exit(&self, file: &OpenFile) {
        for owner in [LockOwner::Process, LockOwner::OpenFile, LockOwner::Whole] {
            self.unlock(file, owner);
        }
    }

    pub(crate) fn unlock(&self, file: &OpenFile, owner: LockOwner) {
        if !file.state.is_remote() || !self.locks.are_any() {
            return;
        }
        let Some(link) = file.state.link() else { return };
        let kind = LockKind::Unlocked;
        let terms = LockTerms { kind, owner, waits: false, reclaims: false, process: 0 }.encode();
        let request = Request::Lock { file: link.slot, terms, start: 0, len: 0 };
        // A server that is lost has no locks, and no `close` and no end reports them.
        match link.connection.call(request) {
            Ok(_) | Err(_) => {}
        }
    }
}

/// Why a file is not open for such a lock.
fn refusal(file: &OpenFile, owner: LockOwner, kind: LockKind) -> Option<Errno> {
    let is_open_for = match kind {
        _ if owner == LockOwner::Whole => true,
        LockKind::Unlocked => true,
        LockKind::Shared => file.access.readable,
        LockKind::Exclusive => file.access.writable,
    };
    (!is_open_for).then_some(Errno::BADF)
}

fn resolve(base: i64, range: LockRange) -> io::Result<(u64, u64)> {
    let at = base.checked_add(range.start).ok_or(Errno::OVERFLOW)?;
    let start = if range.len < 0 { at.checked_add(range.len).ok_or(Errno::INVAL)? } else { at };
    let start = u64::try_from(start).map_err(|_| Errno::INVAL)?;
    let len = range.len.unsigned_abs();
    // The last byte still has a number.
    let last = start.checked_add(len.saturating_sub(1)).ok_or(Errno::OVERFLOW)?;
    i64::try_from(last).map_err(|_| Errno::OVERFLOW)?;
    Ok((start, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_mean_what_they_mean_to_the_kernel() {
        let range = |start, len| LockRange { whence: SEEK_SET, start, len };
        assert_eq!(resolve(0, range(5, 3)), Ok((5, 3)));
        assert_eq!(resolve(100, range(-5, 0)), Ok((95, 0)));
        assert_eq!(resolve(0, range(5, -3)), Ok((2, 3)));
        assert_eq!(resolve(0, range(5, -6)), Err(Errno::INVAL));
        assert_eq!(resolve(3, range(-4, 1)), Err(Errno::INVAL));
        assert_eq!(resolve(0, range(i64::MAX, 1)), Ok((i64::MAX.unsigned_abs(), 1)));
        assert_eq!(resolve(0, range(i64::MAX, 2)), Err(Errno::OVERFLOW));
        assert_eq!(resolve(1, range(i64::MAX, 0)), Err(Errno::OVERFLOW));
    }
}
