//! Position, size, and durability of one open file.

use rustix::{
    fd::RawFd,
    fs::{self, SeekFrom},
    io::{self, Errno},
};
use shm::CallKind;
use wire::{Reason, Request, SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET};

use crate::{
    client::Client, connection::Lost, cursor::AT_END, limit::exceeded, locked_file::Locked,
    table::Entry,
};

/// As long a file may be on every file system.
const EVERYWHERE: u64 = (1 << 31) - 1;

/// `FALLOC_FL_KEEP_SIZE`.
const KEEP_SIZE: u32 = 1;

impl Client {
    /// Moves the file position. As `lseek(2)`, `whence` being `SEEK_*`.
    ///
    /// # Errors
    ///
    /// As `lseek(2)`.
    pub fn seek(&'static self, fd: RawFd, offset: i64, whence: u32) -> io::Result<u64> {
        let Some(mut file) = self.locked_fd_as_is(fd) else {
            // A handler that could not wait: bytes may be on their way by the position.
            if self.is_held_here(fd) {
                return Err(Errno::AGAIN);
            }
            return self.kernel_seek(fd, offset, whence);
        };
        match file.sought_at_rest(offset, whence) {
            Some(Ok(position)) if position <= EVERYWHERE => {
                file.put_position(position)?;
                return Ok(position);
            }
            Some(Err(errno)) => return Err(errno),
            _ => file.promote()?,
        }
        if !file.entry.cursor.is_clients() {
            let refusal = if file.state.is_lost() { Errno::IO } else { Errno::BADF };
            // Locked: a thread that begins to stage takes the position before this, or behind it.
            return self.kernel_seek(fd, offset, whence).map_err(|errno| match errno {
                Errno::BADF => refusal,
                errno => errno,
            });
        }
        let position = match whence {
            SEEK_SET => u64::try_from(offset).map_err(|_| Errno::INVAL)?,
            SEEK_CUR => {
                let from = file.position()?;
                from.checked_add_signed(offset).ok_or(Errno::INVAL)?
            }
            SEEK_END | SEEK_DATA | SEEK_HOLE => file.seek_in_file(offset, whence)?,
            // The daemon knows bits that no program may set.
            _ => return Err(Errno::INVAL),
        };
        if i64::try_from(position).is_err() {
            return Err(Errno::INVAL);
        }
        if position > EVERYWHERE {
            file.check_reach(position)?;
        }
        file.put_position(position)?;
        Ok(position)
    }

    /// Moves the file position where the kernel keeps it: of a file that is not staged. `None` when
    /// [`seek`](Self::seek) has to be asked.
    #[inline]
    pub fn seek_fresh(
        &'static self,
        fd: RawFd,
        offset: i64,
        whence: u32,
    ) -> Option<io::Result<u64>> {
        let Entry::File(id) = self.look_up(fd) else { return None };
        let entry = self.files.get(id)?;
        if entry.cursor.is_clients() {
            return None;
        }
        if !matches!(whence, SEEK_SET | SEEK_CUR) {
            self.settle_news(fd, entry);
        }
        let file = entry.lock.try_lock()?;
        if entry.cursor.is_clients() || !file.is_open_as(id) {
            return None;
        }
        match self.kernel_seek(fd, offset, whence) {
            Err(Errno::BADF) => None, // There is a placeholder.
            sought => Some(sought),
        }
    }

    /// Tells the kernel the position, for a call that counts from there.
    pub fn publish_position(&'static self, fd: RawFd) {
        if self.is_unexamined(fd) {
            return;
        }
        let Some(mut file) = self.locked_fd_as_is(fd) else { return };
        if file.state.is_placeholder() || !file.entry.cursor.is_clients() {
            return;
        }
        let position = file.position();
        // Locked: in the middle of another thread's drain it would send that to another place. A
        // position that cannot be set was never counted from.
        match position.and_then(|at| fs::seek(file.borrow(), SeekFrom::Start(at))) {
            Ok(_) | Err(_) => {}
        }
    }

