//! Policy `delegate`: the daemon opens the file and does everything; the program holds an `O_PATH`
//! placeholder, on which the kernel refuses every data call, so that nothing can slip past.

use core::{
    ffi::CStr,
    sync::atomic::{Ordering, fence},
    time::Duration,
};

use rustix::{
    fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd},
    fs::{self, AtFlags, FileType, Mode, OFlags},
    io::{self, Errno},
};
use shm::copy::{copy_in, copy_out};
use wire::{Counter, PathPair, Reason, Request};

use crate::{
    client::Client,
    client::Status,
    clock::coarse_now,
    connection::{Connection, Lane, Lost, Sent},
    file::{self, Descriptor, Link, OpenFile, Window},
    locked::Locked,
    names::Ending,
    rules::{AbsolutePath, Policy, policy_of},
    slots::Slot,
    staging,
    table::Entry,
};

/// Bytes the daemon reads ahead of a sequential reader.
const WINDOW: u64 = 1 << 20;
/// How long bytes read ahead may be given to the program: as long as a write may stay unseen.
const WINDOW_AGE: Duration = Duration::from_millis(10);

impl Client {
    /// Opens a file at the daemon; `None`: open it without.
    pub(crate) fn open_delegated(
        &'static self,
        dir: RawFd,
        path: &CStr,
        flags: OFlags,
        mode: Mode,
    ) -> Option<io::Result<RawFd>> {
        let is_folders = Ending::of(path) != Ending::Plain;
        if is_folders || flags.intersects(OFlags::PATH | OFlags::DIRECTORY | OFlags::DIRECT) {
            return None;
        }
        let follow = if flags.contains(OFlags::NOFOLLOW) {
            AtFlags::SYMLINK_NOFOLLOW
        } else {
            AtFlags::empty()
        };
        match fs::statat(self.borrow(dir), path, follow) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return None;
            }
            Ok(stat) if self.may_have_locked(stat.st_dev, stat.st_ino, 0) => return None,
            Ok(_) => {}
            Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => {}
            Err(_) => return None,
        }
        let connection = self.connection()?;
        let opened = self.open_in_slot(Slot::take(connection)?, (dir, path), flags, mode)?;
        Some(opened.and_then(|fd| self.real_if_locked(fd, flags)))
    }

    /// A real number for a file that somebody has asked for a lock on while it was opened: to make
    /// the placeholder real later would give that lock up.
    fn real_if_locked(&'static self, fd: OwnedFd, flags: OFlags) -> io::Result<RawFd> {
        let number = fd.as_raw_fd();
        let Some(file) = self.locked_fd(number).filter(|file| !file.is_placeholder()) else {
            return Ok(fd.into_raw_fd());
        };
        let real = staging::reopen(number, &file);
        drop(file);
        self.let_go(number)?;
        drop(fd);
        let real = real?.into_raw_fd();
        self.table.take(real);
        self.opened(real, flags, Policy::Delegate);
        Ok(real)
    }

    fn open_in_slot(
        &'static self,
        slot: Slot,
        (dir, path): (RawFd, &CStr),
        flags: OFlags,
        mode: Mode,
    ) -> Option<io::Result<OwnedFd>> {
        let connection = slot.connection();
        let mode = if flags.contains(OFlags::CREATE) { mode - self.umask() } else { mode };
        // As in the kernel: where no number is free nothing is created or truncated.
        let number = match io::fcntl_dupfd_cloexec(connection.socket(), 0) {
            Ok(number) => number,
            Err(errno) => return Some(Err(errno)),
        };
        let absolute = self.absolute_path(dir, path)?;
        let answer = with_path(connection, absolute.bytes(), |path_len| Request::Open {
            file: slot.number(),
            flags: flags.bits(),
            mode: mode.bits(),
            path_len,
        });
        match answer.ok()? {
            Ok(_) => {}
            Err(Errno::NOTSUP) => return None,
            Err(errno) => return Some(Err(errno)),
        }
        let link = slot.into_link(false);
        drop(number);
        let placeholder = OFlags::PATH | flags.intersection(OFlags::CLOEXEC | OFlags::NOFOLLOW);
        let added = fs::openat(self.borrow(dir), path, placeholder, Mode::empty()).and_then(|fd| {
            let stat = fs::fstat(&fd)?;
            let mut file = file::fresh(stat.st_dev, stat.st_ino, flags);
            (file.descriptor, file.link) = (Descriptor::Placeholder, Some(link));
            let id = self.files.add(file).ok_or(Errno::MFILE)?;
            Ok((fd, id))
        });
        match added {
            Ok((fd, id)) => {
                let mut file = self.locked(fd.as_raw_fd(), id)?;
                file.entry.position.store(0, Ordering::Relaxed);
                file.entry.is_staged.store(true, Ordering::Release);
                self.table.set(fd.as_raw_fd(), Entry::File(id));
                // A thread that locks it meanwhile finds this placeholder, or is found here.
                fence(Ordering::SeqCst);
                if self.may_have_locked(file.device, file.inode, 1) {
                    file.descriptor = Descriptor::Real;
                }
                self.count(Counter::Files, 1);
                Some(Ok(fd))
            }
            Err(errno) => {
                // Somebody took the name away at once, or a table is full: as if never opened.
                let closed = connection.call(Request::Close { file: link.slot });
                link.end();
                Some(Err(if closed.is_ok() { errno } else { Errno::IO }))
            }
        }
    }

    pub(crate) fn release_window(&self, file: &mut OpenFile) {
        if let (Some(link), Some(window)) = (file.link, file.window.take()) {
            if let Ok(mut arena) = link.connection.arena.lock() {
                arena.give(window.at, window.len);
            }
        }
    }

    /// There is a lock, or a name that may be one, or a file has changed: what was read ahead of
    /// any file does not count. None is looked for: a thread that reads has its file for as long as
    /// that takes.
    pub fn forget_read_ahead(&'static self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
    }

    // ---- names

    /// Sends a request about one path, if a rule delegates it.
    pub(crate) fn about_path(
        &'static self,
        dir: RawFd,
        path: &CStr,
        request: impl FnOnce(u32) -> Request,
    ) -> Option<io::Result<()>> {
        let (absolute, is_remote) = self.delegated_path(dir, path)?;
        let connection = self.connection();
        let answer = connection.and_then(|c| with_path(c, absolute.bytes(), request).ok());
        answer.map(|answer| answer.map(drop)).or(is_remote.then_some(Err(Errno::IO)))
    }

    /// Sends a request about two paths, if a rule delegates the second.
    pub(crate) fn about_paths(
        &'static self,
        from: &[u8],
        (to, is_remote): &(AbsolutePath, bool),
        request: impl FnOnce(PathPair) -> Request,
    ) -> Option<io::Result<()>> {
        let done = self.about_both(from, to.bytes(), request);
        done.or(is_remote.then_some(Err(Errno::IO)))
    }

    fn about_both(
        &'static self,
        from: &[u8],
        to: &[u8],
        request: impl FnOnce(PathPair) -> Request,
    ) -> Option<io::Result<()>> {
        let paths = PathPair {
            from_len: u32::try_from(from.len()).ok()?,
            to_len: u32::try_from(to.len()).ok()?,
        };
        let mut lane = self.connection()?.lane().ok()?;
        let (first, rest) = lane.buffer().split_at_checked(from.len())?;
        copy_in(first, from);
        copy_in(rest.get(..to.len())?, to);
        Some(lane.call(request(paths)).ok()?.map(drop))
    }

    /// The absolute form of a path that a rule delegates, and whether it is remote.
    pub(crate) fn delegated_path(
        &'static self,
        dir: RawFd,
        path: &CStr,
    ) -> Option<(AbsolutePath, bool)> {
        let config = self.active().filter(|config| !config.rules().is_empty())?;
        match policy_of(config, self.host, dir, path) {
            Policy::Delegate => Some((self.absolute_path(dir, path)?, false)),
            Policy::Remote => Some((self.absolute_path(dir, path)?, true)),
            Policy::Pass | Policy::Kernels | Policy::Hybrid => None,
        }
    }

    /// Whether one of two paths is remote and the other is not.
    pub(crate) fn crosses(&'static self, from: (RawFd, &CStr), to: (RawFd, &CStr)) -> bool {
        let is_remote = |(dir, path)| self.remote_path(dir, path).is_some();
        self.active().is_some_and(|config| config.has_remote()) && is_remote(from) != is_remote(to)
    }

    pub(crate) fn absolute_path(&'static self, dir: RawFd, path: &CStr) -> Option<AbsolutePath> {
        AbsolutePath::new(self.active()?, self.host, dir, path)
    }

    pub(crate) fn status(
        &'static self,
        request: impl FnOnce(u32) -> Request,
        path: &[u8],
    ) -> Option<io::Result<Status>> {
        let mut lane = self.connection()?.lane().ok()?;
        copy_in(lane.buffer().get(..path.len())?, path);
        match lane.call(request(u32::try_from(path.len()).ok()?)).ok()? {
            Err(errno) => Some(Err(errno)),
            Ok(_) => Some(status_in(&lane)),
        }
    }
}

