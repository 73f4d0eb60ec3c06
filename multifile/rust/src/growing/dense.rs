//! Chunks for the next tasks of a dense file.

use super::Growing;
use crate::{
    codec::{round_up, wide},
    error::{Argument, Error, Result},
    storage::Storage,
};

/// Tasks that have got chunks, and what the header is to say of them before their data is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The first of these tasks in its file; the others follow.
    pub first: u32,
    /// Offset of their chunk sizes in the header.
    pub header_at: u64,
    /// The chunk sizes as they are stored.
    pub header: Vec<u8>,
}

impl<S: Storage> Growing<S> {
    /// Number of tasks of physical file `file` up to the last one that has a chunk; those behind
    /// are to be [placed](Self::place_next).
    #[must_use]
    pub fn placed_count(&self, file: u32) -> u32 {
        let placed = self.member(file).map_or(0, |member| member.plan.layout.placed());
        u32::try_from(placed).unwrap_or(u32::MAX)
    }

    /// Gives chunks for streams of `lens` bytes to the next tasks of a dense file. The header is
    /// to say so before anything is written to these chunks; if it cannot be written, the file is
    /// [unsure](Self::mark_unsure).
    ///
    /// # Errors
    ///
    /// [`Argument::Task`]: it has not as many tasks left, or a stream would have no bytes;
    /// [`Error::TooLarge`]. Nothing has changed then.
    pub fn place_next(&mut self, file: u32, lens: &[u64]) -> Result<Placed> {
        let member = self.member_mut(file)?;
        let header = &member.plan.header;
        let unit = u64::from(header.fs_block_len);
        let chunks = lens.iter().map(|len| match len {
            0 => Err(Argument::Task.into()),
            len => round_up(*len, unit).ok_or(Error::TooLarge),
        });
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        let first = member.plan.layout.append(&chunks)?;
        debug_assert!(first + chunks.len() <= member.plan.ranks.len(), "placed tasks exist");
        let bytes: Vec<_> = chunks.iter().map(|len| header.order.bytes_u64(*len)).collect();
        Ok(Placed {
            first: u32::try_from(first).map_err(|_| Error::TooLarge)?,
            header_at: header.chunks_at() + 8 * wide(first),
            header: bytes.concat(),
        })
    }

    /// The header of a physical file may not say what [`place_next`](Self::place_next) returned: it
    /// is written again when the multifile is closed.
    pub fn mark_unsure(&mut self, file: u32) {
        if let Ok(member) = self.member_mut(file) {
            member.is_unsure = true;
        }
    }
}
