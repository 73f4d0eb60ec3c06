//! A registered file: the daemon's copy of its descriptor, and its staging log.
//!
//! Whatever changes the file holds the [`Turn`], alone but for writes that the client itself has in
//! flight together; whatever uses the descriptor holds a [`Use`], so a close can wait for all of
//! it.

mod pace;
mod read_history;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use executor::{Credit, Credits, Notify};
use rustix::io::Errno;
use shm::staging::{Corrupt, FileSlot};
use storage::{Storage, names::Identity, segment::Segment, turns::Turns};
use uring::Buffer;
use wire::FileFlags;

use self::{pace::Pace, read_history::ReadHistory};
use crate::drain_queues::UNIT_LEN;

/// Where a file's log lies in the arena, bytes; no log when the length is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) at: u64,
    pub(crate) len: u64,
}

impl Log {
    /// True if this is no log, or one that lies in the arena as a log must.
    pub(crate) fn is_valid(self, segment: &Segment) -> bool {
        self.len == 0 || self.len.is_power_of_two() && segment.has(self.at, self.len)
    }

    /// Where position `position` lies in it.
    const fn ring_at(self, position: u64) -> u64 {
        debug_assert!(self.len.is_power_of_two(), "a log that stages has a length");
        position & (self.len - 1)
    }

    /// Most bytes that are drained at a time: of a long log, whose file system is slow, so many
    /// that to wake a thread for them costs little.
    pub(crate) fn unit_len(self) -> u64 {
        (self.len / UNITS_OF_LOG).clamp(UNIT_LEN, UNIT_LEN_MAX)
    }

    /// Bytes of a stripe of the file: where more comes behind it, a unit ends at a multiple of
    /// this. A power of two, as what file systems prefer.
    pub(crate) fn stripe_len(self) -> u64 {
        self.unit_len().min(self.len / STRIPES_OF_LOG).max(1)
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        // Both were checked to lie in the arena.
        self.len != 0
            && other.len != 0
            && self.at < other.at + other.len
            && other.at < self.at + self.len
    }
}

/// A unit of a long log is this part of it, and no more than so many bytes.
const UNITS_OF_LOG: u64 = 16;
const UNIT_LEN_MAX: u64 = 4 << 20;
/// A stripe is at most this part of a log.
const STRIPES_OF_LOG: u64 = 4;

/// A stretch of the arena, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArenaRange {
    pub(crate) arena_at: u64,
    pub(crate) len: u64,
}

impl ArenaRange {
    /// All but the first `done` bytes; `None` when there are no more.
    pub(crate) fn behind(self, done: u64) -> Option<Self> {
        let len = self.len.checked_sub(done).filter(|len| *len > 0)?;
        Some(Self { arena_at: self.arena_at + done, len })
    }
}

/// An open file of a session.
pub(crate) struct OpenFile<S: Storage> {
    pub(crate) session: u32,
    pub(crate) slot: u32,
    pub(crate) identity: Identity,
    /// The daemon opened it, and counts it in the table of inodes itself.
    pub(crate) is_ours: bool,
    pub(crate) pace: Pace,
    pub(crate) history: ReadHistory,
    segment: Arc<Segment>,
    file: RefCell<Option<S::File>>,
    log: Cell<Log>,
    /// Largest tail seen: positions of an honest client never run backwards.
    seen_tail: Cell<u64>,
    is_broken: Cell<bool>,
    is_closing: Cell<bool>,
    /// Its client has asked for locks by it.
    pub(crate) is_locked: Cell<bool>,
    /// It is open to be written.
    pub(crate) can_write: bool,
    /// Writes go to the end of the file, and so one after the other.
    appends: Cell<bool>,
    /// Permits to transfer, if one is needed.
    permits: Option<Credits>,
    /// True if the daemon holds a descriptor for it: a server's file needs none here.
    pub(crate) has_descriptor: bool,
    turns: Turns,
    uses: Cell<usize>,
    /// Signalled when the log's tail, the turn, or the uses change.
    pub(crate) progress: Notify,
}

/// Content of a registration.
pub(crate) struct Origin {
    pub(crate) session: u32,
    pub(crate) slot: u32,
    pub(crate) flags: FileFlags,
    pub(crate) identity: Identity,
    pub(crate) is_ours: bool,
    /// The daemon holds a descriptor for it.
    pub(crate) has_descriptor: bool,
}

