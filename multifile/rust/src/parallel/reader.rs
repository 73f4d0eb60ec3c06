//! A multifile read by many ranks: as many as wrote it, fewer, or more.

use std::{collections::BTreeMap, ops::Range, path::Path, sync::Arc};

use crate::{
    blocks::Table,
    codec::{Fields, narrow, put_u32},
    cursor::Cursor,
    error::{Argument, Error, Result},
    group::Group,
    parallel::{
        exchange::{agree, exchange, hand_out},
        records::{Given, SetInfo},
        writer::largest,
    },
    reader::{Reader, Task, TaskReader},
    storage::{File, Storage},
};

/// One rank's part of a multifile being read.
#[derive(Debug)]
pub struct ParReader<F> {
    set: SetInfo,
    tasks: Vec<LocalTask<F>>,
}

/// A task that this rank reads.
#[derive(Debug)]
pub struct LocalTask<F> {
    /// What the multifile says about it.
    pub task: Task,
    /// Its stream, at the start.
    pub stream: TaskReader<F>,
}

impl<F: File> ParReader<F> {
    /// Opens the multifile at `path` together with all ranks of `group`. Each rank reads one
    /// task; with fewer ranks than tasks each reads as many consecutive ones as any other, and
    /// the last rank also what is left over; with more, the last ranks read none.
    ///
    /// Rank 0 reads the tables and hands every rank its part; each rank then reads the block
    /// lengths of its own tasks. Three collective operations, four with fewer ranks than tasks.
    ///
    /// # Errors
    ///
    /// The same [`Error::OnRank`] on every rank: what [`Reader::open`] returns on rank 0, or what
    /// another rank met when it opened its physical file. [`Error::Group`] when an operation of
    /// the group failed.
    pub fn open<G: Group, S>(group: &G, storage: &S, path: &Path) -> Result<Self>
    where
        S: Storage<File = F>,
    {
        let ranks = group.size();
        let mut reader = None;
        let first = hand_out(group, 8 + Given::LEN, || {
            let reader = reader.insert(Reader::open(storage, path)?);
            let shares = shares(reader.task_count(), ranks);
            let most = shares.iter().map(Range::len).max().unwrap_or(0);
            let answer = |share: &Range<usize>| {
                let mut bytes = Vec::new();
                put_u32(&mut bytes, u32::try_from(most).map_err(|_| Error::TooLarge)?);
                put_u32(&mut bytes, u32::try_from(share.len()).map_err(|_| Error::TooLarge)?);
                given(reader, share.clone().next())?.put(&mut bytes);
                Ok(bytes)
            };
            shares.iter().map(answer).collect()
        })?;
        let mut fields = Fields::little(&first);
        let mut next = || fields.u32().map_or(0, |count| narrow(count.into()));
        let (most, count) = (next(), next());
        let mut records = first.get(8..).unwrap_or_default().to_vec();
        if most > 1 {
            records = hand_out(group, most * Given::LEN, || {
                let reader = reader.as_ref().ok_or(Error::Poisoned)?;
                let shares = shares(reader.task_count(), ranks);
                shares.into_iter().map(|share| given_all(reader, share)).collect()
            })?;
        }
        let set = SetInfo::take(&mut Fields::little(first.get(8..).unwrap_or_default()));
        Self::begin(group, storage, path, (set, count, &records))
    }

    /// As [`open`](Self::open), but this rank reads the tasks `wanted`, by their index over the
    /// whole set. Costs two exchanges and an agreement.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); [`Argument::Task`].
    pub fn open_mapped<G: Group, S>(
        group: &G,
        storage: &S,
        path: &Path,
        wanted: &[u32],
    ) -> Result<Self>
    where
        S: Storage<File = F>,
    {
        let most = largest(group, wanted.len())?;
        let mut mine = Vec::new();
        put_u32(&mut mine, u32::try_from(wanted.len()).map_err(|_| Error::TooLarge)?);
        wanted.iter().for_each(|task| put_u32(&mut mine, *task));
        // Also a rank without tasks learns what is the same for all.
        let lens = (4 + 4 * most, (most + 1) * Given::LEN);
        let records = exchange(group, Ok(mine), lens, |asked| {
            let reader = Reader::open(storage, path)?;
            let answer = |asked: &&[u8]| {
                let mut fields = Fields::little(asked);
                let count = fields.u32().unwrap_or(0);
                let mut bytes = Vec::new();
                given(&reader, None)?.put(&mut bytes);
                for _ in 0..count {
                    let task = fields.u32().ok_or(Argument::Task)?;
                    given(&reader, Some(narrow(task.into())))?.put(&mut bytes);
                }
                Ok(bytes)
            };
            asked.iter().map(answer).collect()
        })?;
        let set = SetInfo::take(&mut Fields::little(&records));
        let records = records.get(Given::LEN..).unwrap_or_default();
        Self::begin(group, storage, path, (set, wanted.len(), records))
    }

