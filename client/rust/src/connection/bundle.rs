//! The two logs of a session's bundle, as their producer has them, and the leases of folders.

use core::{
    sync::atomic::{AtomicU8, AtomicUsize, Ordering},
    time::Duration,
};

use rustix::io::Errno;
use shm::{
    Epochs,
    bundle::{ALIGNMENT, Logs, Ring},
    copy::{copy_in, copy_out},
};
use wire::{Base, Record, Uses};

use super::Connection;
use crate::{arena::Arena, clock::coarse_now, paths::Asked};

/// Longer files are promoted, bytes.
pub(crate) const LEN_MAX: u64 = 256 << 10;
/// Longest path of a folder in which files are made so.
pub(crate) const FOLDER_LEN_MAX: usize = 512;
/// Folders that a process has leases of at a time.
const LEASES: usize = 64;
/// Length of the index log, bytes: what a program writes in the time between two looks of the
/// daemon.
const INDEX_LEN: u64 = 256 << 10;
/// Of the data log: a burst, where the file system is another machine's; else as much as the daemon
/// finds in the cache, and makes few pages to be had.
const DATA_LEN: u64 = 8 << 20;
const NEAR_LEN: u64 = 1 << 20;
/// The shortest data log, bytes: twice what a file may have.
const DATA_LEN_MIN: u64 = 2 * LEN_MAX;
/// A data log takes no more than this part of what is free of the arena.
const SHARE: u64 = 4;
/// Part of the data log after which the daemon is told that there is a lot to take in: until then
/// its ticks do, and each takes in more by as many calls.
const KICK_PART: u64 = 2;
/// Time after which a daemon that has taken nothing in is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// As many as there may be before the first byte of a file.
static ZEROS: [u8; 15] = [0; 15];

/// The bundle of a connection.
#[derive(Debug)]
pub(crate) struct Bundle {
    pub(crate) leases: Leases,
    memory: Memory,
    /// Ends of what is written, and how far it may be written over.
    head: u64,
    data_head: u64,
    index_tail: u64,
    data_tail: u64,
    /// End of the data at which the daemon was last told.
    kicked: u64,
    looked_at: Duration,
}

impl Bundle {
    pub(crate) const fn new() -> Self {
        Self {
            leases: Leases::new(),
            memory: Memory::NotTaken,
            head: 0,
            data_head: 0,
            index_tail: 0,
            data_tail: 0,
            kicked: 0,
            looked_at: Duration::ZERO,
        }
    }

    /// Has logs, and says where.
    pub(crate) fn begin(&mut self, connection: &Connection) -> Option<()> {
        if let Memory::NotTaken = self.memory {
            let mut arena = connection.arena.lock().ok()?;
            let is_near = connection.job.shared().names.is_near();
            self.memory = take_logs(&mut arena, is_near).map_or(Memory::Lacking, Memory::Logs);
            if let Memory::Logs(logs) = self.memory {
                connection.session.shared().bundle.place(logs);
            }
        }
        self.logs().map(drop)
    }

    const fn logs(&self) -> Option<Logs> {
        if let Memory::Logs(logs) = self.memory { Some(logs) } else { None }
    }

    /// What the daemon owes, or finds out that it is gone.
    pub(crate) fn owed(&mut self, connection: &Connection) -> Option<Errno> {
        self.watch(connection);
        if connection.is_lost() {
            return Some(Errno::IO);
        }
        let errno = connection.session.shared().bundle.take_error()?;
        Some(Errno::from_raw_os_error(i32::try_from(errno & 0xfff).unwrap_or(5)))
    }

    /// Looks whether the daemon lives when it has taken nothing in for a while: a program that
    /// never waits for it would not notice otherwise.
    fn watch(&mut self, connection: &Connection) {
        let now = coarse_now();
        if now.saturating_sub(self.looked_at) < LOOK_EVERY {
            return;
        }
        self.looked_at = now;
        let before = self.index_tail;
        self.refresh(connection);
        if self.index_tail == before && self.index_tail != self.head {
            connection.check_alive();
        }
    }

