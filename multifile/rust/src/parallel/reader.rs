//! A multifile read by many ranks: as many as wrote it, fewer, or more.

use std::{collections::HashMap, io, ops::Range, path::Path, sync::Arc};

use crate::{
    blocks::Table,
    codec::{Fields, narrow, put_u32, signed},
    cursor::Cursor,
    error::{Argument, Cause, Error, OnFile as _, Result},
    group::Group,
    header::FIXED_END,
    parallel::{
        exchange::{agree, hand_out},
        records::{Given, Part as _, SetInfo},
        restore::{self, Seat},
    },
    physical,
    reader::{Reader, Task, TaskReader},
    storage::{File, Storage, read_up_to},
};

/// Told to a rank instead of its number of tasks when there are more tasks than ranks.
const MANY: usize = 2;
const ENOENT: i32 = 2;

/// One rank's part of a multifile being read.
#[derive(Debug)]
pub struct ParReader<F> {
    set: SetInfo,
    tasks: Vec<LocalTask<F>>,
}

/// A task that this rank reads.
#[derive(Debug)]
pub struct LocalTask<F> {
    /// Its description in the multifile.
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
    /// lengths of its own task. With fewer ranks than tasks a part has no length known to all, and
    /// every rank reads the mapping itself, and the tables of the physical files that its tasks are
    /// in; others it does not open. Three collective operations.
    ///
    /// A physical file that rank 0 does not see, because it is on the storage of another node, or
    /// is not the one that it sees, is read by its own ranks, one for each task.
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
        Self::open_with(group, storage, path, |_| Ok(()))
    }

    /// As [`open`](Self::open); `prepare` is given this rank's tasks before the ranks agree that
    /// all could open, and what it fails with fails all.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and what `prepare` returns.
    pub fn open_with<G: Group, S>(
        group: &G,
        storage: &S,
        path: &Path,
        prepare: impl FnOnce(&[LocalTask<F>]) -> Result<()>,
    ) -> Result<Self>
    where
        S: Storage<File = F>,
    {
        let given = hand_out(group, 4 + Given::LEN, || {
            let ranks = group.size();
            let one_each = |tasks: usize| tasks <= narrow(ranks.into());
            let all = |tasks| 0..if one_each(tasks) { tasks } else { 0 };
            let opened = Reader::open_tasks(storage, path, all);
            let is_apart = opened.as_ref().is_err_and(is_member_missing);
            let reader = if is_apart { Reader::open_first(storage, path)? } else { opened? };
            let tasks = reader.task_count();
            if is_apart && !one_each(tasks) {
                return Err(Reader::open(storage, path).map(drop).err().unwrap_or(Error::TooLarge));
            }
            let answer = |rank| {
                let share = share(tasks, rank, ranks);
                let (count, task) = if one_each(tasks) {
                    (share.len(), share.clone().next())
                } else {
                    (MANY, None)
                };
                let mut bytes = Vec::new();
                put_u32(&mut bytes, u32::try_from(count).map_err(|_| Error::TooLarge)?);
                let given =
                    if is_apart { given_apart(&reader, task) } else { given(&reader, task) };
                given?.put(&mut bytes);
                Ok(bytes)
            };
            (0..ranks).map(answer).collect()
        })?;
        let mut fields = Fields::little(&given);
        let mut open = || match (fields.u32(), Given::of(given.get(4..).unwrap_or_default())) {
            (Some(0), Some(given)) => Ok(Self { set: given.set, tasks: Vec::new() }),
            (Some(1), Some(given)) => {
                Ok(Self { set: given.set, tasks: vec![begin_task(storage, path, &given)?] })
            }
            _ => Self::open_share(storage, path, group),
        };
        agreed(group, open(), prepare)
    }

    /// As [`open_with`](Self::open_with), but every rank reads the tables itself: two collective
    /// operations, for a group in which they are dearer than that.
    ///
    /// # Errors
    ///
    /// As [`open_with`](Self::open_with).
    pub fn open_by_each<G: Group, S>(
        group: &G,
        storage: &S,
        path: &Path,
        mut prepare: impl FnMut(&[LocalTask<F>]) -> Result<()>,
    ) -> Result<Self>
    where
        S: Storage<File = F>,
    {
        let opened = agreed(group, Self::open_share(storage, path, group), &mut prepare);
        match opened {
            // Perhaps on the storage of another node: the ranks all know of this error.
            Err(error) if is_missing_on_a_rank(&error) => {
                Self::open_with(group, storage, path, prepare)
            }
            opened => opened,
        }
    }

    /// As [`open_by_each`](Self::open_by_each), but this rank reads the tasks of these global
    /// ranks. A number that is no task's rank is an index over the whole set.
    ///
    /// # Errors
    ///
    /// As [`open_with`](Self::open_with); [`Argument::Task`].
    pub fn open_mapped<G: Group, S>(
        group: &G,
        storage: &S,
        path: &Path,
        wanted: &[u32],
        prepare: impl FnOnce(&[LocalTask<F>]) -> Result<()>,
    ) -> Result<Self>
    where
        S: Storage<File = F>,
    {
        agreed(group, Self::open_ranks(storage, path, wanted), prepare)
    }

    fn open_ranks<S>(storage: &S, path: &Path, wanted: &[u32]) -> Result<Self>
    where
        S: Storage<File = F>,
    {
        let indices = wanted.iter().map(|rank| narrow((*rank).into()));
        let is_rank = |reader: &Reader<F>, (task, rank): (usize, &u32)| {
            reader.task(task).is_ok_and(|task| task.global_rank == i64::from(*rank))
        };
        // Mostly a task's rank is its index: then no other files than theirs are read.
        let reader = Reader::open_tasks(storage, path, |_| indices.clone())?;
        if indices.clone().zip(wanted).all(|pair| is_rank(&reader, pair)) {
            return Self::tasks_of(&reader, indices);
        }
        let reader = Reader::open(storage, path)?;
        let ranks = (0..reader.task_count()).map(|task| Ok((reader.task(task)?.global_rank, task)));
        let ranks = ranks.collect::<Result<HashMap<_, _>>>()?;
        let find = |(index, rank): (_, &u32)| *ranks.get(&i64::from(*rank)).unwrap_or(&index);
        Self::tasks_of(&reader, indices.zip(wanted).map(find))
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
        prepare: impl FnOnce(&[LocalTask<F>]) -> Result<()>,
    ) -> Result<Self>
    where
        S: Storage<File = F>,
    {
        let opened = Reader::open_with_buddies(storage, path, levels);
        let opened = opened.and_then(|reader| {
            let share = share(reader.task_count(), group.rank(), group.size());
            Self::tasks_of(&reader, share)
        });
        agreed(group, opened, prepare)
    }

    /// As [`open_with_buddies`](Self::open_with_buddies), where each physical file and each copy
    /// may be on the storage of a node: this rank's task is where `seat` says. A lost file is read
    /// from the storage of the ranks that keep its copy, who send it; each rank has one task. Costs
    /// four operations more if a rank does not see all files, and three for each part that sends,
    /// besides one for each megabyte of its longest stream.
    ///
    /// # Errors
    ///
    /// As [`open_with_buddies`](Self::open_with_buddies).
    pub fn open_with_buddies_apart<G: Group, S>(
        group: &G,
        storage: &S,
        path: &Path,
        levels: u32,
        seat: &Seat<'_>,
        mut prepare: impl FnMut(&[LocalTask<F>]) -> Result<()>,
    ) -> Result<Self>
    where
        S: Storage<File = F>,
    {
        let all = Reader::open_with_buddies(storage, path, levels).and_then(|reader| {
            let share = share(reader.task_count(), group.rank(), group.size());
            Self::tasks_of(&reader, share)
        });
        let opened = agreed(group, all, &mut prepare);
        if !opened.as_ref().is_err_and(is_missing_on_a_rank) {
            return opened;
        }
        let opened = restore::open(group, storage, path, levels, seat);
        agreed(group, opened.map(|(set, task)| Self { set, tasks: vec![task] }), prepare)
    }

    /// Returns the properties common to all tasks.
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

    /// This rank's part, from the physical files that hold it.
    fn open_share<G: Group, S>(storage: &S, path: &Path, group: &G) -> Result<Self>
    where
        S: Storage<File = F>,
    {
        let share = |tasks| share(tasks, group.rank(), group.size());
        let reader = Reader::open_tasks(storage, path, share)?;
        Self::tasks_of(&reader, share(reader.task_count()))
    }

    fn tasks_of(reader: &Reader<F>, wanted: impl Iterator<Item = usize>) -> Result<Self> {
        let local = |task| Ok(LocalTask { task: reader.task(task)?, stream: reader.stream(task)? });
        Ok(Self { set: given(reader, None)?.set, tasks: wanted.map(local).collect::<Result<_>>()? })
    }
}