impl Locked {
    /// Reads through the daemon. The file is locked and holds what was staged.
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
                    done += len;
                    if len < wanted {
                        break;
                    }
                }
                Ok(Err(errno)) => return partial(done, errno),
                Err(Lost) => {
                    self.leave(Reason::DaemonLost);
                    let rest = &mut [&mut buffer[..]];
                    let read = self.client.kernel_read(self.fd, rest, Some(from + done as u64));
                    return read.map(|len| done + len).or_else(|errno| partial(done, errno));
                }
            }
        }
        Ok(done)
    }

    fn read_through(&mut self, buffer: &mut [u8], from: u64) -> Result<io::Result<usize>, Lost> {
        let (client, file) = (self.client, &mut *self.file);
        let Some(link) = file.link else { return Ok(Err(Errno::BADF)) };
        let is_mapped = client.mapped.has(file.device, file.inode) && !file.is_remote();
        let Some(window) = window(link, file) else { return Ok(Err(Errno::NOMEM)) };
        // A child writes past everybody.
        let is_private = !link.shared.is_synchronous() && !link.shared.is_lent() && !is_mapped;
        let forgotten = client.forgotten.load(Ordering::Acquire);
        let counts = is_private && window.forgotten == forgotten;
        let mut done = if counts { window.serve(link, buffer, from) } else { 0 };
        let rest = buffer.get_mut(done..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(Ok(done));
        }
        let at = from + done as u64;
        if rest.len() as u64 > window.len / 2 {
            let read = pipelined(link, window, rest, at)?;
            return Ok(read.map(|len| done + len).or_else(|errno| partial(done, errno)));
        }
        let follows = at == window.from + window.filled;
        let len = if is_private && follows { window.len } else { rest.len() as u64 };
        (window.from, window.filled, window.forgotten) = (at, 0, forgotten);
        let mut lane = link.connection.lane()?;
        let sent = window.ask(link, &mut lane, (at, len), window.at)?;
        window.filled = match lane.wait(sent)? {
            Ok(len) => len.min(window.len),
            Err(errno) => return Ok(partial(done, errno)),
        };
        window.filled_at = coarse_now();
        client.count(Counter::BytesFetched, window.filled);
        done += window.serve(link, rest, at);
        Ok(Ok(done))
    }
}

