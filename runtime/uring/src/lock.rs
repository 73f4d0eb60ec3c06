//! Record locks of an open file (`F_OFD_SETLK`). They conflict with those of every other open file
//! and of every process, and go away with the last descriptor of theirs.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _},
};

/// Kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Nothing.
    Unlocked,
    /// Together with others that only share it.
    Shared,
    /// Alone.
    Exclusive,
}

/// A range of a file, bytes, and what it is locked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLock {
    /// Kind.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Bytes; zero: all from `start` on, however long the file may grow.
    pub len: u64,
}

impl RecordLock {
    /// Locks the range, or unlocks it, without waiting.
    ///
    /// # Errors
    ///
    /// - `EAGAIN`: somebody else has a lock there.
    /// - `EBADF`: the file is not open for that.
    /// - `EINVAL`, `EOVERFLOW`: no such range.
    /// - `ENOLCK`: the kernel or the file system has no lock left.
    pub fn set(self, file: impl AsFd) -> io::Result<()> {
        self.call(file, libc::F_OFD_SETLK).map(drop)
    }

    /// A lock that keeps this one from being set; `None` when there is none.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set), without `EAGAIN`.
    pub fn obstacle(self, file: impl AsFd) -> io::Result<Option<Self>> {
        let found = self.call(file, libc::F_OFD_GETLK)?;
        let kind = match i32::from(found.l_type) {
            libc::F_RDLCK => LockKind::Shared,
            libc::F_WRLCK => LockKind::Exclusive,
            _ => return Ok(None),
        };
        let unsigned = |value: i64| u64::try_from(value).unwrap_or_default();
        Ok(Some(Self { kind, start: unsigned(found.l_start), len: unsigned(found.l_len) }))
    }

    #[expect(clippy::cast_possible_truncation, reason = "small constants, whose type differs")]
    fn call(self, file: impl AsFd, command: libc::c_int) -> io::Result<libc::flock> {
        let kind = match self.kind {
            LockKind::Unlocked => libc::F_UNLCK,
            LockKind::Shared => libc::F_RDLCK,
            LockKind::Exclusive => libc::F_WRLCK,
        };
        let signed = |value: u64| i64::try_from(value).map_err(|_| io::ErrorKind::InvalidInput);
        let mut lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: signed(self.start)?,
            l_len: signed(self.len)?,
            l_pid: 0,
        };
        // SAFETY: the descriptor is borrowed, and `lock` is what these commands read and write.
        let done = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut lock) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(lock) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn locks_of_two_open_files_exclude_each_other() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("file");
        let one = File::create(&path).expect("file");
        let other = File::options().read(true).write(true).open(&path).expect("file");
        let lock = RecordLock { kind: LockKind::Exclusive, start: 4, len: 0 };
        lock.set(&one).expect("free");
        lock.set(&one).expect("its own");
        let refused = lock.set(&other).expect_err("taken");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        let shared = RecordLock { kind: LockKind::Shared, start: 0, len: 10 };
        assert_eq!(shared.obstacle(&other).expect("asked"), Some(lock));
        let before = RecordLock { len: 4, ..shared };
        assert_eq!(before.obstacle(&other).expect("asked"), None);
        RecordLock { kind: LockKind::Unlocked, ..lock }.set(&one).expect("unlocked");
        lock.set(&other).expect("free again");
        drop(other);
        lock.set(&one).expect("nobody has it any more");
        assert!(RecordLock { start: u64::MAX, ..lock }.set(&one).is_err());
    }
}