    pub(crate) fn refresh(&mut self, connection: &Connection) {
        let (index_tail, data_tail) = connection.session.shared().bundle.tails();
        // Never ahead of what was written, whatever the segment says.
        self.index_tail = index_tail.min(self.head).max(self.index_tail);
        self.data_tail = data_tail.min(self.data_head).max(self.data_tail);
    }

    /// True if a record of `len` bytes and `data_len` bytes have room, with padding; `None`: there
    /// are no logs.
    pub(crate) fn has_room(&self, len: usize, data_len: u64) -> Option<bool> {
        let logs = self.logs()?;
        let index_len = self.head - self.index_tail + len as u64;
        let data_len = self.data_head - self.data_tail + data_len + ALIGNMENT;
        Some(index_len <= logs.index_len && data_len <= logs.data_len)
    }

    /// Writes a record behind the others, for which there is room.
    pub(crate) fn push(&mut self, connection: &Connection, record: &Record<'_>) -> Option<()> {
        let logs = self.logs()?;
        let mut space = [0; Record::LEN_MAX];
        let bytes = record.encode(&mut space)?;
        put(connection, logs.index(), self.head, bytes)?;
        self.head += bytes.len() as u64;
        Some(())
    }

    /// Writes bytes, for which there is room; the first ones of a file if `is_first`.
    pub(crate) fn push_data(
        &mut self,
        connection: &Connection,
        data: &[&[u8]],
        is_first: bool,
    ) -> Option<()> {
        let logs = self.logs()?;
        if is_first {
            // Zeros, since files that are neighbours are written as they lie.
            let aligned = self.data_head.next_multiple_of(ALIGNMENT);
            let padding = ZEROS.get(..usize::try_from(aligned - self.data_head).ok()?)?;
            put(connection, logs.data(), self.data_head, padding)?;
            self.data_head = aligned;
        }
        for buffer in data {
            put(connection, logs.data(), self.data_head, buffer)?;
            self.data_head += buffer.len() as u64;
        }
        Some(())
    }

    /// True if there is a lot to take in that the daemon was not told of, as far as is known.
    fn has_much(&self) -> bool {
        let kick = self.logs().map_or(0, |logs| logs.data_len / KICK_PART);
        self.data_head - self.kicked.max(self.data_tail) >= kick
    }

    /// The same, of what the daemon has not taken in since.
    #[cold]
    fn has_much_left(&mut self, connection: &Connection) -> bool {
        self.refresh(connection);
        self.has_much()
    }

    /// Publishes what was written.
    pub(crate) fn publish(&mut self, connection: &Connection) {
        let shared = &connection.session.shared().bundle;
        shared.publish(self.head);
        if shared.claim_announcement() || self.has_much() && self.has_much_left(connection) {
            self.kicked = self.data_head;
            connection.announce();
        }
    }
}

/// Memory of a bundle, which is taken from the arena once.
#[derive(Clone, Copy, Debug)]
enum Memory {
    NotTaken,
    /// The arena had no room for logs.
    Lacking,
    Logs(Logs),
}

fn take_logs(arena: &mut Arena, is_near: bool) -> Option<Logs> {
    let data_len = if is_near { NEAR_LEN } else { DATA_LEN }.min(arena.share(SHARE));
    if data_len < DATA_LEN_MIN {
        return None;
    }
    let index_at = arena.take(INDEX_LEN)?;
    let Some(data_at) = arena.take(data_len) else {
        arena.give(index_at, INDEX_LEN);
        return None;
    };
    Some(Logs { index_at, index_len: INDEX_LEN, data_at, data_len })
}

/// Leases of the folders in which files may be made.
#[derive(Debug)]
pub(crate) struct Leases {
    pub(crate) all: [Lease; LEASES],
    /// The one to be forgotten next.
    pub(crate) next: usize,
}

