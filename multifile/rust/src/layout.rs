//! Where every chunk lies: pure arithmetic over checked integers (format section 2).
//!
//! Nothing of this is stored in a file but the chunk sizes; readers and writers compute the same
//! places from them.

use crate::{
    codec::{round_up, wide},
    error::{Argument, Error, Result},
    header::{COMMIT_LEN, FIXED_END},
    packing::{self, Packing},
};

/// The largest offset a multifile may reach: offsets are stored as signed 64-bit integers.
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// The places of all chunks of one physical file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    data_at: u64,
    chunks: Vec<u64>,
    /// Up to the last task that has a chunk: the others begin where all chunks end.
    starts: Vec<u64>,
    skip: u64,
}

/// The chunks of one task: block `b` occupies `chunk_len` bytes at `start_at + b * skip`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkPlace {
    /// Offset of the task's first block.
    pub start_at: u64,
    /// Bytes reserved for the task in each block.
    pub chunk_len: u64,
    /// Bytes from one block of a task to its next: the reserved bytes of all tasks together.
    pub skip: u64,
}

impl Layout {
    /// Places tasks that ask for `requests` bytes each, as `packing` says.
    ///
    /// # Errors
    ///
    /// [`Argument::FsBlockLen`] when it is zero, [`Argument::Packing`] when the packing makes no
    /// sense, [`Error::TooLarge`] when a chunk would lie beyond [`OFFSET_MAX`].
    pub fn new(requests: &[u64], fs_block_len: u32, packing: Packing) -> Result<Self> {
        Self::of_teams(requests, fs_block_len, packing, 1)
    }

    /// As [`new`](Self::new) for processes of `team` tasks each, which are in one group.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn of_teams(
        requests: &[u64],
        fs_block_len: u32,
        packing: Packing,
        team: usize,
    ) -> Result<Self> {
        if fs_block_len == 0 {
            return Err(Argument::FsBlockLen.into());
        }
        let chunks = packing::chunks(requests, u64::from(fs_block_len), packing, team)?;
        Self::of_chunks(chunks, fs_block_len)
    }

    /// Places chunks of exactly these sizes, as stored in a file of version 4 or 5.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] when a chunk would lie beyond [`OFFSET_MAX`].
    pub fn of_chunks(chunks: Vec<u64>, fs_block_len: u32) -> Result<Self> {
        let data_at = data_at(wide(chunks.len()), fs_block_len).ok_or(Error::TooLarge)?;
        let mut at = data_at;
        let mut starts = Vec::with_capacity(chunks.len());
        for chunk in &chunks {
            starts.push(at);
            at = offset(at.checked_add(*chunk))?;
        }
        debug_assert!(data_at <= at && at <= OFFSET_MAX, "chunks lie behind the tables");
        starts.truncate(chunks.iter().rposition(|chunk| *chunk > 0).map_or(0, |last| last + 1));
        Ok(Self { data_at, chunks, starts, skip: at - data_at })
    }

    /// Gives chunks to the first tasks behind which no task has one, and returns the first of them.
    /// Only where no task has a second block: this moves where those would begin.
    ///
    /// # Errors
    ///
    /// [`Argument::Task`]: there are not as many such tasks; [`Error::TooLarge`] when a chunk would
    /// lie beyond [`OFFSET_MAX`]. Nothing has changed then.
    pub fn append(&mut self, chunks: &[u64]) -> Result<usize> {
        let first = self.starts.len();
        let end = first + chunks.len();
        let len = chunks.iter().try_fold(0u64, |len, chunk| len.checked_add(*chunk));
        let skip = len.and_then(|len| self.skip.checked_add(len)).ok_or(Error::TooLarge)?;
        offset(self.data_at.checked_add(skip))?;
        self.chunks.get_mut(first..end).ok_or(Argument::Task)?.copy_from_slice(chunks);
        let mut at = self.data_at + self.skip;
        for chunk in chunks {
            self.starts.push(at);
            at += chunk;
        }
        debug_assert_eq!(at, self.data_at + skip, "the chunks of a block have no gaps");
        self.skip = skip;
        Ok(first)
    }

    /// Number of tasks up to the last one that has a chunk.
    #[must_use]
    pub fn placed(&self) -> usize {
        self.starts.len()
    }

    /// Lengths of the chunks from that of task `first` to the last one.
    pub(crate) fn chunks_from(&self, first: usize) -> &[u64] {
        self.chunks.get(first..self.placed()).unwrap_or_default()
    }

    /// The chunks of task `task` of this file.
    #[must_use]
    pub fn place(&self, task: usize) -> Option<ChunkPlace> {
        let chunk_len = *self.chunks.get(task)?;
        debug_assert!(task < self.starts.len() || chunk_len == 0, "a chunk without a place");
        let start_at = self.starts.get(task).copied().unwrap_or(self.data_at + self.skip);
        Some(ChunkPlace { start_at, chunk_len, skip: self.skip })
    }

    /// The task whose first block holds offset `at`.
    #[must_use]
    pub fn task_at(&self, at: u64) -> Option<usize> {
        let task = self.starts.partition_point(|start| *start <= at).checked_sub(1)?;
        let place = self.place(task)?;
        debug_assert!(place.start_at <= at, "chunks are in order");
        (at - place.start_at < place.chunk_len).then_some(task)
    }

    /// Reserved bytes of every task.
    #[must_use]
    pub fn chunks(&self) -> &[u64] {
        &self.chunks
    }

    /// Offset of the first chunk.
    #[must_use]
    pub const fn data_at(&self) -> u64 {
        self.data_at
    }

    /// Bytes from one block of a task to its next.
    #[must_use]
    pub const fn skip(&self) -> u64 {
        self.skip
    }

    /// Offset behind `blocks` blocks of every task: where the block table goes.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] beyond [`OFFSET_MAX`].
    pub fn end_of(&self, blocks: u64) -> Result<u64> {
        offset(self.skip.checked_mul(blocks).and_then(|len| len.checked_add(self.data_at)))
    }
}

