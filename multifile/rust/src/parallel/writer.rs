//! A multifile written by many ranks, each with its own tasks.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::{Path, PathBuf},
};

use crate::{
    blocks::Table,
    codec::{Fields, narrow, put_u32, put_u64, wide},
    cursor::Fill,
    error::{Argument, Error, Result},
    finish::{Tail, unused},
    group::Group,
    layout::Place,
    name,
    output::{Manner, Output},
    packing::Packing,
    parallel::{
        exchange::exchange,
        records::{Ask, Grant, Used, inline_blocks},
        tables::{FileUse, Root, write_own_front, write_own_tail},
    },
    plan::{NewTask, Options, plan},
    storage::Storage,
    task_writer::{TaskState, TaskWriter},
    writer::{create, fs_block_len, instance},
};

/// One rank's part of a multifile being written.
///
/// Dropping it without [`close`](Self::close) leaves an unclosed file, for
/// [`Repair`](crate::Repair), with what had reached the storage.
#[derive(Debug)]
pub struct ParWriter<S: Storage> {
    storage: S,
    path: PathBuf,
    options: Options,
    /// The physical files this rank has tasks in, by number.
    outputs: BTreeMap<u32, Output<S>>,
    pub(super) tasks: Vec<Local>,
    /// Largest number of tasks of any rank: how many records an exchange carries.
    spread: usize,
    fs_block_len: u32,
    root: Option<Root>,
}

/// One task of this rank.
#[derive(Debug)]
pub(super) struct Local {
    task: NewTask,
    pub(super) state: TaskState,
    pub(super) collector: u32,
    pub(super) collector_place: Place,
    /// Merged blocks before this one are in the journal.
    pub(super) recorded: usize,
}

impl<S: Storage> ParWriter<S> {
    /// Creates the multifile at `path` together with all ranks of `group`, replacing what was
    /// there; this rank writes `task`.
    ///
    /// Costs one exchange. On return every physical file exists and, in sets that rank 0
    /// describes, says what it will hold; in larger ones a failure to write this rank's entries
    /// shows at closing.
    ///
    /// # Errors
    ///
    /// The same [`Error::OnRank`] on every rank: what [`Writer::create`](crate::Writer::create)
    /// returns, or [`Argument::Disagree`] when the ranks passed different options or names.
    /// [`Error::Group`] when the exchange itself failed.
    pub fn create<G: Group>(
        group: &G,
        storage: &S,
        path: &Path,
        task: NewTask,
        options: &Options,
    ) -> Result<Self> {
        Self::create_spread(group, storage, path, (&[task], 1), options)
    }

