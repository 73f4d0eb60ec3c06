//! Windows: what the daemon reads ahead of a program, under policies `delegate` and `remote`.
//!
//! A window serves later reads while only this process has the file in the job, the file has the
//! version that was read, and no more than 10 ms have passed: of a remote file only the time is
//! known, and a file that others have mapped may change without a new version. All this decides
//! whether a read asks the daemon again, never what the read that has asked returns.
//!
//! A file that is written has its window emptied; what else may have changed files empties all of
//! them, by a count that each window is compared with.

use core::{
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use rustix::{
    fd::BorrowedFd,
    fs,
    io::{self, Errno},
    time::{ClockId, clock_gettime},
};
use shm::copy::copy_out;
use wire::{Reason, Request};

use crate::{
    buffers::partial,
    client::Client,
    clock::coarse_now,
    connection::{Lane, Lost, Sent},
    locked_file::Locked,
    slot::Link,
    state::{Served, State, Version, Window},
};

/// Bytes the daemon reads ahead of a sequential reader,
const WINDOW: u64 = 1 << 20;
const _: () = assert!(WINDOW % crate::arena::BLOCK == 0, "a window is made of blocks");
/// and never more than this part of what is free of the arena.
const WINDOW_SHARE: u64 = 8;
/// How long bytes read ahead may be given to the program: as long as a write may stay unseen.
const WINDOW_AGE: Duration = Duration::from_millis(10);

impl Client {
    /// There is a lock, or a name that may be one, or a file has changed: what was read ahead of
    /// any file does not count. None is looked for: a thread that reads has its file for as long as
    /// that takes.
    pub fn forget_read_ahead(&'static self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
    }
}

impl State {
    /// Discards the read-ahead.
    pub(crate) fn empty_window(&mut self) {
        if let Some(window) = self.served().and_then(|served| served.window.as_mut()) {
            window.filled = 0;
        }
    }

    /// Gives the window's place in the arena back.
    pub(crate) fn release_window(&mut self) {
        let Some(served) = self.served() else { return };
        let Some(window) = served.window.take() else { return };
        if let Ok(mut arena) = served.link.connection.arena.lock() {
            arena.give(window.at, window.len);
        }
    }
}

impl Locked {
    /// Reads through the daemon.
    pub(crate) fn read_delegated(
        &mut self,
        buffers: &mut [&mut [u8]],
        from: u64,
    ) -> io::Result<usize> {
        if !self.access.readable {
            return Err(Errno::BADF);
        }
        let mut done = 0;
        for buffer in buffers {
            let wanted = buffer.len();
            match self.read_through(buffer, from + done as u64) {
                Ok(Ok(len)) => {
                    debug_assert!(len <= wanted, "no more is read than fits");
                    done += len;
                    if len < wanted {
                        break;
                    }
                }
                Ok(Err(errno)) => return partial(done, errno),
                Err(Lost) => {
                    self.detach(Reason::DaemonLost);
                    let rest = &mut [&mut buffer[..]];
                    let read = self.client.kernel_read(self.fd, rest, Some(from + done as u64));
                    return read.map(|len| done + len).or_else(|errno| partial(done, errno));
                }
            }
        }
        Ok(done)
    }

    fn read_through(&mut self, buffer: &mut [u8], from: u64) -> Result<io::Result<usize>, Lost> {
        let (client, fd, file) = (self.client, self.borrow(), &mut *self.file);
        let is_remote = file.state.is_remote();
        let is_mapped = client.is_mapped(file.device, file.inode) && !is_remote;
        let Some(served) = file.state.served() else { return Ok(Err(Errno::BADF)) };
        let link = served.link;
        let Some(window) = window(served, is_remote) else {
            return self.read_by_block(link, buffer, from);
        };
        // Another node writes past this daemon.
        let is_asked_not_to = client.config.get().is_some_and(|config| config.synchronous);
        let is_others = link.shared.is_synchronous() || is_mapped;
        let is_private = !is_others && !is_asked_not_to;
        let forgotten = client.forgotten.load(Ordering::Acquire);
        let wanted = buffer.len() as u64;
        let counts = is_private && window.forgotten == forgotten;
        if counts && window.holds(from, wanted) && window.is_current(fd) {
            return Ok(window.copy(link, buffer, from));
        }
        if wanted > window.len / 2 {
            return pipelined(link, window, buffer, from);
        }
        let follows = from == window.from + window.filled;
        let version = if is_private { window.version_of(fd) } else { None };
        let reads_ahead = follows && version.is_some();
        // A multiple of what is read at a time: no read finds only its first part in the window.
        let len = if reads_ahead { window.len - window.len % wanted.max(1) } else { wanted };
        *window = Window { from, filled: 0, asked: len, forgotten, version, ..*window };
        window.filled_at = coarse_now();
        let mut lane = link.connection.lane()?;
        let sent = window.ask(link, &mut lane, from, len, window.at)?;
        window.filled = match lane.wait(sent)? {
            Ok(filled) => filled.min(len),
            Err(errno) => return Ok(Err(errno)),
        };
        // However long ago that was by now: the call reads what was there while it was under way.
        Ok(window.copy(link, buffer, from))
    }
}

impl Window {
    /// True if a read of `len` bytes at `from` finds all of them here, or all up to the end of the
    /// file. One that finds a part is not served by halves, which others may write between.
    const fn holds(&self, from: u64, len: u64) -> bool {
        let Some(skip) = from.checked_sub(self.from) else { return false };
        let Some(left) = self.filled.checked_sub(skip) else { return false };
        left > 0 && (left >= len || self.filled < self.asked)
    }

    /// True if nobody has changed the file since it was read ahead.
    fn is_current(&self, fd: BorrowedFd<'_>) -> bool {
        coarse_now().saturating_sub(self.filled_at) < WINDOW_AGE
            && self.version.is_some()
            && self.version == self.version_of(fd)
    }

    /// The version of the file behind a placeholder: when it was last changed, by whomever. `None`
    /// when a change that comes now could not be told from the last one. Nothing on this node
    /// tells of changes to a remote file.
    fn version_of(&self, fd: BorrowedFd<'_>) -> Option<Version> {
        if self.is_remote {
            return Some(Version::default());
        }
        let stat = fs::fstat(fd).ok()?;
        let changed_at = (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).ok()?);
        // The clock by which the kernel stamps changes. It stands still for milliseconds.
        let now = clock_gettime(ClockId::RealtimeCoarse);
        (changed_at < (now.tv_sec, now.tv_nsec)).then_some(changed_at)
    }

    /// Copies what the window has of the bytes at `from`; returns how many.
    fn copy(&self, link: Link, buffer: &mut [u8], from: u64) -> io::Result<usize> {
        debug_assert!(self.filled <= self.len, "the window holds what was filled");
        let skip = from.saturating_sub(self.from).min(self.filled);
        Ok(copy_out(buffer, in_arena(link, self.at + skip, self.filled - skip)?))
    }

    /// Asks for `len` bytes of the file, into this place of the arena.
    fn ask(
        &self,
        link: Link,
        lane: &mut Lane<'_>,
        at: u64,
        len: u64,
        arena_at: u64,
    ) -> Result<Sent, Lost> {
        debug_assert!(len <= self.len, "a window is asked for what it holds");
        let short = u32::try_from(len).unwrap_or(u32::MAX);
        let request = Request::Read { file: link.slot, at, len: short, arena_at };
        let sent = lane.submit(request).ok_or(Lost)?;
        Ok(if self.is_remote { sent } else { sent.moving(len) })
    }
}