/// Returns this rank's open files, when all ranks could open theirs.
fn agreed<G: Group, F: File>(
    group: &G,
    opened: Result<ParReader<F>>,
    prepare: impl FnOnce(&[LocalTask<F>]) -> Result<()>,
) -> Result<ParReader<F>> {
    let ready = opened.and_then(|reader| prepare(&reader.tasks).map(|()| reader));
    agree(group, ready.as_ref().map(|_| ()).map_err(|error| *error))?;
    ready
}

/// Opens one task's physical file and reads the lengths of its blocks.
fn begin_task<S: Storage>(storage: &S, path: &Path, given: &Given) -> Result<LocalTask<S::File>> {
    let (number, task) = (given.task.file, given.task);
    let file = storage.open(&storage.physical_name(path, number), None).on_file(number)?;
    if given.set.file_count > 1 && !is_given(&file, given)? {
        let (header, size) = physical::header(&file, number)?;
        let (stream, _, task) = TaskReader::at(file, number, header, size, task.local_rank)?;
        return Ok(LocalTask { task, stream });
    }
    let file = Arc::new(file);
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

/// True if a rank misses a physical file.
const fn is_missing_on_a_rank(error: &Error) -> bool {
    matches!(error, Error::OnRank { cause: Cause::Io(_, ENOENT), .. })
}

/// True if a physical file behind file 0 is not there.
const fn is_member_missing(error: &Error) -> bool {
    matches!(error, Error::Io { file: 1.., kind: io::ErrorKind::NotFound, .. })
}

/// Where a rank finds `task` in a file that rank 0 cannot read.
fn given_apart<F: File>(reader: &Reader<F>, task: Option<usize>) -> Result<Given> {
    let mut given = given(reader, None)?;
    if let Some(task) = task {
        let found = reader.mapping().and_then(|mapping| mapping.get(task));
        (given.task.file, given.task.local_rank) = *found.ok_or(Argument::Task)?;
    }
    Ok(given)
}

/// True if the tables of `file` are those that rank 0 has read.
fn is_given<F: File>(file: &F, given: &Given) -> Result<bool> {
    if given.task_count == 0 {
        return Ok(false);
    }
    let order = given.set.order;
    let commit_at = FIXED_END + 16 * u64::from(given.task_count);
    let (mut commit, mut rank) = ([0; 12], [0; 8]);
    read_up_to(file, &mut commit, commit_at).on_file(given.task.file)?;
    let rank_at = FIXED_END + 8 * u64::from(given.task.local_rank);
    read_up_to(file, &mut rank, rank_at).on_file(given.task.file)?;
    let mut expected = order.bytes_u32(given.block_count).to_vec();
    expected.extend_from_slice(&order.bytes_u64(given.table_at));
    Ok(commit[..] == expected && signed(order.u64(rank)) == given.task.global_rank)
}

/// Which tasks `rank` reads.
fn share(tasks: usize, rank: u32, ranks: u32) -> Range<usize> {
    let (rank, ranks) = (narrow(rank.into()), narrow(ranks.into()));
    let each = (tasks / ranks.max(1)).max(1);
    let from = (rank * each).min(tasks);
    from..if rank + 1 == ranks { tasks } else { (from + each).min(tasks) }
}

/// Returns the part of a multifile that a rank needs to read `task`; without one, only the common
/// part.
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
        let place = crate::layout::ChunkPlace::default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_read_by_exactly_one_rank() {
        for tasks in 0..40 {
            for ranks in 1..20 {
                let all: Vec<usize> = (0..ranks).flat_map(|at| share(tasks, at, ranks)).collect();
                assert_eq!(all, (0..tasks).collect::<Vec<_>>(), "{tasks} on {ranks}");
            }
        }
        assert_eq!([0, 1, 2].map(|rank| share(7, rank, 3)), [0..2, 2..4, 4..7]);
    }
}
