//! One physical file, opened for reading: header, places, and tables, all checked.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use crate::{
    backing::demand,
    blocks::{Blocks, Table, each_u64},
    codec::{narrow, round_up, signed, wide},
    cursor::Cursor,
    error::{Argument, Error, OnFile as _, Part, Readable as _, Result},
    header::{FIXED_LEN, Header},
    layout::{ChunkPlace, Layout, OFFSET_MAX},
    mark::Mark,
    storage::{File, Storage, read_exactly, read_up_to},
    sums::CHECKSUMS_MAGIC,
};

/// Version from which on stored chunk sizes are what was reserved, not what was asked for.
pub(crate) const RESERVED_VERSION: u32 = 4;

/// Bytes of the shortest block that a file system has.
const FS_BLOCK_LEN_MIN: u32 = 512;

/// Header and task tables of a physical file, closed or not.
#[derive(Debug)]
pub(crate) struct Front<F> {
    pub(crate) file: Arc<F>,
    pub(crate) number: u32,
    pub(crate) header: Header,
    pub(crate) ranks: Vec<i64>,
    pub(crate) layout: Layout,
    pub(crate) size: u64,
}

/// A closed physical file.
#[derive(Debug)]
pub(crate) struct Physical<F> {
    pub(crate) front: Front<F>,
    pub(crate) table: Table,
    pub(crate) blocks: Blocks,
}

/// The place of one task, found without reading the tables of the others.
#[derive(Debug)]
pub(crate) struct Spot {
    pub(crate) global_rank: i64,
    pub(crate) place: ChunkPlace,
}

impl<F: File> Front<F> {
    /// Reads and checks the header and tables of physical file `number`.
    pub(crate) fn load(file: impl Into<Arc<F>>, number: u32) -> Result<Self> {
        let file = file.into();
        let (header, size) = header(&*file, number)?;
        Self::load_tables(file, number, header, size)
    }

    /// Reads and checks the tables behind `header`.
    pub(crate) fn load_tables(
        file: Arc<F>,
        number: u32,
        header: Header,
        size: u64,
    ) -> Result<Self> {
        let tasks = u64::from(header.task_count);
        let mut ranks = Vec::new();
        each_u64(&*file, number, header.ranks_at(), tasks, header.order, |rank| {
            ranks.push(signed(rank));
            Ok(())
        })?;
        let damaged = Error::Damaged { part: Part::ChunkLen, file: number };
        let (mut chunks, mut total) = (Vec::new(), 0u64);
        each_u64(&*file, number, header.chunks_at(), tasks, header.order, |len| {
            total = total.checked_add(len).filter(|sum| *sum <= OFFSET_MAX).ok_or(damaged)?;
            chunks.push(reserved(&header, len).ok_or(damaged)?);
            Ok(())
        })?;
        let layout = Layout::of_chunks(chunks, header.fs_block_len).map_err(|_| damaged)?;
        Ok(Self { file, number, header, ranks, layout, size })
    }

    /// True if the file is dense (format rule 2.9) and has tasks without a chunk, in a set that has
    /// names: its chunks are aligned to less than a block of any file system.
    pub(crate) fn may_grow_dense(&self) -> bool {
        let has_room = self.layout.placed() < self.ranks.len();
        has_room && self.number > 0 && self.header.fs_block_len < FS_BLOCK_LEN_MIN
    }

    /// The size of the chunks of task `task`.
    pub(crate) fn chunk_len(&self, task: usize) -> Option<u64> {
        self.layout.chunks().get(task).copied()
    }
}

impl<F: File> Physical<F> {
    /// Opens and checks physical file `number`.
    pub(crate) fn open<S>(storage: &S, path: &Path, number: u32) -> Result<Self>
    where
        S: Storage<File = F>,
    {
        let file = storage.open(path, None).on_file(number)?;
        Self::of(Front::load(file, number)?)
    }

    /// Reads the block table behind `front`.
    pub(crate) fn of(front: Front<F>) -> Result<Self> {
        let table = Table::find(&*front.file, front.number, &front.header, front.size)?;
        let blocks = table.load(&*front.file, front.number)?;
        Ok(Self { front, table, blocks })
    }

