//! The staging log of one open file: writes accepted by the client and not yet drained.
//!
//! The log is a ring of bytes in the session's arena, and a ring of [`EXTENTS`] extents in the
//! file's slot. A position counts bytes since the log was attached; `head` is the end of what is
//! published, `tail` the end of what is in the file. Extent `i` says that from position `start` on
//! the bytes go to `file_at`; it ends where the next one starts. A write that continues the last
//! extent needs no new one: it is a copy and one store of `head`, so a sequential writer leaves one
//! extent, which drains as one large write. What is appended stays together otherwise ([`append`]).
//!
//! The client is the only producer. Consumers are the client itself, which drains a full log, and
//! the daemon, which drains what nobody else will: one at a time, by a claim ([`Drainer`]).
//!
//! # Trust
//!
//! The consumer copies indices and extents out once and checks them: positions never run backwards
//! or past the log's length, extents start where they must, file offsets stay below 2^63. A wrong
//! one is [`Corrupt`] and ends the session. The daemon never dereferences payload; it hands it to
//! the kernel, which reads it whatever the client does to it.
//!
//! # Memory ordering
//!
//! `head` is stored with `Release` after payload, extents, and `extent_head`, and loaded with
//! `Acquire` before them; `extent_head` is itself stored with `Release` and loaded with `Acquire`,
//! because the consumer may see a newer one than belongs to the `head` it saw. `tail` is stored
//! with `Release` after the file system has the bytes and before `extent_tail`, so that a resumed
//! consumer finds the extent that `tail` lies in; `extent_tail` is stored with `Release` after the
//! extents were read, because the producer may see a newer one than belongs to the `tail` it saw;
//! both are loaded with `Acquire` before their space is used again.
//!
//! `head` against `dirty` and `mode` is the sleeper's pattern of [`doorbell`](crate::doorbell): the
//! client stores `head` and then loads the flag, the daemon stores the flag and then loads `head`.
//! A fence between the client's two would cost a write of 512 bytes a tenth of its time, until its
//! store buffer is empty. So only the daemon has one, and looks at `head` again once [`SEEN_AFTER`]
//! has passed since it stored the flag: by then it sees what any client has stored that had not
//! seen the flag (Morrison and Afek, Temporally Bounding TSO for Fence-Free Asymmetric
//! Synchronization, ASPLOS 2015). Were it too short, bytes would stay staged for longer, a second
//! opener see older ones, and none be lost. In the model that time is a fence of the client.

mod append;
mod corrupt;
mod cut;
pub mod doubt;
mod drainer;

#[cfg(not(loom))]
use core::sync::atomic::compiler_fence;
use core::{ops::Range, time::Duration};

pub use corrupt::Corrupt;
use cut::CutWords;
pub use cut::{CUT_OFF, Cut};
pub use drainer::{DrainClaim, Drainer};

use crate::sync::{AtomicU32, AtomicU64, Line, Ordering, Word, fence};

/// Extents a log can hold that are not yet drained.
pub const EXTENTS: usize = if cfg!(loom) { 2 } else { 64 };
/// File offset of an extent whose bytes go to the end of the file.
pub const APPEND: u64 = u64::MAX;
/// Longest append, bytes, of which others see nothing or all: a daemon writes it by one call. A
/// power of two, as a log grows to hold it.
pub const APPEND_MAX: u64 = 256 << 10;
const _: () = assert!(APPEND_MAX.is_power_of_two());
/// Longest time from a store of one core until the others see it: far more than a store buffer of
/// some 100 entries takes, each of which may wait for a cache line.
pub const SEEN_AFTER: Duration = Duration::from_millis(1);
const FILE_AT_MAX: u64 = i64::MAX as u64;
const MODE_WRITE_BEHIND: u32 = 0;
const MODE_SYNCHRONOUS: u32 = 1;

/// The shared part of a log.
#[derive(Debug)]
#[repr(C)]
pub struct FileSlot {
    producer: Line<ProducerLine>,
    consumer: Line<ConsumerLine>,
    control: Line<ControlLine>,
    append: Line<AppendLine>,
    extents: [ExtentSlot; EXTENTS],
}

#[derive(Debug, Default)]
#[repr(C)]
struct ProducerLine {
    head: AtomicU64,
    extent_head: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(C)]
struct ConsumerLine {
    tail: AtomicU64,
    extent_tail: AtomicU32,
    /// The side that drains now, and the number of its claim.
    drainer: AtomicU32,
    cut: CutWords,
}

