//! The client's record of the program's open files.
//!
//! A file's [`State`] says which side has it open and keeps its position.

use core::{
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use rustix::fs::OFlags;
use shm::{Inodes, Linked, Lock};

use wire::FileFlags;

use crate::{
    clock::nanoseconds,
    cursor::Cursor,
    log::{Cost, Drains, Log},
    marks::identity,
    owed::Owed,
    slot::Link,
    state::State,
    table::FileId,
    writes::Writes,
};

/// Files that are looked after at a time; more are left to the kernel.
pub(crate) const FILES_MAX: usize = 4096;
const _: () = assert!(FILES_MAX <= 1 << 16, "two bytes name an entry");

/// One open file. What is outside the lock is read without it; a read of a fresh file finds all it
/// needs in one cache line.
#[repr(C, align(64))]
pub(crate) struct FileEntry {
    pub(crate) cursor: Cursor,
    /// Stands for device and inode; zero when the place is free.
    identity: AtomicU64,
    /// Reads in a row that found everything cached.
    pub(crate) streak: AtomicU32,
    /// Where the inode is in the job's table.
    place: AtomicU32,
    /// Files linked with the inode, anybody's, when it was last settled.
    settled: AtomicU64,
    /// Bytes read since they were last added to the process's counters.
    pub(crate) read_len: AtomicU64,
    pub(crate) lock: Lock<OpenFile>,
}

impl FileEntry {
    /// A place without a file: zeros.
    pub(crate) const fn free() -> Self {
        Self {
            cursor: Cursor::new(),
            identity: AtomicU64::new(0),
            streak: AtomicU32::new(0),
            place: AtomicU32::new(0),
            settled: AtomicU64::new(0),
            read_len: AtomicU64::new(0),
            lock: Lock::new(OpenFile::FREE),
        }
    }

    /// True if somebody may have staged to the inode since it was last settled.
    #[inline]
    pub(crate) fn has_news(&self, inodes: &Inodes) -> bool {
        let linked = inodes.linked_at(self.place.load(Ordering::Relaxed));
        linked.count() > 0 && linked.has_news_since(self.settled())
    }

    /// Stands for device and inode; zero when the place is free.
    pub(crate) fn identity(&self) -> u64 {
        self.identity.load(Ordering::Acquire)
    }

    fn settled(&self) -> Linked {
        Linked::from_bits(self.settled.load(Ordering::Relaxed))
    }

    /// Notes that the file has all that those who were `linked` had staged to the inode, and will
    /// have what they write.
    pub(crate) fn settle(&self, linked: Linked) {
        self.settled.store(linked.to_bits(), Ordering::Relaxed);
    }
}

/// An open file, as the kernel's "open file description".
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) generation: u16,
    /// Numbers that stand for it; zero when the place is free.
    pub(crate) number_count: u32,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) access: Access,
    pub(crate) writes: Writes,
    /// Bits of the owners, all of this process, that locks of it at the server may have.
    pub(crate) locks: u8,
    pub(crate) state: State,
    /// `O_*` bits the program opened it with.
    pub(crate) flags: u32,
    pub(crate) spent: Spent,
    /// Where the last write past the page cache ended.
    pub(crate) direct_end: u64,
    /// Average cost of the longer ones of them.
    pub(crate) write_cost: Cost,
    pub(crate) owed: Owed,
}

/// Time that the kernel took for the small writes it had before staging repays its hand-over.
///
/// To time a write costs a tenth of what a fast one takes, so some that follow a fast one count as
/// that one did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) time: Duration,
    /// Writes that are not timed before the next one that is.
    untimed: u32,
}

impl Spent {
    pub(crate) const NOTHING: Self = Self { time: Duration::ZERO, untimed: 0 };
    /// Writes that count as one that was timed take no more than this together, ns: half of what a
    /// hand-over costs.
    const SAMPLE_NS: u64 = 16_000;
    const SAMPLE_MAX: u64 = 16;
    /// The same of longer writes, which gain less by staging.
    const LONG_SAMPLE_NS: u64 = 80_000;
    const LONG_SAMPLE_MAX: u64 = 4;

    /// Leaves the next `count` writes untimed.
    pub(crate) const fn skip(&mut self, count: u32) {
        self.untimed = count;
    }

    /// Begins a write; true if it is to be timed.
    pub(crate) fn is_due(&mut self) -> bool {
        !self.leave()
    }

