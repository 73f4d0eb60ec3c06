//! Descriptors that a connection keeps. The daemon sends them over the control socket: real ones
//! for placeholders, the table of places, and the physical files that it leads to. Placeholders are
//! duplicates of one that is opened here.

use core::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rustix::{
    fd::OwnedFd,
    fs::{self, CWD, FileType, Mode, OFlags, fstat},
    io::{self, Errno},
    net::RecvFlags,
};
use shm::{Lock, Once, PlacesView, places::PlacesShared};
use wire::{MESSAGE_LEN, Request, SOURCES_MAX};

use super::{Connection, Lost};
use crate::{
    clock::coarse_now,
    config::{Config, PATH_MAX},
    descriptor_messages::receive_with,
    neighbours::Neighbours,
    socket::OwnNumber,
    table::{Entry, Table},
};

/// Time after which the daemon is looked at by who asks it nothing.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Descriptors that a connection has got.
pub(crate) struct Shares {
    /// To read the socket, and to keep another descriptor.
    turn: Lock<()>,
    /// The table of places; `None`: the daemon has none, or did not send it.
    places: Once<Option<PlacesView>>,
    pub(crate) sources: [Once<Source>; SOURCES_MAX],
    /// The job's socket, opened only to be named: what placeholders are duplicates of.
    placeholder: Once<OwnNumber>,
    /// When the daemon was last looked at, by the coarse clock, ns.
    looked_at: AtomicU64,
}

/// A physical file that small files are read from.
pub(crate) struct Source {
    pub(crate) file: OwnNumber,
    pub(crate) neighbours: Neighbours,
}

impl Shares {
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Self {
            turn: Lock::new(()),
            places: Once::new(),
            sources: [const { Once::new() }; SOURCES_MAX],
            placeholder: Once::new(),
            looked_at: AtomicU64::new(0),
        }
    }
}

impl Connection {
    /// Has the daemon send a descriptor for a file over the control socket: see the request.
    pub(crate) fn materialize(&self, file: u32) -> Result<io::Result<OwnedFd>, Lost> {
        self.descriptor(Request::Materialize { file })
    }

    /// Makes a request that is answered by a descriptor over the control socket.
    fn descriptor(&self, request: Request) -> Result<io::Result<OwnedFd>, Lost> {
        // One at a time: whoever reads the socket gets whatever descriptor comes next.
        let Ok(_turn) = self.shares.turn.lock() else { return Ok(Err(Errno::DEADLK)) };
        if let Err(errno) = self.call(request)? {
            return Ok(Err(errno));
        }
        let mut bytes = [0; MESSAGE_LEN];
        let flags = RecvFlags::DONTWAIT;
        let received = self.socket.with(|socket| receive_with(socket, &mut bytes, flags));
        // The kernel keeps what it has no free number for.
        Ok(received.and_then(|(_, [fd, _])| fd.ok_or(Errno::MFILE)))
    }

    /// The table of places.
    pub(crate) fn places(&self) -> Option<&PlacesShared> {
        let places = &self.shares.places;
        if places.get().is_none() {
            let sent = self.descriptor(Request::Share { number: 0 });
            let view = sent.ok().and_then(Result::ok).and_then(|fd| PlacesView::open(fd).ok());
            // Else another thread has asked, too.
            match places.set(view) {
                Ok(_) | Err(_) => {}
            }
        }
        places.get()?.as_ref().map(PlacesView::shared)
    }

    /// A physical file, got from the daemon if need be.
    pub(crate) fn source(&self, table: &Table, number: u8) -> Option<&Source> {
        let place = self.shares.sources.get(usize::from(number))?;
        if let Some(source) = place.get() {
            return Some(source);
        }
        let request = Request::Share { number: u32::from(number) + 1 };
        let file = self.descriptor(request).ok()?.ok()?;
        let kind = FileType::from_raw_mode(fstat(&file).ok()?.st_mode);
        if kind != FileType::RegularFile {
            return None;
        }
        let (file, neighbours) = (OwnNumber::new(file, self.host), Neighbours::new());
        let source = place.set(Source { file, neighbours }).ok()?;
        table.set(source.file.number(), Entry::Own);
        Some(source)
    }

    /// A number of the program's that cannot be read, written, or entered, the lowest that is free.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`: there is none. Any other: the job's socket cannot be reached.
    pub(crate) fn placeholder(
        &self,
        config: &Config,
        table: &Table,
        flags: OFlags,
    ) -> io::Result<OwnedFd> {
        let first = self.first_placeholder(config, table)?;
        debug_assert!(first.number() >= 0, "a descriptor has a number");
        let is_kept = !flags.contains(OFlags::CLOEXEC);
        first.with(|first| if is_kept { io::dup(first) } else { io::fcntl_dupfd_cloexec(first, 0) })
    }

    fn first_placeholder(&self, config: &Config, table: &Table) -> io::Result<&OwnNumber> {
        match self.shares.placeholder.get() {
            Some(first) => Ok(first),
            None => self.open_placeholder(config, table),
        }
    }

    #[cold]
    #[inline(never)]
    fn open_placeholder(&self, config: &Config, table: &Table) -> io::Result<&OwnNumber> {
        let place = &self.shares.placeholder;
        let _turn = self.shares.turn.lock().map_err(|_| Errno::DEADLK)?;
        if let Some(first) = place.get() {
            return Ok(first); // Another thread has opened it.
        }
        let mut space = [0; PATH_MAX];
        let socket = config.path_of(b"socket", &mut space).ok_or(Errno::NAMETOOLONG)?;
        let opened = fs::openat(CWD, socket, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let first = place.set(OwnNumber::new(opened, self.host)).map_err(|_| Errno::IO)?;
        table.set(first.number(), Entry::Own);
        Ok(first)
    }

    /// Numbers of this process that are not the program's.
    pub(crate) fn own_numbers(&self) -> impl Iterator<Item = &OwnNumber> {
        let shares = &self.shares;
        let sources = shares.sources.iter().filter_map(Once::get).map(|source| &source.file);
        core::iter::once(&self.socket).chain(sources).chain(shares.placeholder.get())
    }

    /// In the child of a fork: what there was to do is the parent's.
    pub(crate) fn forget_uses(&self) {
        self.own_numbers().for_each(OwnNumber::forget_uses);
        self.shares.turn.break_open();
    }

    /// True if the daemon lived at most 10 ms ago: one that is killed leaves the table as it was.
    pub(crate) fn is_living(&self) -> bool {
        let now = u64::try_from(coarse_now().as_nanos()).unwrap_or(u64::MAX);
        let since = now.saturating_sub(self.shares.looked_at.load(Ordering::Relaxed));
        if u128::from(since) >= LOOK_EVERY.as_nanos() {
            self.shares.looked_at.store(now, Ordering::Relaxed);
            self.check_alive();
        }
        !self.is_lost()
    }
}