    pub(crate) fn kernel_seek(&self, fd: RawFd, offset: i64, whence: u32) -> io::Result<u64> {
        let start = |errno| u64::try_from(offset).map_err(|_| errno);
        let to = match whence {
            SEEK_SET => SeekFrom::Start(start(Errno::INVAL)?),
            SEEK_CUR => SeekFrom::Current(offset),
            SEEK_END => SeekFrom::End(offset),
            SEEK_DATA => SeekFrom::Data(start(Errno::NXIO)?),
            SEEK_HOLE => SeekFrom::Hole(start(Errno::NXIO)?),
            _ => return Err(Errno::INVAL),
        };
        fs::seek(self.borrow(fd), to)
    }

    /// Makes everything written to the file durable, by whichever process of the job. As
    /// `fsync(2)`, or `fdatasync(2)` when `data_only`.
    ///
    /// # Errors
    ///
    /// As `fsync(2)`, and what a write behind owes.
    pub fn sync(&'static self, fd: RawFd, data_only: bool) -> io::Result<()> {
        let Entry::File(id) = self.look_up(fd) else {
            return self.kernel_sync(fd, data_only);
        };
        let Some(mut file) = self.locked(fd, id) else { return self.kernel_sync(fd, data_only) };
        file.tell_owed()?;
        if file.state.is_lost() {
            return Err(Errno::IO);
        }
        if !file.state.is_placeholder() {
            file.drained()?;
            self.settle_others(&file);
        }
        let Some(link) = file.state.daemons_link() else {
            let (device, timed) = (file.device, self.sampler.sync_begins());
            drop(file);
            let synced = self.kernel_sync(fd, data_only);
            if let Some(timed) = timed {
                self.learn_on(timed, device, CallKind::Sync, 0);
            }
            return synced;
        };
        let slot = link.slot;
        let request =
            if data_only { Request::Datasync { file: slot } } else { Request::Sync { file: slot } };
        let kept = link.keep();
        // Not under the lock: others may use the file while the device works.
        drop(file);
        let answer = link.connection.call(request);
        let Some(mut file) = self.locked(fd, id) else {
            // Another thread has closed it meanwhile, and was told what the drain owed.
            return answer.unwrap_or(Err(Errno::BADF)).map(drop);
        };
        if answer.is_err() {
            file.detach(Reason::DaemonLost);
        }
        // Whoever has ended the link meanwhile has taken what the drain owed.
        let owed = file.tell_error();
        let is_left = file.state.link().is_none();
        drop((kept, file));
        match (owed, answer) {
            (Some(errno), _) => Err(errno),
            (None, Err(Lost)) => self.kernel_sync(fd, data_only),
            (None, Ok(Err(Errno::BADF))) if is_left => self.kernel_sync(fd, data_only),
            (None, Ok(answer)) => answer.map(drop),
        }
    }

    fn kernel_sync(&self, fd: RawFd, data_only: bool) -> io::Result<()> {
        let fd = self.borrow(fd);
        if data_only { fs::fdatasync(fd) } else { fs::fsync(fd) }
    }

    /// Changes which of `len` bytes at `at` have space. As `fallocate(2)`, for a file that the
    /// daemon answers for; `None` for others, which are the kernel's.
    pub fn allocate(
        &'static self,
        fd: RawFd,
        mode: u32,
        at: u64,
        len: u64,
    ) -> Option<io::Result<()>> {
        if self.is_unexamined(fd) {
            return None;
        }
        let mut file = self.locked_fd(fd)?;
        file.detach_if_limited();
        let link = file.drained_link()?;
        let is_remote = file.state.is_remote();
        let end = if mode & KEEP_SIZE == 0 { at.saturating_add(len) } else { 0 };
        match file.is_beyond_limit(end) {
            Ok(false) => {}
            Ok(true) => {
                drop(file);
                return Some(Err(exceeded()));
            }
            Err(errno) => return Some(Err(errno)),
        }
        file.state.release_window();
        let kept = link.keep();
        drop(file);
        let request = Request::Allocate { file: kept.number(), mode, at, len };
        let answer = link.connection.call(request);
        drop(kept);
        match answer {
            // Another thread has left it meanwhile.
            Ok(Err(Errno::BADF)) if !is_remote => return None,
            Ok(answer) => return Some(answer.map(drop)),
            Err(Lost) => {}
        }
        // Without the daemon the file is the kernel's, if it is one of this node.
        self.detach(fd, Reason::DaemonLost);
        is_remote.then_some(Err(Errno::IO))
    }

