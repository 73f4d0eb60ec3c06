//! Layout of the two kinds of segments (`docs/reference/protocol.md`, section 1).
//!
//! A [`Job`] segment is shared by the daemon and all clients of its job; a [`Session`] segment by
//! the daemon and one client process. Both begin with a struct of atomics that any bytes are a
//! valid value of; a session's payload areas follow its struct.

use core::{
    iter,
    ops::Range,
    ptr::NonNull,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
};

use rustix::{
    fd::{AsFd, OwnedFd},
    io::{self, Errno},
};

use crate::{
    board::{Board, Ready, SESSIONS_MAX},
    bundle::Bundle,
    costs::Costs,
    inodes::Inodes,
    lane::Lane,
    mapping::{Mapping, ReadOnly},
    names::Names,
    once::Once,
    places::{PlacesShared, Reading},
    staging::FileSlot,
};

/// Lanes of a session. Bit 63 of its ready word stands for the dirty files instead.
pub const LANES: usize = 63;
/// File slots of a session.
pub const FILES: usize = 256;
/// Counters of a session, and of a job for processes without one.
pub const COUNTERS: usize = 64;
/// Words of the bits of files that processes of the job have mapped as shared.
const MAPPED_WORDS: usize = 16 << 10;
/// Bytes a lane has for paths and results.
pub const LANE_BUFFER_LEN: usize = 16 << 10;
/// Executors of a daemon.
pub const EXECUTORS_MAX: usize = 64;
const PAGE: usize = 4096;

/// The shared struct of a job segment.
#[derive(Debug)]
#[repr(C)]
pub struct JobShared {
    /// One per executor.
    pub boards: [Board; EXECUTORS_MAX],
    /// One per session.
    pub ready: [Ready; SESSIONS_MAX],
    /// Counted by processes that never got a session.
    pub counters: [AtomicU64; COUNTERS],
    /// Inodes with files open for write-behind.
    pub inodes: Inodes,
    /// Two bits for each file that a process of the job has mapped as shared.
    pub mapped: [AtomicU64; MAPPED_WORDS],
    /// Costs of file systems, as all processes have found.
    pub costs: Costs,
    /// Names that may be in coalesced folders.
    pub names: Names,
    /// Time that small writes of the job took beyond the copies of their bytes, told until a daemon
    /// serves, ns.
    pub overhead_ns: AtomicU64,
    /// Not 0 once a daemon serves the job.
    pub served: AtomicU32,
}

/// The shared struct of a session segment.
#[derive(Debug)]
#[repr(C)]
pub struct SessionShared {
    /// Counted by the client.
    pub counters: [AtomicU64; COUNTERS],
    dirty: [AtomicU64; FILES / 64],
    closing: AtomicU32,
    /// Files that the client makes without a request.
    pub bundle: Bundle,
    /// Entries of the table of places that the client reads files by.
    pub reading: Reading<FILES>,
    lanes: [Lane; LANES],
    files: [FileSlot; FILES],
}

/// A mapped job segment.
#[derive(Debug)]
pub struct Job(Mapping);

/// A mapped session segment.
///
/// A client maps no more of the arena than it may use, for address space counts, too: against its
/// limit, and as memory once the program locks all it has. It maps the segment once more for more.
#[derive(Debug)]
pub struct Session {
    first: Mapping,
    longer: Once<Mapping>,
    arena_max: usize,
}

/// The table of places as its writer has it mapped.
#[derive(Debug)]
pub struct Places(Mapping);

/// The table of places as everybody else has it mapped.
#[derive(Debug)]
pub struct PlacesView(ReadOnly);

impl Places {
    /// Creates the table, which nobody else can map to be written.
    ///
    /// # Errors
    ///
    /// As [`Mapping::create_for_readers`].
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let len = size_of::<PlacesShared>().next_multiple_of(PAGE);
        let (mapping, fd) = Mapping::create_for_readers(len)?;
        Ok((Self(mapping), fd))
    }

    /// The shared struct.
    #[must_use]
    pub const fn shared(&self) -> &PlacesShared {
        // SAFETY: as for `Job::shared`.
        unsafe { view(self.0.base()) }
    }

    /// Has memory for these entries, which are about to be shown: at once it takes half the time of
    /// a fault for each page.
    pub fn populate(&self, entries: Range<usize>) {
        let bytes = PlacesShared::bytes_of(entries);
        let start = bytes.start / PAGE * PAGE;
        self.0.populate(start, bytes.end.next_multiple_of(PAGE) - start);
    }
}

