//! Staged writes: how a program's bytes are accepted and drained.
//!
//! Everything here works on one locked file. A log of a real file is small, stays in the core's
//! cache, and is drained by whoever fills it, with one system call a log; the daemon drains what
//! gets old, and what a dead client leaves. Of a file that only the daemon has open, or whose file
//! system has proven slow, the daemon drains a longer log ahead of the program. One side drains at
//! a time ([`shm::staging::Drainer`]).
//!
//! What the kernel refuses stays staged and is tried again by each later call that needs it in the
//! file; so nothing younger of the file lands before the error was told. A daemon that is lost ends
//! delegation of the file: what is staged is drained from this side, and the rest goes to the
//! kernel.

pub(crate) mod append;
mod drain;
mod linking;

use core::{
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    fs::{self, Mode, OFlags, SeekFrom},
    io::{self, Errno},
};
use shm::{
    copy::{copy_in, copy_in_cached},
    staging::{APPEND, Producer},
};
use wire::{Counter, Request};

use self::drain::{drain_full, hand_over, take_back, take_over};
pub(crate) use self::{
    append::whole_max,
    drain::drain,
    linking::{attach, link},
};
use crate::{
    clock::coarse_now,
    connection::{Connection, Lost},
    cursor::AT_END,
    file::OpenFile,
    locked_file::Locked,
    log::{Compared, Cost, Drains, Log},
    proc::link_of,
    slot::Link,
    writes::Writes,
};

/// Length of a log that its client drains, bytes: what a core's cache holds beside the program.
pub(crate) const OWN_LEN: u64 = 256 << 10;
/// Length of a log that the daemon drains, bytes.
pub(crate) const DAEMONS_LEN: u64 = 4 << 20;
/// Shortest log, bytes, where the arena has little room left.
pub(crate) const LOG_MIN: u64 = 64 << 10;
/// A log that the daemon drains never takes more than this part of what is free of the arena.
pub(crate) const LOG_SHARE: u64 = 4;
/// One that large writes are staged in never takes more than this part.
pub(crate) const LARGE_SHARE: u64 = 2;
/// One that its client drains takes no more than this: every file that has a slot finds room.
const OWN_SHARE: u64 = 64;
const _: () = assert!(OWN_LEN.is_power_of_two() && DAEMONS_LEN.is_power_of_two());
/// Bytes of a log that have memory behind them before they are first written.
const POPULATED_LEN: u64 = OWN_LEN;
/// Bytes copied before the daemon may see them: it drains while the next ones are copied.
const COPY_MAX: usize = 256 << 10;
/// Bytes staged between two hints that there is a lot to drain.
const KICK: (u64, u64) = (64 << 10, 1 << 20);
/// Time after which a daemon that drains nothing is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Why staged bytes are not in the file, or new ones not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The daemon, which alone could drain them, is lost.
    Lost,
    /// The kernel refuses the oldest ones.
    Refused(Errno),
}

impl From<Lost> for Failure {
    fn from(Lost: Lost) -> Self {
        Self::Lost
    }
}

/// Copies `data`, which goes to `at` (or to the end of the file for [`APPEND`]), into the log. What
/// is appended others see in one piece, if it has at most `whole_max` bytes and there is a log with
/// room for it.
///
/// # Errors
///
/// How many bytes were accepted before, and why no more were.
pub(crate) fn accept(
    link: Link,
    log: &mut Log,
    fd: BorrowedFd<'_>,
    data: &[&[u8]],
    at: u64,
    whole_max: u64,
) -> Result<(), (usize, Failure)> {
    if at == APPEND
        && append::accept(link, log, fd, data, whole_max).map_err(|failure| (0, failure))?
    {
        return Ok(());
    }
    let mut done = 0;
    for buffer in data {
        let mut rest: &[u8] = buffer;
        while !rest.is_empty() {
            let to = if at == APPEND { APPEND } else { at + done as u64 };
            let Some(len) = accept_some(link, log, rest, to) else {
                make_room(link, log, fd).map_err(|failure| (done, failure))?;
                continue;
            };
            done += len;
            rest = invariant!(some rest.get(len..), "a part of the buffer is accepted",
                else return Err((done, Failure::Refused(Errno::IO))));
            tell(link, log);
        }
    }
    Ok(())
}

