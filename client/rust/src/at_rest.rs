//! Files at rest, which are opened, read, and asked for their status without a request: the table
//! of places says where a file's bytes are, and whether it is still so
//! (`docs/reference/protocol.md`, section 10).
//!
//! Such an open file is read from the physical file that has its bytes. Its entry is compared
//! before and after, so a read returns what was there at one moment. Once the entry has changed,
//! and for any other call, the file is *promoted*, as one of a bundle: the daemon opens it by its
//! number.

use rustix::{
    fd::{AsRawFd as _, IntoRawFd as _, RawFd},
    fs::OFlags,
    io::{self, Errno},
};
use shm::{NameHash, places::Seen};
use wire::{Counter, Place, PlaceName, SEEK_CUR, SEEK_END, SEEK_SET, Status};

use crate::{
    buffers::partial,
    bundle::LARGE_FILE,
    client::Client,
    clock::now_ns,
    connection::{Connection, FOLDER_LEN_MAX, Lease, Source},
    file::{self, OpenFile},
    locked_file::Locked,
    paths::AbsolutePath,
    slot::Slot,
    slots::Holder,
    state::{AtRest, State},
    table::Entry,
};

/// Flags of an open to read that the table can serve.
const SERVED: OFlags = OFlags::CLOEXEC
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NOCTTY)
    .union(OFlags::NONBLOCK)
    .union(OFlags::from_bits_retain(LARGE_FILE));

/// A file in the table.
struct Found {
    connection: &'static Connection,
    lease: usize,
    seen: Seen,
    place: Place,
}

impl Client {
    /// Opens a file at rest to be read; `None`: ask for it.
    pub(crate) fn open_at_rest(
        &'static self,
        path: &AbsolutePath,
        flags: OFlags,
    ) -> Option<io::Result<RawFd>> {
        // No flag says that it is to be read alone.
        if !SERVED.contains(flags) {
            return None;
        }
        let found = self.find_at_rest(path).filter(|found| found.place.rights & 4 != 0)?;
        let Found { connection, lease, seen, place } = found;
        if place.size > 0 {
            connection.source(&self.table, place.source)?;
        }
        let fd = match self.placeholder(flags) {
            Err(errno @ (Errno::MFILE | Errno::NFILE)) => return Some(Err(errno)),
            fd => fd.ok()?,
        };
        let slot = Slot::take(connection, Holder::Server)?;
        let link = slot.into_link(false);
        let rest =
            AtRest { link, lease, seen, source: place.source, at: place.at, size: place.size };
        rest.begin();
        // From here on the daemon keeps the file for it, or it has changed.
        let is_held = rest.is_still() && connection.hold_lease(lease, path.asked_folder());
        let file = OpenFile {
            state: State::AtRest(rest),
            ..file::fresh(place.device, place.inode, flags)
        };
        let Some(id) = is_held.then(|| self.add_file(file)).flatten() else {
            if is_held {
                connection.folders.closed(lease);
            }
            rest.end();
            return None;
        };
        if let Some(entry) = self.files.get(id) {
            entry.cursor.begin();
        }
        self.table.set(fd.as_raw_fd(), Entry::File(id));
        self.watch_name(place.device, place.inode, path.bytes());
        self.count(Counter::Files, 1);
        Some(Ok(fd.into_raw_fd()))
    }

    /// The status of a file at rest; `None`: ask for it.
    pub(crate) fn status_at_rest(&'static self, path: &AbsolutePath) -> Option<Status> {
        self.find_at_rest(path).map(|found| found.place.status())
    }

    /// True if the table says that a file may be used so, in the bits of `access(2)`.
    pub(crate) fn may_at_rest(&'static self, path: &AbsolutePath, mode: u32) -> bool {
        let wanted = u8::try_from(mode).ok().filter(|mode| *mode <= 7);
        wanted.is_some_and(|wanted| {
            let found = self.find_at_rest(path);
            found.is_some_and(|found| found.place.rights & wanted == wanted)
        })
    }

    /// Looks for a file in the table.
    fn find_at_rest(&'static self, path: &AbsolutePath) -> Option<Found> {
        let (folder, name) = (path.asked_folder(), path.name());
        let is_long = folder.text.len() > FOLDER_LEN_MAX || name.len() > PlaceName::MAX;
        if is_long || path.is_textual() || self.is_confined() {
            return None;
        }
        let connection = self.connection()?;
        let names = &connection.job.shared().names;
        if !names.is_offered() {
            return None;
        }
        // A handler that has interrupted one asks.
        let mut bundle = connection.bundle.lock().ok()?;
        bundle.begin(connection)?;
        let before = names.epochs();
        let lease = bundle.leases.find(self, connection.folders, folder, before, false)?;
        let Lease { key, device, folder: inode, .. } = *bundle.leases.all.get(lease)?;
        drop(bundle);
        let places = connection.places()?;
        let is_it = |words: &_| Place::is_of(words, device, inode, name);
        let (seen, words) = places.find(NameHash::new(key, name).word(), is_it)?;
        // The folder was still that one when the entry was read.
        let is_still = names.epochs().folders == before.folders && connection.is_living();
        is_still.then(|| Found { connection, lease, seen, place: Place::decode(&words) })
    }
}