    /// A cursor at the start of the stream of task `task` of this file.
    pub(crate) fn cursor(&self, task: usize) -> Result<Cursor> {
        let place = self.front.layout.place(task).ok_or(Argument::Task)?;
        Cursor::new(place, self.blocks.of(task).to_vec(), self.front.number)
    }

    /// Offset of the first checksum, if the file has any.
    pub(crate) fn checksums_at(&self) -> Result<Option<u64>> {
        let Mark::Closed { checksums_at: Some(at), .. } = Mark::decode(self.front.header.flag2)
        else {
            return Ok(None);
        };
        let mut magic = [0; CHECKSUMS_MAGIC.len()];
        let Some(magic_at) = at.checked_sub(wide(magic.len())) else { return Ok(None) };
        let read = read_exactly(&*self.front.file, self.front.number, &mut magic, magic_at);
        Ok(read.readable()?.filter(|()| magic == CHECKSUMS_MAGIC).map(|()| at))
    }

    /// The stored checksum of block `block` of task `task`, `None` in a file without.
    pub(crate) fn checksum(&self, task: u32, block: u64) -> Result<Option<u32>> {
        let Some(at) = self.checksums_at()? else { return Ok(None) };
        let mut bytes = [0; 4];
        debug_assert!(task < self.table.task_count, "task {task} is of this file");
        let slot = block * u64::from(self.table.task_count) + u64::from(task);
        let at =
            slot.checked_mul(4).and_then(|skip| skip.checked_add(at)).ok_or(Error::TooLarge)?;
        read_exactly(&*self.front.file, self.front.number, &mut bytes, at)?;
        Ok(Some(u32::from_le_bytes(bytes)))
    }
}

/// Finds one task's place by reading its own entries, and the chunk sizes before it only when the
/// file does not say that all are equal.
pub(crate) fn spot<F: File>(file: &F, number: u32, header: &Header, task: u32) -> Result<Spot> {
    if task >= header.task_count {
        return Err(Argument::Task.into());
    }
    let own = |table_at: u64| -> Result<u64> {
        let mut bytes = [0; 8];
        read_exactly(file, number, &mut bytes, table_at + 8 * u64::from(task))?;
        Ok(header.order.u64(bytes))
    };
    let global_rank = signed(own(header.ranks_at())?);
    let damaged = Error::Damaged { part: Part::ChunkLen, file: number };
    let chunk_len = reserved(header, own(header.chunks_at())?).ok_or(damaged)?;
    let tasks = u64::from(header.task_count);
    let data_at = crate::layout::data_at(tasks, header.fs_block_len).ok_or(damaged)?;
    let (before, skip): (u64, u64) = match Mark::decode(header.flag2) {
        Mark::Closed { uniform: true, .. } => {
            let all = |count: u64| chunk_len.checked_mul(count).ok_or(damaged);
            (all(u64::from(task))?, all(tasks)?)
        }
        _ => chunk_sums(file, number, header, task)?,
    };
    let start_at = data_at.checked_add(before).filter(|at| *at <= OFFSET_MAX).ok_or(damaged)?;
    Ok(Spot { global_rank, place: ChunkPlace { start_at, chunk_len, skip } })
}

/// Reads and checks the fixed fields of a file, and that the file is long enough for its tables.
pub(crate) fn header<F: File>(file: &F, number: u32) -> Result<(Header, u64)> {
    let mut bytes = [0; FIXED_LEN];
    let len = read_up_to(file, &mut bytes, 0).on_file(number)?;
    let header = Header::parse(bytes.get(..len).unwrap_or_default(), number)?;
    let size = file.size().on_file(number)?;
    has_room(file, number, &header, size)?;
    Ok((header, size))
}

/// Refuses a header whose tables do not fit into a file of `size` bytes.
pub(crate) fn has_room<F: File>(file: &F, number: u32, header: &Header, size: u64) -> Result<()> {
    if header.commit_at() > size {
        return Err(Error::Damaged { part: Part::TaskCount, file: number });
    }
    let tables = header.ranks_at()..header.commit_at();
    demand(file, tables.clone(), tables.end - tables.start, Part::TaskCount, number)
}