/// Terms of a lease, as the daemon's last answer gave them. Any answer leads to any terms.
///
/// | terms | hold for | are asked for again |
/// |---|---|---|
/// | refused | nothing | when a folder changes: that is what may have had it refused |
/// | missing | nothing | when a name changes: somebody may be about to make the folder |
/// | reads | reads | when a folder changes |
/// | makes | reads, and making files | when a folder changes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// None since this epoch of folders.
    Refused { folders: u64 },
    /// There was no such folder at this epoch of names.
    Missing { names: u64 },
    /// Files may be read as long as this epoch of folders lasts,
    Reads { folders: u64 },
    /// and made.
    Makes { folders: u64 },
}

impl Terms {
    /// True if the daemon may answer otherwise by now.
    pub(crate) const fn are_over(self, now: Epochs) -> bool {
        match self {
            Self::Missing { names } => names != now.names,
            Self::Refused { folders } | Self::Reads { folders } | Self::Makes { folders } => {
                folders != now.folders
            }
        }
    }

    /// True if files may be read now, or made if that `makes` one.
    pub(crate) const fn hold(self, now: Epochs, makes: bool) -> bool {
        match self {
            Self::Refused { .. } | Self::Missing { .. } => false,
            Self::Reads { folders } => !makes && folders == now.folders,
            Self::Makes { folders } => folders == now.folders,
        }
    }
}

/// A folder in which files may be made as long as no folder changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// The folder that its path is relative to: by another one the path may lead elsewhere.
    base: Option<Base>,
    pub(crate) path: [u8; FOLDER_LEN_MAX],
    pub(crate) len: usize,
    pub(crate) folder: u64,
    pub(crate) device: u64,
    /// Key of the hashes of its names.
    pub(crate) key: u64,
    /// The next number for a file of this folder, and the end of those that there are.
    pub(crate) number: u64,
    pub(crate) end: u64,
    pub(crate) terms: Terms,
    /// Purpose of the lease, as asked for.
    pub(crate) uses: Uses,
}

impl Lease {
    pub(crate) const NONE: Self = Self {
        base: None,
        path: [0; FOLDER_LEN_MAX],
        len: 0,
        folder: 0,
        device: 0,
        key: 0,
        number: 0,
        end: 0,
        terms: Terms::Refused { folders: 0 },
        uses: Uses { reads: false, makes: false },
    };

    pub(crate) fn path(&self) -> &[u8] {
        self.path.get(..self.len).unwrap_or_default()
    }

    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked { base: self.base, text: self.path() }
    }

    pub(crate) fn is_of(&self, folder: Asked<'_>) -> bool {
        (self.base, self.path()) == (folder.base, folder.text)
    }

    pub(crate) const fn is_used_up(&self) -> bool {
        self.number == self.end
    }

    /// The folder, by whatever path.
    const fn id(&self) -> (u64, u64, u64) {
        (self.device, self.folder, self.key)
    }
}

impl Leases {
    pub(crate) const fn new() -> Self {
        Self { all: [Lease::NONE; LEASES], next: 0 }
    }

    /// The lease with the numbers that its folder has: a folder that several paths lead to has
    /// several leases, and the daemon takes the numbers that it gave last.
    pub(crate) fn numbered(&mut self, index: usize) -> Option<&mut Lease> {
        let lease = self.all.get(index)?;
        let (id, has_some) = (lease.id(), |lease: &Lease| !lease.is_used_up());
        let has_them = |other: &Lease| other.id() == id && has_some(other);
        let other = if has_some(lease) { None } else { self.all.iter().position(has_them) };
        self.all.get_mut(other.unwrap_or(index))
    }

    /// After a lease was given numbers: those of its folder's others are no good any more.
    pub(crate) fn outnumber(&mut self, index: usize) {
        let Some(lease) = self.all.get(index).filter(|lease| !lease.is_used_up()) else {
            return;
        };
        let id = lease.id();
        for (_, other) in self.all.iter_mut().enumerate().filter(|(at, _)| *at != index) {
            if other.id() == id {
                other.number = other.end;
            }
        }
    }

