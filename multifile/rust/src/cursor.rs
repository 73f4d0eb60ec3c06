//! Positions in a task's stream, reading and writing: arithmetic only, no I/O.
//!
//! A task's stream is the concatenation of the used bytes of its blocks (format section 3). A
//! [`Cursor`] walks a stream whose block lengths are known; a [`Fill`] makes one.

use crate::{
    codec::{narrow, wide},
    error::{Argument, Error, Part, Result},
    layout::ChunkPlace,
};

/// A read position in one task's stream.
#[derive(Clone, Debug)]
pub struct Cursor {
    place: ChunkPlace,
    lens: Vec<u64>,
    block: usize,
    in_block: u64,
    before: u64,
    total: u64,
}

impl Cursor {
    /// Starts at the beginning of a stream with `lens` used bytes in its blocks.
    ///
    /// # Errors
    ///
    /// [`Part::Blocks`] of physical file `file` when a block holds more than its chunk or lies
    /// beyond the largest offset.
    pub(crate) fn new(place: ChunkPlace, lens: Vec<u64>, file: u32) -> Result<Self> {
        let total = Self::checked_len(place, &lens, file)?;
        Ok(Self { place, lens, block: 0, in_block: 0, before: 0, total })
    }

    /// Length of a stream with `lens` used bytes in its blocks.
    pub(crate) fn checked_len(place: ChunkPlace, lens: &[u64], file: u32) -> Result<u64> {
        let damaged = Error::Damaged { part: Part::Blocks, file };
        if lens.iter().any(|len| *len > place.chunk_len) {
            return Err(damaged);
        }
        place.block_at(lens.len().saturating_sub(1)).map_err(|_| damaged)?;
        let total = lens.iter().try_fold(0u64, |sum, len| sum.checked_add(*len));
        total.ok_or(damaged)
    }

    /// Moves on by `len` bytes of the current block, which holds them.
    pub(crate) fn advance(&mut self, len: u64) {
        debug_assert!(len <= self.left_in_block(), "the block has {} bytes", self.block_len());
        self.in_block += len;
    }

    /// Moves to the start of the next block; false at the last one.
    pub(crate) fn next_block(&mut self) -> bool {
        if self.block + 1 >= self.lens.len() {
            return false;
        }
        self.before += self.block_len();
        self.block += 1;
        self.in_block = 0;
        true
    }

    /// Moves to byte `at` of block `block`; `at` may be the block's length.
    ///
    /// # Errors
    ///
    /// [`Argument::Position`], and the position stays.
    pub(crate) fn seek_block(&mut self, block: usize, at: u64) -> Result<()> {
        let len = self.lens.get(block).copied().ok_or(Argument::Position)?;
        if at > len {
            return Err(Argument::Position.into());
        }
        self.before = self.lens.iter().take(block).sum();
        self.block = block;
        self.in_block = at;
        Ok(())
    }

    /// Moves to byte `at` of the stream. On the border of two blocks that is the end of the
    /// earlier one.
    ///
    /// # Errors
    ///
    /// [`Argument::Position`] beyond the end, and the position stays.
    pub(crate) fn seek(&mut self, at: u64) -> Result<()> {
        if at > self.total {
            return Err(Argument::Position.into());
        }
        // Walks from the start of the current block if it can, so a forward scan stays linear.
        let (mut block, mut before) =
            if at > self.before { (self.block, self.before) } else { (0, 0) };
        while let Some(len) = self.lens.get(block) {
            if at - before <= *len {
                break;
            }
            before += len;
            block += 1;
        }
        (self.block, self.before, self.in_block) = (block, before, at - before);
        debug_assert!(self.in_block <= self.block_len(), "the position is in its block");
        Ok(())
    }

    /// Where in the file the rest of the current block begins, and how long it is; moves to the
    /// next block that has bytes when the current one is at its end. `None` at the end.
    pub(crate) fn extent(&mut self) -> Result<Option<(u64, u64)>> {
        while self.left_in_block() == 0 {
            if !self.next_block() {
                return Ok(None);
            }
        }
        Ok(Some((self.file_at()?, self.left_in_block())))
    }

    /// Bytes of the stream before the position.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.before + self.in_block
    }

    /// Offset of the position in the physical file.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] beyond the largest offset.
    pub fn file_at(&self) -> Result<u64> {
        Ok(self.place.block_at(self.block)? + self.in_block)
    }

    /// Number of the current block and the position in it, in bytes.
    #[must_use]
    pub const fn block(&self) -> (usize, u64) {
        (self.block, self.in_block)
    }

    /// Bytes between the position and the end of the current block.
    #[must_use]
    pub fn left_in_block(&self) -> u64 {
        self.block_len() - self.in_block
    }

    /// Bytes between the position and the end of the stream.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.total - self.position()
    }

    /// Length of the stream in bytes.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Used bytes of every block.
    #[must_use]
    pub fn block_lens(&self) -> &[u64] {
        &self.lens
    }

    /// Where the task's chunks lie.
    #[must_use]
    pub(crate) const fn place(&self) -> ChunkPlace {
        self.place
    }

    fn block_len(&self) -> u64 {
        self.lens.get(self.block).copied().unwrap_or(0)
    }
}

/// The write position at the end of one task's stream.
#[derive(Clone, Debug, Default)]
pub struct Fill {
    place: ChunkPlace,
    /// Used bytes of the blocks before the current one. Empty, and so without memory of its own,
    /// for the many tasks that never leave their first block.
    done: Vec<u64>,
    used: u64,
}

impl Fill {
    /// Starts an empty stream.
    #[must_use]
    pub(crate) const fn new(place: ChunkPlace) -> Self {
        Self { place, done: Vec::new(), used: 0 }
    }

