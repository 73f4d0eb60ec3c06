//! All tasks of a multifile, written by one process; and new blocks behind a closed one.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    codec::{narrow, wide},
    cursor::Fill,
    error::{Argument, Error, OnFile as _, Part, Result},
    finish::finish,
    header::{FLAG2_AT, NOT_COMMITTED},
    journal::Slot,
    mark::{INSTANCE, Mark},
    name,
    output::{Manner, Output},
    physical::{Physical, RESERVED_VERSION},
    plan::{FilePlan, NewTask, Options, check, plan},
    reader::Reader,
    repeats::Owner,
    storage::{File, Naming, Storage},
    task_writer::{States, TaskState, TaskWriter},
};

/// File-system block sizes above this are not taken from the file system.
const FS_BLOCK_LEN_MAX: u64 = 32 << 20;
/// The default.
const FS_BLOCK_LEN_DEFAULT: u32 = 2 << 20;

/// A multifile being written by one process.
#[derive(Debug)]
pub struct Writer<S: Storage> {
    storage: S,
    path: PathBuf,
    files: Vec<OpenFile<S>>,
    /// (file, local rank) of every task, in the order the caller gave.
    tasks: Vec<(u32, u32)>,
}

#[derive(Debug)]
struct OpenFile<S: Storage> {
    output: Output<S>,
    plan: FilePlan,
    states: States,
}

impl<S: Storage> Writer<S> {
    /// Creates the multifile at `path` with these tasks, replacing what was there.
    ///
    /// On return every physical file exists and says what it will hold.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`]: the tasks form no set, the block size is zero, the name too long.
    /// - [`Error::TooLarge`]: chunks beyond the largest offset.
    /// - [`Error::Io`] with the number of the physical file.
    pub fn create(storage: &S, path: &Path, tasks: &[NewTask], options: &Options) -> Result<Self> {
        let name = options.name_for(path);
        let instance = instance();
        // What cannot be is refused before an existing file is cut.
        check(tasks, options, name)?;
        let fs_block_len = match options.fs_block_len {
            Some(len) => len,
            None => fs_block_len(&open_to_create(storage, path, 0)?, options)?,
        };
        let plans = plan(tasks, fs_block_len, options, name, instance)?;
        let mut files = Vec::with_capacity(plans.len());
        for (number, plan) in (0u32..).zip(plans) {
            let file = create(storage, path, number)?;
            let journal = name::journal(&storage.physical_name(path, number));
            let manner = Manner {
                number,
                task_count: plan.header.task_count,
                buffer_len: options.buffer_len,
                journal: options.journal.then_some((path, &*journal)),
                blank: true,
                instance,
            };
            let mut output = Output::new(storage, file, &manner);
            output.write(&plan.front(), 0, None)?;
            output.flush()?;
            let states = plan.ranks.iter().map(|_| None).collect();
            files.push(OpenFile { output, plan, states });
        }
        let tasks = tasks.iter().map(|task| (task.file, task.local_rank));
        Ok(Self { storage: storage.clone(), path: path.to_owned(), files, tasks: tasks.collect() })
    }

    /// Opens the closed multifile at `path` to write further bytes behind every task's last one.
    ///
    /// Until it is closed again the multifile counts as unclosed; with [`Options::journal`],
    /// `repair` restores what it held and what was added. Only the journal, the buffer, and
    /// durability are taken from `options`.
    ///
    /// # Errors
    ///
    /// As [`Reader::open`]; [`Part::Version`] for a file older than version 4, whose stored chunk
    /// sizes do not say what was reserved.
    pub fn append(storage: &S, path: &Path, options: &Options) -> Result<Self> {
        let reader = Reader::open(storage, path)?;
        let instance = instance();
        let mut files = Vec::new();
        let (members, mapping) = reader.into_parts();
        for (number, member) in (0u32..).zip(members) {
            let mapping = mapping.as_ref().filter(|_| number == 0);
            files.push(reopen(storage, path, member, mapping, options, instance)?);
        }
        let first = files.first().map_or(0, |file| file.states.len());
        let single = || (0u32..).take(first).map(|local| (0, local)).collect();
        let tasks = mapping.unwrap_or_else(single);
        Ok(Self { storage: storage.clone(), path: path.to_owned(), files, tasks })
    }

    /// The end of the stream of task `task`, counted as given to [`create`](Self::create).
    ///
    /// # Errors
    ///
    /// [`Argument::Task`].
    pub fn task(&mut self, task: usize) -> Result<TaskWriter<'_, S>> {
        let (file, local_rank) = *self.tasks.get(task).ok_or(Argument::Task)?;
        let open = self.files.get_mut(narrow(u64::from(file))).ok_or(Argument::Task)?;
        let state = open.states.get_mut(narrow(u64::from(local_rank))).ok_or(Argument::Task)?;
        let state = match state {
            Some(state) => state,
            None => {
                let fill = Fill::new(open.plan.place(local_rank)?);
                state.insert(Box::new(TaskState::new(fill, Vec::new())))
            }
        };
        let (order, checksums) = (open.plan.header.order, open.plan.checksums);
        Ok(TaskWriter { output: &mut open.output, state, local_rank, order, checksums })
    }

    /// Hands everything accepted to the storage: it survives the death of this process.
    ///
    /// # Errors
    ///
    /// What the storage reports, and then [`Error::Poisoned`].
    pub fn flush(&mut self) -> Result<()> {
        self.files.iter_mut().try_for_each(|file| file.output.flush())
    }

    /// Makes everything accepted durable.
    ///
    /// # Errors
    ///
    /// What the storage reports, and then [`Error::Poisoned`].
    pub fn sync(&mut self) -> Result<()> {
        self.files.iter_mut().try_for_each(|file| file.output.sync())
    }

    /// Writes the tables behind the data and marks every physical file as closed.
    ///
    /// # Errors
    ///
    /// What the storage reports, [`Error::Poisoned`] after an earlier failure; files not yet
    /// marked stay unclosed, for `repair`.
    pub fn close(mut self) -> Result<()> {
        // File 0 holds the mapping and makes the set readable, so it comes last.
        for file in self.files.iter_mut().rev() {
            finish(&mut file.output, &file.plan, &file.states)?;
            file.states.iter_mut().flatten().for_each(|state| state.release(&file.output));
        }
        for number in (0u32..).take(self.files.len()) {
            remove_journal(&self.storage, &self.path, number)?;
        }
        Ok(())
    }

    /// File-system block size in bytes that the chunks are aligned to.
    #[must_use]
    pub fn fs_block_len(&self) -> u32 {
        self.files.first().map_or(0, |file| file.plan.header.fs_block_len)
    }

    /// Number of tasks.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// The physical file `file`, to write by other means.
    #[must_use]
    pub fn file(&self, file: usize) -> Option<&Arc<S::File>> {
        self.files.get(file).map(|file| file.output.file())
    }
}

