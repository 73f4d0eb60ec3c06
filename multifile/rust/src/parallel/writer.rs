//! A multifile written by many ranks, each with its own tasks.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::{Path, PathBuf},
};

use crate::{
    codec::{Fields, narrow, put_u64, wide},
    cursor::Fill,
    error::{Argument, Error, Result},
    group::Group,
    journal::Slot,
    layout::Place,
    name,
    output::{Manner, Output},
    packing::Packing,
    parallel::{
        exchange::exchange,
        records::{Ask, Grant, Used, inline_blocks},
        tables::{Root, write_own_front},
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
        Self::create_with(group, storage, path, (task, options), |_, _| Ok(()))
    }

    /// As [`create`](Self::create); `prepare` is given this rank's physical file and its number
    /// before the ranks agree that all could open, and what it fails with fails all.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and what `prepare` returns.
    pub fn create_with<G: Group>(
        group: &G,
        storage: &S,
        path: &Path,
        (task, options): (NewTask, &Options),
        prepare: impl FnMut(u32, &S::File) -> Result<()>,
    ) -> Result<Self> {
        Self::create_spread(group, storage, path, (&[task], 1, options), prepare)
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
        Self::create_mapped_with(group, storage, path, (tasks, options), |_, _| Ok(()))
    }

    /// As [`create_mapped`](Self::create_mapped), with `prepare` for each physical file of this
    /// rank as in [`create_with`](Self::create_with).
    ///
    /// # Errors
    ///
    /// As [`create_with`](Self::create_with).
    pub fn create_mapped_with<G: Group>(
        group: &G,
        storage: &S,
        path: &Path,
        (tasks, options): (&[NewTask], &Options),
        prepare: impl FnMut(u32, &S::File) -> Result<()>,
    ) -> Result<Self> {
        let spread = largest(group, tasks.len())?;
        Self::create_spread(group, storage, path, (tasks, spread, options), prepare)
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
        (tasks, spread, options): (&[NewTask], usize, &Options),
        mut prepare: impl FnMut(u32, &S::File) -> Result<()>,
    ) -> Result<Self> {
        let checked = options.check(options.name_for(path));
        let files = checked.and_then(|()| open_files(storage, path, tasks));
        let files = files.and_then(|files| {
            files.iter().try_for_each(|(number, file)| prepare(*number, file))?;
            Ok(files)
        });
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
    /// Costs one exchange. On return every physical file is closed, or none of those that rank 0 had
    /// not reached yet.
    ///
    /// # Errors
    ///
    /// The same [`Error::OnRank`] on every rank: what a rank's storage reported, now or since
    /// creating; the multifile then counts as unclosed, for [`Repair`](crate::Repair).
    /// [`Error::Group`] when the exchange itself failed.
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
        let used = before.and_then(|()| self.flush_all()).and_then(|()| {
            let mut bytes = Vec::new();
            for local in &self.tasks {
                self.leave(local, inline)?;
                Used::of(&local.state, inline).put(&mut bytes, inline);
            }
            Ok(bytes)
        });
        let lens = (self.spread * Used::len(inline), 0);
        exchange(group, used, lens, |used| {
            let root = self.root.as_ref().ok_or(Error::Poisoned)?;
            let used = used.iter().map(|used| take_used(used, inline)).collect();
            let files = root.collect(&self.storage, &self.path, used)?;
            root.finish(&self.storage, &self.path, &files)?;
            Ok(vec![Vec::new(); narrow(group.size().into())])
        })?;
        Ok(())
    }

    /// Leaves in the journal what does not fit a task's record.
    fn leave(&self, local: &Local, inline: usize) -> Result<()> {
        if local.state.fill.block_count() <= inline {
            return Ok(());
        }
        let output = self.outputs.get(&local.task.file).ok_or(Argument::Task)?;
        let journal = name::journal(&self.storage.physical_name(&self.path, local.task.file));
        let lens = local.state.fill.block_lens();
        let slots = lens.enumerate().map(|(block, used)| {
            (wide(block), Slot { used, sum: local.state.sums.get(block).copied() })
        });
        let slots = slots.skip(inline);
        output.leave(&self.storage, &journal, local.task.local_rank, slots)
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
                journal: self.options.journal.then_some(journal.as_path()),
                instance: grant.instance,
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
}

fn take_used(bytes: &[u8], inline: usize) -> Vec<Used> {
    bytes
        .chunks_exact(Used::len(inline))
        .filter_map(|used| Used::take(used, inline))
        .filter(|used| used.block_count > 0)
        .collect()
}

/// The largest `count` of any rank.
fn largest<G: Group>(group: &G, count: usize) -> Result<usize> {
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
    let root = Root { plans, owned: owned.map(Iterator::collect).collect(), instance };
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
