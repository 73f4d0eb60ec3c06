//! The way of a write, from the program's buffer to staging or, where that cannot be, the kernel.

use core::{slice::from_ref, sync::atomic::Ordering, time::Duration};

use rustix::{
    fd::{BorrowedFd, RawFd},
    io::{self, Errno},
};
use shm::{copy::copy_in_cached, staging::APPEND};
use wire::{Counter, Reason, SEEK_CUR};

use crate::{
    buffers::total,
    client::Client,
    clock::{nanoseconds, now},
    cursor::Keeper,
    file::FileEntry,
    job::overhead_ns,
    limit::{exceeded, fitting},
    locked_file::Locked,
    log::Log,
    owed::Owed,
    slot::Link,
    staging::{self, Failure, drain},
    table::{Entry, FileId},
    write_kernel::{kernel_write_vectored, write_rest},
    writes::Writes,
};

/// Writes from this length on are staged only where that has proven cheaper, bytes: below it a call
/// costs more than a copy everywhere.
pub(crate) const LONG: usize = 16 << 10;
/// Writes of some length that follow each other by the kernel and are not timed, for one that is.
const UNTIMED: u32 = 3;
const _: () = assert!(LONG as u64 <= staging::LOG_MIN, "any log holds a small write");

impl Client {
    /// Writes at the file position. As `write(2)`.
    ///
    /// # Errors
    ///
    /// As `write(2)`, and what an earlier write behind owes.
    pub fn write(&'static self, fd: RawFd, data: &[u8]) -> io::Result<usize> {
        self.write_untimed(fd, data).unwrap_or_else(|| self.write_vectored(fd, &[data], None))
    }

    /// The short way of most writes before staging begins: by the kernel, and not timed. `None`,
    /// and nothing has happened, when more may depend on it.
    fn write_untimed(&'static self, fd: RawFd, data: &[u8]) -> Option<io::Result<usize>> {
        let Entry::File(id) = self.table.get(fd) else { return None };
        let entry = self.files.get(id)?;
        let large_len = self.config.get()?.large_len;
        let may = (1..large_len).contains(&(data.len() as u64));
        if !may || self.watch.is_on() || !self.is_nothing_staged() {
            return None;
        }
        let mut file = entry.lock.try_lock()?;
        if !file.leaves_untimed(id) {
            return None;
        }
        // Nobody takes the position from the kernel before this has moved it.
        let wrote = io::write(self.borrow(fd), data);
        drop(file);
        if let Ok(len) = wrote {
            self.count_written(Reason::First, len);
        }
        Some(wrote)
    }

    /// The short way of most small writes: behind what the file has staged last, when nothing is in
    /// the way. `None`, and nothing has happened, when [`write`](Self::write) has to be asked.
    #[inline]
    pub fn write_on(&'static self, fd: RawFd, data: &[u8]) -> Option<usize> {
        let Entry::File(id) = self.table.get(fd) else { return None };
        let entry = self.files.get(id)?;
        let config = self.config.get().filter(|config| config.has_short_ways)?;
        let len = data.len() as u64;
        let is_small = data.len() < LONG && len < config.large_len;
        if data.is_empty() || !is_small || !entry.cursor.is_clients() {
            return None;
        }
        let mut file = entry.lock.try_lock()?;
        let (link, log) = file.ready_at_once(id)?;
        let start = entry.cursor.at();
        let end = start.checked_add(len).filter(|end| i64::try_from(*end).is_ok())?;
        let target = log.reserve_on(link, start, len)?;
        let watched = self.watch.begin();
        debug_assert_eq!(target.len(), data.len(), "all of a small write is reserved");
        entry.cursor.set(end);
        copy_in_cached(target, data);
        log.producer.publish(link.shared, start, len);
        log.note(start, len);
        staging::tell(link, log);
        // Also of another one by now, who was shown all but this.
        if link.connection.is_lost() || link.shared.is_synchronous() {
            self.end_alone(Locked { client: self, fd, id, entry, file });
        } else {
            drop(file);
        }
        if let Some(call) = watched {
            self.watch_write(call, id, &Ok(data.len()));
        }
        Some(data.len())
    }

