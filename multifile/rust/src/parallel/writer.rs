//! A multifile written by many ranks, each with its own tasks.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    codec::wide,
    error::{Argument, Error, Result},
    group::Group,
    journal::Slot,
    layout::ChunkPlace,
    name,
    output::Output,
    parallel::{
        apart,
        create::{NewSet, Opening, alike, decide, grants},
        exchange::{Lens, exchange},
        records::{Used, inline_blocks, inline_tasks},
        tables::Root,
    },
    plan::{NewTask, Options},
    storage::Storage,
    task_writer::{TaskState, TaskWriter},
};

/// One rank's part of a multifile being written.
///
/// Dropping it without [`close`](Self::close) leaves an unclosed file, for
/// [`Repair`](crate::Repair), with what had reached the storage.
#[derive(Debug)]
pub struct ParWriter<S: Storage> {
    pub(super) storage: S,
    pub(super) path: PathBuf,
    pub(super) options: Options,
    /// The physical files this rank has tasks in, by number.
    pub(super) outputs: BTreeMap<u32, Output<S>>,
    pub(super) tasks: Vec<Local>,
    /// Largest number of tasks of any rank: how many records closing exchanges.
    pub(super) spread: usize,
    pub(super) fs_block_len: u32,
    /// The number that the set's journals are signed with, if each file is written apart.
    pub(super) apart: Option<u64>,
    pub(super) root: Option<Root>,
}

/// One task of this rank.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) task: NewTask,
    pub(super) state: TaskState,
    pub(super) collector: u32,
    pub(super) collector_place: ChunkPlace,
    /// Merged blocks before this one are in the journal.
    pub(super) recorded: usize,
}

