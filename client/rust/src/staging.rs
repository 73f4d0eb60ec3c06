//! Staged writes: how a program's bytes are accepted, drained, and, without a daemon, taken over.
//!
//! Everything here works on one locked file. A daemon that is lost ends delegation of the file:
//! what is staged is drained from this side, and the rest goes to the kernel.

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
    copy::{copy_in, copy_out},
    staging::{APPEND, Consumer, Producer, Run},
};
use wire::{FileFlags, Reason, Registration, Request};

use crate::{
    append,
    clock::{coarse_now, now},
    connection::{Connection, Lost},
    file::{AT_END, Access, Link, Log, OpenFile},
    locked::Locked,
    paths::link_of,
    slots::Slot,
};

/// First log of a process's first file, bytes; later files start with what the last one needed.
pub(crate) const LOG_MIN: u64 = 64 << 10;
/// A log never takes more than this part of what is free of the arena.
const LOG_SHARE: u64 = 4;
/// Bytes copied before the daemon may see them: it drains while the next ones are copied.
const COPY_MAX: usize = 256 << 10;
/// Bytes staged between two hints that there is a lot to drain.
const KICK: (u64, u64) = (64 << 10, 1 << 20);
/// Half of a log's limit drains in at most this time, or the limit is halved; bytes accepted are
/// then in the file well within the promised 10 ms, however many clients the daemon serves.
const LATE: Duration = Duration::from_millis(1);
/// Half of a log's limit that drains in less makes it grow.
const EARLY: Duration = Duration::from_micros(500);
/// For how long longer writes pass a log by that was full of what the daemon drains in good time.
/// Then the program may have paused, and staging is worth it again.
const BYPASS: Duration = Duration::from_millis(20);
/// Time after which a daemon that drains nothing is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Bytes moved at a time when the client drains by itself.
const TAKE_OVER_BLOCK: usize = 16 << 10;

/// Links a file to the daemon, with a log of about `log_len` bytes, or none when that is zero.
///
/// # Errors
///
/// Why the kernel has to serve the file for now.
pub(crate) fn link(
    connection: &'static Connection,
    file: &mut OpenFile,
    fd: BorrowedFd<'_>,
    log_len: u64,
) -> Result<(), Reason> {
    if connection.is_lost() || connection.session.shared().is_closing() {
        return Err(Reason::DaemonLost);
    }
    let log =
        if log_len > 0 { Some(new_log(connection, log_len).ok_or(Reason::Credit)?) } else { None };
    let Some(slot) = Slot::take(connection) else {
        log.inspect(|log| give_log(connection, log));
        return Err(Reason::Credit);
    };
    let registration = Registration {
        file: slot.number(),
        flags: flags(file.access),
        log_at: log.map_or(0, |log| log.at),
        log_len: log.map_or(0, |log| log.producer.capacity()),
    };
    let inodes = &connection.job.shared().inodes;
    inodes.add(file.device, file.inode);
    if let Err(reason) = connection.register(registration, fd) {
        inodes.remove(file.device, file.inode);
        log.inspect(|log| give_log(connection, log));
        return Err(reason);
    }
    file.link = Some(slot.into_link(true));
    file.log = log;
    if inodes.tell(file.device, file.inode).count() > 1 {
        // Somebody else has staged, or is about to, to this inode or to one with its hash. Each of
        // us sees the other here, and the daemon, which knows both by then, demotes us if it is the
        // same; what one wrote before the other began is drained before it begins.
        let (device, inode) = (file.device, file.inode);
        match connection.call(Request::Settle { device, inode, demote: false }) {
            Ok(_) | Err(Lost) => {}
        }
    }
    Ok(())
}

/// Gives a file that is linked without a log, to be read, a log to be written.
pub(crate) fn attach(file: &mut OpenFile, link: Link, log_len: u64) -> Result<(), Reason> {
    let log = new_log(link.connection, log_len).ok_or(Reason::Credit)?;
    let request =
        Request::Attach { file: link.slot, arena_at: log.at, len: log.producer.capacity() };
    match link.connection.call(request) {
        Ok(Ok(_)) => {
            file.log = Some(log);
            Ok(())
        }
        Ok(Err(_)) => {
            give_log(link.connection, &log);
            Err(Reason::Credit)
        }
        Err(Lost) => Err(Reason::DaemonLost),
    }
}

/// Copies `data`, which goes to `at` (or to the end of the file for [`APPEND`]), into the log. What
/// is appended others see in one piece, if it has at most `whole_max` bytes and there is a log with
/// room for it.
///
/// # Errors
///
/// The daemon is lost; so many bytes were accepted before.
pub(crate) fn accept(
    link: Link,
    log: &mut Log,
    data: &[&[u8]],
    at: u64,
    whole_max: u64,
) -> Result<(), usize> {
    if at == APPEND && append::accept(link, log, data, whole_max).map_err(|Lost| 0_usize)? {
        return Ok(());
    }
    let mut done = 0;
    for piece in data {
        let mut rest: &[u8] = piece;
        while !rest.is_empty() {
            let to = if at == APPEND { APPEND } else { at + done as u64 };
            let Some(len) = accept_some(link, log, rest, to) else {
                make_room(link, log).map_err(|Lost| done)?;
                continue;
            };
            done += len;
            rest = rest.get(len..).unwrap_or_default();
            tell(link, log);
        }
    }
    Ok(())
}

