//! Streams as the blocks they fill: all but the last are full.

use crate::{
    codec::{narrow, wide},
    error::{Error, Part, Result},
    finish::Usage,
    plan::FilePlan,
};

/// How a stream of `len` bytes fills its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) chunk_len: u64,
    pub(super) len: u64,
}

impl Filled {
    /// Returns the state of a task with so many bytes in each block, if all but the last are full.
    pub(super) fn of(chunk_len: u64, lens: &[u64], file: u32) -> Result<Self> {
        let is_full = |len: &u64| *len == chunk_len;
        if !lens.split_last().is_none_or(|(_, all)| all.iter().all(is_full)) {
            return Err(Error::Damaged { part: Part::Blocks, file });
        }
        Ok(Self { chunk_len, len: lens.iter().sum() })
    }

    /// Length of the stream of a task, as [`of`](Self::of).
    pub(super) fn len_of(chunk_len: u64, lens: &[u64], file: u32) -> Result<u64> {
        Self::of(chunk_len, lens, file).map(|filled| filled.len)
    }

    /// Blocks it has; one even if it is empty.
    pub(super) fn block_count(self) -> u64 {
        debug_assert!(self.len == 0 || self.chunk_len > 0, "bytes are in chunks");
        self.len
            .checked_next_multiple_of(self.chunk_len)
            .map_or(1, |end| end / self.chunk_len.max(1))
            .max(1)
    }

    /// Bytes used of a block.
    pub(super) fn used(self, block: u64) -> u64 {
        self.len.saturating_sub(block.saturating_mul(self.chunk_len)).min(self.chunk_len)
    }
}

/// The lengths of the streams of one physical file, as its block table says them.
pub(super) struct Lens<'a> {
    pub(super) plan: &'a FilePlan,
    pub(super) lens: &'a [u64],
}

impl Lens<'_> {
    fn of(&self, task: usize) -> Filled {
        debug_assert!(task < self.lens.len(), "task {task} has a length");
        let chunk_len = self.plan.layout.place(task).unwrap_or_default().chunk_len;
        Filled { chunk_len, len: self.lens.get(task).copied().unwrap_or(0) }
    }
}

impl Usage for Lens<'_> {
    fn block_count(&self, task: usize) -> usize {
        narrow(self.of(task).block_count())
    }

    fn block_len(&self, task: usize, block: usize) -> Option<u64> {
        let filled = self.of(task);
        (wide(block) < filled.block_count()).then(|| filled.used(wide(block)))
    }

    fn block_sum(&self, _: usize, _: usize) -> u32 {
        0
    }
}
