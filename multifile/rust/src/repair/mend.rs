//! The one header field that a closed file's other parts say what it must have been.
//!
//! Each candidate changes a single field. It counts only if with it header, chunk sizes, commit
//! fields, block table, and the length of the file all confirm each other, and no other one does.

use std::sync::Arc;

use crate::{
    blocks::{Blocks, Table},
    codec::{Order, narrow, round_up, u64s, wide},
    error::{OnFile as _, Readable as _, Result},
    header::{COMMIT_LEN, FIXED_END, FIXED_LEN, FLAG2_AT, Header},
    layout::{self, OFFSET_MAX},
    mark::Mark,
    physical::{Front, RESERVED_VERSION, has_room},
    storage::{File, read_up_to},
    sums::CHECKSUMS_MAGIC,
    whole::{Verdict, judge, mark_of},
};

const VERSION_AT: usize = 16;
const FS_BLOCK_LEN_AT: usize = 20;
const TASK_COUNT_AT: usize = 24;
/// Tasks that are looked for where the header says another number.
const TASKS_MAX: usize = 1 << 17;
/// Places of a table that are looked at: what stands behind one may be longer than blocks.
const PLACES_MAX: usize = 16;
/// Blocks in commit fields that may be damaged themselves.
const ROWS_MAX: u32 = 1 << 20;
/// File-system blocks before the data that are looked for.
const LEADING_BLOCKS_MAX: u64 = 1 << 12;

/// Bytes to be written over others of a closed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

/// A closed file as it must have been.
#[derive(Debug)]
pub(super) struct Mended<F> {
    pub(super) front: Front<F>,
    pub(super) table: Table,
    pub(super) blocks: Blocks,
    pub(super) patch: Patch,
}

/// A value for one field of the fixed ones or of the commit fields.
enum Candidate {
    Field { at: usize, value: u32 },
    BlockCount(u32),
    TableAt(u64),
    Commit(u32, u64),
    Mark,
}

/// The closed file that `file` must have been, if that is certain.
pub(super) fn mended<F: File>(file: &Arc<F>, number: u32) -> Result<Option<Mended<F>>> {
    let start = Start::read(&**file, number)?;
    let Some(order) = start.order() else { return Ok(None) };
    let mut candidates = start.commits(order);
    candidates.extend(start.both_commits(order));
    candidates.extend(start.task_counts(order));
    candidates.extend(start.fs_block_lens(order));
    let mut found = None;
    for candidate in candidates {
        let Some(mended) = start.with(file, number, order, &candidate)? else { continue };
        let place = (mended.table, mended.front.header.clone());
        let before = found.replace(mended);
        let differs =
            |before: &Mended<F>| (before.table, &before.front.header) != (place.0, &place.1);
        if before.as_ref().is_some_and(differs) {
            return Ok(None);
        }
    }
    Ok(found)
}

/// True if commit fields stand where they would in a file with another number of tasks: `front` is
/// the one of a closed file then, although its own are zeros.
pub(super) fn is_closed_otherwise<F: File>(front: &Front<F>) -> Result<bool> {
    let start = Start::read(&*front.file, front.number)?;
    let order = front.header.order;
    let end = front.layout.data_at().min(wide(start.bytes.len()));
    let is_commit = |tasks: usize| {
        let (rows, table_at) = start.commit(order, tasks)?;
        let least = FIXED_END + COMMIT_LEN + 16 * wide(tasks);
        // Two small numbers in the tables look like a few rows and a multiple of 4 GiB.
        let is_claim = (1..ROWS_MAX).contains(&rows) && table_at & u64::from(u32::MAX) > 0;
        let is_claim = is_claim && (least..=OFFSET_MAX).contains(&table_at);
        Some(is_claim || (least..=start.size).contains(&table_at))
    };
    let most = narrow(end.saturating_sub(FIXED_END + COMMIT_LEN) / 16);
    Ok((1..=most).any(|tasks| is_commit(tasks) == Some(true)))
}

/// The start of a file, with what may be its task tables.
struct Start {
    bytes: Vec<u8>,
    size: u64,
}

impl Start {
    fn read<F: File>(file: &F, number: u32) -> Result<Self> {
        let size = file.size().on_file(number)?;
        let len = FIXED_LEN + 16 * TASKS_MAX + narrow(COMMIT_LEN);
        let mut bytes = vec![0; len.min(narrow(size))];
        let read = read_up_to(file, &mut bytes, 0).on_file(number)?;
        bytes.truncate(read);
        Ok(Self { bytes, size })
    }

    fn order(&self) -> Option<Order> {
        let order = self.bytes.get(4..8)?;
        match order {
            [0, .., 0] => Some(Order::Little),
            [1, .., 1] => Some(Order::Big),
            _ => None,
        }
    }