    /// After a write was accepted the daemon was found to be lost, or to have demoted the file.
    /// Where the bytes are refused, the error stays owed.
    #[cold]
    fn end_alone(&'static self, mut file: Locked) {
        if file.state.link().is_some_and(|link| link.connection.is_lost()) {
            file.detach(Reason::DaemonLost);
        } else {
            file.drain();
        }
        drop(file);
        self.sweep();
    }

    /// Writes at `at` bytes from the start. As `pwrite(2)`.
    ///
    /// # Errors
    ///
    /// As `pwrite(2)`, and what an earlier write behind owes.
    pub fn write_at(&'static self, fd: RawFd, data: &[u8], at: u64) -> io::Result<usize> {
        self.write_vectored(fd, &[data], Some(at))
    }

    /// Writes several buffers, at the file position when `at` is `None`. As `pwritev(2)`.
    ///
    /// # Errors
    ///
    /// As `pwritev(2)`, and what an earlier write behind owes.
    pub fn write_vectored(
        &'static self,
        fd: RawFd,
        data: &[&[u8]],
        at: Option<u64>,
    ) -> io::Result<usize> {
        match self.look_up(fd) {
            Entry::File(id) => {
                let watched = self.watch.begin();
                let mut wrote = self.write_file(fd, id, data, at);
                self.sweep();
                if wrote == Err(Errno::BADF) {
                    wrote = Err(self.why_refused(fd));
                }
                if let Some(call) = watched {
                    self.watch_write(call, id, &wrote);
                }
                wrote
            }
            Entry::Foreign | Entry::Unknown | Entry::Opened(_) => self.kernel_write(fd, data, at),
            Entry::Own => Err(Errno::BADF),
        }
    }

    fn write_file(
        &'static self,
        fd: RawFd,
        id: FileId,
        data: &[&[u8]],
        at: Option<u64>,
    ) -> io::Result<usize> {
        let Some(entry) = self.files.get(id) else { return self.kernel_write(fd, data, at) };
        // A handler that could not wait: what it has interrupted may be anywhere.
        let file = entry.lock.lock().map_err(|_| Errno::AGAIN)?;
        let mut file = Locked { client: self, fd, id, entry, file };
        if !file.is_open() {
            // Closed since it was looked up; the number may be another file's by now.
            drop(file);
            return self.write_vectored(fd, data, at);
        }
        if !file.access.writable {
            return self.kernel_write(fd, data, at);
        }
        file.tell_owed()?;
        if let Some(wrote) = file.write_bundled(data, at) {
            return wrote;
        }
        let len = total(data);
        if let Some(reason) = file.goes_directly(data, at) {
            self.settle_others(&file);
            return file.write_directly(reason, data, at);
        }
        if let Some(room) = file.limited_room(at, len)? {
            drop(file);
            return self.write_fitting(fd, id, data, at, room);
        }
        let by_block = match file.ready(len) {
            Ok(()) => None,
            Err(reason) => match file.link_to_block(reason) {
                Some(link) => Some(link),
                None => return file.write_past(reason, data, at),
            },
        };
        if at.is_some() && file.access.append {
            // Linux appends this too, and leaves the position where the last write put it.
            file.position()?;
        }
        if len == 0 {
            return Ok(0);
        }
        let start = reserve(entry, file.access.append, at, len as u64)?;
        file.state.empty_window();
        let wrote = match by_block {
            None => file.stage(data, start),
            Some(link) => {
                self.settle_others(&file);
                file.write_by_block(link, data, start)
            }
        };
        let moved = wrote.unwrap_or(0);
        debug_assert!(moved <= len, "no more is written than there is");
        if moved < len && at.is_none() && !file.access.append {
            file.put_position(start + moved as u64)?;
        }
        wrote
    }

    /// Writes no more than `room`, a limit of the file's size.
    fn write_fitting(
        &'static self,
        fd: RawFd,
        id: FileId,
        data: &[&[u8]],
        at: Option<u64>,
        room: u64,
    ) -> io::Result<usize> {
        if room == 0 {
            return Err(exceeded());
        }
        let (whole, part) = fitting(data, room);
        self.write_file(fd, id, if whole.is_empty() { from_ref(&part) } else { whole }, at)
    }