impl ChunkPlace {
    /// Offset of the task's block `block`.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] when the block would end beyond [`OFFSET_MAX`].
    pub fn block_at(self, block: usize) -> Result<u64> {
        debug_assert!(self.chunk_len <= self.skip, "blocks of a task do not overlap");
        let skipped = self.skip.checked_mul(wide(block));
        let at = offset(skipped.and_then(|skipped| skipped.checked_add(self.start_at)))?;
        offset(at.checked_add(self.chunk_len)).map(|_| at)
    }
}

/// Offset of the first chunk in a file of `task_count` tasks; `None` beyond 64 bits.
#[must_use]
pub fn data_at(task_count: u64, fs_block_len: u32) -> Option<u64> {
    let tables = task_count.checked_mul(16)?;
    round_up(tables.checked_add(FIXED_END + COMMIT_LEN)?, u64::from(fs_block_len))
}

fn offset(at: Option<u64>) -> Result<u64> {
    at.filter(|at| *at <= OFFSET_MAX).ok_or(Error::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Format rules 2.1, 2.2, 2.3 and 2.4; the numbers of a file of SIONlib.
    #[test]
    fn aligned_chunks_follow_each_other() {
        let layout = Layout::new(&[100, 700, 0], 512, Packing::Aligned).unwrap();
        assert_eq!(layout.data_at(), 1536);
        assert_eq!(layout.chunks(), [512, 1024, 0]);
        assert_eq!(layout.skip(), 1536);
        assert_eq!(layout.end_of(2), Ok(4608));
        assert_eq!(layout.place(1).unwrap().block_at(1), Ok(1536 + 512 + 1536));
        assert_eq!(layout.place(3), None);
    }

    /// Format rule 1.4.
    #[test]
    fn offsets_beyond_63_bits_are_refused() {
        let max = OFFSET_MAX;
        assert_eq!(Layout::new(&[max], 512, Packing::Aligned), Err(Error::TooLarge));
        assert_eq!(Layout::new(&[max / 2, max / 2], 1, Packing::Aligned), Err(Error::TooLarge));
        let layout = Layout::new(&[max / 2], 1, Packing::Aligned).unwrap();
        assert_eq!(layout.end_of(2), Err(Error::TooLarge));
        assert_eq!(layout.place(0).unwrap().block_at(1), Err(Error::TooLarge));
        assert_eq!(layout.place(0).unwrap().block_at(usize::MAX), Err(Error::TooLarge));
    }

    /// Format rule 2.9.
    #[test]
    fn appended_chunks_lie_where_a_reader_of_their_lengths_finds_them() {
        let mut layout = Layout::of_chunks(vec![64, 0, 0, 0, 0], 64).unwrap();
        let end = layout.data_at() + layout.skip();
        assert_eq!((layout.placed(), layout.append(&[128, 64])), (1, Ok(1)));
        assert_eq!(layout.place(1).unwrap().start_at, end);
        assert_eq!(layout.place(4).unwrap().start_at, end + 192);
        assert_eq!(layout, Layout::of_chunks(vec![64, 128, 64, 0, 0], 64).unwrap());
        let before = layout.clone();
        assert_eq!(layout.append(&[64; 3]), Err(Argument::Task.into()));
        assert_eq!(layout.append(&[OFFSET_MAX]), Err(Error::TooLarge));
        assert_eq!(layout, before);
        assert_eq!((layout.task_at(end), layout.task_at(end + 192)), (Some(1), None));
    }

    #[test]
    fn block_size_zero_is_refused() {
        let refused = Layout::new(&[1], 0, Packing::Aligned);
        assert_eq!(refused, Err(Argument::FsBlockLen.into()));
    }
}