/// Bytes of the arena in which something was read.
fn in_arena(link: Link, at: u64, len: u64) -> io::Result<&'static [AtomicU8]> {
    let start = usize::try_from(at).ok().zip(usize::try_from(len).ok());
    let bytes = start.and_then(|(at, len)| link.connection.session.arena().get(at..at + len));
    Ok(invariant!(some bytes, "a window lies in the arena", else return Err(Errno::IO)))
}

/// The window of a file that the daemon has open, if there is room for one.
fn window(served: &mut Served, is_remote: bool) -> Option<&mut Window> {
    if served.window.is_none() {
        let mut arena = served.link.connection.arena.lock().ok()?;
        let len = WINDOW.min(arena.share(WINDOW_SHARE));
        let at = arena.take(len)?;
        served.window = Some(Window {
            at,
            len,
            from: 0,
            asked: 0,
            filled: 0,
            filled_at: Duration::ZERO,
            version: None,
            forgotten: 0,
            is_remote,
        });
    }
    served.window.as_mut()
}

/// A large read by halves of the window: the daemon fills one half while the other is copied.
struct Pipeline<'a> {
    link: Link,
    lane: Lane<'a>,
    window: Window,
    /// File range still to be asked for.
    next: u64,
    end: u64,
}

struct Half {
    sent: Sent,
    len: u64,
    arena_at: u64,
}

impl Pipeline<'_> {
    /// Asks for the next half, into half `index` of the window.
    fn ask(&mut self, index: u64) -> Result<Option<Half>, Lost> {
        let half = self.window.len / 2;
        debug_assert!(self.next <= self.end && half > 0, "halves end where the read does");
        let len = (self.end - self.next).min(half);
        if len == 0 {
            return Ok(None);
        }
        let arena_at = self.window.at + index % 2 * half;
        let sent = self.window.ask(self.link, &mut self.lane, self.next, len, arena_at)?;
        self.next += len;
        Ok(Some(Half { sent, len, arena_at }))
    }
}

fn pipelined(
    link: Link,
    window: &mut Window,
    buffer: &mut [u8],
    from: u64,
) -> Result<io::Result<usize>, Lost> {
    window.filled = 0;
    let lane = link.connection.lane()?;
    let end = from.saturating_add(buffer.len() as u64);
    let mut pipeline = Pipeline { link, lane, window: *window, next: from, end };
    let mut pending = [pipeline.ask(0)?, pipeline.ask(1)?];
    let (mut done, mut ended, mut failure) = (0, false, None);
    for index in 0u64.. {
        let place = usize::from(index % 2 == 1);
        let Some(half) = pending.get_mut(place).and_then(Option::take) else { break };
        match pipeline.lane.wait(half.sent)? {
            // After an error or the end of the file, what was asked already is only waited for.
            _ if ended => continue,
            Err(errno) => (failure, ended) = (Some(errno), true),
            Ok(len) => {
                let target = invariant!(some buffer.get_mut(done..), "no more is read than wanted",
                    else return Ok(Err(Errno::IO)));
                match in_arena(link, half.arena_at, len.min(half.len)) {
                    Ok(filled) => done += copy_out(target, filled),
                    Err(errno) => return Ok(Err(errno)),
                }
                ended = len < half.len;
            }
        }
        if !ended {
            if let Some(place) = pending.get_mut(place) {
                *place = pipeline.ask(index)?;
            }
        }
    }
    Ok(failure.map_or(Ok(done), |errno| partial(done, errno)))
}