impl<S: Storage> OpenFile<S> {
    /// A file whose slot has been reset; `None` when there is no such slot.
    pub(crate) fn new(
        origin: Origin,
        segment: Arc<Segment>,
        file: S::File,
        permits: Option<Credits>,
        log: Log,
    ) -> Option<Self> {
        let Origin { session, slot, flags, identity, is_ours, has_descriptor } = origin;
        segment.slot(slot)?;
        debug_assert!(log.is_valid(&segment), "the log was checked");
        let appends = flags.has(FileFlags::APPEND);
        Some(Self {
            session,
            slot,
            identity,
            is_ours,
            pace: Pace::default(),
            history: ReadHistory::default(),
            segment,
            file: RefCell::new(Some(file)),
            log: Cell::new(log),
            seen_tail: Cell::new(0),
            is_broken: Cell::new(false),
            is_closing: Cell::new(false),
            is_locked: Cell::new(false),
            can_write: flags.has(FileFlags::WRITABLE),
            appends: Cell::new(appends),
            permits,
            has_descriptor,
            turns: Turns::default(),
            uses: Cell::new(0),
            progress: Notify::new(),
        })
    }

    /// The shared state of the log.
    pub(crate) fn shared(&self) -> &FileSlot {
        let slot = self.segment.slot(self.slot);
        slot.expect("a file is only made for a slot that exists")
    }

    /// Bytes published and not drained, as the client claims.
    pub(crate) fn staged(&self) -> u64 {
        if self.log.get().len == 0 || self.is_broken.get() {
            return 0;
        }
        let tail = self.tail();
        self.shared().head().wrapping_sub(tail)
    }

    /// End of what is drained.
    pub(crate) fn tail(&self) -> u64 {
        self.shared().tail()
    }

    /// Checks the tail that whoever drained last has stored.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]: it has been stored by no honest client.
    pub(crate) fn check_tail(&self, tail: u64) -> Result<(), Corrupt> {
        if tail < self.seen_tail.replace(tail) {
            return Err(Corrupt::Tail { claimed: tail });
        }
        Ok(())
    }

    /// The log position up to which everything published now has been drained.
    pub(crate) fn head(&self) -> u64 {
        self.tail().wrapping_add(self.staged())
    }

    pub(crate) fn log(&self) -> Log {
        self.log.get()
    }

    /// Replaces the drained log.
    pub(crate) fn attach(&self, log: Log) -> bool {
        debug_assert!(log.is_valid(&self.segment), "the log was checked");
        let is_drained = self.shared().head() == self.tail();
        if is_drained {
            self.log.set(log);
        }
        is_drained
    }

    /// Where staged bytes lie in the arena. They do not wrap in the log.
    pub(crate) fn staged_range(&self, start: u64, len: u64) -> ArenaRange {
        debug_assert!(len <= self.log.get().len, "a range is of the log");
        ArenaRange { arena_at: self.log.get().at + self.log.get().ring_at(start), len }
    }

    /// The one or two ranges in which staged bytes lie in the arena.
    pub(crate) fn staged_ranges(&self, start: u64, len: u64) -> impl Iterator<Item = ArenaRange> {
        debug_assert!(len <= self.log.get().len, "ranges are of the log");
        let first = len.min(self.log.get().len - self.log.get().ring_at(start));
        let ranges = [(start, first), (start + first, len - first)].into_iter();
        ranges.filter(|(_, len)| *len > 0).map(|(start, len)| self.staged_range(start, len))
    }

    /// A stretch of the arena as a buffer; `None` when it is not in the arena.
    pub(crate) fn buffer(&self, range: ArenaRange) -> Option<Buffer> {
        self.segment.buffer(range.arena_at, range.len)
    }

    /// Gives up on a log that makes no sense.
    pub(crate) fn break_log(&self) {
        self.is_broken.set(true);
        self.progress.notify_all();
    }

    /// Lets nobody find the file any more.
    pub(crate) fn begin_close(&self) {
        self.is_closing.set(true);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.get()
    }