impl Window {
    /// Copies what the window has of the bytes at `from`; returns how many.
    fn serve(&self, link: Link, buffer: &mut [u8], from: u64) -> usize {
        let Some(skip) = from.checked_sub(self.from).filter(|skip| *skip < self.filled) else {
            return 0;
        };
        if coarse_now().saturating_sub(self.filled_at) >= WINDOW_AGE {
            return 0;
        }
        let start = usize::try_from(self.at + skip).unwrap_or(usize::MAX);
        let end = usize::try_from(self.at + self.filled).unwrap_or(usize::MAX);
        copy_out(buffer, link.connection.session.arena().get(start..end).unwrap_or_default())
    }

    /// Asks for `len` bytes of the file, into this place of the arena.
    fn ask(
        &self,
        link: Link,
        lane: &mut Lane<'_>,
        (at, len): (u64, u64),
        arena_at: u64,
    ) -> Result<Sent, Lost> {
        let short = u32::try_from(len).unwrap_or(u32::MAX);
        let request = Request::Read { file: link.slot, at, len: short, arena_at };
        let sent = lane.submit(request).ok_or(Lost)?;
        Ok(if self.is_remote { sent } else { sent.moving(len) })
    }
}

fn window(link: Link, file: &mut OpenFile) -> Option<&mut Window> {
    if file.window.is_none() {
        let mut arena = link.connection.arena.lock().ok()?;
        let len = WINDOW.min(arena.len() / 8).max(64 << 10);
        let at = arena.take(len)?;
        let is_remote = file.is_remote();
        let (from, filled, filled_at, forgotten) = (0, 0, Duration::ZERO, 0);
        file.window = Some(Window { at, len, from, filled, filled_at, forgotten, is_remote });
    }
    file.window.as_mut()
}