    fn u32(&self, order: Order, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at.checked_add(4)?)?;
        Some(order.u32(bytes.try_into().ok()?))
    }

    fn u64(&self, order: Order, at: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        Some(order.u64(bytes.try_into().ok()?))
    }

    /// Block count and table offset in a file of `tasks` tasks.
    fn commit(&self, order: Order, tasks: usize) -> Option<(u32, u64)> {
        let at = tasks.checked_mul(16)?.checked_add(FIXED_LEN)?;
        Some((self.u32(order, at)?, self.u64(order, at + 4)?))
    }

    /// Sum and chunk sizes in a file of `tasks` tasks.
    fn chunks(&self, order: Order, tasks: usize) -> Option<(u64, Vec<u64>)> {
        let at = tasks.checked_mul(8)?.checked_add(FIXED_LEN)?;
        let bytes = self.bytes.get(at..at.checked_add(8 * tasks)?)?;
        let chunks = u64s(bytes, order).map(|len| self.reserved(order, len));
        let chunks = chunks.collect::<Option<Vec<_>>>()?;
        let sum = chunks.iter().try_fold(0u64, |sum, len| sum.checked_add(*len))?;
        Some((sum, chunks))
    }

    /// A stored chunk size as it was reserved.
    fn reserved(&self, order: Order, len: u64) -> Option<u64> {
        let (version, unit) = (self.u32(order, VERSION_AT)?, self.u32(order, FS_BLOCK_LEN_AT)?);
        if version >= RESERVED_VERSION || unit == 0 {
            return Some(len);
        }
        round_up(len, unit.into())
    }

    /// Returns the shape that the number of tasks and the block size imply.
    fn shape(&self, order: Order) -> Option<(usize, u32)> {
        let tasks = usize::try_from(self.u32(order, TASK_COUNT_AT)?).ok()?;
        Some((tasks, self.u32(order, FS_BLOCK_LEN_AT)?))
    }

    /// The commit fields, each from the other; and the mark.
    fn commits(&self, order: Order) -> Vec<Candidate> {
        let found = || {
            let (tasks, fs_block_len) = self.shape(order)?;
            let (block_count, table_at) = self.commit(order, tasks)?;
            let (skip, _) = self.chunks(order, tasks).filter(|_| fs_block_len > 0)?;
            let data_at = layout::data_at(wide(tasks), fs_block_len)?;
            let data_len = table_at.checked_sub(data_at);
            let rows = data_len.and_then(|len| len.checked_div(skip).filter(|n| n * skip == len));
            let rows = rows.and_then(|rows| u32::try_from(rows).ok());
            let end = skip.checked_mul(block_count.into()).and_then(|len| len.checked_add(data_at));
            let rows = rows.filter(|rows| *rows != block_count).map(Candidate::BlockCount);
            let end = end.filter(|end| *end != table_at).map(Candidate::TableAt);
            Some([rows, end, Some(Candidate::Mark)])
        };
        found().into_iter().flatten().flatten().collect()
    }

    /// The commit fields of a file that its mark calls closed, from where it ends.
    fn both_commits(&self, order: Order) -> Vec<Candidate> {
        let found = || {
            let (tasks, fs_block_len) = self.shape(order)?;
            let flag2 = self.u64(order, narrow(FLAG2_AT))?;
            let is_closed = matches!(Mark::decode(flag2), Mark::Closed { .. });
            let (skip, _) = self.chunks(order, tasks).filter(|_| is_closed && fs_block_len > 0)?;
            let data_at = layout::data_at(wide(tasks), fs_block_len)?;
            let row = 8 * wide(tasks);
            let behind = self.size.checked_sub(data_at)?.checked_sub(row)?;
            let last = behind.checked_div(skip.checked_add(row)?)?;
            let commit = |rows: u64| {
                let at = rows.checked_mul(skip)?.checked_add(data_at)?;
                Some(Candidate::Commit(u32::try_from(rows).ok()?, at))
            };
            Some((1..=last).rev().take(PLACES_MAX).filter_map(commit).collect::<Vec<_>>())
        };
        found().unwrap_or_default()
    }

    /// Numbers of tasks with which the commit fields fit the chunk sizes.
    fn task_counts(&self, order: Order) -> Vec<Candidate> {
        let Some((stated, fs_block_len)) = self.shape(order).filter(|(_, len)| *len > 0) else {
            return Vec::new();
        };
        let mut sums = vec![0u64];
        for value in u64s(self.bytes.get(FIXED_LEN..).unwrap_or_default(), order) {
            let value = self.reserved(order, value).unwrap_or(value);
            sums.push(sums.last().copied().unwrap_or(0).wrapping_add(value));
        }
        let fits = |tasks: &usize| {
            let (rows, table_at) = self.commit(order, *tasks)?;
            let skip = sums.get(2 * tasks)?.wrapping_sub(*sums.get(*tasks)?);
            let data_at = layout::data_at(wide(*tasks), fs_block_len)?;
            let end = skip.checked_mul(rows.into())?.checked_add(data_at)?;
            (rows > 0 && end == table_at && table_at <= self.size).then_some(())
        };
        let most = self.bytes.len().saturating_sub(FIXED_LEN) / 16;
        let counts = (1..=most).filter(|tasks| *tasks != stated && fits(tasks).is_some());
        let counts = counts.filter_map(|tasks| u32::try_from(tasks).ok());
        counts.map(|value| Candidate::Field { at: TASK_COUNT_AT, value }).collect()
    }

    /// Block sizes with which the data begins where chunks and commit fields say. Of chunks that
    /// are no multiples nothing can be told.
    fn fs_block_lens(&self, order: Order) -> Vec<Candidate> {
        let found = || {
            let (tasks, stated) = self.shape(order)?;
            let (rows, table_at) = self.commit(order, tasks)?;
            let (skip, chunks) = self.chunks(order, tasks)?;
            let data_at = table_at.checked_sub(skip.checked_mul(rows.into())?)?;
            let fits = |blocks: u64| {
                let len = data_at.checked_div(blocks).filter(|len| *len > 0)?;
                let len = u32::try_from(len).ok().filter(|len| *len != stated)?;
                let is_placed = layout::data_at(wide(tasks), len) == Some(data_at);
                let divides = chunks.iter().all(|chunk| chunk % u64::from(len) == 0);
                (is_placed && divides).then_some(len)
            };
            Some((1..=LEADING_BLOCKS_MAX).filter_map(fits).collect::<Vec<_>>())
        };
        let lens = found().unwrap_or_default();
        lens.into_iter().map(|value| Candidate::Field { at: FS_BLOCK_LEN_AT, value }).collect()
    }

    /// The file with this candidate, if all its parts then confirm each other.
    fn with<F: File>(
        &self,
        file: &Arc<F>,
        number: u32,
        order: Order,
        candidate: &Candidate,
    ) -> Result<Option<Mended<F>>> {
        let mut fixed = self.bytes.get(..FIXED_LEN).unwrap_or_default().to_vec();
        if let Candidate::Field { at, value } = candidate {
            let field = fixed.get_mut(*at..at + 4).unwrap_or_default();
            field.copy_from_slice(&order.bytes_u32(*value));
        }
        let Some(header) = Header::parse(&fixed, number).readable()? else { return Ok(None) };
        if has_room(&**file, number, &header, self.size).readable()?.is_none() {
            return Ok(None);
        }
        let loaded = Front::load_tables(Arc::clone(file), number, header, self.size);
        let Some(mut front) = loaded.readable()? else { return Ok(None) };
        let commit_at = front.header.commit_at();
        let Some((rows, at)) = self.commit(order, front.ranks.len()) else { return Ok(None) };
        let task_count = front.header.task_count;
        let mut table = Table { at, block_count: rows, task_count, order };
        let patch = match candidate {
            Candidate::Field { at, value } => {
                Patch { at: wide(*at), bytes: order.bytes_u32(*value).to_vec() }
            }
            Candidate::BlockCount(rows) => {
                table.block_count = *rows;
                Patch { at: commit_at, bytes: order.bytes_u32(*rows).to_vec() }
            }
            Candidate::TableAt(at) => {
                table.at = *at;
                Patch { at: commit_at + 4, bytes: order.bytes_u64(*at).to_vec() }
            }
            Candidate::Commit(rows, at) => {
                (table.block_count, table.at) = (*rows, *at);
                let mut bytes = order.bytes_u32(*rows).to_vec();
                bytes.extend_from_slice(&order.bytes_u64(*at));
                Patch { at: commit_at, bytes }
            }
            Candidate::Mark => {
                let stored = front.header.flag2;
                let Some(mark) = mark_of(&front, &table)? else { return Ok(None) };
                if mark.encode() == stored {
                    return Ok(None);
                }
                front.header.flag2 = mark.encode();
                Patch { at: FLAG2_AT, bytes: order.bytes_u64(mark.encode()).to_vec() }
            }
        };
        let fits = table.end().is_some_and(|end| end <= self.size)
            && table.at >= commit_at + COMMIT_LEN
            && i32::try_from(table.block_count).is_ok_and(|rows| rows > 0)
            && ends_with(&front, &table)?;
        let verdict = if fits { judge(&front, &table)? } else { return Ok(None) };
        let Verdict::Whole(blocks) = verdict else { return Ok(None) };
        Ok(Some(Mended { front, table, blocks, patch }))
    }
}

/// True if the file ends with this table and what belongs behind it.
fn ends_with<F: File>(front: &Front<F>, table: &Table) -> Result<bool> {
    let Some(rest) = table.end().and_then(|end| front.size.checked_sub(end)) else {
        return Ok(false);
    };
    let mut bytes = [0; 4];
    read_up_to(&*front.file, &mut bytes, front.size - rest).on_file(front.number)?;
    let entries = 4 + 8 * u64::from(front.header.order.u32(bytes));
    let slots = u64::from(table.task_count) * u64::from(table.block_count);
    let sums = wide(CHECKSUMS_MAGIC.len()) + 4 * slots;
    Ok([0, sums, entries, entries.saturating_add(sums)].contains(&rest) && FIXED_END < table.at)
}
