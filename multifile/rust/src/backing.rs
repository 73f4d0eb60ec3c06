//! Bytes that the contents of a file can vouch for.
//!
//! A damaged or hostile file claims any count and any length, and a sparse one is as long as it
//! says. So memory and time go by the bytes that are stored in it, and what it only claims is worth
//! [`FREE_LEN`] bytes of memory. Where the storage knows no holes, all of a file counts as stored.

use std::ops::Range;

use crate::{
    codec::{narrow, wide},
    error::{Error, OnFile as _, Part, Result},
    storage::{File, read_exactly},
};

/// Bytes of memory that a file gets without bytes stored in it for each of them.
pub(crate) const FREE_LEN: u64 = 64 << 20;

/// Bytes that are read at once, whether or not holes follow.
const PIECE_LEN: u64 = 1 << 16;

/// Blocks that repair takes for empty because a later one of their task holds data.
pub(crate) const GAPS_MAX: u64 = FREE_LEN / 8;

/// The first part of `range` that may hold bytes other than zero.
pub(crate) fn stored<F: File>(
    file: &F,
    number: u32,
    range: Range<u64>,
) -> Result<Option<Range<u64>>> {
    if range.is_empty() {
        return Ok(None);
    }
    let part = file.data_from(range.start).on_file(number)?;
    let part = part.map(|part| part.start.max(range.start)..part.end.min(range.end));
    Ok(part.filter(|part| !part.is_empty()))
}

/// Bytes at the start of `range` that need not be read: they are a hole, and so zeros.
pub(crate) fn hole_len<F: File>(file: &F, number: u32, range: Range<u64>) -> Result<u64> {
    let end = match file.data_at(range.start).on_file(number)? {
        Some(data_at) => data_at,
        // What is behind the file's end is no hole.
        None => file.size().on_file(number)?,
    };
    Ok(end.min(range.end).saturating_sub(range.start))
}

/// Refuses as `part` what needs `len` bytes of memory for what `range` of the file holds, when that
/// is much and fewer bytes are stored there.
pub(crate) fn demand<F: File>(
    file: &F,
    range: Range<u64>,
    len: u64,
    part: Part,
    number: u32,
) -> Result<()> {
    let (mut missing, mut at) = (len.saturating_sub(FREE_LEN), range.start);
    while missing > 0 {
        let Some(found) = stored(file, number, at..range.end)? else {
            return Err(Error::Damaged { part, file: number });
        };
        missing = missing.saturating_sub(found.end - found.start);
        at = found.end;
    }
    Ok(())
}

/// Appends what `range` of the file holds to `bytes`. Of its holes no more than `free` bytes are
/// taken, which get fewer by that; what the file ends before is [`Part::Truncated`].
pub(crate) fn read_stored<F: File>(
    file: &F,
    number: u32,
    range: Range<u64>,
    bytes: &mut Vec<u8>,
    free: &mut u64,
) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let hole_len = hole_len(file, number, at..range.end)?;
        let left = free.checked_sub(hole_len);
        *free = left.ok_or(Error::Damaged { part: Part::Blocks, file: number })?;
        bytes.resize(bytes.len() + narrow(hole_len), 0);
        at += hole_len;
        let len = (range.end - at).min(PIECE_LEN);
        let from = bytes.len();
        bytes.resize(from + narrow(len), 0);
        read_exactly(file, number, bytes.get_mut(from..).unwrap_or_default(), at)?;
        at += len;
    }
    Ok(())
}

/// Blocks that may be counted as empty because a later one of their task holds data.
#[derive(Debug)]
pub(crate) struct Gaps {
    left: u64,
    number: u32,
}

impl Gaps {
    pub(crate) const fn new(number: u32) -> Self {
        Self { left: GAPS_MAX, number }
    }

    /// The slot of `block`, for which there is data; all blocks before it exist from now on.
    pub(crate) fn slot<'a>(
        &mut self,
        lens: &'a mut Vec<u64>,
        block: usize,
    ) -> Result<Option<&'a mut u64>> {
        let damaged = Error::Damaged { part: Part::Blocks, file: self.number };
        let gap = wide(block.saturating_sub(lens.len()));
        self.left = self.left.checked_sub(gap).ok_or(damaged)?;
        lens.resize(lens.len().max(block + 1), 0);
        Ok(lens.get_mut(block))
    }
}