/// A large read in pieces of half a window: the daemon fills one half while the other is copied.
struct Pipeline<'a> {
    link: Link,
    lane: Lane<'a>,
    window: Window,
    /// File range still to be asked for.
    next: u64,
    end: u64,
}

struct Piece {
    sent: Sent,
    len: u64,
    arena_at: u64,
}

impl Pipeline<'_> {
    /// Asks for the next piece, into half `index` of the window.
    fn ask(&mut self, index: u64) -> Result<Option<Piece>, Lost> {
        let half = self.window.len / 2;
        let len = (self.end - self.next).min(half);
        if len == 0 {
            return Ok(None);
        }
        let arena_at = self.window.at + index % 2 * half;
        let sent = self.window.ask(self.link, &mut self.lane, (self.next, len), arena_at)?;
        self.next += len;
        Ok(Some(Piece { sent, len, arena_at }))
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
        let Some(piece) = pending.get_mut(place).and_then(Option::take) else { break };
        match pipeline.lane.wait(piece.sent)? {
            // After an error or the end of the file, what was asked already is only waited for.
            _ if ended => continue,
            Err(errno) => (failure, ended) = (Some(errno), true),
            Ok(len) => {
                let start = usize::try_from(piece.arena_at).unwrap_or(usize::MAX);
                let len = usize::try_from(len.min(piece.len)).unwrap_or(0);
                let filled = link.connection.session.arena().get(start..start + len);
                let target = buffer.get_mut(done..).unwrap_or_default();
                done += copy_out(target, filled.unwrap_or_default());
                ended = (len as u64) < piece.len;
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

/// What a call returns that fails after `done` bytes: those, if there are any.
pub(crate) fn partial(done: usize, errno: Errno) -> io::Result<usize> {
    if done > 0 { Ok(done) } else { Err(errno) }
}

fn with_path(
    connection: &'static Connection,
    path: &[u8],
    request: impl FnOnce(u32) -> Request,
) -> Result<io::Result<u64>, Lost> {
    let mut lane = connection.lane()?;
    let (Some(space), Ok(len)) = (lane.buffer().get(..path.len()), u32::try_from(path.len()))
    else {
        return Ok(Err(Errno::NAMETOOLONG));
    };
    copy_in(space, path);
    lane.call(request(len))
}

/// The status that an answer has put into a lane's buffer.
pub(crate) fn status_in(lane: &Lane<'_>) -> io::Result<Status> {
    let mut bytes = [0; Status::LEN];
    copy_out(&mut bytes, lane.buffer());
    Status::decode(&bytes).ok_or(Errno::IO)
}