    /// A place for another lease, of this folder.
    pub(crate) fn forget(&mut self, held: &HeldFolders, folder: Asked<'_>) -> Option<usize> {
        let Asked { base, text: folder } = folder;
        let places = (self.next..LEASES).chain(0..self.next);
        let index = places.into_iter().find(|index| held.is_free(*index))?;
        self.next = (index + 1) % LEASES;
        held.name(index, folder)?;
        let lease = self.all.get_mut(index)?;
        *lease = Lease { base, len: folder.len(), ..Lease::NONE };
        lease.path.get_mut(..folder.len())?.copy_from_slice(folder);
        Some(index)
    }
}

/// The folders of leases, as far as files are open that were found or made in them: without the
/// bundle's lock, which a handler's thread may hold.
#[derive(Debug)]
pub(crate) struct HeldFolders([HeldFolder; LEASES]);

#[derive(Debug)]
struct HeldFolder {
    /// Files: as long as there are some its path stays.
    open_count: AtomicUsize,
    path: [AtomicU8; FOLDER_LEN_MAX],
    len: AtomicUsize,
}

impl HeldFolder {
    const fn new() -> Self {
        let path = [const { AtomicU8::new(0) }; FOLDER_LEN_MAX];
        Self { open_count: AtomicUsize::new(0), path, len: AtomicUsize::new(0) }
    }
}

impl HeldFolders {
    pub(crate) const fn new() -> Self {
        Self([const { HeldFolder::new() }; LEASES])
    }

    fn is_free(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(|it| it.open_count.load(Ordering::Acquire) == 0)
    }

    /// Names a free one, under the bundle's lock.
    fn name(&self, index: usize, folder: &[u8]) -> Option<()> {
        let held = self.0.get(index)?;
        copy_in(held.path.get(..folder.len())?, folder);
        held.len.store(folder.len(), Ordering::Relaxed);
        Some(())
    }

    /// One more file of a folder is open. Under the bundle's lock.
    pub(crate) fn opened(&self, index: usize) {
        self.0.get(index).inspect(|it| _ = it.open_count.fetch_add(1, Ordering::Relaxed));
    }

    /// It is not any more.
    pub(crate) fn closed(&self, index: usize) {
        self.0.get(index).inspect(|it| _ = it.open_count.fetch_sub(1, Ordering::Release));
    }

    /// The path of a folder of which a file is open, in `space`.
    pub(crate) fn path<'a>(&self, index: usize, space: &'a mut [u8; FOLDER_LEN_MAX]) -> &'a [u8] {
        let Some(held) = self.0.get(index) else { return b"/" };
        let len = held.len.load(Ordering::Relaxed).min(FOLDER_LEN_MAX);
        copy_out(space, &held.path);
        space.get(..len).unwrap_or(b"/")
    }
}

/// Copies bytes to where `position` lies in a ring.
fn put(connection: &Connection, ring: Ring, position: u64, bytes: &[u8]) -> Option<()> {
    let mut rest = bytes;
    for (at, len) in ring.stretches(position, bytes.len() as u64) {
        let (at, len) = (usize::try_from(at).ok()?, usize::try_from(len).ok()?);
        let (part, behind) = rest.split_at_checked(len)?;
        copy_in(connection.session.arena().get(at..at + len)?, part);
        rest = behind;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_hold_and_end_as_the_table_says() {
        let then = Epochs { folders: 5, names: 9 };
        let other_folder = Epochs { folders: 6, ..then };
        let other_name = Epochs { names: 10, ..then };
        for (terms, reads, makes, by_folder, by_name) in [
            (Terms::Refused { folders: 5 }, false, false, true, false),
            (Terms::Missing { names: 9 }, false, false, false, true),
            (Terms::Reads { folders: 5 }, true, false, true, false),
            (Terms::Makes { folders: 5 }, true, true, true, false),
        ] {
            assert!(!terms.are_over(then), "{terms:?}");
            assert_eq!((terms.hold(then, false), terms.hold(then, true)), (reads, makes));
            assert_eq!(terms.are_over(other_folder), by_folder, "{terms:?}");
            assert_eq!(terms.are_over(other_name), by_name, "{terms:?}");
            assert!(!terms.hold(other_folder, false) && !terms.hold(other_folder, true));
            assert_eq!(terms.hold(other_name, true), makes, "{terms:?}");
        }
    }
}
