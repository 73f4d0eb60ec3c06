//! A set written together with copies of itself, so that a lost physical file loses no data.
//!
//! The copy of a file's tasks stands in the file of the same number of each buddy set, behind the
//! tasks of the ranks that keep it: those of a neighbouring file (format section 9). Every rank
//! writes its own copies, which needs storage that all ranks reach.

use std::path::Path;

use crate::{
    codec::{Fields, narrow, put_u32},
    error::{Argument, Error, Result},
    group::Group,
    name,
    packing::Packing,
    parallel::{exchange::exchange, writer::ParWriter},
    plan::{NewTask, Options},
    storage::Storage,
};

/// One rank's part of a set and its buddy sets.
#[derive(Debug)]
pub struct BuddyWriter<S: Storage> {
    original: ParWriter<S>,
    copies: Vec<ParWriter<S>>,
}

impl<S: Storage> BuddyWriter<S> {
    /// Creates the set at `path` and `levels` buddy sets together with all ranks of `group`; this
    /// rank writes `task`. Each physical file is one group of packed tasks.
    ///
    /// # Errors
    ///
    /// As [`ParWriter::create`].
    pub fn create<G: Group>(
        group: &G,
        storage: &S,
        path: &Path,
        task: NewTask,
        levels: (u32, &Options),
    ) -> Result<Self> {
        Self::create_with(group, storage, path, (task, levels), |_, _| Ok(()))
    }

    /// As [`create`](Self::create), with `prepare` for the set itself as in
    /// [`ParWriter::create_with`].
    ///
    /// # Errors
    ///
    /// As [`ParWriter::create_with`].
    pub fn create_with<G: Group>(
        group: &G,
        storage: &S,
        path: &Path,
        (task, (levels, options)): (NewTask, (u32, &Options)),
        prepare: impl FnMut(u32, &S::File) -> Result<()>,
    ) -> Result<Self> {
        let name = Some(options.name_for(path).to_vec());
        let packing = Packing::Collective { size: Some(u32::MAX) };
        let options = Options { name, packing, ..options.clone() };
        let files = neighbours(group, task, levels)?;
        let new = (task, &options);
        let original = ParWriter::create_with(group, storage, path, new, prepare)?;
        let mut copies = Vec::new();
        for (level, holders) in (0..levels).zip(&files.holders) {
            // The ranks of file f keep the copy of the file `level + 1` before it.
            let back = (level + 1) % files.count;
            let kept = (task.file + files.count - back) % files.count;
            let global_rank = -1 - task.global_rank;
            let holder = NewTask { file: kept, global_rank, chunk_len: 0, ..task };
            let copy = NewTask { local_rank: task.local_rank + holders, ..task };
            let path = name::buddy(path, level);
            let tasks = [holder, copy];
            copies.push(ParWriter::create_mapped(group, storage, &path, &tasks, &options)?);
        }
        Ok(Self { original, copies })
    }

    /// Writes `bytes` to this rank's task and all its copies.
    ///
    /// # Errors
    ///
    /// As [`TaskWriter::write`](crate::TaskWriter::write).
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.original.task(0)?.write(bytes)?;
        self.copies.iter_mut().try_for_each(|copy| copy.task(1)?.write(bytes))
    }

    /// As [`TaskWriter::ensure`](crate::TaskWriter::ensure), in all copies.
    ///
    /// # Errors
    ///
    /// [`Argument::ChunkSmall`].
    pub fn ensure(&mut self, len: u64) -> Result<()> {
        self.original.task(0)?.ensure(len)?;
        self.copies.iter_mut().try_for_each(|copy| copy.task(1)?.ensure(len))
    }

    /// The set itself without its copies, to ask it about positions.
    pub fn original(&mut self) -> &mut ParWriter<S> {
        &mut self.original
    }

    /// Completes all sets together with all ranks of `group`.
    ///
    /// # Errors
    ///
    /// As [`ParWriter::close`], for the first set that could not be completed; the others are.
    pub fn close<G: Group>(self, group: &G) -> Result<()> {
        let mut outcome = self.original.close(group);
        for copy in self.copies {
            if matches!(outcome, Err(Error::Group { .. })) {
                break;
            }
            outcome = outcome.and(copy.close(group));
        }
        outcome
    }
}

/// Number of files, and the ranks that keep the copy of this rank's file at each level.
struct Neighbours {
    count: u32,
    holders: Vec<u32>,
}

fn neighbours<G: Group>(group: &G, task: NewTask, levels: u32) -> Result<Neighbours> {
    let mut mine = Vec::new();
    put_u32(&mut mine, task.file);
    put_u32(&mut mine, levels);
    let answer_len = 4 + 4 * narrow(levels.into());
    let answer = exchange(group, Ok(mine), (8, answer_len), |asked| {
        let mut files = Vec::new();
        for ask in asked {
            let mut fields = Fields::little(ask);
            files.push(fields.u32().ok_or(Error::TooLarge)?);
            if fields.u32() != Some(levels) {
                return Err(Argument::Disagree.into());
            }
        }
        let count = files.iter().max().map_or(1, |last| last.saturating_add(1));
        if narrow(count.into()) > files.len() {
            return Err(Argument::Mapping.into());
        }
        let mut sizes = vec![0u32; narrow(count.into())];
        for file in &files {
            if let Some(size) = sizes.get_mut(narrow((*file).into())) {
                *size += 1;
            }
        }
        let answer = |file: &u32| {
            let mut bytes = Vec::new();
            put_u32(&mut bytes, count);
            for level in 0..levels {
                let keeper = (file + 1 + level) % count;
                put_u32(&mut bytes, sizes.get(narrow(keeper.into())).copied().unwrap_or(0));
            }
            bytes
        };
        Ok(files.iter().map(answer).collect())
    })?;
    let mut fields = Fields::little(&answer);
    let count = fields.u32().ok_or(Error::TooLarge)?;
    Ok(Neighbours { count, holders: std::iter::from_fn(|| fields.u32()).collect() })
}
