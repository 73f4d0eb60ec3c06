//! A set written together with copies of itself, so that a lost physical file loses no data.
//!
//! The copy of a file's tasks stands in the file of the same number of each buddy set, behind the
//! tasks of the ranks that keep it: those of a neighbouring file (format section 9). On storage
//! that all ranks reach every rank writes its own copies; where each file is on the storage of a
//! node, ranks send their data to those that keep it ([`away`]).

use crate::{
    codec::{narrow, wide},
    error::{Argument, Result},
    group::Group,
    name,
    packing::Packing,
    parallel::{
        away::{self, Away},
        create::{NewSet, Opening, alike, decide, grants},
        exchange::{Lens, exchange_each},
        records::{Ask, Grant, Used, inline_blocks},
        roster::Split,
        tables::Root,
        writer::ParWriter,
    },
    plan::{NewTask, Options},
    storage::Storage,
};

/// One rank's part of a set and its buddy sets.
#[derive(Debug)]
pub struct BuddyWriter<S: Storage> {
    original: ParWriter<S>,
    copies: Copies<S>,
}

/// Where the copies are.
#[derive(Debug)]
enum Copies<S: Storage> {
    /// In files that this rank writes.
    Here(Vec<ParWriter<S>>),
    /// On other nodes.
    Away(Vec<Away<S>>),
}

impl<S: Storage> BuddyWriter<S> {
    /// Creates `set` and `levels` buddy sets together with all ranks of `group`; this rank writes
    /// `task`. Each physical file is one group of packed tasks. One exchange opens
    /// them all.
    ///
    /// # Errors
    ///
    /// As [`ParWriter::create`].
    pub fn create<G: Group>(
        group: &G,
        set: NewSet<'_, S>,
        levels: u32,
        task: NewTask,
    ) -> Result<Self> {
        Self::create_with(group, set, levels, Ok(task), |_, _| Ok(()))
    }

