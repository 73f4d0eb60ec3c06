//! Chunks for the next tasks of a dense file.

use super::Growing;
use crate::{
    codec::{round_up, wide},
    error::{Argument, Error, Result},
    storage::Storage,
};

/// Chunk sizes to be written to a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untold {
    /// Number of tasks that have them.
    pub count: usize,
    /// Offset in the physical file.
    pub at: u64,
    /// The sizes as they are stored.
    pub bytes: Vec<u8>,
}

impl<S: Storage> Growing<S> {
    /// Number of tasks of physical file `file` up to the last one that has a chunk; those behind
    /// are to be [placed](Self::place_next).
    #[must_use]
    pub fn placed_count(&self, file: u32) -> u32 {
        let placed = self.member(file).map_or(0, |member| member.plan.layout.placed());
        u32::try_from(placed).unwrap_or(u32::MAX)
    }

    /// Gives chunks for streams of `lens` bytes to the next tasks of a dense file, and returns the
    /// first one of these tasks. Write [their sizes](Self::untold) to the header before the journal
    /// has a length.
    ///
    /// # Errors
    ///
    /// [`Argument::Task`]: it has not as many tasks left, or a stream would have no bytes;
    /// [`Error::TooLarge`]. Nothing has changed then.
    pub fn place_next(&mut self, file: u32, lens: &[u64]) -> Result<u32> {
        let member = self.member_mut(file)?;
        let unit = u64::from(member.plan.header.fs_block_len);
        let chunks = lens.iter().map(|len| match len {
            0 => Err(Argument::Task.into()),
            len => round_up(*len, unit).ok_or(Error::TooLarge),
        });
        let first = member.plan.layout.append(&chunks.collect::<Result<Vec<_>>>()?)?;
        debug_assert!(first + lens.len() <= member.plan.ranks.len(), "placed tasks exist");
        u32::try_from(first).map_err(|_| Error::TooLarge)
    }

    /// Chunk sizes that the header of physical file `file` lacks; `None` if it lacks none. Call
    /// [`told`](Self::told) after writing them; [`close`](Self::close) writes the rest.
    #[must_use]
    pub fn untold(&self, file: u32) -> Option<Untold> {
        let member = self.member(file).ok()?;
        let header = &member.plan.header;
        let chunks = member.plan.layout.chunks_from(member.told);
        let bytes: Vec<_> = chunks.iter().map(|len| header.order.bytes_u64(*len)).collect();
        let at = header.chunks_at() + 8 * wide(member.told);
        Some(Untold { count: chunks.len(), at, bytes: bytes.concat() })
            .filter(|untold| untold.count > 0)
    }

    /// Notes that the header of physical file `file` has the next `count` chunk sizes.
    pub fn told(&mut self, file: u32, count: usize) {
        if let Ok(member) = self.member_mut(file) {
            member.told += count;
            debug_assert!(member.told <= member.plan.layout.placed(), "what is told is placed");
        }
    }
}