impl PlacesView {
    /// Maps the table that the daemon created.
    ///
    /// # Errors
    ///
    /// `EINVAL` when it is too short or not sealed; else as [`ReadOnly::open`].
    pub fn open(fd: impl AsFd) -> io::Result<Self> {
        let mapping = ReadOnly::open(fd)?;
        if mapping.len() < size_of::<PlacesShared>() {
            return Err(Errno::INVAL);
        }
        Ok(Self(mapping))
    }

    /// The shared struct, of which only what clients call may be called.
    #[must_use]
    pub const fn shared(&self) -> &PlacesShared {
        // SAFETY: as for `Job::shared`; what clients call only loads.
        unsafe { view(self.0.base()) }
    }
}

impl Job {
    /// Creates the segment.
    ///
    /// # Errors
    ///
    /// As [`Mapping::create`].
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let (mapping, fd) = Mapping::create(size_of::<JobShared>().next_multiple_of(PAGE))?;
        Ok((Self(mapping), fd))
    }

    /// Maps a segment the daemon created.
    ///
    /// # Errors
    ///
    /// `EINVAL` when it is too short or not sealed; else as [`Mapping::open`].
    pub fn open(fd: impl AsFd) -> io::Result<Self> {
        let mapping = Mapping::open(fd)?;
        if mapping.len() < size_of::<JobShared>() {
            return Err(Errno::INVAL);
        }
        Ok(Self(mapping))
    }

    /// The shared struct.
    #[must_use]
    pub const fn shared(&self) -> &JobShared {
        // SAFETY: the mapping is page-aligned, long enough (checked when it was made), lives as
        // long as `self`, and consists of atomics, for which any bytes are valid.
        unsafe { view(self.0.base()) }
    }
}

impl Session {
    const BUFFERS_AT: usize = size_of::<SessionShared>().next_multiple_of(PAGE);
    const ARENA_AT: usize = Self::BUFFERS_AT + LANES * LANE_BUFFER_LEN;

    /// Creates the segment with an arena of `arena_len` bytes.
    ///
    /// # Errors
    ///
    /// As [`Mapping::create`].
    pub fn create(arena_len: usize) -> io::Result<(Self, OwnedFd)> {
        let len = Self::ARENA_AT.checked_add(arena_len).ok_or(Errno::OVERFLOW)?;
        let (first, fd) = Mapping::create(len)?;
        Ok((Self { first, longer: Once::new(), arena_max: arena_len }, fd))
    }

    /// Maps a segment the daemon created, with at most `arena_len` bytes of its arena.
    ///
    /// # Errors
    ///
    /// `EINVAL` when it is too short or not sealed; else as [`Mapping::open`].
    pub fn open(fd: impl AsFd, arena_len: usize) -> io::Result<Self> {
        let wanted = Self::ARENA_AT.saturating_add(arena_len);
        let (first, len) = Mapping::open_start(fd, wanted)?;
        let arena_max = len.checked_sub(Self::ARENA_AT).ok_or(Errno::INVAL)?;
        Ok(Self { first, longer: Once::new(), arena_max })
    }

    /// Has `arena_len` bytes of the arena mapped, once. What was mapped stays, at its addresses.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the arena is shorter; else as [`Mapping::map_again`].
    pub fn lengthen(&self, arena_len: usize) -> io::Result<()> {
        if arena_len > self.arena_max {
            return Err(Errno::INVAL);
        }
        if self.longer.get().is_none() {
            let longer = self.first.map_again(Self::ARENA_AT + arena_len)?;
            // Another thread's may be there by now.
            self.longer.set(longer).map_or_else(drop, |_| ());
        }
        Ok(())
    }