    /// Continues a stream behind its last byte.
    #[must_use]
    pub(crate) fn resume(place: ChunkPlace, mut lens: Vec<u64>) -> Self {
        let used = lens.pop().unwrap_or(0);
        Self { place, done: lens, used }
    }

    /// Makes sure that `len` bytes fit into the current block, moving to the next one if not.
    /// True when it moved.
    ///
    /// # Errors
    ///
    /// [`Argument::ChunkSmall`] when no block can hold them.
    pub(crate) fn ensure(&mut self, len: u64) -> Result<bool> {
        if len > self.place.chunk_len {
            return Err(Argument::ChunkSmall.into());
        }
        let leaves = self.leaves(len);
        if leaves {
            self.next_block()?;
        }
        Ok(leaves)
    }

    /// True if `len` bytes in one piece leave the rest of the current block unused.
    pub(crate) const fn leaves(&self, len: u64) -> bool {
        len > self.left_in_block() && len <= self.place.chunk_len
    }

    /// Leaves the rest of the current block unused and moves to the start of the next.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] when the next block would lie beyond the largest offset or there are
    /// more blocks than the format counts.
    pub(crate) fn next_block(&mut self) -> Result<()> {
        let next = self.done.len() + 1;
        if wide(next) >= u64::from(i32::MAX.unsigned_abs()) {
            return Err(Error::TooLarge);
        }
        self.place.block_at(next)?;
        self.done.push(self.used);
        self.used = 0;
        Ok(())
    }

    /// Counts `len` bytes as written; they fit the current block.
    pub(crate) fn advance(&mut self, len: u64) {
        debug_assert!(len <= self.left_in_block(), "the block is full");
        self.used += len;
    }

    /// Where in the file the next bytes go and how many of `wished` fit there; moves to the next
    /// block when the current one is full. True in the third place when it moved.
    pub(crate) fn extent(&mut self, wished: usize) -> Result<(u64, usize, bool)> {
        if self.place.chunk_len == 0 {
            return Err(Argument::ChunkEmpty.into());
        }
        let moved = self.left_in_block() == 0;
        if moved {
            self.next_block()?;
        }
        debug_assert!(self.left_in_block() > 0, "a new block has room");
        Ok((self.file_at()?, narrow(self.left_in_block()).min(wished), moved))
    }

    /// Offset of the position in the physical file.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] beyond the largest offset.
    pub fn file_at(&self) -> Result<u64> {
        Ok(self.place.block_at(self.done.len())? + self.used)
    }

    /// Number of the current block and the bytes used in it.
    #[must_use]
    pub fn block(&self) -> (usize, u64) {
        (self.done.len(), self.used)
    }

    /// Bytes still free in the current block.
    #[must_use]
    pub const fn left_in_block(&self) -> u64 {
        self.place.chunk_len.saturating_sub(self.used)
    }

    /// Bytes written to the stream.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.done.iter().sum::<u64>() + self.used
    }

    /// Used bytes of every block so far; never empty.
    pub fn block_lens(&self) -> impl Iterator<Item = u64> + '_ {
        self.done.iter().copied().chain([self.used])
    }

    /// Number of blocks so far, at least one.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.done.len() + 1
    }

    /// Used bytes of block `block`, `None` for one not reached yet.
    #[must_use]
    pub(crate) fn block_len(&self, block: usize) -> Option<u64> {
        if block == self.done.len() { Some(self.used) } else { self.done.get(block).copied() }
    }

    /// Where the task's chunks lie.
    #[must_use]
    pub const fn place(&self) -> ChunkPlace {
        self.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: ChunkPlace = ChunkPlace { start_at: 1000, chunk_len: 10, skip: 100 };

    #[test]
    fn absolute_seek_on_a_border_stays_in_the_earlier_block() {
        let mut cursor = Cursor::new(PLACE, vec![10, 0, 5], 0).unwrap();
        cursor.seek(10).unwrap();
        assert_eq!(cursor.block(), (0, 10));
        assert_eq!(cursor.extent(), Ok(Some((1200, 5))));
        assert_eq!(cursor.block(), (2, 0));
        cursor.seek(15).unwrap();
        assert_eq!(cursor.extent(), Ok(None));
        assert_eq!(cursor.seek(16), Err(Argument::Position.into()));
        assert_eq!(cursor.position(), 15);
        cursor.seek(10).unwrap();
        assert_eq!(cursor.block(), (0, 10), "also from behind it");
    }

    /// Format rule 4.3.
    #[test]
    fn a_block_longer_than_its_chunk_is_damage() {
        let damaged = Error::Damaged { part: Part::Blocks, file: 4 };
        assert_eq!(Cursor::new(PLACE, vec![11], 4).err(), Some(damaged));
    }

    /// Format rule 3.3.
    #[test]
    fn what_does_not_fit_the_rest_goes_to_the_next_block() {
        let mut fill = Fill::new(PLACE);
        fill.advance(7);
        assert_eq!(fill.ensure(3), Ok(false));
        assert_eq!(fill.ensure(4), Ok(true));
        assert_eq!(fill.file_at(), Ok(1100));
        assert_eq!(fill.ensure(11), Err(Argument::ChunkSmall.into()));
        assert_eq!(fill.block_lens().collect::<Vec<_>>(), [7, 0]);
    }

    #[test]
    fn a_task_without_a_chunk_refuses_bytes() {
        let mut fill = Fill::new(ChunkPlace { chunk_len: 0, ..PLACE });
        assert_eq!(fill.extent(1), Err(Argument::ChunkEmpty.into()));
        assert_eq!(fill.ensure(0), Ok(false));
    }
}