    /// As [`create`](Self::create), with any number of tasks for this rank. Costs one exchange
    /// more.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_mapped<G: Group>(
        group: &G,
        storage: &S,
        path: &Path,
        tasks: &[NewTask],
        options: &Options,
    ) -> Result<Self> {
        let spread = largest(group, tasks.len())?;
        Self::create_spread(group, storage, path, (tasks, spread), options)
    }

    /// Takes part in [`create`](Self::create) with nothing but an error, so that all ranks refuse
    /// together what only this one knows to be wrong.
    ///
    /// Returns the error that the others get, too.
    pub fn refuse<G: Group>(group: &G, error: Error) -> Error {
        let outcome = exchange(group, Err(error), (Ask::LEN, Grant::LEN), |_| Err(error));
        outcome.err().unwrap_or(error)
    }

    /// As [`refuse`](Self::refuse), for [`create_mapped`](Self::create_mapped).
    pub fn refuse_mapped<G: Group>(group: &G, error: Error) -> Error {
        let spread = match largest(group, 0) {
            Ok(spread) => spread,
            Err(error) => return error,
        };
        let lens = (spread * Ask::LEN, spread * Grant::LEN);
        exchange(group, Err(error), lens, |_| Err(error)).err().unwrap_or(error)
    }

    fn create_spread<G: Group>(
        group: &G,
        storage: &S,
        path: &Path,
        (tasks, spread): (&[NewTask], usize),
        options: &Options,
    ) -> Result<Self> {
        let checked = options.check(options.name_for(path));
        let files = checked.and_then(|()| open_files(storage, path, tasks));
        let asked = files.as_ref().map_err(|error| *error).and_then(|files| {
            let mut bytes = Vec::new();
            for task in tasks {
                let file = files.get(&task.file).ok_or(Argument::Mapping)?;
                let fs_block_len = fs_block_len(file, options)?;
                let options = options.fingerprint(path);
                Ask { task: *task, fs_block_len, options }.put(&mut bytes);
            }
            Ok(bytes)
        });
        let mut root = None;
        let lens = (spread * Ask::LEN, spread * Grant::LEN);
        let granted = exchange(group, asked, lens, |asked| {
            let (decided, grants) = decide(storage, path, asked, options)?;
            root = Some(decided);
            Ok(grants)
        })?;
        let mut writer = Self {
            storage: storage.clone(),
            path: path.to_owned(),
            options: options.clone(),
            outputs: BTreeMap::new(),
            tasks: Vec::new(),
            spread,
            fs_block_len: 0,
            root,
        };
        let mut files = files?;
        for (task, grant) in tasks.iter().zip(granted.chunks_exact(Grant::LEN)) {
            let grant = Grant::take(grant).ok_or(Error::TooLarge)?;
            writer.fs_block_len = grant.fs_block_len;
            writer.begin(*task, &grant, files.remove(&task.file));
        }
        Ok(writer)
    }

    /// Completes the multifile together with all ranks of `group`, the one it was created with.
    ///
    /// Costs one exchange, or two when rank 0 does not write all tables. On return every physical
    /// file is closed, or none of those that rank 0 had not reached yet.
    ///
    /// # Errors
    ///
    /// The same [`Error::OnRank`] on every rank: what a rank's storage reported, now or since
    /// creating; the multifile then counts as unclosed, for [`Repair`](crate::Repair).
    /// [`Error::Group`] when an exchange itself failed.
    pub fn close<G: Group>(self, group: &G) -> Result<()> {
        self.close_after(group, Ok(()))
    }

    /// As [`close`](Self::close), after what this rank did by other means: if that failed, all
    /// ranks return its error.
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close).
    pub fn close_after<G: Group>(mut self, group: &G, before: Result<()>) -> Result<()> {
        let inline = inline_blocks(group.size(), self.spread);
        let used = before.and_then(|()| self.flush_all()).map(|()| {
            let mut bytes = Vec::new();
            for local in &self.tasks {
                Used::of(&local.state, inline).put(&mut bytes, inline);
            }
            bytes
        });
        let (storage, path) = (self.storage.clone(), self.path.clone());
        let (spread, root) = (self.spread, self.root.take());
        let mut left_to_ranks = None;
        let lens = (spread * Used::len(inline), 4 + spread * OwnTail::LEN);
        let answer = exchange(group, used, lens, |used| {
            let root = root.as_ref().ok_or(Error::Poisoned)?;
            let (files, by_root) =
                root.collect(used.iter().map(|used| take_used(used, inline)).collect(), inline)?;
            if by_root {
                root.finish(&storage, &path, &files)?;
                return Ok(vec![DONE.to_vec(); used.len()]);
            }
            let tails = own_tails(root, &files)?;
            left_to_ranks = Some(files);
            Ok(tails)
        })?;
        let (todo, tails) = answer.split_at_checked(4).unwrap_or_default();
        if todo == DONE {
            return Ok(());
        }
        let tails: Vec<_> = tails.chunks_exact(OwnTail::LEN).filter_map(OwnTail::take).collect();
        let mine = self.write_tails(&tails);
        exchange(group, mine.map(|()| Vec::new()), (0, 0), |all| {
            let files = left_to_ranks.as_ref().zip(root.as_ref());
            let (files, root) = files.ok_or(Error::Poisoned)?;
            root.commit(&storage, &path, files)?;
            Ok(vec![Vec::new(); all.len()])
        })?;
        Ok(())
    }

    /// The end of the stream of this rank's task `task`, counted as given at creation.
    ///
    /// # Errors
    ///
    /// [`Argument::Task`].
    pub fn task(&mut self, task: usize) -> Result<TaskWriter<'_, S>> {
        let local = self.tasks.get_mut(task).ok_or(Argument::Task)?;
        let output = self.outputs.get_mut(&local.task.file).ok_or(Argument::Task)?;
        Ok(TaskWriter {
            output,
            state: &mut local.state,
            local_rank: local.task.local_rank,
            order: self.options.order,
            checksums: self.options.checksums,
        })
    }

    /// File-system block size in bytes that chunks are aligned to; 0 on a rank without tasks.
    #[must_use]
    pub const fn fs_block_len(&self) -> u32 {
        self.fs_block_len
    }

    /// Number of tasks of this rank.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    fn begin(&mut self, task: NewTask, grant: &Grant, file: Option<S::File>) {
        let state = TaskState { fill: Fill::new(grant.place), sums: Vec::new() };
        if let Some(file) = file {
            let journal = name::journal(&self.storage.physical_name(&self.path, task.file));
            let manner = Manner {
                number: task.file,
                task_count: grant.task_count,
                buffer_len: self.options.buffer_len,
                journal: self.options.journal.then_some((journal.as_path(), grant.instance)),
            };
            self.outputs.insert(task.file, Output::new(&self.storage, file, &manner));
        }
        if let Some(output) = self.outputs.get_mut(&task.file).filter(|_| !grant.by_root) {
            let numbers = (task.file, grant.file_count, grant.task_count);
            let name = self.options.name_for(&self.path);
            let header = self.options.header(name, grant.instance, grant.fs_block_len, numbers);
            if write_own_front(output, &header, &task, &state.fill).is_err() {
                // All ranks have agreed that opening succeeded: closing will not.
                output.poison();
            }
        }
        let (collector, collector_place) = (grant.collector, grant.collector_place);
        self.tasks.push(Local { task, state, collector, collector_place, recorded: 0 });
    }

    fn flush_all(&mut self) -> Result<()> {
        for output in self.outputs.values_mut() {
            if self.options.durable {
                output.sync()?;
            } else {
                output.flush()?;
            }
        }
        Ok(())
    }

    fn write_tails(&mut self, tails: &[OwnTail]) -> Result<()> {
        for (local, tail) in self.tasks.iter().zip(tails) {
            let output = self.outputs.get_mut(&local.task.file).ok_or(Argument::Task)?;
            let table = Table {
                at: tail.table_at,
                block_count: tail.block_count,
                task_count: tail.task_count,
                order: self.options.order,
            };
            let places = (&table, Some(tail.checksums_at).filter(|at| *at > 0));
            let unused = unused(self.options.style);
            write_own_tail(output, places, local.task.local_rank, &local.state, unused)?;
            if self.options.durable {
                output.sync()?;
            }
        }
        Ok(())
    }
}