    /// As [`open`](Self::open) for a set with buddy copies, as
    /// [`Reader::open_with_buddies`]. Every rank reads all tables itself, because each may find
    /// other copies; costs one agreement.
    ///
    /// # Errors
    ///
    /// As [`Reader::open_with_buddies`], the same on every rank; [`Error::Group`].
    pub fn open_with_buddies<G: Group, S>(
        group: &G,
        storage: &S,
        path: &Path,
        levels: u32,
    ) -> Result<Self>
    where
        S: Storage<File = F>,
    {
        let open = || {
            let reader = Reader::open_with_buddies(storage, path, levels)?;
            let rank = narrow(group.rank().into());
            let share = shares(reader.task_count(), group.size()).into_iter().nth(rank);
            let local =
                |task| Ok(LocalTask { task: reader.task(task)?, stream: reader.stream(task)? });
            let tasks = share.unwrap_or_default().map(local).collect::<Result<_>>()?;
            Ok(Self { set: given(&reader, None)?.set, tasks })
        };
        let opened = open();
        agree(group, opened.as_ref().map(|_| ()).map_err(|error| *error))?;
        opened
    }

    /// What is the same for all tasks.
    #[must_use]
    pub const fn set(&self) -> SetInfo {
        self.set
    }

    /// This rank's tasks.
    #[must_use]
    pub fn tasks(&self) -> &[LocalTask<F>] {
        &self.tasks
    }

    /// This rank's tasks, to read them.
    pub fn tasks_mut(&mut self) -> &mut [LocalTask<F>] {
        &mut self.tasks
    }

    fn begin<G: Group, S>(
        group: &G,
        storage: &S,
        path: &Path,
        (set, count, records): (Option<SetInfo>, usize, &[u8]),
    ) -> Result<Self>
    where
        S: Storage<File = F>,
    {
        let mut files = BTreeMap::new();
        let records = records.chunks_exact(Given::LEN).take(count);
        let tasks = records.map(|record| {
            let given = Given::take(record).ok_or(Error::TooLarge)?;
            begin_task(storage, path, &mut files, &given)
        });
        let tasks: Result<Vec<_>> = tasks.collect();
        agree(group, tasks.as_ref().map(|_| ()).map_err(|error| *error))?;
        Ok(Self { set: set.ok_or(Error::TooLarge)?, tasks: tasks? })
    }
}

/// Opens one task's physical file and reads the lengths of its blocks.
fn begin_task<S: Storage>(
    storage: &S,
    path: &Path,
    files: &mut BTreeMap<u32, Arc<S::File>>,
    given: &Given,
) -> Result<LocalTask<S::File>> {
    let (number, task) = (given.task.file, given.task);
    let file = match files.get(&number) {
        Some(file) => Arc::clone(file),
        None => {
            let file = storage.open(&storage.physical_name(path, number), false);
            let file = Arc::new(file.map_err(|error| Error::io(number, &error))?);
            files.insert(number, Arc::clone(&file));
            file
        }
    };
    let table = Table {
        at: given.table_at,
        block_count: given.block_count,
        task_count: given.task_count,
        order: given.set.order,
    };
    let lens = table.load_task(&*file, number, task.local_rank)?;
    let cursor = Cursor::new(given.place, lens, number)?;
    Ok(LocalTask { task, stream: TaskReader::of(file, number, cursor) })
}

/// Which tasks each rank reads.
fn shares(tasks: usize, ranks: u32) -> Vec<Range<usize>> {
    let ranks = narrow(ranks.into());
    let each = (tasks / ranks.max(1)).max(1);
    let share = |rank: usize| {
        let from = (rank * each).min(tasks);
        let last = rank + 1 == ranks && tasks > ranks;
        from..if last { tasks } else { (from + each).min(tasks) }
    };
    (0..ranks).map(share).collect()
}

/// What a rank needs to read `task`; without one, only what is the same for all.
fn given<F: File>(reader: &Reader<F>, task: Option<usize>) -> Result<Given> {
    let first = reader.header(0).ok_or(Argument::Task)?;
    let set = SetInfo {
        task_count: u32::try_from(reader.task_count()).map_err(|_| Error::TooLarge)?,
        file_count: u32::try_from(reader.file_count()).map_err(|_| Error::TooLarge)?,
        fs_block_len: first.fs_block_len,
        order: first.order,
        data_order: first.data_order,
        keyval: first.keyval,
    };
    let Some(index) = task else {
        let task = Task { file: 0, local_rank: 0, global_rank: 0, chunk_len: 0 };
        let place = crate::layout::Place::default();
        return Ok(Given { task, place, table_at: 0, block_count: 0, task_count: 0, set });
    };
    let task = reader.task(index)?;
    let file = narrow(task.file.into());
    let table = reader.table(file).ok_or(Argument::Task)?;
    let layout = reader.layout(file).ok_or(Argument::Task)?;
    let place = layout.place(narrow(task.local_rank.into())).ok_or(Argument::Task)?;
    let set = SetInfo { order: table.order, ..set };
    let (table_at, block_count, task_count) = (table.at, table.block_count, table.task_count);
    Ok(Given { task, place, table_at, block_count, task_count, set })
}

fn given_all<F: File>(reader: &Reader<F>, share: Range<usize>) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(share.len().saturating_mul(Given::LEN));
    for task in share {
        given(reader, Some(task))?.put(&mut bytes);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_read_by_exactly_one_rank() {
        for tasks in 0..40 {
            for ranks in 1..20 {
                let all: Vec<usize> = shares(tasks, ranks).into_iter().flatten().collect();
                assert_eq!(all, (0..tasks).collect::<Vec<_>>(), "{tasks} on {ranks}");
            }
        }
        assert_eq!(shares(7, 3), [0..2, 2..4, 4..7]);
    }
}