    /// Sets the file's size. As `ftruncate(2)`.
    ///
    /// # Errors
    ///
    /// As `ftruncate(2)`.
    pub fn truncate(&'static self, fd: RawFd, len: u64) -> io::Result<()> {
        if let Some(mut file) = self.locked_fd(fd) {
            file.state.release_window();
            file.detach_if_limited();
            if file.is_beyond_limit(len)? {
                drop(file);
                return Err(exceeded());
            }
            if let Some(link) = file.drained_link() {
                return file.truncate_by(link, len);
            }
            if file.state.is_lost() {
                return Err(Errno::IO);
            }
            self.settle_others(&file);
        }
        self.kernel_truncate(fd, len)
    }

    pub(crate) fn kernel_truncate(&self, fd: RawFd, len: u64) -> io::Result<()> {
        fs::ftruncate(self.borrow(fd), len)
    }
}

impl Locked {
    /// The position the client keeps. After an append the daemon has to say where that went.
    pub(crate) fn position(&mut self) -> io::Result<u64> {
        let position = self.entry.cursor.at();
        if position != AT_END {
            return Ok(position);
        }
        let end = self.seek_in_file(0, SEEK_END)?;
        // The file may have been cut since: that moves nobody's position.
        let position = self.appended_to().unwrap_or(end);
        self.entry.cursor.set(position);
        Ok(position)
    }

    /// After an append without a log: the end is where that went, if nobody has appended since.
    pub(crate) fn settle_position(&mut self) {
        if self.entry.cursor.at() == AT_END {
            // Who asks for the position is told what is wrong.
            if let Ok(end) = self.seek_in_file(0, SEEK_END) {
                self.entry.cursor.set(end);
            }
        }
    }

    /// A position that depends on the file's size or content.
    pub(crate) fn seek_in_file(&mut self, offset: i64, whence: u32) -> io::Result<u64> {
        let answers_for_data = self.state.daemons_link();
        let link = self.drained_link();
        if let Some(link) = if whence == SEEK_END { link } else { answers_for_data } {
            let file = link.slot;
            let start = |errno| u64::try_from(offset).map_err(|_| errno);
            let request = match whence {
                SEEK_SET => Request::SetPosition { file, at: start(Errno::INVAL)? },
                SEEK_DATA => Request::FindData { file, at: start(Errno::NXIO)? },
                SEEK_HOLE => Request::FindHole { file, at: start(Errno::NXIO)? },
                _ => Request::FindEnd { file },
            };
            if let Ok(answer) = link.connection.call(request) {
                let base = if whence == SEEK_END { offset } else { 0 };
                return answer?.checked_add_signed(base).ok_or(Errno::INVAL);
            }
            self.detach(Reason::DaemonLost);
        }
        if self.state.is_lost() {
            return Err(Errno::IO);
        }
        self.client.kernel_seek(self.fd, offset, whence)
    }

    /// # Errors
    ///
    /// `EINVAL`: the file system has no such position.
    fn check_reach(&mut self, position: u64) -> io::Result<()> {
        if self.state.daemons_link().is_some() {
            let offset = i64::try_from(position).map_err(|_| Errno::INVAL)?;
            return self.seek_in_file(offset, SEEK_SET).map(drop);
        }
        // The kernel's own position means nothing while the client keeps it.
        fs::seek(self.borrow(), SeekFrom::Start(position)).map(drop)
    }

    /// Sets the file position, whoever keeps it by now.
    pub(crate) fn put_position(&self, to: u64) -> io::Result<()> {
        if self.entry.cursor.is_clients() {
            self.entry.cursor.set(to);
            return Ok(());
        }
        // The daemon was lost on the way and the kernel got the position.
        fs::seek(self.borrow(), SeekFrom::Start(to)).map(drop)
    }
}