    /// Bytes of the arena, of which not all need be mapped.
    #[must_use]
    pub const fn arena_max(&self) -> usize {
        self.arena_max
    }

    fn longest(&self) -> &Mapping {
        self.longer.get().unwrap_or(&self.first)
    }

    /// The shared struct.
    #[must_use]
    pub const fn shared(&self) -> &SessionShared {
        // SAFETY: as for `Job::shared`.
        unsafe { view(self.first.base()) }
    }

    /// The buffer of lane `lane`; empty when there is no such lane.
    #[must_use]
    pub fn buffer(&self, lane: usize) -> &[AtomicU8] {
        debug_assert!(Self::ARENA_AT <= self.first.bytes().len(), "a segment has all its lanes");
        let at = Self::BUFFERS_AT + lane.min(LANES) * LANE_BUFFER_LEN;
        let end = if lane < LANES { at + LANE_BUFFER_LEN } else { at };
        self.first.bytes().get(at..end).unwrap_or_default()
    }

    /// The arena: staging logs, read windows, and what the program shares, in places the client
    /// chooses. As much of it as is mapped.
    #[must_use]
    pub fn arena(&self) -> &[AtomicU8] {
        self.longest().bytes().get(Self::ARENA_AT..).unwrap_or_default()
    }

    /// Where `len` bytes of memory lie in the arena, if they do.
    #[must_use]
    pub fn place_of(&self, address: usize, len: usize) -> Option<usize> {
        let mut places = self.mappings().map(|mapping| {
            let at = address.checked_sub(mapping.base().as_ptr().addr() + Self::ARENA_AT)?;
            (at.checked_add(len)? <= mapping.len().saturating_sub(Self::ARENA_AT)).then_some(at)
        });
        places.find_map(|place| place)
    }

    fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        iter::once(&self.first).chain(self.longer.get())
    }

    /// Where the arena starts in [`bytes`](Self::bytes).
    #[must_use]
    pub const fn arena_at(&self) -> usize {
        Self::ARENA_AT
    }

    /// Every byte of the segment.
    #[must_use]
    pub const fn bytes(&self) -> &[AtomicU8] {
        self.first.bytes()
    }

    /// Takes memory for `len` bytes of the arena from `at` on; see [`Mapping::populate`].
    pub fn populate(&self, at: usize, len: usize) {
        self.longest().populate(Self::ARENA_AT.saturating_add(at), len);
    }

    /// Gives back the memory of `len` bytes of the arena from `at` on; see [`Mapping::release`].
    pub fn release(&self, at: usize, len: usize) {
        self.longest().release(Self::ARENA_AT.saturating_add(at), len);
    }

    /// Says whether children get `len` bytes of the arena from `at` on; see [`Mapping::inherit`].
    pub fn inherit(&self, at: usize, len: usize, is_inherited: bool) {
        for mapping in self.mappings() {
            mapping.inherit(Self::ARENA_AT.saturating_add(at), len, is_inherited);
        }
    }
}

impl SessionShared {
    /// Lane `index`, if there is one.
    #[must_use]
    pub fn lane(&self, index: usize) -> Option<&Lane> {
        self.lanes.get(index)
    }

    /// File slot `index`, if there is one.
    #[must_use]
    pub fn file(&self, index: usize) -> Option<&FileSlot> {
        self.files.get(index)
    }