#[derive(Debug, Default)]
#[repr(C)]
struct ControlLine {
    mode: AtomicU32,
    error: AtomicU32,
    /// The client drains a full log itself.
    drained_by_client: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(C)]
struct AppendLine {
    /// Position of the write that may be under way, plus one; zero for none.
    position: AtomicU64,
    size: AtomicU64,
    /// Bytes that the write is of: more may be staged behind them by the time it is looked at.
    len: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(C)]
struct ExtentSlot {
    start: Word,
    file_at: Word,
}

impl FileSlot {
    /// Prepares the slot for a new file: empty log, write-behind, no error owed.
    ///
    /// For the client, before it registers the file; nobody else looks at the slot then.
    pub fn reset(&self) {
        self.producer.0.head.store(0, Ordering::Relaxed);
        self.producer.0.extent_head.store(0, Ordering::Relaxed);
        self.consumer.0.tail.store(0, Ordering::Relaxed);
        self.consumer.0.extent_tail.store(0, Ordering::Relaxed);
        self.consumer.0.drainer.store(0, Ordering::Relaxed);
        self.set_cut(Cut::default());
        self.control.0.drained_by_client.store(0, Ordering::Relaxed);
        self.control.0.mode.store(MODE_WRITE_BEHIND, Ordering::Relaxed);
        self.control.0.error.store(0, Ordering::Relaxed);
        self.append.0.position.store(0, Ordering::Release);
    }

    /// End of what the client published.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.producer.0.head.load(Ordering::Acquire)
    }

    /// End of what the file system has.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.consumer.0.tail.load(Ordering::Acquire)
    }

    /// From now on every write waits until it is drained; returns whether that is news. What does
    /// not see the mode is seen by a [`head`](Self::head) that is read [`SEEN_AFTER`] this.
    pub fn demote(&self) -> bool {
        let before = self.control.0.mode.swap(MODE_SYNCHRONOUS, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        before == MODE_WRITE_BEHIND
    }

    /// True if writes wait until they are drained.
    #[must_use]
    pub fn is_synchronous(&self) -> bool {
        self.control.0.mode.load(Ordering::Relaxed) != MODE_WRITE_BEHIND
    }

    /// Owes the client `errno`; the first error stays until it is taken.
    pub fn owe(&self, errno: u32) {
        let error = &self.control.0.error;
        match error.compare_exchange(0, errno, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) | Err(_) => {}
        }
    }

    /// True if an error is owed.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.control.0.error.load(Ordering::Relaxed) != 0
    }

    /// Takes the error owed, so that it is reported once.
    pub fn take_error(&self) -> Option<u32> {
        if !self.owes() {
            return None;
        }
        Some(self.control.0.error.swap(0, Ordering::AcqRel)).filter(|errno| *errno != 0)
    }
}

impl Default for FileSlot {
    fn default() -> Self {
        Self {
            producer: Line::default(),
            consumer: Line::default(),
            control: Line::default(),
            append: Line::default(),
            extents: core::array::from_fn(|_| ExtentSlot::default()),
        }
    }
}

/// The client's private state of a log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Producer {
    len: u64,
    head: u64,
    /// The consumer's `tail` and `extent_tail` as last seen.
    tail: u64,
    extent_tail: u32,
    extent_head: u32,
    /// Log position of the last extent.
    extent_at: u64,
    /// File offset that the next byte of the last extent would get.
    next_at: u64,
}

impl Producer {
    /// The state of a log of `len` bytes, a power of two, just attached to a reset slot.
    #[must_use]
    pub const fn new(len: u64) -> Self {
        Self { len, head: 0, tail: 0, extent_tail: 0, extent_head: 0, extent_at: 0, next_at: 0 }
    }

    /// Goes on in another log, of `len` bytes, a power of two. The old one is drained; positions
    /// count on.
    pub const fn attach(&mut self, len: u64) {
        (self.len, self.tail) = (len, self.head);
    }