/// Tells the daemon that something was published, and to hurry if that is much.
#[inline]
pub(crate) fn tell(link: Link, log: &mut Log) {
    if link.connection.raise_dirty(link.slot as usize) {
        log.count(link);
    } else {
        watch(link, log);
    }
    let head = log.producer.head();
    debug_assert!(head >= log.kicked, "positions count up");
    if !log.is_own() && head - log.kicked >= (log.producer.capacity() / 4).clamp(KICK.0, KICK.1) {
        log.kicked = head;
        link.connection.kick(link.slot as usize);
    }
}

/// Looks whether the daemon lives when it has not drained anything for a while: a program that
/// stages little never waits for it, and would not notice otherwise.
fn watch(link: Link, log: &mut Log) {
    let now = coarse_now();
    if now.saturating_sub(log.looked_at) < LOOK_EVERY {
        return;
    }
    log.looked_at = now;
    let before = log.producer.waiting();
    // Of a log that its client drains, progress says nothing.
    if log.is_own() || log.producer.refresh(link.shared) >= before {
        link.connection.check_alive();
    }
}

/// Accepts the first bytes of `data`; `None` when the log has no room.
fn accept_some(link: Link, log: &mut Log, data: &[u8], to: u64) -> Option<usize> {
    let wanted = data.len().min(COPY_MAX);
    let range = log.producer.reserve(link.shared, to, wanted as u64)?;
    let target = place(link, log, range.start, range.end - range.start)?;
    if log.producer.capacity() > DAEMONS_LEN {
        let at = log.at + log.producer.ring_at(range.start);
        link.connection.take_memory(at, target.len() as u64);
    }
    let len = log.copy(target, data);
    debug_assert!(len as u64 <= range.end - range.start, "only reserved space is written");
    log.producer.publish(link.shared, to, len as u64);
    if to == APPEND {
        log.note(0, u64::MAX);
    } else {
        log.note(to, len as u64);
    }
    Some(len)
}

impl Log {
    /// Adds what was staged since this was last called to the counters: not at each write.
    pub(crate) fn count(&mut self, link: Link) {
        let head = self.producer.head();
        debug_assert!(head >= self.counted, "positions count up");
        let staged = head - self.counted;
        self.counted = head;
        let counters = &link.connection.session.shared().counters;
        for counter in [Counter::BytesStaged, Counter::BytesWritten] {
            if let Some(word) = counters.get(counter.index()) {
                word.fetch_add(staged, Ordering::Relaxed);
            }
        }
    }

    /// Room for all of `len` bytes that go to `file_at` and continue what was staged last.
    #[inline]
    pub(crate) fn reserve_on(
        &self,
        link: Link,
        file_at: u64,
        len: u64,
    ) -> Option<&'static [AtomicU8]> {
        let at = self.at + self.producer.reserve_on(file_at, len)?;
        let (start, len) = (usize::try_from(at).ok()?, usize::try_from(len).ok()?);
        link.connection.session.arena().get(start..start + len)
    }

    /// Copies the first bytes of `data` to where they are staged; returns how many fit.
    pub(crate) fn copy(&self, target: &[AtomicU8], data: &[u8]) -> usize {
        if self.is_own() { copy_in_cached(target, data) } else { copy_in(target, data) }
    }
}

pub(crate) fn largest_log(connection: &Connection, part: u64) -> u64 {
    connection.arena.lock().map_or(0, |arena| arena.share(part))
}

/// Makes room in a full log: drains one's own to its boundary, waits for half of the daemon's.
pub(crate) fn make_room(link: Link, log: &mut Log, fd: BorrowedFd<'_>) -> Result<(), Failure> {
    let (head, waiting) = (log.producer.head(), log.producer.waiting());
    let is_ahead = log.drains.is_ahead(&link.connection.job.shared().costs, log.device);
    match log.drains {
        Drains::Here => drain_full(link, log, fd)?,
        Drains::Ahead if !is_ahead => take_back(link, log)?,
        // Of a long log not so much is waited for.
        Drains::Ahead | Drains::Beside | Drains::AtDaemon => {
            flush(link, log, head - waiting + (waiting / 2).min(DAEMONS_LEN))?;
        }
    }
    if log.is_own() && is_ahead {
        hand_over(link, log)?;
    }
    // None waits in a log whose extents are about to be released, too.
    if waiting > 0 && log.producer.waiting() == waiting {
        return Err(Failure::Refused(take_error(link).unwrap_or(Errno::IO)));
    }
    Ok(())
}