    /// True if file `index` is marked dirty.
    #[must_use]
    pub fn is_dirty(&self, index: usize) -> bool {
        let bit = 1 << (index % 64);
        self.dirty.get(index / 64).is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Marks file `index` dirty; returns whether it was not. Call after publishing.
    pub fn mark_dirty(&self, index: usize) -> bool {
        let (Some(word), bit) = (self.dirty.get(index / 64), 1 << (index % 64)) else {
            return false;
        };
        !self.is_dirty(index) && word.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Takes the dirty marks of files `64 * word ..`, as bits. Look at their logs after this, and
    /// again after [`SEEN_AFTER`](crate::staging::SEEN_AFTER).
    pub fn take_dirty(&self, word: usize) -> u64 {
        let Some(word) = self.dirty.get(word) else { return 0 };
        if word.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let bits = word.swap(0, Ordering::AcqRel);
        core::sync::atomic::fence(Ordering::SeqCst);
        bits
    }

    /// Says that the daemon is going away: register nothing more.
    pub fn close(&self) {
        self.closing.store(1, Ordering::SeqCst);
    }

    /// True if the daemon is going away.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst) != 0
    }
}

/// Views the start of a mapping as a struct of atomics.
///
/// # Safety
///
/// `base` is page-aligned and points to at least `size_of::<T>()` bytes that stay mapped for `'a`,
/// and every bit pattern is a valid `T` whose fields all permit shared mutation.
const unsafe fn view<'a, T>(base: NonNull<u8>) -> &'a T {
    // SAFETY: as the caller promises.
    unsafe { base.cast().as_ref() }
}

const _: () = {
    assert!(align_of::<JobShared>() <= PAGE);
    assert!(align_of::<SessionShared>() <= PAGE);
    assert!(COUNTERS * size_of::<AtomicU64>() == 512);
};

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_one_segment() {
        let (ours, fd) = Session::create(1 << 20).expect("memfd");
        let theirs = Session::open(&fd, usize::MAX).expect("sealed");
        assert_eq!(theirs.arena().len(), 1 << 20);
        let short = Session::open(&fd, 4096).expect("sealed");
        assert_eq!((short.arena().len(), short.arena_max()), (4096, 1 << 20));

        ours.arena()[5].store(7, Ordering::Relaxed);
        assert!(ours.shared().mark_dirty(200));
        assert!(!ours.shared().mark_dirty(200));

        assert_eq!(theirs.arena()[5].load(Ordering::Relaxed), 7);
        assert_eq!(theirs.shared().take_dirty(3), 1 << (200 - 192));
        assert_eq!(theirs.shared().take_dirty(3), 0);
        let before = short.arena();
        assert_eq!(short.lengthen(2 << 20), Err(Errno::INVAL));
        short.lengthen(1 << 19).expect("mapped again");
        assert_eq!(short.arena().len(), 1 << 19);
        assert_eq!([before, short.arena()].map(|arena| arena[5].load(Ordering::Relaxed)), [7, 7]);
        for (arena, at) in [(before, 4000), (short.arena(), 9000)] {
            assert_eq!(short.place_of(arena.as_ptr().addr() + at, 96), Some(at));
        }
        assert_eq!(short.place_of(before.as_ptr().addr() + 4000, 97), None);
        short.lengthen(1 << 20).expect("once");
        assert_eq!(short.arena().len(), 1 << 19);

        ours.release(0, PAGE);
        assert_eq!(theirs.arena()[5].load(Ordering::Relaxed), 0);
        assert_eq!(theirs.buffer(LANES - 1).len(), LANE_BUFFER_LEN);
        assert!(theirs.buffer(LANES).is_empty());
    }

    #[test]
    fn a_segment_that_could_shrink_is_refused() {
        let fd = rustix::fs::memfd_create(c"open", rustix::fs::MemfdFlags::ALLOW_SEALING)
            .expect("memfd");
        rustix::fs::ftruncate(&fd, 64 << 20).expect("memfd");
        assert_eq!(Session::open(&fd, 0).map(drop), Err(Errno::INVAL));
        assert_eq!(Job::open(&fd).map(drop), Err(Errno::INVAL));
    }

    #[test]
    fn only_its_maker_writes_the_table_of_places() {
        let (places, fd) = Places::create().expect("memfd");
        let view = PlacesView::open(&fd).expect("readable");
        places.shared().keep(true);
        assert!(places.shared().enter(1, 0));
        places.shared().hide(0);
        places.shared().show(0, &[3; crate::places::PLACE_WORDS]);
        assert!(view.shared().find(1, |words| words[0] == 3).is_some());
        assert_eq!(Mapping::open(&fd).map(drop), Err(Errno::PERM));
        assert_eq!(io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
    }

    #[test]
    fn nobody_can_resize_a_segment() {
        let (_ours, fd) = Job::create().expect("memfd");
        assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&fd, 1 << 30), Err(Errno::PERM));
    }
}
