//! Descriptors that the daemon sends over the control socket: real ones for placeholders, the table
//! of places, and the physical files that it leads to.

use core::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use rustix::{
    fd::OwnedFd,
    fs::{FileType, fstat},
    io::{self, Errno},
    net::RecvFlags,
};
use shm::{Lock, Once, PlacesView, places::PlacesShared};
use wire::{MESSAGE_LEN, Request, SOURCES_MAX};

use crate::{
    client::Client,
    clock::coarse_now,
    connection::{Connection, Lost},
    passing::receive_with,
    socket::OwnNumber,
    table::Entry,
};

/// Time after which the daemon is looked at by who asks it nothing.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Descriptors that a connection has got.
pub(crate) struct Shares {
    /// To read the socket.
    turn: Lock<()>,
    places: Once<PlacesView>,
    has_no_places: AtomicBool,
    sources: [Once<OwnNumber>; SOURCES_MAX],
    /// When the daemon was last looked at, by the coarse clock, ns.
    looked_at: AtomicU64,
}

impl Shares {
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Self {
            turn: Lock::new(()),
            places: Once::new(),
            has_no_places: AtomicBool::new(false),
            sources: [const { Once::new() }; SOURCES_MAX],
            looked_at: AtomicU64::new(0),
        }
    }
}

impl Connection {
    /// Has the daemon send a descriptor for a file over the control socket: see the request.
    pub(crate) fn materialize(
        &self,
        file: u32,
        at: u64,
        is_copy: bool,
    ) -> Result<io::Result<OwnedFd>, Lost> {
        self.descriptor(Request::Materialize { file, at, is_copy })
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
        let shares = &self.shares;
        if let Some(places) = shares.places.get() {
            return Some(places.shared());
        }
        if shares.has_no_places.load(Ordering::Relaxed) {
            return None;
        }
        let sent = self.descriptor(Request::Share { number: 0 });
        let view = sent.ok().and_then(Result::ok).and_then(|fd| PlacesView::open(fd).ok());
        let Some(view) = view else {
            shares.has_no_places.store(true, Ordering::Relaxed);
            return None;
        };
        match shares.places.set(view) {
            Ok(places) => Some(places.shared()),
            // Another thread has it.
            Err(_) => shares.places.get().map(PlacesView::shared),
        }
    }

    /// A physical file, got from the daemon if need be.
    pub(crate) fn source(&self, client: &Client, number: u16) -> Option<&OwnNumber> {
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
        let source = place.set(OwnNumber::new(file, self.host)).ok()?;
        client.table.set(source.number(), Entry::Own);
        Some(source)
    }

    /// A physical file that was got before.
    pub(crate) fn known_source(&self, number: u16) -> Option<&OwnNumber> {
        self.shares.sources.get(usize::from(number))?.get()
    }

    /// Numbers of this process that are not the program's.
    pub(crate) fn own_numbers(&self) -> impl Iterator<Item = &OwnNumber> {
        let sources = self.shares.sources.iter().filter_map(Once::get);
        core::iter::once(&self.socket).chain(sources)
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