    /// Length of the log in bytes.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.len
    }

    /// End of what is published.
    #[must_use]
    pub const fn head(&self) -> u64 {
        self.head
    }

    /// Bytes published and, as far as was last seen, not drained.
    #[must_use]
    pub const fn waiting(&self) -> u64 {
        self.head - self.tail
    }

    /// Looks how far the consumer has come and returns the bytes still waiting.
    pub fn refresh(&mut self, slot: &FileSlot) -> u64 {
        // Never ahead of what was published, whatever the segment says.
        self.tail = slot.tail().min(self.head).max(self.tail);
        let extent_tail = slot.consumer.0.extent_tail.load(Ordering::Acquire);
        if self.extent_head.wrapping_sub(extent_tail) as usize <= EXTENTS {
            self.extent_tail = extent_tail;
        }
        self.waiting()
    }

    /// Finds room for up to `len` bytes that go to `file_at`, and returns where in the log they
    /// begin and how many fit without wrapping; `None` when the log is full.
    ///
    /// Copy at most that much to [`ring_at`](Self::ring_at) of the position, then
    /// [`publish`](Self::publish) it.
    pub fn reserve(&mut self, slot: &FileSlot, file_at: u64, len: u64) -> Option<Range<u64>> {
        let full = |p: &Self| {
            p.waiting() == p.len
                || !p.continues(file_at)
                    && p.extent_head.wrapping_sub(p.extent_tail) as usize >= EXTENTS
        };
        if full(self) {
            self.refresh(slot);
            if full(self) {
                return None;
            }
        }
        if self.len - self.waiting() < len {
            self.refresh(slot);
        }
        let before_wrap = self.len - self.ring_at(self.head);
        let room = len.min(self.len - self.waiting()).min(before_wrap);
        Some(self.head..self.head + room)
    }

    /// Finds room for all of `len` bytes that continue the last extent, without a wrap, and returns
    /// where in the ring; `None` when it needs [`reserve`](Self::reserve).
    #[must_use]
    #[inline]
    pub const fn reserve_on(&self, file_at: u64, len: u64) -> Option<u64> {
        let at = self.ring_at(self.head);
        let fits = self.len - self.waiting() >= len && self.len - at >= len;
        if fits && self.continues(file_at) { Some(at) } else { None }
    }

    /// Where position `position` lies in the ring.
    #[must_use]
    pub const fn ring_at(&self, position: u64) -> u64 {
        position & (self.len - 1)
    }

    /// Publishes `len` bytes, copied to the reserved range, as what goes to `file_at`.
    ///
    /// From here on the bytes are accepted: they survive the death of either process. A flag of the
    /// daemon that is read after this may be [`SEEN_AFTER`] old.
    #[inline]
    pub fn publish(&mut self, slot: &FileSlot, file_at: u64, len: u64) {
        if !self.continues(file_at) {
            if let Some(extent) = slot.extents.get(self.extent_head as usize % EXTENTS) {
                extent.start.set(self.head);
                extent.file_at.set(file_at);
            }
            self.extent_at = self.head;
            self.extent_head = self.extent_head.wrapping_add(1);
            slot.producer.0.extent_head.store(self.extent_head, Ordering::Release);
        }
        self.next_at = if file_at == APPEND { APPEND } else { file_at + len };
        self.head += len;
        slot.producer.0.head.store(self.head, Ordering::Release);
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        #[cfg(not(loom))]
        compiler_fence(Ordering::SeqCst);
    }

    const fn continues(&self, file_at: u64) -> bool {
        self.extent_head != 0 && self.next_at == file_at
    }
}

/// A stretch of staged bytes that goes to one place in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// First byte in the file, [`APPEND`], or [`CUT_OFF`].
    pub file_at: u64,
    /// Position of the first byte in the log.
    pub start: u64,
    /// Bytes; the stretch does not wrap in the ring.
    pub len: u64,
}

/// The consumer's private state of a log.
#[derive(Clone, Copy, Debug)]
pub struct Consumer {
    len: u64,
    tail: u64,
    /// Extent that `tail` lies in, once there is one.
    current: Option<Extent>,
    /// Number of the next extent to look at.
    next_extent: u32,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    start: u64,
    file_at: u64,
}

impl Consumer {
    /// The consumer of a log of `len` bytes, a power of two, just attached to a reset slot.
    #[must_use]
    pub const fn new(len: u64) -> Self {
        Self { len, tail: 0, current: None, next_extent: 0 }
    }

    /// Continues where the last consumer released, of a log of `len` bytes. For whoever has claimed
    /// the right to drain.
    #[must_use]
    pub fn resume(slot: &FileSlot, len: u64) -> Self {
        let next_extent = slot.consumer.0.extent_tail.load(Ordering::Acquire);
        Self { len, tail: slot.tail(), current: None, next_extent }
    }

