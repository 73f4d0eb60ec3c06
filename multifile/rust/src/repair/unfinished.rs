//! The block table of a writer that died between writing it and saying so.
//!
//! Nothing points to it, and a program's data may look like one. So it has to stand where the
//! length of the file says, with nothing behind it but what stands behind tables, fit the chunks,
//! and speak of all data before it.

use crate::{
    blocks::{Blocks, Table},
    codec::wide,
    error::{OnFile as _, Readable as _, Result},
    estimate::{Extent, Reach, reached},
    physical::Front,
    storage::{File, read_up_to},
    sums::CHECKSUMS_MAGIC,
};

/// Places that are looked at: what stands behind a table may be longer than blocks.
const PLACES_MAX: u64 = 16;

/// Reads an uncommitted table at the end of a file, where a mapping behind it would have so many
/// entries.
pub(super) fn unfinished_table<F: File>(
    front: &Front<F>,
    entries: u64,
) -> Result<Option<Vec<Extent>>> {
    let row = 8 * u64::from(front.header.task_count);
    let behind = front.size.saturating_sub(front.layout.data_at()).saturating_sub(row);
    let last = behind.checked_div(front.layout.skip().saturating_add(row)).unwrap_or(0);
    for block_count in (1..=last).rev().take(usize::try_from(PLACES_MAX).unwrap_or(1)) {
        let Ok(at) = front.layout.end_of(block_count) else { continue };
        let (task_count, order) = (front.header.task_count, front.header.order);
        let Ok(block_count) = u32::try_from(block_count) else { continue };
        let table = Table { at, block_count, task_count, order };
        if !ends_as_one(front, &table, entries)? {
            continue;
        }
        let blocks = table.load(&*front.file, front.number).readable()?;
        let Some(extents) = blocks.and_then(|blocks| fitting(front, &table, &blocks)) else {
            continue;
        };
        if has_all(front, &table, &extents)? {
            return Ok(Some(extents));
        }
    }
    Ok(None)
}

/// True if behind a table stands nothing but what may, or the start of that.
fn ends_as_one<F: File>(front: &Front<F>, table: &Table, entries: u64) -> Result<bool> {
    let Some(end) = table.end().filter(|end| *end <= front.size) else { return Ok(false) };
    let (rest, tasks) = (front.size - end, u64::from(table.task_count));
    let mut bytes = [0; CHECKSUMS_MAGIC.len()];
    let len = read_up_to(&*front.file, &mut bytes, end).on_file(front.number)?;
    let sums_len = wide(CHECKSUMS_MAGIC.len()) + 4 * tasks * u64::from(table.block_count);
    let (found, [a, b, c, d, ..]) = (bytes.get(..len).unwrap_or_default(), bytes);
    let count = u64::from(front.header.order.u32([a, b, c, d]));
    let is_mapping = front.number == 0 && len >= 4 && [0, tasks, entries].contains(&count);
    Ok(rest == 0
        || is_mapping && rest <= 4 + 8 * count + sums_len
        || CHECKSUMS_MAGIC.starts_with(found) && rest <= sums_len)
}

/// Returns a table's content, if it can be the one of this file.
fn fitting<F>(front: &Front<F>, table: &Table, blocks: &Blocks) -> Option<Vec<Extent>> {
    let mut extents = Vec::new();
    let mut most_blocks = 0;
    for task in 0..front.ranks.len() {
        let (lens, chunk_len) = (blocks.of(task).to_vec(), *front.layout.chunks().get(task)?);
        if lens.is_empty() || lens.iter().any(|len| *len > chunk_len) {
            return None;
        }
        most_blocks = lens.len().max(most_blocks);
        extents.push(Extent { lens, ..Extent::default() });
    }
    (most_blocks == usize::try_from(table.block_count).ok()?).then_some(extents)
}

/// True if a table leaves out nothing that is not zero.
fn has_all<F: File>(front: &Front<F>, table: &Table, said: &[Extent]) -> Result<bool> {
    let reached = reached(front, Reach::Blocks(table.block_count.into()))?;
    Ok(reached.iter().zip(said).all(|(reached, said)| {
        let said = said.lens.iter().copied().chain(std::iter::repeat(0));
        reached.lens.iter().zip(said).all(|(reached, said)| *reached <= said)
    }))
}
