//! Header and tables of a set's files, written by rank 0 for all, or by every rank for itself.
//!
//! One rank writes a megabyte faster than thousands write sixteen bytes each into the same block
//! of a file system. Beyond the limits below the work is shared: each rank writes its own entries,
//! and rank 0 only commits.

use std::path::Path;

use crate::{
    blocks::Table,
    codec::{narrow, unsigned, wide},
    cursor::Fill,
    error::{Error, Result},
    finish::{CHECKSUMS_MAGIC, Tail, Usage, commit, finish, mapping_bytes},
    header::{FIXED_END, Header},
    output::{Manner, Output},
    parallel::records::Used,
    plan::{FilePlan, NewTask},
    storage::Storage,
    task_writer::TaskState,
    writer::remove_journal,
};

/// Up to so many physical files, rank 0 writes all tables.
pub const ROOT_FILES_MAX: usize = 16;
/// Up to so many bytes of tables, rank 0 writes them.
pub const ROOT_BYTES_MAX: u64 = 4 << 20;

/// What rank 0 keeps from opening to closing.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) plans: Vec<FilePlan>,
    /// (file, local rank) of every rank's tasks.
    pub(crate) owned: Vec<Vec<(u32, u32)>>,
}

impl Root {
    pub(crate) fn front_is_small(&self) -> bool {
        let bytes = self.plans.iter().map(|plan| 16 * wide(plan.ranks.len())).sum::<u64>();
        self.plans.len() <= ROOT_FILES_MAX && bytes <= ROOT_BYTES_MAX
    }

    pub(crate) fn write_fronts<S: Storage>(&self, storage: &S, path: &Path) -> Result<()> {
        for (number, plan) in (0u32..).zip(&self.plans) {
            let mut output = open(storage, path, number, plan)?;
            output.write(&plan.front(), 0, None)?;
            output.flush()?;
        }
        Ok(())
    }

    /// What the tasks of every file used, and whether that is all and little enough to be written
    /// here.
    pub(crate) fn collect(
        &self,
        used: Vec<Vec<Used>>,
        inline: usize,
    ) -> Result<(Vec<FileUse>, bool)> {
        let mut files: Vec<FileUse> = self
            .plans
            .iter()
            .map(|plan| FileUse(vec![Used::default(); plan.ranks.len()]))
            .collect();
        for ((file, local), used) in self.owned.iter().flatten().zip(used.into_iter().flatten()) {
            let slot = files
                .get_mut(narrow(u64::from(*file)))
                .and_then(|file| file.0.get_mut(narrow(u64::from(*local))));
            *slot.ok_or(Error::TooLarge)? = used;
        }
        let mut bytes = 0;
        for (plan, file) in self.plans.iter().zip(&files) {
            let tail = Tail::new(plan, file.blocks())?;
            bytes += tail.end - tail.table_at;
        }
        let is_told = files.iter().all(|file| file.blocks() <= inline);
        let small = self.plans.len() <= ROOT_FILES_MAX && bytes <= ROOT_BYTES_MAX;
        Ok((files, is_told && small))
    }

    /// Completes all files: file 0 last, because it makes the set readable.
    pub(crate) fn finish<S: Storage>(
        &self,
        storage: &S,
        path: &Path,
        files: &[FileUse],
    ) -> Result<()> {
        for (number, plan, usage) in self.numbered(files).into_iter().rev() {
            let mut output = open(storage, path, number, plan)?;
            finish(&mut output, plan, usage)?;
            remove_journal(storage, path, number)?;
        }
        Ok(())
    }

    /// Completes all files whose tables the ranks wrote themselves.
    pub(crate) fn commit<S: Storage>(
        &self,
        storage: &S,
        path: &Path,
        files: &[FileUse],
    ) -> Result<()> {
        for (number, plan, usage) in self.numbered(files).into_iter().rev() {
            let tail = Tail::new(plan, usage.blocks())?;
            let mut output = open(storage, path, number, plan)?;
            output.write(&mapping_bytes(plan), tail.mapping_at, None)?;
            if let Some(at) = tail.checksums_at {
                output.write(&CHECKSUMS_MAGIC, at - wide(CHECKSUMS_MAGIC.len()), None)?;
            }
            commit(&mut output, plan, &tail)?;
            remove_journal(storage, path, number)?;
        }
        Ok(())
    }