    /// End of what was released.
    #[must_use]
    pub const fn tail(&self) -> u64 {
        self.tail
    }

    /// Where position `position` lies in the ring.
    #[must_use]
    pub const fn ring_at(&self, position: u64) -> u64 {
        position & (self.len - 1)
    }

    /// The stretches that are published and not released, oldest first: at most `runs.len()` of
    /// them and `budget` bytes in all. Neither parts an extent to be appended, unless it is the
    /// first. Returns how many of `runs` were filled.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]: the client broke the protocol.
    pub fn runs(&self, slot: &FileSlot, budget: u64, runs: &mut [Run]) -> Result<usize, Corrupt> {
        let head = slot.head();
        if head.checked_sub(self.tail).is_none_or(|waiting| waiting > self.len) {
            return Err(Corrupt::Head { claimed: head.wrapping_sub(self.tail) });
        }
        let extent_head = slot.producer.0.extent_head.load(Ordering::Acquire);
        let (mut position, mut walk, mut count, cut) = (self.tail, *self, 0, slot.cut());
        let end = head.min(self.tail.saturating_add(budget));
        while position < end {
            let (extent, until) = walk.extent_at(slot, position, extent_head)?;
            let (until, before_wrap) = (until.min(head), self.len - self.ring_at(position));
            let is_last = count + 1 == runs.len();
            let is_parted = until > end || is_last && until - position > before_wrap;
            if count > 0 && is_parted && extent.file_at == APPEND {
                break; // Whole, or not yet.
            }
            let len = until.min(end).wrapping_sub(position).min(before_wrap);
            let Some(run) = runs.get_mut(count) else { break };
            let (file_at, len) = cut.first(position, extent.file_at(position, len)?, len);
            *run = Run { file_at, start: position, len };
            position += len;
            count += 1;
        }
        Ok(count)
    }

    /// Says that the file system has everything up to `position`.
    pub fn release(&mut self, slot: &FileSlot, position: u64) {
        self.tail = position;
        // Passes the extents that end here, so that the client may use their slots again. A corrupt
        // one is reported when its bytes are looked for.
        let extent_head = slot.producer.0.extent_head.load(Ordering::Acquire);
        match self.extent_at(slot, position, extent_head) {
            Ok(_) | Err(_) => {}
        }
        slot.consumer.0.tail.store(position, Ordering::Release);
        let current = u32::from(self.current.is_some());
        let extent_tail = self.next_extent.wrapping_sub(current);
        slot.consumer.0.extent_tail.store(extent_tail, Ordering::Release);
    }

    /// The extent that `position` lies in, and where it ends.
    fn extent_at(
        &mut self,
        slot: &FileSlot,
        position: u64,
        extent_head: u32,
    ) -> Result<(Extent, u64), Corrupt> {
        loop {
            let unread = extent_head.wrapping_sub(self.next_extent);
            if unread as usize > EXTENTS {
                return Err(Corrupt::Extents { claimed: unread });
            }
            let next = (unread > 0).then(|| slot.extents.get(self.next_extent as usize % EXTENTS));
            let next = next.flatten().map(|extent| (extent.start.get(), extent.file_at.get()));
            match (self.current, next) {
                (Some(current), None) => return Ok((current, u64::MAX)),
                (Some(current), Some((start, _))) if start > position => {
                    return Ok((current, start));
                }
                (None, None) => return Err(Corrupt::Extents { claimed: 0 }),
                (_, Some((start, file_at))) => {
                    if start > position {
                        return Err(Corrupt::Extent { start, file_at });
                    }
                    self.current = Some(Extent { start, file_at });
                    self.next_extent = self.next_extent.wrapping_add(1);
                }
            }
        }
    }
}

impl Extent {
    /// Where `position`, and the `len` bytes from it on, go in the file.
    fn file_at(self, position: u64, len: u64) -> Result<u64, Corrupt> {
        if self.file_at == APPEND {
            return Ok(APPEND);
        }
        let at = self.file_at.checked_add(position.wrapping_sub(self.start));
        let end = at.and_then(|at| at.checked_add(len));
        match (at, end) {
            (Some(at), Some(end)) if end <= FILE_AT_MAX => Ok(at),
            _ => Err(Corrupt::Extent { start: self.start, file_at: self.file_at }),
        }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<FileSlot>() == 4 * 64 + 16 * EXTENTS);

#[cfg(all(test, not(loom)))]
#[path = "staging_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "staging_loom_tests.rs"]
mod loom_tests;