    /// Begins a write that is not to be timed; false if the next one is.
    fn leave(&mut self) -> bool {
        let left = self.untimed.checked_sub(1);
        self.untimed = left.unwrap_or(0);
        left.is_some()
    }

    /// Learns what a timed write took; returns the time of all that it stands for.
    pub(crate) fn add(&mut self, time: Duration, is_long: bool) -> Duration {
        let (sample_ns, most) = match is_long {
            true => (Self::LONG_SAMPLE_NS, Self::LONG_SAMPLE_MAX),
            false => (Self::SAMPLE_NS, Self::SAMPLE_MAX),
        };
        let of_sample = sample_ns.checked_div(nanoseconds(time)).unwrap_or(most);
        let count = u32::try_from(of_sample.clamp(1, most)).unwrap_or(1);
        self.untimed = count - 1;
        let all = time.saturating_mul(count);
        self.time = self.time.saturating_add(all);
        all
    }
}

/// How a file was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) append: bool,
    /// `O_DIRECT`.
    pub(crate) direct: bool,
}

impl Access {
    /// True if a write goes where it says, or to the position.
    #[inline]
    pub(crate) const fn writes_at_position(self) -> bool {
        self.writable && !self.append
    }

    /// As the daemon is told.
    pub(crate) fn flags(self) -> FileFlags {
        let mut flags = FileFlags::default();
        for (set, flag) in [
            (self.append, FileFlags::APPEND),
            (self.readable, FileFlags::READABLE),
            (self.writable, FileFlags::WRITABLE),
        ] {
            if set {
                flags = flags.with(flag);
            }
        }
        flags
    }
}

impl OpenFile {
    /// The side that drains a log of it at first.
    pub(crate) const fn drains(&self) -> Drains {
        match self.writes {
            Writes::Large => Drains::AtDaemon,
            _ if self.state.is_placeholder() => Drains::AtDaemon,
            _ if self.access.direct => Drains::Beside,
            _ => Drains::Here,
        }
    }

    /// The mode of its writes now; the daemon demotes it at any time.
    pub(crate) fn mode(&self) -> Writes {
        self.state.link().map_or(self.writes, |link| self.writes.on(link))
    }

    /// True if this is the file `id`, and a number stands for it.
    #[inline]
    pub(crate) fn is_open_as(&self, id: FileId) -> bool {
        self.generation == id.generation && self.number_count > 0
    }

    /// True if the kernel may have other bytes or another position of it than the program: it is
    /// served, or a write may have it served.
    pub(crate) fn may_be_staged(&self) -> bool {
        self.access.writable || self.state.link().is_some()
    }

    /// Begins a small write that the kernel has before staging begins, if this is the file `id` and
    /// the write need not be timed. It is one of few that follow one that was.
    pub(crate) fn leaves_untimed(&mut self, id: FileId) -> bool {
        let may = self.is_open_as(id) && self.access.writable && self.owed == Owed::Nothing;
        // Of a file past the page cache each write is compared with the one before.
        let may = may && !self.access.direct;
        let is_behind = self.writes != Writes::Through && matches!(self.state, State::Fresh);
        may && is_behind && self.spent.leave()
    }

    /// Returns the link and log for a small write at the position, if this is the file `id` and
    /// each of its states lets it be staged at once.
    #[inline]
    pub(crate) fn ready_at_once(&mut self, id: FileId) -> Option<(Link, &mut Log)> {
        let may =
            self.is_open_as(id) && self.access.writes_at_position() && self.owed == Owed::Nothing;
        let writes = self.writes;
        let (link, log) = self.state.staging_of_file()?;
        let is_served =
            writes.on(link) != Writes::Through && !link.shared.owes() && !link.connection.is_lost();
        Some((link, log)).filter(|(_, log)| may && is_served && log.is_own())
    }

    /// True if something staged for `from..to` may not be in the file yet.
    pub(crate) fn is_dirty(&mut self, from: u64, to: u64) -> bool {
        let staging = self.state.staging();
        staging.is_some_and(|(link, log)| log.is_dirty(link.shared, from, to))
    }

    /// Where the last append ends, if it is drained: others may have appended since.
    pub(crate) fn appended_to(&self) -> Option<u64> {
        let (link, log) = self.state.link().zip(self.state.log())?;
        let (position, size, _) = link.shared.last_write()?;
        size.checked_add(log.producer.head().checked_sub(position)?)
    }