/// Reserved bytes before task `task`, and of all tasks.
fn chunk_sums<F: File>(file: &F, number: u32, header: &Header, task: u32) -> Result<(u64, u64)> {
    let damaged = Error::Damaged { part: Part::ChunkLen, file: number };
    let (mut before, mut all, mut index) = (0u64, 0u64, 0usize);
    let tasks = u64::from(header.task_count);
    each_u64(file, number, header.chunks_at(), tasks, header.order, |len| {
        if wide(index) == u64::from(task) {
            before = all;
        }
        index += 1;
        let len = reserved(header, len).ok_or(damaged)?;
        all = all.checked_add(len).filter(|sum| *sum <= OFFSET_MAX).ok_or(damaged)?;
        Ok(())
    })?;
    debug_assert!(before <= all && wide(index) == tasks, "the table has every task");
    Ok((before, all))
}

fn reserved(header: &Header, stored: u64) -> Option<u64> {
    let len = if header.version < RESERVED_VERSION {
        round_up(stored, u64::from(header.fs_block_len))?
    } else {
        stored
    };
    Some(len).filter(|len| *len <= OFFSET_MAX)
}

/// The mapping of tasks to (file, local rank) behind the block table at `at`.
pub(crate) fn mapping<F: File>(file: &F, header: &Header, at: u64) -> Result<Vec<(u32, u32)>> {
    let damaged = Error::Damaged { part: Part::Mapping, file: 0 };
    let size = file.size().on_file(0)?;
    let mut bytes = [0; 4];
    read_exactly(file, 0, &mut bytes, at)?;
    let count = u64::from(header.order.u32(bytes));
    if at.checked_add(4 + 8 * count).is_none_or(|end| end > size) {
        return Err(damaged);
    }
    demand(file, at..at + 4 + 8 * count, 8 * count, Part::Mapping, 0)?;
    let mut entries = Vec::with_capacity(narrow(count));
    each_u64(file, 0, at + 4, count, header.order, |pair| {
        entries.push(mapping_entry(pair, header));
        Ok(())
    })?;
    Ok(entries)
}

/// One mapping entry, two 32-bit integers read as one of 64 bits.
pub(crate) fn mapping_entry(pair: u64, header: &Header) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = header.order.bytes_u64(pair);
    (header.order.u32([a, b, c, d]), header.order.u32([e, f, g, h]))
}

/// True if `mapping` names every task of `files` but those that only hold copies, whose global
/// ranks are negative.
pub(crate) fn names_all<'a>(
    mapping: &[(u32, u32)],
    files: impl Iterator<Item = (u32, &'a [i64])>,
) -> bool {
    let mut named = mapping.to_vec();
    // Mostly it is in order.
    named.sort_unstable();
    let mut wanted = files.flat_map(|(number, ranks)| {
        let own = (0u32..).zip(ranks).filter(|(_, rank)| **rank >= 0);
        own.map(move |(local, _)| (number, local))
    });
    let (mut rest, is_known) = (&named[..], |task| named.binary_search(&task).is_ok());
    wanted.all(|task| match rest.split_first() {
        Some((next, behind)) if *next == task => {
            rest = behind;
            true
        }
        _ => is_known(task),
    })
}

/// Members agree on what they are members of, and the mapping names existing tasks once each.
pub(crate) fn check_set<F: File>(
    files: &BTreeMap<usize, Physical<F>>,
    mapping: &[(u32, u32)],
) -> Result<()> {
    let first = files.get(&0).map(|file| &file.front.header);
    let file_count = first.map_or(0, |first| first.file_count);
    for file in files.values() {
        let (header, number) = (&file.front.header, file.front.number);
        let same = first.is_some_and(|first| {
            first.file_count == header.file_count && first.keyval == header.keyval
        });
        if !same || header.file_number != number {
            return Err(Error::Damaged { part: Part::Set, file: number });
        }
    }
    let damaged = Error::Damaged { part: Part::Mapping, file: 0 };
    let unseen = |file: &Physical<F>| vec![false; file.front.ranks.len()];
    let mut seen: BTreeMap<_, _> = files.iter().map(|(file, of)| (*file, unseen(of))).collect();
    for (file, local) in mapping {
        let tasks = match seen.get_mut(&narrow(u64::from(*file))) {
            Some(tasks) => tasks,
            // Of a file that is not open there is nothing to compare with.
            None if *file < file_count => continue,
            None => return Err(damaged),
        };
        let slot = tasks.get_mut(narrow(u64::from(*local)));
        if std::mem::replace(slot.ok_or(damaged)?, true) {
            return Err(damaged);
        }
    }
    Ok(())
}