    pub(crate) fn kernel_write(
        &self,
        fd: RawFd,
        data: &[&[u8]],
        at: Option<u64>,
    ) -> io::Result<usize> {
        let fd = self.borrow(fd);
        match (data, at) {
            ([data], None) => io::write(fd, data),
            ([data], Some(at)) => io::pwrite(fd, data, at),
            _ => kernel_write_vectored(fd, data, at),
        }
    }

    /// Counts bytes of a regular file that went past the daemon. Those of a remote file never do.
    pub(crate) fn count_written(&'static self, reason: Reason, len: usize) {
        self.count(Counter::BytesWritten, len as u64);
        self.count(Counter::BytesUndelegated(reason), len as u64);
    }
}

impl Locked {
    /// Why the program makes this write itself, of a file that it has open: it is as cheap to write
    /// as to copy, or would wait until it is drained.
    fn goes_directly(&mut self, data: &[&[u8]], at: Option<u64>) -> Option<Reason> {
        if self.state.is_placeholder() || self.state.refusal().is_some() {
            return None;
        }
        if self.access.direct {
            let unfit = self.unfit_direct(data, at);
            if unfit.is_some() {
                return unfit;
            }
        }
        let len = total(data);
        let config = self.client.config.get();
        let is_large = config.is_none_or(|config| len as u64 >= config.large_len);
        let waits = self.mode() == Writes::Through;
        if is_large {
            return (waits || !self.stages_large(len)).then_some(Reason::Large);
        }
        let file = &mut *self.file;
        let (_, log) = file.state.staging()?;
        if waits {
            return Some(Reason::Synchronous);
        }
        let is_dear = len >= LONG && log.compare(&mut file.write_cost, len as u64);
        is_dear.then_some(Reason::Large)
    }

    /// Has the kernel write, behind everything that is staged: whoever is killed in between leaves
    /// no hole.
    fn write_directly(
        mut self,
        reason: Reason,
        data: &[&[u8]],
        at: Option<u64>,
    ) -> io::Result<usize> {
        self.drained()?;
        let (client, fd, entry) = (self.client, self.fd, self.entry);
        let asked = total(data) as u64;
        let keeper = match entry.cursor.keeper() {
            Keeper::Client(_) if self.access.append => Keeper::End,
            keeper => keeper,
        };
        let kept = match (at, keeper) {
            (None, Keeper::Client(from)) => Some(from),
            _ => None,
        };
        let is_long = asked >= staging::OWN_LEN;
        let began = (is_long || self.spent.is_due()).then(now);
        let wrote = client.kernel_write(fd, data, at.or(kept));
        if let (Some(began), Ok(len)) = (began, wrote) {
            let time = now().saturating_sub(began);
            // One that is not staged yet may be by the next write.
            let is_timed = is_long || self.state.log().is_none();
            self.spent.skip(if is_timed { 0 } else { UNTIMED });
            client.learn_cost(self.device, len, time);
            if (LONG as u64..staging::OWN_LEN).contains(&(len as u64)) {
                self.file.write_cost.learn(len as u64, time);
            }
        }
        if let (Some(from), Ok(len)) = (kept, wrote) {
            entry.cursor.set(from + len as u64);
        }
        // A write of no bytes leaves the kernel's position, which may not be the file's.
        if at.is_none() && keeper == Keeper::End && matches!(wrote, Ok(1..)) {
            entry.cursor.set(client.kernel_seek(fd, 0, SEEK_CUR)?);
        }
        let len = wrote?;
        client.count_written(reason, len);
        Ok(len)
    }

    /// Has everything staged in the file, and tells what it is refused with.
    pub(crate) fn drained(&mut self) -> io::Result<()> {
        self.drain();
        self.tell_error().map_or(Ok(()), Err)
    }

