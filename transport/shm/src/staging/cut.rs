//! The part of a file that staged bytes no longer reach: the program has truncated the file, or
//! punched a hole, while the kernel refused them. They are released without being written.
//!
//! The holder of the log's claim records the cut before the file is changed, so that no drainer
//! brings back what the change removes, whatever is killed. The claim orders these words.

use core::ops::Range;

use super::{APPEND, Consumer, Corrupt, FileSlot, Run};
use crate::sync::{AtomicU64, Ordering};

/// Place of bytes that are cut off: beyond any file.
pub const CUT_OFF: u64 = 1 << 63;

/// Bytes of a file to which nothing goes that was staged before a log position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// First position in the log that it does not concern.
    upto: u64,
    /// First byte in the file.
    from: u64,
    /// First byte behind it; `u64::MAX` if the file ends at `from`, before anything appended.
    to: u64,
}

/// The shared part of a cut.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct CutWords {
    upto: AtomicU64,
    from: AtomicU64,
    to: AtomicU64,
}

impl Cut {
    /// A cut of bytes that were staged before `upto`: none of them goes to the file from byte
    /// `from` on, and before `to`.
    #[must_use]
    pub const fn new(upto: u64, from: u64, to: u64) -> Self {
        Self { upto, from, to }
    }

    /// Both this and an `earlier` one, of a log that is released up to `tail`; `None` if one range
    /// cannot say that.
    #[must_use]
    pub fn with(self, earlier: Self, tail: u64) -> Option<Self> {
        let has = |a: Self, b: Self| a.from <= b.from && b.to <= a.to;
        if earlier.upto <= tail || earlier.from >= earlier.to || has(self, earlier) {
            return Some(self);
        }
        let touches = self.from <= earlier.to && earlier.from <= self.to;
        (touches && self.upto == earlier.upto).then(|| Self {
            from: self.from.min(earlier.from),
            to: self.to.max(earlier.to),
            ..self
        })
    }

    /// Splits off the first of `len` bytes that were staged from `position` on for `file_at`:
    /// where these go, and how many they are.
    pub(super) fn first(self, position: u64, file_at: u64, len: u64) -> (u64, u64) {
        let Some(left) = self.upto.checked_sub(position).filter(|left| *left > 0) else {
            return (file_at, len);
        };
        let len = len.min(left);
        if file_at == APPEND {
            return (if self.to == u64::MAX { CUT_OFF } else { APPEND }, len);
        }
        match (self.from.checked_sub(file_at), self.to.checked_sub(file_at)) {
            (Some(before @ 1..), _) => (file_at, len.min(before)),
            (_, Some(within @ 1..)) => (CUT_OFF, len.min(within)),
            _ => (file_at, len),
        }
    }
}

impl FileSlot {
    /// The last cut recorded. For whoever has claimed the log.
    #[must_use]
    pub fn cut(&self) -> Cut {
        let CutWords { upto, from, to } = &self.consumer.0.cut;
        let [upto, from, to] = [upto, from, to].map(|word| word.load(Ordering::Relaxed));
        Cut { upto, from, to }
    }

    /// Records a cut in the place of the last one. For whoever has claimed the log.
    pub fn set_cut(&self, cut: Cut) {
        let words = &self.consumer.0.cut;
        words.upto.store(cut.upto, Ordering::Relaxed);
        words.from.store(cut.from, Ordering::Relaxed);
        words.to.store(cut.to, Ordering::Relaxed);
    }
}

impl Consumer {
    /// Length of a file of `size` bytes once it has everything that is published now.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]: the client broke the protocol.
    pub fn end(self, slot: &FileSlot, size: u64) -> Result<u64, Corrupt> {
        Ok(self.places(slot, size)?.end.max(size))
    }

    /// The first byte and the end of what is published now, in a file of `size` bytes.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]: the client broke the protocol.
    pub fn places(mut self, slot: &FileSlot, mut size: u64) -> Result<Range<u64>, Corrupt> {
        let (head, mut runs) = (slot.head(), [Run::default(); 8]);
        let (mut first, mut last) = (u64::MAX, 0);
        loop {
            let count = self.runs(slot, head.saturating_sub(self.tail), &mut runs)?;
            if count == 0 {
                return Ok(first..last);
            }
            for run in runs.iter().take(count) {
                self.tail = run.start.wrapping_add(run.len);
                let from = match run.file_at {
                    APPEND => size,
                    CUT_OFF => continue,
                    at => at,
                };
                let end = from.saturating_add(run.len);
                (first, last) = (first.min(from), last.max(end));
                size = size.max(end);
            }
        }
    }
}
