//! Appends stay in one piece; and a record by which whoever takes over a drain knows how much of
//! the write that was under way is done.
//!
//! What one call appends must not be parted by what others append meanwhile, so the consumer writes
//! it by one call. It does not know where calls end: so they are published whole, a few of them
//! make an extent of bounded length, and the consumer parts no extent that goes to the end.

use core::ops::Range;

use super::{APPEND, FileSlot, Producer};
use crate::sync::{Ordering, fence};

/// A file offset that no write continues.
const NOWHERE: u64 = APPEND - 1;
/// Position of what is appended without a log.
const APART: u64 = APPEND - 2;

impl FileSlot {
    /// Records, before the bytes from `position` on are written, that they are; of an append, that
    /// there are `len` of them, and the file is `size` bytes long.
    pub fn write_begins(&self, position: u64, size: u64, len: u64) {
        // Not before `tail` has left the write recorded until now: whoever takes over in between
        // would take this size for that one's.
        fence(Ordering::Release);
        self.append.0.size.store(size, Ordering::Relaxed);
        self.append.0.len.store(len, Ordering::Relaxed);
        self.append.0.position.store(position.wrapping_add(1), Ordering::Release);
    }

    /// Records, before `len` bytes that are in no log are appended to a file of `size` bytes, that
    /// they are.
    pub fn append_begins(&self, size: u64, len: u64) {
        self.write_begins(APART, size, len);
    }

    /// The last record of [`append_begins`](Self::append_begins): the file's size before, and how
    /// many bytes were to be appended.
    #[must_use]
    pub fn last_append(&self) -> Option<(u64, u64)> {
        let (position, size, len) = self.last_write()?;
        (position == APART).then_some((size, len))
    }

    /// Records that no write is under way: the last one was refused, or the next one is waited for.
    pub fn no_write_begins(&self) {
        self.append.0.position.store(0, Ordering::Release);
    }

    /// The last recorded write: its position, and, of an append, the file's size before it and its
    /// length, bytes.
    #[must_use]
    pub fn last_write(&self) -> Option<(u64, u64, u64)> {
        let append = &self.append.0;
        let position = append.position.load(Ordering::Acquire).checked_sub(1)?;
        let [size, len] = [&append.size, &append.len].map(|word| word.load(Ordering::Relaxed));
        Some((position, size, len))
    }
}

impl Producer {
    /// Finds room for `len` bytes that are appended together, the last ones perhaps at the ring's
    /// start, and returns where in the log they begin and end; `None` when the log is too full.
    /// Publish them together.
    ///
    /// They begin an extent, unless the last one has at most `extent_max` bytes with them.
    pub fn reserve_whole(
        &mut self,
        slot: &FileSlot,
        len: u64,
        extent_max: u64,
    ) -> Option<Range<u64>> {
        if self.continues(APPEND) && self.head - self.extent_at + len > extent_max {
            self.next_at = NOWHERE;
        }
        if self.len - self.waiting() < len {
            self.refresh(slot);
        }
        self.reserve(slot, APPEND, len)?;
        (self.len - self.waiting() >= len).then(|| self.head..self.head + len)
    }
}