    fn numbered<'a>(&'a self, files: &'a [FileUse]) -> Vec<(u32, &'a FilePlan, &'a FileUse)> {
        let both = (0u32..).zip(self.plans.iter().zip(files));
        both.map(|(number, (plan, usage))| (number, plan, usage)).collect()
    }
}

/// What the tasks of one file used.
#[derive(Clone, Debug)]
pub(crate) struct FileUse(Vec<Used>);

impl FileUse {
    pub(crate) fn blocks(&self) -> usize {
        let counts = self.0.iter().map(|used| narrow(used.block_count));
        counts.max().unwrap_or(0)
    }
}

impl Usage for FileUse {
    fn block_count(&self, task: usize) -> usize {
        self.0.get(task).map_or(0, |used| narrow(used.block_count))
    }

    fn block_len(&self, task: usize, block: usize) -> Option<u64> {
        let used = self.0.get(task).filter(|used| wide(block) < used.block_count)?;
        used.lens.get(block).copied()
    }

    fn block_sum(&self, task: usize, block: usize) -> u32 {
        let sum = self.block_len(task, block).and_then(|_| self.0.get(task)?.sums.get(block));
        sum.copied().unwrap_or(0)
    }
}

impl Used {
    pub(crate) fn of(state: &TaskState, inline: usize) -> Self {
        Self {
            block_count: wide(state.fill.block_count()),
            lens: state.fill.block_lens().take(inline).collect(),
            sums: state.sums.iter().take(inline).copied().collect(),
        }
    }
}

/// Writes one task's entries behind the header, and the header if it is the file's first task.
pub(crate) fn write_own_front<S: Storage>(
    output: &mut Output<S>,
    header: &Header,
    task: &NewTask,
    fill: &Fill,
) -> Result<()> {
    let own = 8 * u64::from(task.local_rank);
    if task.local_rank == 0 {
        output.write(&header.encode(), 0, None)?;
    }
    let order = header.order;
    output.write(&order.bytes_u64(unsigned(task.global_rank)), FIXED_END + own, None)?;
    output.write(&order.bytes_u64(fill.place().chunk_len), header.chunks_at() + own, None)?;
    output.flush()
}

/// Writes one task's entries of the tables behind the data.
pub(crate) fn write_own_tail<S: Storage>(
    output: &mut Output<S>,
    (table, checksums_at): (&Table, Option<u64>),
    task: u32,
    state: &TaskState,
    unused: u64,
) -> Result<()> {
    let count = wide(state.fill.block_count());
    output.write(&table.order.bytes_u64(count), table.count_at(task), None)?;
    for block in 0..u64::from(table.block_count) {
        let len = state.fill.block_len(narrow(block)).unwrap_or(unused);
        if len != 0 {
            output.write(&table.order.bytes_u64(len), table.slot_at(task, block), None)?;
        }
        if let (Some(at), Some(sum)) = (checksums_at, state.sums.get(narrow(block))) {
            let slot = block * u64::from(table.task_count) + u64::from(task);
            output.write(&sum.to_le_bytes(), at + 4 * slot, None)?;
        }
    }
    output.flush()
}

fn open<S: Storage>(storage: &S, path: &Path, number: u32, plan: &FilePlan) -> Result<Output<S>> {
    let file = storage.open(&storage.physical_name(path, number), true);
    let file = file.map_err(|error| Error::io(number, &error))?;
    let task_count = plan.header.task_count;
    Ok(Output::new(
        storage,
        file,
        &Manner { number, task_count, buffer_len: 1 << 16, journal: None },
    ))
}
