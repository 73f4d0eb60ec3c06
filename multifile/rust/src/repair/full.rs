//! Streams whose blocks are all full but the last: of records, and all where there are names.
//!
//! What a journal lost with the node it was written on is not to move what follows to another place
//! in the stream, nor is a record that was begun to be in the way of later ones.

use super::recorded::note_sum;
use crate::{
    catalogue::{self, End, HEAD_LEN_MAX, Reading, Unreadable},
    codec::narrow,
    cursor::Cursor,
    error::{OnFile as _, Result},
    estimate::{Extent, end_with_record},
    header::Keyval,
    physical::Front,
    reader::TaskReader,
    storage::{File, read_up_to},
};

/// Evidence of the lengths that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// A table, of which only what points to it may be missing.
    Table,
    Journal {
        /// It says all there is to say.
        is_all: bool,
    },
    /// Where bytes are that are not zero.
    Data,
}

impl Evidence {
    /// The file was not closed, and its journal says all there is to say.
    pub(crate) fn is_all(self) -> bool {
        self == Self::Journal { is_all: true }
    }
}

/// True if the first stream holds names.
pub(super) fn has_names<F: File>(front: &Front<F>) -> Result<bool> {
    let Some(place) = front.layout.place(0) else { return Ok(false) };
    let mut head = vec![0; HEAD_LEN_MAX.min(narrow(place.chunk_len))];
    let len = read_up_to(&*front.file, &mut head, place.start_at);
    head.truncate(len.on_file(front.number)?);
    Ok(!matches!(catalogue::records_at(&head), Err(Unreadable::NoNames)))
}

/// Ends streams where the first block is missing (format rule 8.8).
pub(super) fn complete<F: File>(
    front: &Front<F>,
    extents: &mut [Extent],
    source: Evidence,
    is_full: bool,
) -> Result<()> {
    let has_records = front.header.keyval == Keyval::Inline;
    if source == Evidence::Table || !is_full && !has_records {
        return Ok(());
    }
    for (task, extent) in extents.iter_mut().enumerate() {
        let chunk_len = front.layout.chunks().get(task).copied().unwrap_or(0);
        let before = extent.lens.clone();
        if let Evidence::Journal { is_all } = source {
            let is_gap = |len: &u64| if is_all { *len < chunk_len } else { *len == 0 };
            end_at_gap(extent, is_gap);
        }
        if let Some((_, earlier)) = extent.lens.split_last_mut() {
            earlier.fill(chunk_len);
        }
        let len = extent.lens.iter().sum();
        extent.most = extent.most.max(len);
        if has_records && matches!(source, Evidence::Journal { .. }) {
            end_with_record(front, task, extent, len)?;
        }
        if (front.number, task) == (0, catalogue::TASK) && is_full {
            end_with_name(front, extent)?;
        }
        if extent.sums.is_empty() {
            continue;
        }
        extent.sums.truncate(extent.lens.len());
        for block in 0..extent.lens.len() {
            if extent.lens.get(block) != before.get(block) {
                note_sum(front, extent, task, block)?;
            }
        }
    }
    Ok(())
}

/// Ends names with their last whole record, if nothing but an incomplete one follows: in a closed
/// multifile that would be damage.
fn end_with_name<F: File>(front: &Front<F>, extent: &mut Extent) -> Result<()> {
    let Some(place) = front.layout.place(catalogue::TASK) else { return Ok(()) };
    let cursor = Cursor::new(place, extent.lens.clone(), front.number)?;
    let mut stream = TaskReader::of(front.file.clone(), front.number, cursor);
    // Names that cannot be read stay as they are.
    match stream.read_names() {
        Ok(Ok(Reading { len, end: End::Torn, .. })) => extent.end_at(&mut stream, len),
        _ => Ok(()),
    }
}

/// Ends a stream at a missing or short block: later blocks have no place in it.
fn end_at_gap(extent: &mut Extent, is_gap: impl FnMut(&u64) -> bool) {
    let Some(gap) = extent.lens.iter().position(is_gap) else { return };
    let behind = extent.lens.iter().skip(gap + 1);
    extent.lost = behind.sum();
    extent.lens.truncate(gap + 1);
    extent.most = extent.lens.iter().sum();
}