/// Answer at closing: rank 0 completed everything.
const DONE: [u8; 4] = [0; 4];
/// Answer at closing: every rank writes its own entries, then all meet again.
const TAILS_LEFT: [u8; 4] = [1, 0, 0, 0];

/// Where a rank writes one task's entries of the tables behind the data.
#[derive(Clone, Copy, Debug)]
struct OwnTail {
    table_at: u64,
    checksums_at: u64,
    block_count: u32,
    task_count: u32,
}

impl OwnTail {
    const LEN: usize = 24;

    fn take(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::little(bytes);
        let (table_at, checksums_at) = (fields.u64()?, fields.u64()?);
        let (block_count, task_count) = (fields.u32()?, fields.u32()?);
        (table_at > 0).then_some(Self { table_at, checksums_at, block_count, task_count })
    }
}

/// What each rank has to write where, when rank 0 does not.
fn own_tails(root: &Root, files: &[FileUse]) -> Result<Vec<Vec<u8>>> {
    let plans = root.plans.iter().zip(files);
    let tails = plans.map(|(plan, file)| Tail::new(plan, file.blocks()));
    let tails = tails.collect::<Result<Vec<_>>>()?;
    let mut answers = Vec::with_capacity(root.owned.len());
    for owned in &root.owned {
        let mut bytes = TAILS_LEFT.to_vec();
        for (file, _) in owned {
            let index = narrow(u64::from(*file));
            let (tail, plan) =
                tails.get(index).zip(root.plans.get(index)).ok_or(Error::TooLarge)?;
            put_u64(&mut bytes, tail.table_at);
            put_u64(&mut bytes, tail.checksums_at.unwrap_or(0));
            put_u32(&mut bytes, tail.block_count);
            put_u32(&mut bytes, plan.header.task_count);
        }
        answers.push(bytes);
    }
    Ok(answers)
}

fn take_used(bytes: &[u8], inline: usize) -> Vec<Used> {
    bytes
        .chunks_exact(Used::len(inline))
        .filter_map(|used| Used::take(used, inline))
        .filter(|used| used.block_count > 0)
        .collect()
}

