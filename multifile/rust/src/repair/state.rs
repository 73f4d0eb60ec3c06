//! State of a physical file: whole, mended, in doubt, or never closed.

use std::sync::Arc;

use super::mend::{Mended, Patch, is_closed_otherwise, mended};
use crate::{
    blocks::{Blocks, Table},
    codec::narrow,
    error::{Error, OnFile as _, Readable as _, Result},
    estimate::{Extent, Flaw, Reach},
    header::NOT_COMMITTED,
    mark::Mark,
    physical::Front,
    storage::{File, read_up_to},
    whole::{Verdict, judge},
};

/// State of a physical file.
#[derive(Debug)]
pub(super) enum State {
    /// It is closed, and its parts confirm each other, once this patch is in place.
    Whole { table: Table, blocks: Blocks, patch: Option<Patch> },
    /// It was closed, and its parts contradict each other.
    Doubtful(Doubtful),
    /// It was never closed; or it was, and its commit fields are gone.
    Unclosed { was_closed: bool },
}

/// Remaining facts of a closed file whose parts contradict each other.
#[derive(Debug)]
pub(super) struct Doubtful {
    /// How far its data can reach.
    pub(super) reach: Reach,
    /// The block table, and the tasks whose entries do not fit.
    known: Option<(Blocks, Vec<usize>)>,
    /// Header and commit fields agree, but the file ends before its table does.
    is_cut: bool,
}

/// Reads the front of physical file `number`, and finds out what it is. One that is being written
/// has a journal.
///
/// # Errors
///
/// [`Error::Damaged`] when the header is not readable, and nothing says what it was; what the
/// storage reports.
pub(super) fn classify<F: File>(
    file: Arc<F>,
    number: u32,
    has_journal: bool,
) -> Result<(Front<F>, State)> {
    let front = match Front::load(Arc::clone(&file), number) {
        Err(error @ Error::Damaged { .. }) => {
            return mended(&file, number)?.map(whole).ok_or(error);
        }
        loaded => loaded?,
    };
    let table = match Table::find(&*front.file, number, &front.header, front.size) {
        Err(Error::Unclosed { .. }) => None,
        found => Some(found.readable()?),
    };
    let verdict = match table.flatten() {
        Some(table) => judge(&front, &table)?,
        None => Verdict::Contradicts(crate::error::Part::Blocks),
    };
    let known = match (verdict, table.flatten()) {
        (Verdict::Whole(blocks), Some(table)) => {
            return Ok((front, State::Whole { table, blocks, patch: None }));
        }
        (Verdict::Tasks(blocks, misfits), _) => Some((blocks, misfits)),
        (Verdict::Unmarked(blocks), _) => Some((blocks, Vec::new())),
        _ => None,
    };
    let mark = Mark::decode(front.header.flag2);
    if matches!(mark, Mark::Open(_)) && has_journal {
        return Ok((front, State::Unclosed { was_closed: false }));
    }
    if known.as_ref().is_none_or(|(_, misfits)| misfits.is_empty()) {
        if let Some(mended) = mended(&file, number)? {
            return Ok(whole(mended));
        }
    }
    let commit = commit(&front)?;
    if commit == NOT_COMMITTED {
        let was_closed = matches!(mark, Mark::Closed { .. }) || is_closed_otherwise(&front)?;
        return Ok((front, State::Unclosed { was_closed }));
    }
    let [a, b, c, d, at @ ..] = commit;
    let rows = u64::from(front.header.order.u32([a, b, c, d]));
    let at = front.header.order.u64(at);
    let plausible = rows > 0 && front.layout.end_of(rows) == Ok(at);
    let reach = if plausible { Reach::Blocks(rows) } else { Reach::Unknown };
    let row = 8 * u64::from(front.header.task_count);
    let is_cut = plausible && at.saturating_add(row.saturating_mul(rows + 1)) > front.size;
    Ok((front, State::Doubtful(Doubtful { reach, known, is_cut })))
}

fn whole<F>(mended: Mended<F>) -> (Front<F>, State) {
    let Mended { front, table, blocks, patch } = mended;
    (front, State::Whole { table, blocks, patch: Some(patch) })
}

/// The commit fields, zeros where the file ends before them.
fn commit<F: File>(front: &Front<F>) -> Result<[u8; NOT_COMMITTED.len()]> {
    let mut bytes = NOT_COMMITTED;
    read_up_to(&*front.file, &mut bytes, front.header.commit_at()).on_file(front.number)?;
    Ok(bytes)
}

impl Doubtful {
    /// Takes what the table says of tasks that it fits, and marks the others of `extents`.
    pub(super) fn settle<F: File>(&self, front: &Front<F>, extents: &mut [Extent]) {
        if let (true, Reach::Blocks(count)) = (self.is_cut, self.reach) {
            return note_cut(front, extents, count);
        }
        for (task, extent) in extents.iter_mut().enumerate() {
            match &self.known {
                Some((blocks, misfits)) if !misfits.contains(&task) => {
                    *extent = Extent { lens: blocks.of(task).to_vec(), ..Extent::default() };
                }
                _ => extent.note(Flaw::Contradiction),
            }
        }
    }
}

/// Marks the tasks of a closed file that did not fit into what is left of it if they had `count`
/// blocks, which at least one had.
fn note_cut<F: File>(front: &Front<F>, extents: &mut [Extent], count: u64) {
    let Some(last) = count.checked_sub(1) else { return };
    for (task, extent) in extents.iter_mut().enumerate() {
        let place = front.layout.place(task).unwrap_or_default();
        let end = place.block_at(narrow(last)).map_or(u64::MAX, |at| at + place.chunk_len);
        if place.chunk_len > 0 && end > front.size {
            extent.note(Flaw::Cut);
        }
    }
}