/// Gives a file whose large writes are staged a log that is as long as there is memory for, which
/// the daemon drains. Where it does not get one, the next write finds out why.
pub(crate) fn lengthen(file: &mut OpenFile) {
    let Some((link, log)) = file.state.staging() else { return };
    if !log.is_own() && log.producer.capacity() > DAEMONS_LEN {
        return;
    }
    link.connection.grow();
    let len = largest_log(link.connection, LARGE_SHARE);
    if len > log.producer.capacity() {
        log.drains = Drains::AtDaemon;
        link.shared.set_drained_by_client(false);
        match move_to(link, log, len) {
            Ok(()) | Err(_) => {}
        }
    }
}

/// Moves to a log of `len` bytes, if one is to be had.
pub(crate) fn grow_to(link: Link, log: &mut Log, len: u64) -> Result<(), Failure> {
    if len > largest_log(link.connection, LOG_SHARE) {
        return Ok(());
    }
    move_to(link, log, len)
}

pub(crate) fn move_to(link: Link, log: &mut Log, len: u64) -> Result<(), Failure> {
    let Some(other) = log_of(link.connection, len, log.drains, log.device) else { return Ok(()) };
    // Positions count on, but in an empty log.
    let moved = flush(link, log, log.producer.head()).and_then(|()| {
        let (arena_at, len) = (other.at, other.producer.capacity());
        link.connection.call(Request::Attach { file: link.slot, arena_at, len })
    });
    if !matches!(moved, Ok(Ok(_))) {
        give_log(link.connection, &other);
        return moved.map(drop).map_err(Failure::from);
    }
    give_log(link.connection, log);
    log.at = other.at;
    log.producer.attach(other.producer.capacity());
    Ok(())
}

/// Has the daemon drain the log up to `upto`, and waits for that. What it is refused with is owed
/// by the slot.
pub(crate) fn flush(link: Link, log: &mut Log, upto: u64) -> Result<(), Lost> {
    debug_assert!(upto <= log.producer.head(), "published bytes are flushed");
    log.producer.refresh(link.shared);
    if log.producer.head() - log.producer.waiting() < upto {
        // What the request itself meets says that the daemon has no such file: nobody will drain it
        // but we.
        link.connection.call(Request::Flush { file: link.slot, upto })?.map_err(|_| Lost)?;
        log.producer.refresh(link.shared);
    }
    Ok(())
}

/// Ends a file's delegation: everything staged is in the file, the daemon has let go of it, and the
/// kernel has the position. What the drain owes is kept in the file.
pub(crate) fn unlink(locked: &mut Locked) {
    let (fd, entry, file) = (locked.borrow(), locked.entry, &mut *locked.file);
    let Some(link) = file.state.link() else { return };
    if let Some((_, log)) = file.state.staging() {
        // What is refused here the daemon tries once more, and then says so.
        if drain(link, log, fd).is_ok() && log.producer.waiting() == 0 {
            file.owed.drain();
        }
    }
    let closed = link.connection.call(Request::Close { file: link.slot });
    let is_lost = closed.is_err();
    match closed {
        Ok(_) => {
            if link.is_counted {
                link.connection.job.shared().inodes.remove(file.device, file.inode);
            }
            let error = take_error(link);
            if let Some((_, log)) = file.state.staging() {
                if log.producer.refresh(link.shared) > 0 && error.is_none() {
                    // The daemon has no such file, and drains nothing of it.
                    take_over(link, log, fd);
                }
                give_log(link.connection, log);
            }
            file.owed.owe(error);
            file.owed.owe(take_error(link));
            link.end();
        }
        Err(Lost) => {
            if file.state.is_placeholder() {
                link.connection.await_exit();
            }
            let real =
                if file.state.is_placeholder() { reopen(fd.as_raw_fd(), file).ok() } else { None };
            if let Some((_, log)) = file.state.staging() {
                take_over(link, log, real.as_ref().map_or(fd, AsFd::as_fd));
            }
            file.owed.owe(take_error(link));
        }
    }
    entry.cursor.give(|position| give_position(position, fd, file.appended_to()));
    if is_lost { file.state.lose() } else { file.state.unlink() }
}

