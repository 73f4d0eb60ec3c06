//! Sets of which each physical file is on the storage of its own ranks' node.
//!
//! Rank 0 still plans the whole set, and completes file 0 with its mapping. Each other file is cut
//! and completed by its first rank, from what its ranks leave in the journal beside it: no other
//! rank needs to see it. Costs one agreement more to open, and one exchange more to close.

use crate::{
    error::{Error, OnFile as _, Result},
    finish::finish,
    group::Group,
    journal::{self, Found, SlotKey},
    name,
    parallel::{
        create::NewSet,
        exchange::{Lens, agree, exchange},
        records::{Grant, Used},
        tables::{FileUse, open},
        writer::ParWriter,
    },
    physical::Front,
    plan::{FilePlan, NewTask, Options},
    storage::{File, Storage},
    writer::{self, remove_journal},
};

/// The number of a set's journals if each of its files is written apart.
pub(super) fn instance(grant: &Grant, options: &Options) -> Option<u64> {
    (options.apart && grant.file_count > 1).then_some(grant.instance)
}

/// Empties every file, by its first rank, while the others wait. All ranks know from what they were
/// granted whether there is something to wait for; there is where some have no task.
pub(super) fn cut<G: Group, S: Storage>(
    group: &G,
    set: NewSet<'_, S>,
    granted: &[Grant],
    tasks: &[NewTask],
) -> Result<()> {
    let NewSet { storage, path, options } = set;
    let mut own = granted.iter().take(tasks.len());
    let waits = tasks.is_empty() || own.any(|grant| instance(grant, options).is_some());
    if !options.apart || !waits {
        return Ok(());
    }
    let first = granted.iter().zip(tasks).find(|(grant, _)| grant.local_rank == 0);
    let cut = first.map_or(Ok(()), |(_, task)| writer::cut(storage, path, task.file));
    agree(group, cut)
}

impl<S: Storage> ParWriter<S> {
    /// Completes all files: file 0 last, because it makes the set readable.
    pub(super) fn complete_apart<G: Group>(
        &self,
        group: &G,
        used: Result<Vec<u8>>,
        inline: usize,
    ) -> Result<()> {
        let mut told: Vec<Vec<u8>> = Vec::new();
        exchange(group, used, Lens::asks(self.spread * Used::len(inline)), |used| {
            told = used.iter().map(|used| used.to_vec()).collect();
            Ok(vec![Vec::new(); used.len()])
        })?;
        let own = self.complete_own().map(|()| Vec::new());
        exchange(group, own, Lens::NONE, |done| {
            let told: Vec<&[u8]> = told.iter().map(Vec::as_slice).collect();
            self.complete(&told, inline)?;
            Ok(vec![Vec::new(); done.len()])
        })?;
        Ok(())
    }

    /// Completes the file whose first task is this rank's, if it is not file 0.
    fn complete_own(&self) -> Result<()> {
        match self.first_file().filter(|number| *number > 0) {
            Some(number) => self.complete_file(number, None),
            None => Ok(()),
        }
    }

    /// The file whose first task is this rank's.
    pub(super) fn first_file(&self) -> Option<u32> {
        let mut tasks = self.tasks.iter().map(|local| local.task);
        tasks.find(|task| task.local_rank == 0).map(|task| task.file)
    }

    /// Completes file `number` from what its ranks left in its journal.
    pub(super) fn complete_file(
        &self,
        number: u32,
        mapping: Option<Vec<(u32, u32)>>,
    ) -> Result<()> {
        let Some(instance) = self.apart else { return Ok(()) };
        let path = self.storage.physical_name(&self.path, number);
        let front = Front::load(self.storage.open(&path, None).on_file(number)?, number)?;
        let journal = self.storage.open(&name::journal(&path), None).on_file(number)?;
        let mut usage = FileUse(Vec::new());
        for task in 0..front.header.task_count {
            let task_count = front.header.task_count;
            let first = SlotKey { instance, task_count, task, block: 0 };
            usage.0.push(recorded(&journal, first, number)?);
        }
        let plan = FilePlan {
            header: front.header,
            ranks: front.ranks,
            layout: front.layout,
            mapping,
            style: self.options.style,
            hints: self.options.hints,
            checksums: self.options.checksums,
            durable: self.options.durable,
        };
        let mut output = open(&self.storage, &self.path, number, &plan)?;
        finish(&mut output, &plan, &usage)?;
        remove_journal(&self.storage, &self.path, number)
    }
}

/// Returns the use of a task, whose `first` slot this is, in the journal of file `number`.
fn recorded<F: File>(journal: &F, first: SlotKey, number: u32) -> Result<Used> {
    let mut used = Used { block_count: 0, lens: Vec::new(), sums: Vec::new() };
    loop {
        let key = SlotKey { block: used.block_count, ..first };
        match journal::read(journal, &key).on_file(number)? {
            Found::Slot(slot) => {
                used.block_count += 1;
                used.lens.push(slot.used);
                used.sums.push(slot.sum.unwrap_or(0));
            }
            Found::Nothing if !used.lens.is_empty() => return Ok(used),
            _ => return Err(Error::io(number, &std::io::ErrorKind::InvalidData.into())),
        }
    }
}