/// Tells the daemon that something was published, and to hurry if that is much.
pub(crate) fn tell(link: Link, log: &mut Log) {
    if !link.connection.raise_dirty(link.slot as usize) {
        watch(link, log);
    }
    let head = log.producer.head();
    if head - log.kicked >= (log.producer.capacity() / 4).clamp(KICK.0, KICK.1) {
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
    if log.producer.refresh(link.shared) >= before {
        link.connection.check_alive();
    }
}

/// Accepts the first bytes of `data`; `None` when the log has no room.
fn accept_some(link: Link, log: &mut Log, data: &[u8], to: u64) -> Option<usize> {
    let is_full = |log: &Log| log.producer.waiting() >= log.limit;
    if is_full(log) {
        log.producer.refresh(link.shared);
        if is_full(log) {
            return None;
        }
    }
    let wanted = data.len().min(COPY_MAX);
    let range = log.producer.reserve(link.shared, to, wanted as u64)?;
    let start = usize::try_from(log.at + log.producer.ring_at(range.start)).ok()?;
    let len = usize::try_from(range.end - range.start).ok()?;
    let target = link.connection.session.arena().get(start..start + len)?;
    copy_in(target, data.get(..len)?);
    log.producer.publish(link.shared, to, len as u64);
    if to == APPEND {
        log.note(0, u64::MAX);
    } else {
        log.note(to, len as u64);
    }
    Some(len)
}

fn largest_log(connection: &Connection) -> u64 {
    connection.arena.lock().map_or(0, |arena| arena.share(LOG_SHARE))
}

/// Waits for room in a full log, and has it hold more or less from now on, by how long that took.
pub(crate) fn make_room(link: Link, log: &mut Log) -> Result<(), Lost> {
    let (head, waiting) = (log.producer.head(), log.producer.waiting());
    let began = now();
    flush(link, log, head - waiting / 2)?;
    let took = now().saturating_sub(began);
    // A log whose bytes are few is full of extents, and a larger one has no room for more of them.
    if waiting < log.limit {
        return Ok(());
    }
    if took > LATE {
        log.limit = (log.limit / 2).max(LOG_MIN);
    } else if took < EARLY {
        log.limit = (log.limit * 2).min(log.producer.capacity());
        return grow(link, log, waiting);
    }
    log.bypassed_until = coarse_now() + BYPASS;
    Ok(())
}

/// Moves to a larger log, if all of this one was used.
fn grow(link: Link, log: &mut Log, used: u64) -> Result<(), Lost> {
    let (len, share) = (log.producer.capacity(), largest_log(link.connection));
    if used < len || len >= share {
        return Ok(());
    }
    grow_to(link, log, (len * 4).min(share))
}

/// Moves to a log of `len` bytes, if one is to be had.
pub(crate) fn grow_to(link: Link, log: &mut Log, len: u64) -> Result<(), Lost> {
    if len > largest_log(link.connection) {
        return Ok(());
    }
    let Some(larger) = log_of(link.connection, len) else { return Ok(()) };
    // Positions count on, but in an empty log.
    flush(link, log, log.producer.head())?;
    let (arena_at, len) = (larger.at, larger.producer.capacity());
    let attached = link.connection.call(Request::Attach { file: link.slot, arena_at, len })?;
    if attached.is_err() {
        give_log(link.connection, &larger);
        return Ok(());
    }
    give_log(link.connection, log);
    (log.at, log.limit) = (larger.at, larger.limit);
    log.producer.attach(len);
    Ok(())
}

/// Waits until the log is drained up to `upto`.
pub(crate) fn flush(link: Link, log: &mut Log, upto: u64) -> Result<(), Lost> {
    log.producer.refresh(link.shared);
    if log.producer.head() - log.producer.waiting() < upto {
        // An error of the drain is owed by the slot. What the request itself meets says that the
        // daemon has no such file: nobody will drain it but we.
        link.connection.call(Request::Flush { file: link.slot, upto })?.map_err(|_| Lost)?;
        log.producer.refresh(link.shared);
    }
    Ok(())
}

/// Ends a file's delegation: everything staged is in the file, the daemon has let go of it, and the
/// kernel has the position. What the drain owes is kept in the file.
pub(crate) fn unlink(locked: &mut Locked) {
    let (fd, entry, file) = (locked.borrow(), locked.entry, &mut *locked.file);
    let Some(link) = file.link else { return };
    match link.connection.call(Request::Close { file: link.slot }) {
        Ok(_) => {
            if link.is_counted {
                link.connection.job.shared().inodes.remove(file.device, file.inode);
            }
            if let Some(log) = &mut file.log {
                if log.producer.refresh(link.shared) > 0 {
                    // The daemon has no such file, and drains nothing of it.
                    take_over(link, log, fd);
                }
                give_log(link.connection, log);
            }
            file.owed = file.owed.or(take_error(link));
            link.end();
        }
        Err(Lost) => {
            let real = if file.is_placeholder() { reopen(fd.as_raw_fd(), file).ok() } else { None };
            if let Some(log) = file.log {
                take_over(link, &log, real.as_ref().map_or(fd, AsFd::as_fd));
            }
            file.owed = file.owed.or(take_error(link));
            file.left = Some(Reason::DaemonLost);
        }
    }
    while entry.is_staged.load(Ordering::Acquire) {
        let position = entry.position.load(Ordering::Relaxed);
        give_position(position, fd, file.appended_to());
        // A signal handler that has written since has moved it on; from now on the kernel does.
        let given =
            entry.position.compare_exchange(position, AT_END, Ordering::Relaxed, Ordering::Relaxed);
        entry.is_staged.store(given.is_err(), Ordering::Release);
    }
    (file.link, file.log) = (None, None);
}

/// A real descriptor of the file behind a placeholder, without asking a daemon.
pub(crate) fn reopen(fd: RawFd, file: &OpenFile) -> io::Result<OwnedFd> {
    let mut name = [0; 32];
    let name = link_of(fd, &mut name).ok_or(Errno::BADF)?;
    let once = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC | OFlags::NOFOLLOW;
    let flags = OFlags::from_bits_retain(file.flags).difference(once) | OFlags::CLOEXEC;
    fs::open(name, flags, Mode::empty())
}

/// The error the daemon owes for this file, once.
pub(crate) fn take_error(link: Link) -> Option<Errno> {
    let errno = link.shared.take_error()?;
    Some(Errno::from_raw_os_error(i32::try_from(errno & 0xfff).unwrap_or(5)))
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

/// Drains the log from this side. Only after the daemon's death: there is one writer at a time.
fn take_over(link: Link, log: &Log, fd: BorrowedFd<'_>) {
    let mut consumer = Consumer::resume(link.shared, log.producer.capacity());
    loop {
        let mut runs = [Run::default(); 2];
        let run = match consumer.runs(link.shared, u64::MAX, &mut runs) {
            Ok(0) => return,
            Ok(_) => append::joined(&runs, log.producer.capacity()),
            // Only a daemon that scribbled over the slot before it died brings us here.
            Err(_) => return link.shared.owe(Errno::IO.raw_os_error().unsigned_abs()),
        };
        if let Err(errno) = take_over_run(link, log, run, fd) {
            link.shared.owe(errno.raw_os_error().unsigned_abs());
        }
        consumer.release(link.shared, run.start + run.len);
    }
}

fn take_over_run(link: Link, log: &Log, run: Run, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut block = [0; TAKE_OVER_BLOCK];
    let mut done = append::done(link, log, run, fd)?;
    while done < run.len {
        let staged = place(link, log, run.start + done, run.len - done).ok_or(Errno::FAULT)?;
        let len = copy_out(&mut block, staged);
        let data = block.get(..len).unwrap_or_default();
        let at = if run.file_at == APPEND { 0 } else { run.file_at + done };
        // On a descriptor opened with O_APPEND, Linux appends whatever the offset.
        done += io::retry_on_intr(|| io::pwrite(fd, data, at))? as u64;
    }
    Ok(())
}

/// Where `len` bytes from a log's `position` on lie, as far as they do not wrap.
pub(crate) fn place(link: Link, log: &Log, position: u64, len: u64) -> Option<&'static [AtomicU8]> {
    let at = log.producer.ring_at(position);
    let start = usize::try_from(log.at + at).ok()?;
    let len = usize::try_from(len.min(log.producer.capacity() - at)).ok()?;
    link.connection.session.arena().get(start..start + len)
}

/// A log of about `len` bytes: a small one is better than none.
fn new_log(connection: &Connection, len: u64) -> Option<Log> {
    log_of(connection, len).or_else(|| log_of(connection, LOG_MIN))
}

fn log_of(connection: &Connection, len: u64) -> Option<Log> {
    let mut arena = connection.arena.lock().ok()?;
    let at = arena.take(len)?;
    if let Some((from, len)) = arena.untouched(at, len) {
        let (from, len) = (usize::try_from(from).ok()?, usize::try_from(len).ok()?);
        connection.session.populate(from, len);
    }
    let looked_at = coarse_now();
    let (producer, dirty) = (Producer::new(len), (u64::MAX, 0));
    let (limit, bypassed_until) = (len, Duration::ZERO);
    Some(Log { at, producer, limit, kicked: 0, looked_at, bypassed_until, dirty })
}

fn give_log(connection: &Connection, log: &Log) {
    if let Ok(mut arena) = connection.arena.lock() {
        arena.give(log.at, log.producer.capacity());
    }
}

fn flags(access: Access) -> FileFlags {
    let mut flags = FileFlags::default();
    for (set, flag) in [
        (access.append, FileFlags::APPEND),
        (access.readable, FileFlags::READABLE),
        (access.writable, FileFlags::WRITABLE),
    ] {
        if set {
            flags = flags.with(flag);
        }
    }
    flags
}