/// A real descriptor of the file behind a placeholder, without asking a daemon.
pub(crate) fn reopen(fd: RawFd, file: &OpenFile) -> io::Result<OwnedFd> {
    let mut name = [0; 32];
    let name = link_of(fd, &mut name).ok_or(Errno::BADF)?;
    let once = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC | OFlags::NOFOLLOW;
    let flags = OFlags::from_bits_retain(file.flags).difference(once) | OFlags::CLOEXEC;
    crate::socket::with_one_more(|| fs::open(name, flags, Mode::empty()))
}

/// The error the daemon owes for this file, once.
pub(crate) fn take_error(link: Link) -> Option<Errno> {
    let errno = link.shared.take_error()?;
    Some(Errno::from_raw_os_error(i32::try_from(errno & 0xfff).unwrap_or(5)))
}

impl OpenFile {
    /// The error that the caller tells the program now: its own, or else its slot's.
    pub(crate) fn tell_error(&mut self) -> Option<Errno> {
        let own = self.owed.tell();
        own.or_else(|| self.state.link().and_then(take_error).inspect(|_| self.owed.refuse()))
    }
}

/// Gives the kernel the file position, of a file that was appended to the end of the last append.
fn give_position(position: u64, fd: BorrowedFd<'_>, appended_to: Option<u64>) {
    let position = match (position, appended_to) {
        (AT_END, None) => SeekFrom::End(0),
        (AT_END, Some(end)) => SeekFrom::Start(end),
        (position, _) => SeekFrom::Start(position),
    };
    // A position the client computed is in range, and the file is seekable.
    match fs::seek(fd, position) {
        Ok(_) | Err(_) => {}
    }
}

/// Where `len` bytes from a log's `position` on lie, as far as they do not wrap.
pub(crate) fn place(link: Link, log: &Log, position: u64, len: u64) -> Option<&'static [AtomicU8]> {
    let at = log.producer.ring_at(position);
    let start = usize::try_from(log.at + at).ok()?;
    let len = usize::try_from(len.min(log.producer.capacity() - at)).ok()?;
    link.connection.session.arena().get(start..start + len)
}

/// A log that the client drains or the daemon, as suits the file: a small one is better than none.
fn new_log(connection: &Connection, file: &OpenFile) -> Option<Log> {
    let drains = file.drains();
    if file.writes == Writes::Large {
        connection.grow();
    }
    let (len, part) = match drains {
        Drains::Here => (OWN_LEN, OWN_SHARE),
        _ if file.writes == Writes::Large => (u64::MAX, LARGE_SHARE),
        Drains::Ahead | Drains::Beside | Drains::AtDaemon => (DAEMONS_LEN, LOG_SHARE),
    };
    let len = len.min(largest_log(connection, part)).max(LOG_MIN);
    let log = |len| log_of(connection, len, drains, file.device);
    log(len).or_else(|| log(LOG_MIN))
}

pub(crate) fn log_of(
    connection: &Connection,
    len: u64,
    drains: Drains,
    device: u64,
) -> Option<Log> {
    debug_assert!(len.is_power_of_two(), "positions wrap by a mask");
    let mut arena = connection.arena.lock().ok()?;
    let at = arena.take(len)?;
    drop(arena);
    connection.take_memory(at, len.min(POPULATED_LEN));
    let looked_at = coarse_now();
    let (producer, dirty) = (Producer::new(len), (u64::MAX, 0));
    Some(Log {
        at,
        producer,
        drains,
        device,
        traced_to: 0,
        drain_cost: Cost::UNKNOWN,
        compared: Compared::default(),
        kicked: 0,
        counted: 0,
        looked_at,
        dirty,
    })
}

fn give_log(connection: &Connection, log: &Log) {
    connection.give_memory(log.at, log.producer.capacity());
    if let Ok(mut arena) = connection.arena.lock() {
        arena.give(log.at, log.producer.capacity());
    }
}
