//! Consistency of a closed physical file: do its parts confirm each other (format sections 2, 4,
//! and 7)?
//!
//! Reading is lenient: it uses what it needs. Who calls a file whole, or is about to change one,
//! asks here first.

use crate::{
    blocks::{Blocks, Table},
    codec::{narrow, wide},
    error::{Error, OnFile as _, Part, Readable as _, Result},
    mark::Mark,
    physical::{Front, Physical, mapping_entry, names_all},
    reader::Reader,
    storage::{File, read_up_to},
    sums::CHECKSUMS_MAGIC,
};

/// Entries of a mapping behind a file that says it is the only one: more are not looked at.
const ENTRIES_MAX: u64 = 1 << 20;

impl<F: File> Reader<F> {
    /// Fails if parts of the files contradict each other, also in what reading does not need: their
    /// headers, tables, lengths, and the mapping, which names every task.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] with what contradicts the rest; what the storage reports.
    pub fn check(&self) -> Result<()> {
        for Physical { front, table, .. } in self.files.values() {
            let damaged = |part| Error::Damaged { part, file: front.number };
            match judge(front, table)? {
                Verdict::Whole(_) => {}
                Verdict::Tasks(..) => return Err(damaged(Part::Blocks)),
                Verdict::Unmarked(_) => return Err(damaged(Part::Checksum)),
                Verdict::Contradicts(part) => return Err(damaged(part)),
            }
        }
        let ranks = self.files.values().map(|file| (file.front.number, &*file.front.ranks));
        match &self.mapping {
            Some(mapping) if !names_all(mapping, ranks) => {
                Err(Error::Damaged { part: Part::Mapping, file: 0 })
            }
            _ => Ok(()),
        }
    }
}

/// Agreement of the parts of a closed file.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// They agree.
    Whole(Blocks),
    /// They agree but for the entries of these tasks in the block table.
    Tasks(Blocks, Vec<usize>),
    /// They agree, but what the mark tells of checksums and chunk sizes is wrong.
    Unmarked(Blocks),
    /// They contradict each other, this one first.
    Contradicts(Part),
}

/// Judges a file whose commit fields point to `table`.
pub(crate) fn judge<F: File>(front: &Front<F>, table: &Table) -> Result<Verdict> {
    let tasks = front.ranks.len();
    if front.layout.end_of(table.block_count.into()) != Ok(table.at) {
        return Ok(Verdict::Contradicts(Part::Blocks));
    }
    let loaded = table.load_fitting(&*front.file, front.number).readable()?;
    let Some((blocks, mut misfits)) = loaded else {
        return Ok(Verdict::Contradicts(Part::Blocks));
    };
    let overflows = |task: &usize| {
        let chunk_len = front.chunk_len(*task).unwrap_or(0);
        blocks.of(*task).iter().any(|len| *len > chunk_len)
    };
    misfits.extend((0..tasks).filter(overflows));
    if !misfits.is_empty() {
        return Ok(Verdict::Tasks(blocks, misfits));
    }
    let most = (0..tasks).map(|task| blocks.of(task).len()).max();
    if most.is_some_and(|most| wide(most) != u64::from(table.block_count)) {
        return Ok(Verdict::Contradicts(Part::Blocks));
    }
    let mark = Mark::decode(front.header.flag2);
    Ok(match mark_of(front, table)? {
        Some(right) if right == mark => match is_of_set(front, table)? {
            true => Verdict::Contradicts(Part::Set),
            false => Verdict::Whole(blocks),
        },
        _ => Verdict::Unmarked(blocks),
    })
}

/// The mark that a file with this table should have, as far as the one it has tells: `None` if it
/// says that there are checksums and there are none.
pub(crate) fn mark_of<F: File>(front: &Front<F>, table: &Table) -> Result<Option<Mark>> {
    let mark = Mark::decode(front.header.flag2);
    let Mark::Closed { uniform, checksums_at } = mark else { return Ok(Some(mark)) };
    let chunks = front.layout.chunks();
    let uniform = uniform && chunks.iter().all(|len| Some(len) == chunks.first());
    if checksums_at.is_none() {
        return Ok(Some(Mark::Closed { uniform, checksums_at }));
    }
    let found = checksums_behind(front, table)?;
    Ok(found.map(|at| Mark::Closed { uniform, checksums_at: Some(at) }))
}

/// Where the checksums behind `table` and its mapping begin, if all of them are there.
fn checksums_behind<F: File>(front: &Front<F>, table: &Table) -> Result<Option<u64>> {
    let Some(end) = table.end() else { return Ok(None) };
    let entries = u64::from(entry_count(front, end)?);
    let len = 4 * u64::from(table.task_count) * u64::from(table.block_count);
    for magic_at in [end, end.saturating_add(4), end.saturating_add(4 + 8 * entries)] {
        let mut magic = [0; CHECKSUMS_MAGIC.len()];
        read_up_to(&*front.file, &mut magic, magic_at).on_file(front.number)?;
        let first = magic_at.saturating_add(wide(magic.len()));
        if magic == CHECKSUMS_MAGIC && first.saturating_add(len) <= front.size {
            return Ok(Some(first));
        }
    }
    Ok(None)
}

/// True if a file that says it is the only one has a mapping that names others.
fn is_of_set<F: File>(front: &Front<F>, table: &Table) -> Result<bool> {
    let Some(end) = table.end().filter(|_| front.header.file_count == 1) else { return Ok(false) };
    let count = u64::from(entry_count(front, end)?);
    let behind = front.size.saturating_sub(end);
    if count == 0 || count > ENTRIES_MAX || behind < 4 + 8 * count {
        return Ok(false);
    }
    let mut bytes = vec![0; narrow(8 * count)];
    read_up_to(&*front.file, &mut bytes, end + 4).on_file(front.number)?;
    let files = bytes.chunks_exact(8).filter_map(|pair| pair.try_into().ok());
    let files = files.map(|pair| mapping_entry(front.header.order.u64(pair), &front.header).0);
    // Whatever else stands there, as what an earlier, longer file left, has larger numbers.
    let files: Vec<u32> = files.collect();
    let most = files.iter().max().copied().unwrap_or(0);
    Ok(most > 0 && u64::from(most) < count && behind == 4 + 8 * count)
}

/// The number of entries that a mapping at `at` would have.
fn entry_count<F: File>(front: &Front<F>, at: u64) -> Result<u32> {
    let mut bytes = [0; 4];
    read_up_to(&*front.file, &mut bytes, at).on_file(front.number)?;
    Ok(front.header.order.u32(bytes))
}
