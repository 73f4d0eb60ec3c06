//! The stream of one task being written.

use std::{io, ops::Range, sync::Arc};

use crate::{
    codec::{Order, wide},
    cursor::Fill,
    error::{Argument, Error, Result},
    finish::Usage,
    journal::Slot,
    keyval::encode_header,
    output::Output,
    repeats::Owner,
    storage::{File, Storage},
    sums,
};

/// State of one task of a writer: as little as possible, there may be very many.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskState {
    pub(crate) fill: Fill,
    /// CRC32C of every block so far; stays empty when none are wanted.
    pub(crate) sums: Vec<u32>,
    /// Bytes of the current block that have space, as far as it was reserved.
    reserved: u64,
    /// Reserved and not used at the end of the block that was left last.
    rest: Range<u64>,
}

/// A task that wrote so much is going to write more: space is reserved for it. One that writes
/// less takes no more space than it fills.
const MUCH: u64 = 1 << 20;
/// No task keeps more than this from the others when space runs out.
const AHEAD_MAX: u64 = 16 << 20;

impl TaskState {
    pub(crate) const fn new(fill: Fill, sums: Vec<u32>) -> Self {
        Self { fill, sums, reserved: 0, rest: 0..0 }
    }

    /// Reserves space before the current block gets `len` more bytes: for as many again as the task
    /// has written, so that a stream of any length asks a few times only.
    fn reserve<S: Storage>(&mut self, output: &Output<S>, at: u64, len: u64) {
        let ((block, used), chunk_len) = (self.fill.block(), self.fill.place().chunk_len);
        let written = if block > 0 { chunk_len } else { used };
        let end = used + len;
        let wished = end.saturating_add(written.min(AHEAD_MAX)).min(chunk_len);
        if written >= MUCH && end > self.reserved && wished > end {
            output.file().reserve(at..at - used + wished);
            self.reserved = wished;
            debug_assert!(self.reserved <= chunk_len, "reserved space is the task's own");
        }
    }

    /// Gives back what was reserved and not used, when the file has its final length.
    pub(crate) fn release<S: Storage>(&mut self, output: &Output<S>) {
        self.leave(output);
        self.give_back(output);
    }

    /// Notes what is not used of the block that is left.
    fn leave<S: Storage>(&mut self, output: &Output<S>) {
        self.give_back(output);
        let (_, used) = self.fill.block();
        if let Some(at) = self.fill.file_at().ok().filter(|_| self.reserved > used) {
            self.rest = at..at - used + self.reserved;
        }
        self.reserved = 0;
    }

    /// A file system keeps what is reserved behind the end of a file. So the rest of a block is
    /// given back only when there is something behind it.
    fn give_back<S: Storage>(&mut self, output: &Output<S>) {
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            output.file().release(rest);
        }
    }
}

/// The tasks of one physical file; `None` for those that nobody wrote to yet, which may be most.
pub(crate) type States = Vec<Option<Box<TaskState>>>;

/// The end of one task's stream.
#[derive(Debug)]
pub struct TaskWriter<'a, S: Storage> {
    pub(crate) output: &'a mut Output<S>,
    pub(crate) state: &'a mut TaskState,
    pub(crate) local_rank: u32,
    pub(crate) order: Order,
    pub(crate) checksums: bool,
}