/// Opens physical file `number`, or makes it; one that is there stays as it is.
pub(crate) fn open_to_create<S: Storage>(storage: &S, path: &Path, number: u32) -> Result<S::File> {
    storage
        .create(&storage.physical_name(path, number), Naming::of(path, number), false)
        .on_file(number)
}

/// Creates physical file `number` empty, and removes a journal left by an earlier one.
pub(crate) fn create<S: Storage>(storage: &S, path: &Path, number: u32) -> Result<S::File> {
    remove_journal(storage, path, number)?;
    storage
        .create(&storage.physical_name(path, number), Naming::of(path, number), true)
        .on_file(number)
}

/// Empties physical file `number`, which ranks have opened and go on to use, and removes its
/// journal.
pub(crate) fn cut<S: Storage>(storage: &S, path: &Path, number: u32) -> Result<()> {
    remove_journal(storage, path, number)?;
    open_to_create(storage, path, number)?.resize(0).on_file(number)
}

pub(crate) fn remove_journal<S: Storage>(storage: &S, path: &Path, number: u32) -> Result<()> {
    storage.remove(&name::journal(&storage.physical_name(path, number))).on_file(number)
}

/// The block size to align to: the one asked for, or the file system's if it is a sane one.
pub(crate) fn fs_block_len<F: File>(file: &F, options: &Options) -> Result<u32> {
    if let Some(len) = options.fs_block_len {
        return Ok(len);
    }
    let len = file.block_len().on_file(0)?;
    let sane = u32::try_from(len).ok().filter(|_| (1..=FS_BLOCK_LEN_MAX).contains(&len));
    Ok(sane.unwrap_or(FS_BLOCK_LEN_DEFAULT))
}

/// A number that tells this file from an earlier one of the same name.
pub(crate) fn instance() -> u64 {
    RandomState::new().build_hasher().finish() & INSTANCE
}

fn reopen<S: Storage>(
    storage: &S,
    set: &Path,
    member: Physical<S::File>,
    mapping: Option<&Vec<(u32, u32)>>,
    options: &Options,
    instance: u64,
) -> Result<OpenFile<S>> {
    let number = member.front.number;
    if member.front.header.version < RESERVED_VERSION {
        return Err(Error::Damaged { part: Part::Version, file: number });
    }
    let mark = if options.journal { Mark::Open(instance).encode() } else { 0 };
    let plan = FilePlan::of(&member, mapping.cloned(), options, mark)?;
    let mut states: States = Vec::with_capacity(plan.ranks.len());
    for (local, _) in (0u32..).zip(&plan.ranks) {
        // Refuses blocks longer than their chunk: behind them there is no place to go on.
        let lens = member.cursor(narrow(u64::from(local)))?.block_lens().to_vec();
        let sums = (0..wide(lens.len()).min(if plan.checksums { u64::MAX } else { 0 }))
            .map(|block| Ok(member.checksum(local, block)?.unwrap_or(0)))
            .collect::<Result<_>>()?;
        let fill = Fill::resume(plan.place(local)?, lens);
        states.push(Some(Box::new(TaskState::new(fill, sums))));
    }
    let path = storage.physical_name(set, number);
    let file = storage.open(&path, Some(Naming::of(set, number))).on_file(number)?;
    let journal = name::journal(&path);
    let manner = Manner {
        number,
        task_count: plan.header.task_count,
        buffer_len: options.buffer_len,
        journal: options.journal.then_some((set, &*journal)),
        // The tables are overwritten, and so is what others left in the chunks.
        blank: false,
        instance,
    };
    let mut output = Output::new(storage, file, &manner);
    for (task, state) in (0u32..).zip(states.iter().flatten()) {
        for (block, used) in state.fill.block_lens().enumerate() {
            let sum = state.sums.get(block).copied();
            let slot = Slot::of(used, sum);
            output.record(Owner { task, block: wide(block), slot })?;
        }
    }
    // The next block may overwrite the tables: a lost node leaves these, or the journal.
    output.sync()?;
    output.write(&plan.header.order.bytes_u64(mark), FLAG2_AT, None)?;
    // From here on the file counts as unclosed.
    output.write(&NOT_COMMITTED, plan.header.commit_at(), None)?;
    output.sync()?;
    Ok(OpenFile { output, plan, states })
}