    /// As [`create`](Self::create), with `prepare` for the set itself, and what is wrong instead
    /// of the task, as in [`ParWriter::create_with`].
    ///
    /// # Errors
    ///
    /// As [`ParWriter::create_with`].
    pub fn create_with<G: Group>(
        group: &G,
        set: NewSet<'_, S>,
        levels: u32,
        task: Result<NewTask>,
        prepare: impl FnMut(u32, &S::File) -> Result<()>,
    ) -> Result<Self> {
        let NewSet { storage, path, .. } = set;
        let options = &together(set);
        let fingerprint = options.fingerprint(path, levels);
        let paths: Vec<_> = (0..levels).map(|level| name::buddy(path, level)).collect();
        let opened = task.and_then(|task| {
            let original = Opening::begin(NewSet { options, ..set }, &[task], prepare)?;
            let asks = original.asks(&[task], fingerprint)?;
            let copy =
                |path| Opening::begin(NewSet { storage, path, options }, &[task], |_, _| Ok(()));
            let copies = paths.iter().map(|path| copy(path)).collect::<Result<Vec<_>>>()?;
            Ok((asks, task, original, copies))
        });
        let asks = opened.as_ref().map(|(asks, ..)| &**asks).map_err(|error| *error);
        let mut roots = Vec::new();
        let sets = 1 + paths.len();
        let (_, granted) = grants(group, asks, 1, sets, |asked| {
            alike(asked, fingerprint)?;
            let (root, mut grants) = decide(NewSet { options, ..set }, asked, &[])?;
            roots.push(root);
            for (level, path) in (0u32..).zip(&paths) {
                let copy = NewSet { storage, path, options };
                let (root, copies) = decide_copies(copy, level, asked)?;
                roots.push(root);
                grants.iter_mut().zip(copies).for_each(|(grants, copy)| grants.extend(copy));
            }
            Ok(grants)
        })?;
        let (_, task, original, copies) = opened?;
        let mut roots = roots.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        let mut granted = granted.into_iter();
        let mut begin = |opening: Opening<'_, S>| {
            let task = granted.next().map(|grant| (task, grant));
            opening.granted(task.into_iter(), 1, roots.next().flatten())
        };
        let original = begin(original);
        Ok(Self { original, copies: Copies::Here(copies.into_iter().map(begin).collect()) })
    }

    /// As [`create_with`](Self::create_with), each physical file and each copy on the storage of
    /// the ranks that it belongs to. `split` makes the groups in which copies travel. Costs what
    /// [`ParWriter::create`] costs, and for each level as much again and up to three splits.
    ///
    /// # Errors
    ///
    /// As [`ParWriter::create_with`]; [`Argument::Disagree`] on different numbers of levels.
    pub fn create_apart<G: Group>(
        group: &G,
        set: NewSet<'_, S>,
        levels: u32,
        task: Result<NewTask>,
        split: &Split<'_>,
        prepare: impl FnMut(u32, &S::File) -> Result<()>,
    ) -> Result<Self> {
        let NewSet { storage, path, .. } = set;
        let options = Options { apart: true, ..together(set) };
        let original = ParWriter::create_with(group, storage, path, task, &options, prepare)?;
        let options = Options { fs_block_len: Some(original.fs_block_len()), ..options };
        let set = NewSet { options: &options, ..set };
        let copies = away::create(group, set, levels, task?, split)?;
        Ok(Self { original, copies: Copies::Away(copies) })
    }

    /// True if copies are on other nodes, so that only [`write_together`](Self::write_together)
    /// writes them.
    #[must_use]
    pub const fn is_apart(&self) -> bool {
        matches!(self.copies, Copies::Away(_))
    }

    /// Writes `bytes` to this rank's task and all its copies, together with all ranks that do the
    /// same with theirs; none of them need have any bytes. Collective if copies are on other nodes.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); [`Error::Group`](crate::Error::Group). What fails on the node of
    /// a copy shows at closing.
    pub fn write_together(&mut self, bytes: &[u8]) -> Result<()> {
        let Copies::Away(copies) = &mut self.copies else { return self.write(bytes) };
        let mut task = self.original.task(0)?;
        let (block, _) = task.fill().block();
        let written = task.write(bytes);
        // A rank that fails still meets the others.
        let bytes = if written.is_ok() { bytes } else { &[] };
        copies.iter_mut().try_for_each(|copy| copy.carry(wide(block), bytes))?;
        written
    }

    /// Writes `bytes` to this rank's task and all its copies.
    ///
    /// # Errors
    ///
    /// As [`TaskWriter::write`](crate::TaskWriter::write); [`Argument::Task`] if copies are on
    /// other nodes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Copies::Here(copies) = &mut self.copies else { return Err(Argument::Task.into()) };
        self.original.task(0)?.write(bytes)?;
        copies.iter_mut().try_for_each(|copy| copy.task(0)?.write(bytes))
    }

    /// As [`TaskWriter::ensure`](crate::TaskWriter::ensure), in all copies.
    ///
    /// # Errors
    ///
    /// [`Argument::ChunkSmall`].
    pub fn ensure(&mut self, len: u64) -> Result<()> {
        self.original.task(0)?.ensure(len)?;
        match &mut self.copies {
            Copies::Here(copies) => {
                copies.iter_mut().try_for_each(|copy| copy.task(0)?.ensure(len))
            }
            // A copy follows to the block that the next bytes are in.
            Copies::Away(_) => Ok(()),
        }
    }

    /// The set itself without its copies, to ask it about positions.
    pub fn original(&mut self) -> &mut ParWriter<S> {
        &mut self.original
    }

    /// Completes all sets together with all ranks of `group`: in one exchange, or one set after the
    /// other where copies are on other nodes.
    ///
    /// # Errors
    ///
    /// As [`ParWriter::close`], for the first set that could not be completed; the others are.
    pub fn close<G: Group>(self, group: &G) -> Result<()> {
        let mut sets = match self.copies {
            Copies::Here(copies) => copies,
            Copies::Away(copies) => {
                let mut closed = self.original.close(group);
                for copy in copies {
                    let level = copy.close(group);
                    closed = closed.and(level);
                }
                return closed;
            }
        };
        sets.insert(0, self.original);
        let inline = inline_blocks(group.size(), sets.len());
        let used = sets.iter_mut().map(|set| set.used(inline)).collect();
        let closed = exchange_each(group, used, Lens::asks(Used::len(inline)), |index, used| {
            sets.get(index).ok_or(Argument::Task)?.complete(used, inline)?;
            Ok(vec![Vec::new(); used.len()])
        })?;
        sets.iter_mut().for_each(ParWriter::release);
        closed.into_iter().try_for_each(|closed| closed.map(|_| ()))
    }
}

/// The options of a set with copies: each physical file is one group of packed tasks.
fn together<S>(set: NewSet<'_, S>) -> Options {
    let name = Some(set.options.name_for(set.path).to_vec());
    let packing = Packing::Collective { size: Some(u32::MAX) };
    Options { name, packing, ..set.options.clone() }
}

/// Rank 0 plans a buddy set: behind the tasks that only hold it stands the copy of each file.
fn decide_copies<S: Storage>(
    set: NewSet<'_, S>,
    level: u32,
    asked: &[Vec<Ask>],
) -> Result<(Root, Vec<Vec<Grant>>)> {
    let tasks = asked.iter().flatten().map(|ask| ask.task);
    let count = tasks.clone().map(|task| task.file).max().map_or(1, |last| last.saturating_add(1));
    // The ranks of file f keep the copy of the file `level + 1` before it.
    let back = (level + 1) % count;
    let holder = |task: NewTask| NewTask {
        file: (task.file + (count - back)) % count,
        global_rank: -1 - task.global_rank,
        chunk_len: 0,
        ..task
    };
    let holders: Vec<NewTask> = tasks.map(holder).collect();
    let mut sizes = vec![0; asked.len()];
    for holder in &holders {
        *sizes.get_mut(narrow(holder.file.into())).ok_or(Argument::Mapping)? += 1;
    }
    let copy = |ask: &Ask| {
        let before = sizes.get(narrow(ask.task.file.into())).ok_or(Argument::Mapping)?;
        Ok(Ask { task: NewTask { local_rank: ask.task.local_rank + before, ..ask.task }, ..*ask })
    };
    let copies = asked.iter().map(|asks| asks.iter().map(copy).collect());
    decide(set, &copies.collect::<Result<Vec<_>>>()?, &holders)
}