impl<S: Storage> TaskWriter<'_, S> {
    /// Writes all of `bytes`, filling each block to its end before the next one is begun.
    ///
    /// On return the bytes are accepted; they are in the storage after [`flush`](Self::flush).
    ///
    /// # Errors
    ///
    /// [`Argument::ChunkEmpty`], [`Error::TooLarge`], what the storage reports, and then
    /// [`Error::Poisoned`]; the bytes counted by [`fill`](Self::fill) were accepted.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (at, len, moved) = self.state.fill.extent(bytes.len())?;
            if moved {
                self.state.reserved = 0;
            }
            self.state.reserve(self.output, at, wide(len));
            let (part, rest) = bytes.split_at_checked(len).ok_or(Error::TooLarge)?;
            let sum = self.sum_with(part);
            self.output.write(part, at, Some(self.owner(wide(len), sum)))?;
            self.accept(wide(len), sum);
            bytes = rest;
        }
        Ok(())
    }

    /// Writes one key-value record; it may cross any number of blocks.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_record(&mut self, key: u64, data: &[u8]) -> Result<()> {
        self.write(&encode_header(key, wide(data.len()), self.order))?;
        self.write(data)
    }

    /// Makes sure that the next `len` bytes lie in one block, leaving the rest of the current one
    /// unused if they do not fit there.
    ///
    /// # Errors
    ///
    /// [`Argument::ChunkSmall`] when no block can hold them; [`Error::TooLarge`].
    pub fn ensure(&mut self, len: u64) -> Result<()> {
        if self.state.fill.leaves(len) {
            self.state.leave(self.output);
        }
        self.state.fill.ensure(len).map(|_| ())
    }

    /// Leaves the rest of the current block unused.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] when there can be no further block.
    pub fn next_block(&mut self) -> Result<()> {
        self.state.leave(self.output);
        self.state.fill.next_block()
    }

    /// Counts `len` bytes of the current block that were written by other means, for example
    /// through a stdio stream positioned at [`Fill::file_at`].
    ///
    /// # Errors
    ///
    /// [`Argument::Position`] when the block has less room; the errors of reading the bytes back
    /// when checksums are kept.
    pub fn advance(&mut self, len: u64) -> Result<()> {
        if len > self.state.fill.left_in_block() {
            return Err(Argument::Position.into());
        }
        self.output.flush()?;
        let mut sum = self.sum_with(&[]);
        if self.checksums {
            let at = self.state.fill.file_at()?;
            sum = sums::append(&**self.output.file(), self.output.number(), sum, at..at + len)?;
        }
        self.output.record(self.owner(len, sum))?;
        self.accept(len, sum);
        Ok(())
    }

    /// Hands everything accepted to the storage: it survives the death of this process.
    ///
    /// # Errors
    ///
    /// What the storage reports, and then [`Error::Poisoned`].
    pub fn flush(&mut self) -> Result<()> {
        self.output.flush()
    }

    /// Makes everything accepted durable.
    ///
    /// # Errors
    ///
    /// What the storage reports, and then [`Error::Poisoned`].
    pub fn sync(&mut self) -> Result<()> {
        self.output.sync()
    }

    /// The position, and what there is before it.
    #[must_use]
    pub const fn fill(&self) -> &Fill {
        &self.state.fill
    }

    /// The physical file, to write by other means behind everything accepted.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub fn file(&mut self) -> Result<&Arc<S::File>> {
        self.output.settle()?;
        Ok(self.output.file())
    }

    fn owner(&self, len: u64, sum: u32) -> Owner {
        let (block, used) = self.state.fill.block();
        debug_assert!(len <= self.state.fill.left_in_block(), "the bytes fit their block");
        let slot = Slot::of(used + len, self.checksums.then_some(sum));
        Owner { task: self.local_rank, block: wide(block), slot }
    }

    /// CRC32C of the current block with `part` behind it.
    fn sum_with(&self, part: &[u8]) -> u32 {
        if !self.checksums {
            return 0;
        }
        let (block, used) = self.state.fill.block();
        debug_assert!(used == 0 || block < self.state.sums.len(), "written bytes have a sum");
        let so_far = self.state.sums.get(self.state.fill.block().0).copied().unwrap_or(0);
        crc32c::crc32c_append(so_far, part)
    }

    fn accept(&mut self, len: u64, sum: u32) {
        debug_assert!(self.state.sums.len() <= self.state.fill.block_count());
        self.state.fill.advance(len);
        if self.checksums {
            let block = self.state.fill.block().0;
            self.state.sums.resize(block + 1, 0);
            if let Some(slot) = self.state.sums.get_mut(block) {
                *slot = sum;
            }
        }
    }
}

impl<S: Storage> io::Write for TaskWriter<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::write(self, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(Self::flush(self)?)
    }
}

impl Usage for States {
    fn block_count(&self, task: usize) -> usize {
        state(self, task).map_or(1, |state| state.fill.block_count())
    }

    fn block_len(&self, task: usize, block: usize) -> Option<u64> {
        match state(self, task) {
            Some(state) => state.fill.block_len(block),
            None => (block == 0).then_some(0),
        }
    }

    fn block_sum(&self, task: usize, block: usize) -> u32 {
        state(self, task).and_then(|state| state.sums.get(block)).copied().unwrap_or(0)
    }
}

fn state(states: &States, task: usize) -> Option<&TaskState> {
    states.get(task)?.as_deref()
}