impl<S: Storage> ParWriter<S> {
    /// Creates the multifile at `path` together with all ranks of `group`, replacing what was
    /// there; this rank writes `task`.
    ///
    /// Costs one exchange, or two of a set that is written apart. On return every physical file
    /// exists and, in sets that rank 0 describes, says what it will hold; in larger ones a failure
    /// to write this rank's entries shows at closing.
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
        Self::create_with(group, storage, path, Ok(task), options, |_, _| Ok(()))
    }

    /// As [`create`](Self::create). A rank that knows something to be wrong brings that instead of
    /// its task, and all fail with it. `prepare` is given this rank's physical file and its number
    /// before the ranks agree that all could open, and what it fails with fails all.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), what a rank brought, and what `prepare` returns.
    pub fn create_with<G: Group>(
        group: &G,
        storage: &S,
        path: &Path,
        task: Result<NewTask>,
        options: &Options,
        prepare: impl FnMut(u32, &S::File) -> Result<()>,
    ) -> Result<Self> {
        let tasks = task.map(|task| vec![task]);
        Self::create_spread(group, NewSet { storage, path, options }, tasks, 1, prepare)
    }

    /// As [`create`](Self::create), with any number of tasks for this rank. Costs one exchange,
    /// and a second one if any rank has more tasks than fit its record in the first: 256 with up
    /// to 146 ranks, fewer with more, and always 4.
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
        let tasks = Ok(tasks.to_vec());
        Self::create_mapped_with(group, storage, path, tasks, options, |_, _| Ok(()))
    }

    /// As [`create_mapped`](Self::create_mapped), with `prepare` for each physical file of this
    /// rank, and what is wrong instead of its tasks, as in [`create_with`](Self::create_with).
    ///
    /// # Errors
    ///
    /// As [`create_with`](Self::create_with).
    pub fn create_mapped_with<G: Group>(
        group: &G,
        storage: &S,
        path: &Path,
        tasks: Result<Vec<NewTask>>,
        options: &Options,
        prepare: impl FnMut(u32, &S::File) -> Result<()>,
    ) -> Result<Self> {
        let spread = inline_tasks(group.size());
        Self::create_spread(group, NewSet { storage, path, options }, tasks, spread, prepare)
    }

    fn create_spread<G: Group>(
        group: &G,
        set: NewSet<'_, S>,
        tasks: Result<Vec<NewTask>>,
        spread: usize,
        prepare: impl FnMut(u32, &S::File) -> Result<()>,
    ) -> Result<Self> {
        let fingerprint = set.options.fingerprint(set.path, 0);
        let opened = tasks.and_then(|tasks| {
            let opening = Opening::begin(set, &tasks, prepare)?;
            Ok((opening.asks(&tasks, fingerprint)?, opening, tasks))
        });
        let asks = opened.as_ref().map(|(asks, ..)| &**asks).map_err(|error| *error);
        let mut root = None;
        let (spread, granted) = grants(group, asks, spread, 1, |asked| {
            alike(asked, fingerprint)?;
            let (decided, grants) = decide(set, asked, &[])?;
            root = Some(decided);
            Ok(grants)
        })?;
        let (_, opening, tasks) = opened?;
        apart::cut(group, set, &granted, &tasks)?;
        Ok(opening.granted(tasks.into_iter().zip(granted), spread, root))
    }

    /// Completes the multifile together with all ranks of `group`, the one it was created with.
    ///
    /// Costs one exchange, or two of a set that is written apart. On return every physical file is
    /// closed, or none of those that rank 0 had not reached yet.
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
        let used = before.and_then(|()| self.used(inline));
        if self.apart.is_some() {
            self.complete_apart(group, used, inline)?;
            self.release();
            return Ok(());
        }
        exchange(group, used, Lens::asks(self.spread * Used::len(inline)), |used| {
            self.complete(used, inline)?;
            Ok(vec![Vec::new(); used.len()])
        })?;
        self.release();
        Ok(())
    }

    /// Gives back the space that was reserved and not used, in files that are complete.
    pub(super) fn release(&mut self) {
        for Local { task, state, .. } in &mut self.tasks {
            self.outputs.get(&task.file).into_iter().for_each(|output| state.release(output));
        }
    }

    /// Hands everything to the storage and returns what this rank's tasks used, `inline` blocks of
    /// each; the rest it leaves where rank 0 looks for it.
    pub(super) fn used(&mut self, inline: usize) -> Result<Vec<u8>> {
        self.flush_all()?;
        let mut bytes = Vec::new();
        for local in &self.tasks {
            self.leave(local, inline)?;
            Used::of(&local.state, inline).put(&mut bytes, inline);
        }
        Ok(bytes)
    }

    /// Completes all files on rank 0, from what every rank used.
    pub(super) fn complete(&self, used: &[&[u8]], inline: usize) -> Result<()> {
        let root = self.root.as_ref().ok_or(Error::Poisoned)?;
        let used = used.iter().map(|used| take_used(used, inline)).collect();
        let count = if self.apart.is_some() { 1 } else { root.plans.len() };
        let files = root.collect(&self.storage, &self.path, used, count)?;
        root.finish(&self.storage, &self.path, &files)
    }

    /// Leaves in the journal what does not fit a task's record.
    fn leave(&self, local: &Local, inline: usize) -> Result<()> {
        let inline = if self.apart.is_some() && local.task.file > 0 { 0 } else { inline };
        if local.state.fill.block_count() <= inline {
            return Ok(());
        }
        let output = self.outputs.get(&local.task.file).ok_or(Argument::Task)?;
        let journal = name::journal(&self.storage.physical_name(&self.path, local.task.file));
        let lens = local.state.fill.block_lens();
        let slots = lens.enumerate().map(|(block, used)| {
            (wide(block), Slot::of(used, local.state.sums.get(block).copied()))
        });
        let slots = slots.skip(inline);
        output.leave(&self.storage, &self.path, &journal, local.task.local_rank, slots)
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

    /// From here on the storage has all of it: nobody is told what closing a descriptor reports.
    fn flush_all(&mut self) -> Result<()> {
        for output in self.outputs.values_mut() {
            if self.options.durable {
                output.sync()?;
            } else {
                output.hand_over()?;
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