    /// Waits until nothing uses the descriptor and lets go of it.
    pub(crate) async fn let_go(&self) -> Option<S::File> {
        debug_assert!(self.is_closing(), "nobody else gets the file from here on");
        self.progress.until(|| self.uses.get() == 0).await;
        self.file.borrow_mut().take()
    }

    /// True if writes go to the end of the file.
    pub(crate) fn appends(&self) -> bool {
        self.appends.get()
    }

    pub(crate) fn set_append(&self, appends: bool) {
        self.appends.set(appends);
    }

    /// The permit for a transfer, if it needs one: of those that its lane has, or that nobody has.
    /// `Err`: where to wait for it. Where one is only waited for by others in turn, as appends are,
    /// none is needed.
    pub(crate) fn permit(&self, held: &mut Option<Credit>) -> Result<Option<Credit>, Credits> {
        let permits = self.permits.as_ref().filter(|_| !self.appends());
        let Some(permits) = permits else { return Ok(None) };
        let held = held.as_mut().filter(|held| held.amount() > 0).map(|held| held.split(1));
        held.or_else(|| permits.try_take(1)).map(Some).ok_or_else(|| permits.clone())
    }

    /// Takes the turn to change the file, if nobody has it.
    pub(crate) fn try_turn(self: &Rc<Self>) -> Option<Turn<S>> {
        self.turns.take().then(|| Turn(Rc::clone(self)))
    }

    /// Takes the turn to change the file.
    pub(crate) async fn turn(self: &Rc<Self>) -> Turn<S> {
        let _claim = self.turns.claim();
        self.progress.until(|| self.turns.take()).await;
        Turn(Rc::clone(self))
    }

    /// Takes the turn to write to one place, together with others that do.
    pub(crate) async fn turn_to_write(self: &Rc<Self>) -> Turn<S> {
        if self.appends() {
            return self.turn().await;
        }
        self.progress.until(|| self.turns.join()).await;
        Turn(Rc::clone(self))
    }

    /// True if somebody changes the file, most likely by draining it.
    pub(crate) fn is_being_drained(&self) -> bool {
        !self.turns.is_free()
    }

    /// Waits until the turn is free or the log is drained up to `position`.
    pub(crate) async fn turn_or_tail(&self, position: u64) {
        self.progress.until(|| self.turns.is_free() || self.is_drained_to(position)).await;
    }

    /// True if the log is drained up to `position`, as far as it can be.
    pub(crate) fn is_drained_to(&self, position: u64) -> bool {
        self.tail() >= position || self.staged() == 0
    }

    /// The descriptor, in use until the result is dropped.
    pub(crate) fn descriptor(self: &Rc<Self>) -> Result<Use<S>, Errno> {
        let file = self.file.borrow().clone().ok_or(Errno::BADF)?;
        self.uses.set(self.uses.get() + 1);
        Ok(Use { owner: Rc::clone(self), file })
    }
}

/// The right to change a file; passed on when dropped.
pub(crate) struct Turn<S: Storage>(Rc<OpenFile<S>>);

impl<S: Storage> Drop for Turn<S> {
    fn drop(&mut self) {
        if self.0.turns.leave() {
            self.0.progress.notify_all();
        }
    }
}

/// A descriptor in use.
pub(crate) struct Use<S: Storage> {
    owner: Rc<OpenFile<S>>,
    pub(crate) file: S::File,
}

impl<S: Storage> Drop for Use<S> {
    fn drop(&mut self) {
        debug_assert!(self.owner.uses.get() > 0, "a use is counted once");
        let left = self.owner.uses.get() - 1;
        self.owner.uses.set(left);
        if left == 0 {
            self.owner.progress.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_log_is_drained_by_longer_units() {
        let unit = |mib: u64| Log { at: 0, len: mib << 20 }.unit_len();
        assert_eq!([1, 4, 16, 64, 1024].map(unit), [256, 256, 1024, 4096, 4096].map(|k| k << 10));
        let stripe = |kib: u64| Log { at: 0, len: kib << 10 }.stripe_len();
        assert_eq!([64, 1024, 16384].map(stripe), [16, 256, 1024].map(|k| k << 10));
        assert_eq!([1, 2, 4, 8].map(|len| Log { at: 0, len }.stripe_len()), [1, 1, 1, 2]);
    }
}