/// The largest `count` of any rank.
pub(super) fn largest<G: Group>(group: &G, count: usize) -> Result<usize> {
    let mut mine = Vec::new();
    put_u64(&mut mine, wide(count));
    let answer = exchange(group, Ok(mine), (8, 8), |counts| {
        let most = counts.iter().filter_map(|count| Fields::little(count).u64()).max();
        let mut answer = Vec::new();
        put_u64(&mut answer, most.unwrap_or(0));
        Ok(vec![answer; counts.len()])
    })?;
    Ok(narrow(Fields::little(&answer).u64().unwrap_or(0)))
}

/// Opens every physical file that `tasks` go to; its first task creates it anew.
fn open_files<S: Storage>(
    storage: &S,
    path: &Path,
    tasks: &[NewTask],
) -> Result<BTreeMap<u32, S::File>> {
    let mut files = BTreeMap::new();
    for task in tasks.iter().filter(|task| task.local_rank == 0) {
        files.insert(task.file, create(storage, path, task.file)?);
    }
    for task in tasks {
        if let Entry::Vacant(slot) = files.entry(task.file) {
            let file = storage.create(&storage.physical_name(path, task.file), false);
            slot.insert(file.map_err(|error| Error::io(task.file, &error))?);
        }
    }
    Ok(files)
}

/// Rank 0 plans the set from what all ranks asked for, and describes it if it is small.
fn decide<S: Storage>(
    storage: &S,
    path: &Path,
    asked: &[&[u8]],
    options: &Options,
) -> Result<(Root, Vec<Vec<u8>>)> {
    let asks = asked.iter().map(|asks| asks.chunks_exact(Ask::LEN).filter_map(Ask::take).collect());
    let asks: Vec<Vec<Ask>> = asks.collect();
    let all = asks.iter().flatten();
    if all.clone().any(|ask| ask.options != options.fingerprint(path)) {
        return Err(Argument::Disagree.into());
    }
    let fs_block_len =
        options.fs_block_len.or_else(|| all.clone().map(|ask| ask.fs_block_len).max());
    let mut tasks: Vec<NewTask> = all.map(|ask| ask.task).collect();
    // The mapping names tasks in the order of their global ranks.
    tasks.sort_by_key(|task| task.global_rank);
    let name = options.name_for(path);
    let instance = instance();
    let plans = plan(&tasks, fs_block_len.unwrap_or(1), options, name, instance)?;
    let owned = asks.iter().map(|asks| asks.iter().map(|ask| (ask.task.file, ask.task.local_rank)));
    let root = Root { plans, owned: owned.map(Iterator::collect).collect() };
    let by_root = root.front_is_small();
    if by_root {
        root.write_fronts(storage, path)?;
    }
    let file_count = u32::try_from(root.plans.len()).map_err(|_| Error::TooLarge)?;
    let collectors = collectors(&root, &tasks, options.packing)?;
    let mut grants = Vec::with_capacity(root.owned.len());
    for owned in &root.owned {
        let mut bytes = Vec::new();
        for (file, local) in owned {
            let plan = root.plans.get(narrow(u64::from(*file))).ok_or(Argument::Mapping)?;
            let collector = *collectors.get(&(*file, *local)).unwrap_or(local);
            Grant {
                place: plan.place(*local)?,
                collector,
                collector_place: plan.place(collector)?,
                task_count: plan.header.task_count,
                file_count,
                fs_block_len: plan.header.fs_block_len,
                instance,
                by_root,
            }
            .put(&mut bytes);
        }
        grants.push(bytes);
    }
    Ok((root, grants))
}

/// The first task of every merged task's group.
fn collectors(
    root: &Root,
    tasks: &[NewTask],
    packing: Packing,
) -> Result<BTreeMap<(u32, u32), u32>> {
    let mut collectors = BTreeMap::new();
    if !matches!(packing, Packing::Merge { .. }) {
        return Ok(collectors);
    }
    for (number, plan) in (0u32..).zip(&root.plans) {
        let mut members: Vec<_> = tasks.iter().filter(|task| task.file == number).collect();
        members.sort_by_key(|task| task.local_rank);
        let requests: Vec<u64> = members.iter().map(|task| task.chunk_len).collect();
        for group in packing.groups(&requests, u64::from(plan.header.fs_block_len))? {
            let first = u32::try_from(group.start).map_err(|_| Error::TooLarge)?;
            for member in members.get(group).unwrap_or_default() {
                collectors.insert((number, member.local_rank), first);
            }
        }
    }
    Ok(collectors)
}
