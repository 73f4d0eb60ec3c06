//! Header and tables of a set's files, written by rank 0 for all, or by every rank for itself.
//!
//! One rank writes a megabyte faster than thousands write sixteen bytes each into the same block
//! of a file system. Beyond the limits below the work of opening is shared: each rank writes its
//! own entries. Closing is not: tables have their place behind the largest number of blocks of any
//! rank, so ranks that wrote them would have to meet once before and once after. What a rank cannot
//! tell rank 0 in one record, it leaves in the journal, where most of it is already.

use std::{io::ErrorKind, path::Path};

use crate::{
    codec::{narrow, unsigned, wide},
    cursor::Fill,
    error::{Error, OnFile as _, Result},
    finish::{Usage, finish},
    header::{FIXED_END, Header},
    journal::{self, Found, SlotKey},
    mark::Mark,
    name,
    output::{Manner, Output},
    parallel::records::Used,
    plan::{FilePlan, NewTask},
    storage::{Naming, Storage},
    task_writer::TaskState,
    writer::{cut, remove_journal},
};

/// Up to so many physical files, rank 0 writes all headers.
pub const ROOT_FILES_MAX: usize = 16;
/// Up to so many bytes of their tables, rank 0 writes them.
pub const ROOT_BYTES_MAX: u64 = 4 << 20;

/// State of rank 0 from opening to closing.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) plans: Vec<FilePlan>,
    /// (file, local rank) of every rank's tasks.
    pub(crate) owned: Vec<Vec<(u32, u32)>>,
    /// Number that signs the slots of the journals.
    pub(crate) instance: u64,
}

impl Root {
    pub(crate) fn front_is_small(&self) -> bool {
        let bytes = self.plans.iter().map(|plan| 16 * wide(plan.ranks.len())).sum::<u64>();
        self.plans.len() <= ROOT_FILES_MAX && bytes <= ROOT_BYTES_MAX
    }

    /// Empties all files, while everybody waits.
    pub(crate) fn cut<S: Storage>(&self, storage: &S, path: &Path) -> Result<()> {
        let mut numbers = (0u32..).zip(&self.plans).map(|(number, _)| number);
        numbers.try_for_each(|number| cut(storage, path, number))
    }

    pub(crate) fn write_fronts<S: Storage>(&self, storage: &S, path: &Path) -> Result<()> {
        for (number, plan) in (0u32..).zip(&self.plans) {
            let mut output = open(storage, path, number, plan)?;
            output.write(&plan.front(), 0, None)?;
            output.flush()?;
        }
        Ok(())
    }

    /// Collects the use of the tasks of the first `count` files: from messages and journals.
    pub(crate) fn collect<S: Storage>(
        &self,
        storage: &S,
        path: &Path,
        used: Vec<Vec<Used>>,
        count: usize,
    ) -> Result<Vec<FileUse>> {
        let mut files: Vec<FileUse> = self
            .plans
            .iter()
            .map(|plan| FileUse(vec![Used::nothing(); plan.ranks.len()]))
            .collect();
        for ((file, local), used) in self.owned.iter().flatten().zip(used.into_iter().flatten()) {
            let slot = files
                .get_mut(narrow(u64::from(*file)))
                .and_then(|file| file.0.get_mut(narrow(u64::from(*local))));
            *slot.ok_or(Error::TooLarge)? = used;
        }
        files.truncate(count);
        for (number, file) in (0u32..).zip(&mut files) {
            if file.0.iter().any(Used::is_cut) {
                self.fetch(storage, &storage.physical_name(path, number), number, file)?;
            }
        }
        Ok(files)
    }

    /// Reads from the journal of physical file `number` what did not fit its tasks' records.
    fn fetch<S: Storage>(
        &self,
        storage: &S,
        path: &Path,
        number: u32,
        file: &mut FileUse,
    ) -> Result<()> {
        let journal = storage.open(&name::journal(path), None).on_file(number)?;
        let (instance, task_count) = (self.instance, u32::try_from(file.0.len()));
        let task_count = task_count.map_err(|_| Error::TooLarge)?;
        for (task, used) in (0u32..).zip(&mut file.0) {
            for block in wide(used.lens.len())..used.block_count {
                let key = SlotKey { instance, task_count, task, block };
                let Found::Slot(slot) = journal::read(&journal, &key).on_file(number)? else {
                    return Err(Error::io(number, &ErrorKind::InvalidData.into()));
                };
                used.lens.push(slot.used);
                used.sums.push(slot.sum.unwrap_or(0));
            }
        }
        Ok(())
    }

    /// Completes the files of which the use is given: file 0 last, because it makes the set
    /// readable.
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

    fn numbered<'a>(&'a self, files: &'a [FileUse]) -> Vec<(u32, &'a FilePlan, &'a FileUse)> {
        let both = (0u32..).zip(self.plans.iter().zip(files));
        both.map(|(number, (plan, usage))| (number, plan, usage)).collect()
    }
}

/// Use of the tasks of one file.
#[derive(Clone, Debug)]
pub(crate) struct FileUse(pub(super) Vec<Used>);

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

pub(super) fn open<S: Storage>(
    storage: &S,
    path: &Path,
    number: u32,
    plan: &FilePlan,
) -> Result<Output<S>> {
    let file = storage
        .open(&storage.physical_name(path, number), Some(Naming::of(path, number)))
        .on_file(number)?;
    let journal = name::journal(&storage.physical_name(path, number));
    let journal =
        matches!(Mark::decode(plan.header.flag2), Mark::Open(_)).then_some((path, &*journal));
    let task_count = plan.header.task_count;
    let manner = Manner { journal, ..Manner::without_journal(number, task_count) };
    Ok(Output::new(storage, file, &manner))
}