    const FREE: Self = Self {
        generation: 0,
        number_count: 0,
        device: 0,
        inode: 0,
        access: Access { readable: false, writable: false, append: false, direct: false },
        writes: Writes::Through,
        locks: 0,
        state: State::Fresh,
        flags: 0,
        spent: Spent::NOTHING,
        direct_end: 0,
        write_cost: Cost::UNKNOWN,
        owed: Owed::Nothing,
    };
}

/// A place for each file.
pub(crate) type Entries = [FileEntry; FILES_MAX];

/// All open files of the process.
pub(crate) struct Files {
    entries: &'static Entries,
    /// Places up to here have been used.
    used: AtomicUsize,
    /// Where to look for a free place first.
    hint: AtomicUsize,
}

impl Files {
    pub(crate) const fn new(entries: &'static Entries) -> Self {
        Self { entries, used: AtomicUsize::new(0), hint: AtomicUsize::new(0) }
    }

    /// Keeps a newly opened file; `None` when there are too many.
    pub(crate) fn add(&self, file: OpenFile) -> Option<FileId> {
        let hint = self.hint.load(Ordering::Relaxed) % FILES_MAX;
        for index in (hint..FILES_MAX).chain(0..hint) {
            let entry = self.entries.get(index)?;
            let Some(mut place) = entry.lock.try_lock() else { continue };
            if place.number_count > 0 {
                continue;
            }
            debug_assert!(place.state.link().is_none(), "a free entry has no link");
            let id = FileId::new(u16::try_from(index).ok()?, place.generation.wrapping_add(1));
            *place = OpenFile { generation: id.generation, number_count: 1, ..file };
            entry.cursor.forget();
            entry.streak.store(0, Ordering::Relaxed);
            entry.place.store(Inodes::place(file.device, file.inode), Ordering::Relaxed);
            entry.settle(Linked::NOBODY);
            entry.identity.store(identity(file.device, file.inode), Ordering::Release);
            self.used.fetch_max(index + 1, Ordering::Relaxed);
            self.hint.store(index + 1, Ordering::Relaxed);
            return Some(id);
        }
        None
    }

    /// Says that a place was freed.
    pub(crate) fn freed(&self, id: FileId) {
        if let Some(entry) = self.get(id) {
            entry.identity.store(0, Ordering::Release);
        }
        self.hint.store(usize::from(id.index), Ordering::Relaxed);
    }

    pub(crate) fn get(&self, id: FileId) -> Option<&FileEntry> {
        self.entries.get(usize::from(id.index))
    }

    /// Every place that has been used.
    pub(crate) fn all(&self) -> impl Iterator<Item = &FileEntry> {
        self.entries.iter().take(self.used.load(Ordering::Relaxed))
    }
}

/// A file that was just opened, before anybody else knows of it.
pub(crate) fn fresh(device: u64, inode: u64, flags: OFlags) -> OpenFile {
    // The fourth mode is for `ioctl` alone, and neither.
    let mode = flags & OFlags::RWMODE;
    let access = Access {
        readable: mode == OFlags::RDONLY || mode == OFlags::RDWR,
        writable: mode == OFlags::WRONLY || mode == OFlags::RDWR,
        append: flags.contains(OFlags::APPEND),
        direct: flags.contains(OFlags::DIRECT),
    };
    let waits = flags.intersects(OFlags::SYNC | OFlags::DSYNC);
    let writes = if waits { Writes::Through } else { Writes::Behind };
    OpenFile { device, inode, access, writes, flags: flags.bits(), ..OpenFile::FREE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_writes_are_timed_by_samples_and_slow_ones_each() {
        for (ns, is_long, count) in [
            (0, false, 16),
            (1_000, false, 16),
            (2_000, false, 8),
            (5_000, false, 3),
            (16_000, false, 1),
            (9_000_000, false, 1),
            (5_000, true, 4),
            (20_000, true, 4),
            (40_000, true, 2),
            (9_000_000, true, 1),
        ] {
            let (mut spent, time) = (Spent::NOTHING, Duration::from_nanos(ns));
            for _ in 0..5 {
                assert!(spent.is_due());
                assert_eq!(spent.add(time, is_long), time * count);
                assert!((1..count).all(|_| spent.leave()), "{ns}");
                assert!(!spent.leave(), "{ns}");
            }
            assert_eq!(spent.time, time * count * 5);
        }
    }
}