impl AtRest {
    /// Has the daemon know who reads.
    fn begin(&self) {
        let shared = self.link.connection.session.shared();
        shared.reading.begin(self.link.slot, self.seen);
    }

    /// Reads no more.
    fn end(self) {
        self.link.connection.session.shared().reading.end(self.link.slot);
        self.link.end();
    }

    /// True if the file has not changed, as far as a living daemon says.
    fn is_still(&self) -> bool {
        let connection = self.link.connection;
        let places = connection.places().filter(|_| connection.is_living());
        places.is_some_and(|places| places.is_still(self.seen))
    }
}

impl Locked {
    /// Reads a file by the table; `None`: as any other, which it is from now on.
    pub(crate) fn read_at_rest(
        &mut self,
        buffers: &mut [&mut [u8]],
        at: Option<u64>,
    ) -> Option<io::Result<usize>> {
        let rest = self.state.at_rest()?;
        let from = at.unwrap_or_else(|| self.entry.cursor.at());
        let read = read(&rest, buffers, from);
        let read = if rest.is_still() { read? } else { return None };
        if let (Ok(len), None) = (read, at) {
            self.entry.cursor.set(from + len as u64);
        }
        Some(read)
    }

    /// The status of an open file that is at rest still.
    pub(crate) fn status_at_rest(&self) -> Option<Status> {
        let rest = self.state.at_rest().filter(AtRest::is_still)?;
        let words = rest.link.connection.places()?.words(rest.seen)?;
        Some(Place::decode(&words).status())
    }

    /// Where a position is in a file at rest; `None`: as in any other.
    pub(crate) fn sought_at_rest(&self, offset: i64, whence: u32) -> Option<io::Result<u64>> {
        let rest = self.state.at_rest().filter(AtRest::is_still)?;
        let from = match whence {
            SEEK_SET => 0,
            SEEK_CUR => self.entry.cursor.at(),
            SEEK_END => rest.size,
            _ => return None,
        };
        Some(from.checked_add_signed(offset).ok_or(Errno::INVAL))
    }

    /// Closes a file that was read by the table.
    pub(crate) fn close_at_rest(&mut self) {
        let Some(rest) = self.state.at_rest() else { return };
        self.state.close();
        rest.link.connection.folders.closed(rest.lease);
        rest.end();
    }

    /// Makes a file that is read by the table one as any other.
    #[cold]
    pub(crate) fn promote_at_rest(&mut self) -> io::Result<()> {
        let Some(rest) = self.state.at_rest() else { return Ok(()) };
        let opened = self.open_by_number(rest.link, rest.lease);
        // Only now: until then the daemon keeps the file for who reads it.
        rest.link.connection.session.shared().reading.end(rest.link.slot);
        opened
    }
}

/// Reads at `from` as far as the file goes; `None`: its bytes cannot be read here.
fn read(rest: &AtRest, buffers: &mut [&mut [u8]], from: u64) -> Option<io::Result<usize>> {
    let (connection, mut done) = (rest.link.connection, 0);
    for buffer in buffers {
        let at = from.checked_add(done as u64)?;
        let left = usize::try_from(rest.size.saturating_sub(at)).unwrap_or(usize::MAX);
        let len = buffer.len().min(left);
        let part = buffer.get_mut(..len).filter(|part| !part.is_empty());
        let Some(part) = part else { continue };
        let source = connection.shares.sources.get(usize::from(rest.source))?.get()?;
        let read = read_from(source, part, rest.at + at);
        match read {
            // Not what the table says: the daemon knows more.
            Ok(0) | Err(Errno::BADF) => return None,
            Err(errno) => return Some(partial(done, errno)),
            Ok(read) => done += read,
        }
        if read != Ok(len) {
            break;
        }
    }
    Some(Ok(done))
}

/// Reads at `at` of a physical file, and ahead where it has to wait.
fn read_from(source: &Source, part: &mut [u8], at: u64) -> io::Result<usize> {
    source.file.with(|file| {
        let timed = source.neighbours.stretch(at).map(|stretch| (stretch, now_ns()));
        let read = io::pread(file, part, at);
        if let Some((stretch, since)) = timed {
            source.neighbours.observe(file, stretch, now_ns().saturating_sub(since));
        }
        read
    })
}