    /// Has the kernel write what cannot be staged.
    fn write_past(mut self, reason: Reason, data: &[&[u8]], at: Option<u64>) -> io::Result<usize> {
        if self.state.is_placeholder() {
            self.detach(reason);
        }
        let (client, fd, is_remote) = (self.client, self.fd, self.state.is_remote());
        client.settle_others(&self);
        // The kernel has the position of a file that is left for good. That of another one is about
        // to move, and nobody may take it before it has.
        let mut kept = Some(self).filter(|file| !file.state.is_over());
        let is_timed = |file: &mut Self| reason == Reason::First && file.spent.is_due();
        let began = kept.as_mut().is_some_and(is_timed).then(now);
        let len = client.kernel_write(fd, data, at)?;
        if let Some((began, file)) = began.zip(kept.as_mut()) {
            file.spend(len, now().saturating_sub(began));
        }
        if !is_remote {
            client.count_written(reason, len);
        }
        Ok(len)
    }

    /// Counts time that the kernel took for a write before staging began.
    fn spend(&mut self, len: usize, time: Duration) {
        let spent = self.spent.add(time, len >= LONG);
        self.client.learn_cost(self.device, len, time);
        if len >= LONG {
            self.write_cost.learn(len as u64, time);
        }
        if self.client.connected().is_none() {
            let kib_ns = self.client.kib_ns(self.device);
            let overhead = overhead_ns(len, nanoseconds(time), nanoseconds(spent), kib_ns);
            self.client.overhead_ns.fetch_add(overhead, Ordering::Relaxed);
        }
    }

    /// Stages all of `data`, or hands what could not be staged to the kernel.
    fn stage(&mut self, data: &[&[u8]], start: u64) -> io::Result<usize> {
        let (client, fd, file) = (self.client, self.borrow(), &mut *self.file);
        let (len, whole_max) = (total(data), staging::whole_max(file));
        let (link, log) = invariant!(some file.state.staging(), "a file that stages has a log",
            else return Err(Errno::IO));
        refused(&mut file.owed, link, log, fd).map_or(Ok(()), Err)?;
        let mut staged = staging::accept(link, log, fd, data, start, whole_max);
        let waits = file.writes.on(link) == Writes::Through;
        if staged.is_ok() && waits {
            staged = drain(link, log, fd).map_err(|failure| (len, failure));
        }
        if waits {
            if let Some(errno) = staging::take_error(link) {
                return Err(errno);
            }
        }
        if staged.is_ok() && link.connection.is_lost() {
            self.detach(Reason::DaemonLost);
        }
        match staged {
            Ok(()) => Ok(len),
            // Told of an error, the program would write again what is accepted.
            Err((accepted @ 1.., Failure::Refused(_))) if !waits => Ok(accepted),
            Err((_, Failure::Refused(errno))) => Err(errno),
            Err((accepted, Failure::Lost)) => {
                self.detach(Reason::DaemonLost);
                let wrote = write_rest(self.borrow(), data, start, accepted)?;
                client.count_written(Reason::DaemonLost, wrote - accepted);
                Ok(wrote)
            }
        }
    }
}

/// Why the file takes nothing more, if what is staged for it is refused.
fn refused(owed: &mut Owed, link: Link, log: &mut Log, fd: BorrowedFd<'_>) -> Option<Errno> {
    let mut errno = staging::take_error(link);
    if errno.is_none() && *owed == Owed::Told {
        errno = match drain(link, log, fd) {
            Err(Failure::Refused(errno)) => Some(errno),
            // Whoever stages finds out that the daemon is lost.
            Ok(()) | Err(Failure::Lost) => staging::take_error(link),
        };
    }
    if errno.is_some() {
        owed.refuse()
    } else {
        owed.drain()
    }
    errno
}

/// Where a write of `len` bytes goes. The position is moved behind it.
fn reserve(entry: &FileEntry, appends: bool, at: Option<u64>, len: u64) -> io::Result<u64> {
    if appends {
        if at.is_none() {
            entry.cursor.append();
        }
        return Ok(APPEND);
    }
    let start = at.unwrap_or_else(|| entry.cursor.at());
    let end = start.saturating_add(len);
    i64::try_from(end).map_err(|_| Errno::INVAL)?;
    if at.is_none() {
        entry.cursor.set(end);
    }
    Ok(start)
}
