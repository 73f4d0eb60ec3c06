//! Makes multifiles readable whose writers never closed them, or whose end was lost.
//!
//! [`Repair::examine`] only reads: it finds out how much of every block is there, from the journal
//! if the writer kept one, else from the data (module `estimate`). [`Repair::apply`] then writes
//! what closing would have written. Physical files that are closed and whole are left alone; of
//! damaged ones only fields are rewritten that their other parts tell for certain (module `mend`).
//! Where parts of a closed file contradict each other nothing is: [`Repair::salvage`] is for
//! copies.

mod found;
mod full;
mod mapping;
mod mend;
mod recorded;
mod set;
mod state;
mod unfinished;

use std::{
    collections::HashMap,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use self::found::{Doubt, FoundTask};
pub(crate) use self::full::Evidence;
use self::{
    found::found_of,
    full::{complete, has_names},
    mapping::{Order, mapping_of, mapping_to_make},
    mend::Patch,
    recorded::recorded,
    set::{Behind, Contrary, behind, contrary},
    state::{State, classify},
    unfinished::unfinished_table,
};
use crate::{
    backing::demand,
    codec::wide,
    error::{Error, OnFile as _, Part, Result},
    estimate::{Extent, Flaw, Reach, estimate},
    finish::{Usage, commit, tables},
    header::{FILE_COUNT_AT, FIXED_END, FLAG2_AT},
    journal::{ANY_MORE, Slot},
    mark::Mark,
    name,
    output::{Manner, Output},
    physical::{Front, Physical},
    plan::{FilePlan, Style},
    reader::{Mapping, Task},
    repeats::Owner,
    storage::{File, Naming, Storage, write_all},
    writer::{instance, remove_journal},
};

/// State of a multifile's physical files, and what is missing in them.
#[derive(Debug)]
pub struct Repair<S: Storage> {
    storage: S,
    path: PathBuf,
    file_count: usize,
    found: Vec<FoundTask>,
    broken: Vec<Broken>,
    /// Files that are closed and whole.
    whole: Vec<Physical<S::File>>,
    /// Files that count otherwise than file 0 does.
    behind: Vec<Behind>,
    /// Fields of closed files to be rewritten, by file.
    patches: Vec<(u32, Patch)>,
    /// The first closed file whose parts contradict each other, or those of the others.
    doubtful: Option<u32>,
}

/// A physical file that needs repair, or of which as much is known.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) number: u32,
    pub(crate) plan: FilePlan,
    pub(crate) extents: Vec<Extent>,
    pub(crate) source: Evidence,
    /// It was closed, and is damaged.
    was_closed: bool,
}

impl<S: Storage> Repair<S> {
    /// Finds out what there is, without writing. File 0 of a set examines all of its files.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] when a header is not readable: without it nothing can be placed; what
    /// the storage reports.
    pub fn examine(storage: &S, path: &Path) -> Result<Self> {
        Self::examine_as(storage, path, false)
    }

    /// The same; `is_full` if all blocks of a stream but its last are, as where there are names.
    pub(crate) fn examine_as(storage: &S, path: &Path, is_full: bool) -> Result<Self> {
        let first = load(storage, path, 0)?;
        let header = &first.0.header;
        let is_set = header.file_number == 0 && header.file_count > 1;
        let count = if is_set { header.file_count } else { 1 };
        let (mut fronts, mut states) = (vec![first.0], vec![first.1]);
        for number in 1..count {
            let (front, state) = load(storage, path, number)?;
            fronts.push(front);
            states.push(state);
        }
        let is_full = is_full || fronts.first().map_or(Ok(false), has_names)?;
        let behind = behind(&fronts, &states);
        let Contrary { patches, doubtful } = contrary(&fronts, &behind);
        let mut repair = Self {
            storage: storage.clone(),
            path: path.to_owned(),
            file_count: fronts.len(),
            found: Vec::new(),
            broken: Vec::new(),
            whole: Vec::new(),
            behind,
            patches,
            doubtful,
        };
        let mut order = repair.examine_mapping(&fronts, &states)?;
        for (front, state) in fronts.into_iter().zip(states) {
            let mapping = order.clone().filter(|_| front.number == 0);
            repair.examine_file(front, state, mapping, is_full)?;
        }
        if let Some(order) = order.take() {
            let place = |FoundTask { task, .. }: &FoundTask| (task.file, task.local_rank);
            if !repair.found.iter().map(place).eq(order.iter().copied()) {
                let places: HashMap<_, _> = order.into_iter().zip(0..).collect();
                let last = places.len();
                repair.found.sort_by_key(|found| *places.get(&place(found)).unwrap_or(&last));
            }
        }
        Ok(repair)
    }

    /// The order of the tasks of a set: its mapping, or the one it needs.
    fn examine_mapping(
        &mut self,
        fronts: &[Front<S::File>],
        states: &[State],
    ) -> Result<Option<Mapping>> {
        let Some((needed, is_certain)) = mapping_to_make(fronts) else { return Ok(None) };
        let Some((State::Whole { table, .. }, front)) = states.first().zip(fronts.first()) else {
            return Ok(Some(needed));
        };
        Ok(Some(match mapping_of(front, table, fronts, needed, is_certain)? {
            Order::Stored(mapping) => mapping,
            Order::Lost(mapping, Some(patch)) => {
                self.patches.push((0, patch));
                mapping
            }
            Order::Lost(mapping, None) => {
                self.doubtful = self.doubtful.or(Some(0));
                mapping
            }
        }))
    }

    /// Completes the files that were never closed, removes their journals, and rewrites fields of
    /// closed ones.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`], and nothing is written, if there is [doubt](Self::is_in_doubt); what the
    /// storage reports: files not yet completed still count as unclosed.
    pub fn apply(self) -> Result<()> {
        if let Some(file) = self.doubtful {
            return Err(Error::Damaged { part: Part::Blocks, file });
        }
        self.salvage()
    }

    /// As [`apply`](Self::apply), but where parts of a closed file contradict each other its tables
    /// are made from what seems to be there. For copies: they may be all that is left.
    ///
    /// # Errors
    ///
    /// What the storage reports.
    pub fn salvage(mut self) -> Result<()> {
        self.count_all()?;
        for (number, patch) in &self.patches {
            self.put(*number, patch)?;
        }
        for broken in std::mem::take(&mut self.broken).into_iter().rev() {
            let number = broken.number;
            self.complete(broken)?;
            remove_journal(&self.storage, &self.path, number)?;
        }
        Ok(())
    }

    fn complete(&self, broken: Broken) -> Result<()> {
        let Broken { number, mut plan, extents, source, .. } = broken;
        let path = self.storage.physical_name(&self.path, number);
        let file = Arc::new(
            self.storage.open(&path, Some(Naming::of(&self.path, number))).on_file(number)?,
        );
        let size = file.size().on_file(number)?;
        let (journal, instance) = (name::journal(&path), instance());
        let manner = Manner {
            journal: (source == Evidence::Data).then_some((&*self.path, &*journal)),
            instance,
            ..Manner::without_journal(number, plan.header.task_count)
        };
        let mut output = Output::new(&self.storage, Arc::clone(&file), &manner);
        if source == Evidence::Data {
            // Who finds part of a table behind the data is not to take it for some.
            remove_journal(&self.storage, &self.path, number)?;
            record(&mut output, &plan, &extents)?;
            output.sync()?;
            plan.header.flag2 = Mark::Open(instance).encode();
            output.write(&plan.header.order.bytes_u64(plan.header.flag2), FLAG2_AT, None)?;
            output.sync()?;
        }
        let tail = tables(&mut output, &plan, &extents);
        if tail.is_err() {
            file.resize(size).ok();
        }
        commit(&mut output, &plan, &tail?)?;
        output.sync()
    }

    /// Has all files say how many there are.
    fn count_all(&self) -> Result<()> {
        for Behind { number, count } in &self.behind {
            let patch = Patch { at: FILE_COUNT_AT, bytes: count.to_vec() };
            self.put(*number, &patch)?;
        }
        Ok(())
    }

    fn put(&self, number: u32, patch: &Patch) -> Result<()> {
        let path = self.storage.physical_name(&self.path, number);
        let file = self.storage.open(&path, Some(Naming::of(&self.path, number)));
        let written = file.and_then(|file| {
            write_all(&file, &patch.bytes, patch.at)?;
            file.sync()
        });
        written.on_file(number)
    }

    /// The physical files in order, to be written on as they are, if all there is to say of them is
    /// known without a doubt. On return all say how many they are.
    pub(crate) fn keep(&mut self) -> Result<Option<Vec<Broken>>> {
        let is_known = self.broken.iter().all(|broken| broken.source.is_all());
        let is_closed = !self.patches.is_empty() || self.doubtful.is_some();
        if !is_known || is_closed || self.found.iter().any(|found| found.doubt != Doubt::None) {
            return Ok(None);
        }
        self.count_all()?;
        let whole = self.whole.drain(..).map(Broken::of_whole);
        let mut all: Vec<_> = self.broken.drain(..).chain(whole).collect();
        all.sort_by_key(|file| file.number);
        Ok(Some(all))
    }

    /// The physical files in order, none of which [needs](Self::needed) repair.
    pub(crate) fn into_whole(self) -> Vec<Physical<S::File>> {
        debug_assert!(!self.needed(), "a file that needs repair is not whole");
        self.whole
    }

    /// Tasks, counted over all files, that have lost bytes which were written.
    pub(crate) fn damaged(&self) -> Vec<usize> {
        let is_damaged = |doubt| !matches!(doubt, Doubt::None | Doubt::Zeros { .. });
        let all = self.found.iter().enumerate();
        all.filter(|(_, found)| is_damaged(found.doubt)).map(|(task, _)| task).collect()
    }

    /// Every task of every physical file examined, as readers count them after the repair; behind
    /// them those that the mapping of a set does not name.
    #[must_use]
    pub fn tasks(&self) -> &[FoundTask] {
        &self.found
    }

    /// Number of physical files examined.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.file_count
    }

    /// True if any physical file needs repair.
    #[must_use]
    pub fn needed(&self) -> bool {
        let is_whole = self.broken.is_empty() && self.patches.is_empty();
        !is_whole || !self.behind.is_empty() || self.is_in_doubt()
    }

    /// True if parts of a closed file contradict each other: it cannot be repaired in place, and a
    /// copy may have other data than was written.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.doubtful.is_some()
    }

    /// The first physical file that was closed and whole, and is not any more.
    pub(crate) fn damaged_file(&self) -> Option<u32> {
        let patched = self.patches.iter().filter(|(_, patch)| patch.at < FIXED_END);
        let patched = patched.map(|(number, _)| *number);
        let broken = self.broken.iter().filter(|broken| broken.was_closed);
        self.doubtful.or_else(|| broken.map(|broken| broken.number).chain(patched).next())
    }

    /// True if a closed file had checksums that are not readable any more.
    #[must_use]
    pub fn loses_checksums(&self) -> bool {
        let had = |mark| matches!(mark, Mark::Closed { checksums_at: Some(_), .. });
        self.broken
            .iter()
            .map(|broken| &broken.plan)
            .any(|plan| had(Mark::decode(plan.header.flag2)) && !plan.checksums)
    }

    fn examine_file(
        &mut self,
        front: Front<S::File>,
        state: State,
        mapping: Option<Mapping>,
        is_full: bool,
    ) -> Result<()> {
        let mut was_closed = true;
        let doubtful = match state {
            State::Whole { table, blocks, patch } => {
                let lens = (0..front.ranks.len()).map(|task| blocks.of(task).iter().sum());
                self.note(&front, lens.map(|len| (len, Doubt::None)));
                self.patches.extend(patch.map(|patch| (front.number, patch)));
                self.whole.push(Physical { front, table, blocks });
                return Ok(());
            }
            State::Doubtful(doubtful) => Some(doubtful),
            State::Unclosed { was_closed: was } => {
                was_closed = was;
                None
            }
        };
        let reach = doubtful.as_ref().map_or(Reach::ToEnd, |doubtful| doubtful.reach);
        let journal = journal(&self.storage, &self.path, front.number)?;
        let entries = mapping.as_ref().map_or(0, |mapping| wide(mapping.len()));
        let table =
            || if reach == Reach::ToEnd { unfinished_table(&front, entries) } else { Ok(None) };
        let (mut extents, source) = match (Mark::decode(front.header.flag2), journal) {
            (Mark::Open(instance), Some(journal)) => {
                let (extents, is_all) = recorded(&front, &journal, instance)?;
                (extents, Evidence::Journal { is_all })
            }
            _ => match table()? {
                Some(extents) => (extents, Evidence::Table),
                None if is_full && front.may_grow_dense() => {
                    // Bytes behind all chunks belong to a stream whose chunk the header lacks.
                    let end = front.layout.end_of(1)?;
                    let reach = if front.size > end { Reach::Blocks(1) } else { reach };
                    (estimate(&front, reach)?, Evidence::Data)
                }
                None => (estimate(&front, reach)?, Evidence::Data),
            },
        };
        complete(&front, &mut extents, source, is_full)?;
        match doubtful {
            Some(doubtful) => doubtful.settle(&front, &mut extents),
            None if source == Evidence::Data && was_closed => {
                extents.iter_mut().for_each(|extent| extent.note(Flaw::Contradiction));
            }
            None => was_closed = false,
        }
        if was_closed {
            self.doubtful = self.doubtful.or(Some(front.number));
        }
        demand_table(&front, &extents)?;
        self.note(&front, extents.iter().map(found_of));
        self.broken.push(Broken { source, was_closed, ..Broken::of(front, mapping, extents) });
        Ok(())
    }

    /// Notes the tasks of a file, of which it knows their lengths and how sure these are.
    fn note(&mut self, front: &Front<S::File>, known: impl Iterator<Item = (u64, Doubt)>) {
        for (local, (len, doubt)) in known.enumerate() {
            let task = Task {
                file: front.number,
                local_rank: u32::try_from(local).unwrap_or(u32::MAX),
                global_rank: front.ranks.get(local).copied().unwrap_or(0),
                chunk_len: front.chunk_len(local).unwrap_or(0),
            };
            self.found.push(FoundTask { task, len, doubt });
        }
    }
}

impl Broken {
    /// A file that is closed and whole.
    fn of_whole<F>(Physical { front, blocks, .. }: Physical<F>) -> Self {
        let lens = (0..front.ranks.len()).map(|task| blocks.of(task).to_vec());
        let extents = lens.map(|lens| Extent { lens, ..Extent::default() }).collect();
        Self::of(front, None, extents)
    }

    fn of<F>(front: Front<F>, mapping: Option<Mapping>, extents: Vec<Extent>) -> Self {
        let (number, header) = (front.number, front.header);
        let serial = (header.file_number, header.file_count) == (1, 1);
        let plan = FilePlan {
            ranks: front.ranks,
            layout: front.layout,
            mapping: if serial { Some(Vec::new()) } else { mapping },
            style: if serial { Style::Serial } else { Style::Parallel },
            hints: matches!(Mark::decode(header.flag2), Mark::Closed { uniform: true, .. }),
            checksums: extents.iter().any(|extent| !extent.sums.is_empty()),
            durable: true,
            header,
        };
        Self { number, plan, extents, source: Evidence::Table, was_closed: false }
    }
}

/// Has the journal say what was found in the data, and how sure that is.
fn record<S: Storage>(output: &mut Output<S>, plan: &FilePlan, extents: &[Extent]) -> Result<()> {
    let blocks = extents.iter().map(|extent| extent.lens.len()).max().unwrap_or(0);
    for ((task, extent), chunk_len) in (0u32..).zip(extents).zip(plan.layout.chunks()) {
        let is_certain = extent.most <= extent.lens.iter().sum();
        // Behind a full block zeros would be in the next one.
        let is_full = extent.lens.last() == Some(chunk_len) && extent.lens.len() < blocks;
        let next = (!is_certain && is_full).then_some(&0);
        let mut lens = extent.lens.iter().chain(next).zip(0u64..).peekable();
        while let Some((used, block)) = lens.next() {
            let more = if is_certain || lens.peek().is_some() { 0 } else { ANY_MORE };
            let slot = Slot { more, ..Slot::of(*used, None) };
            output.announce(Owner { task, block, slot })?;
        }
    }
    Ok(())
}

fn load<S: Storage>(storage: &S, path: &Path, number: u32) -> Result<(Front<S::File>, State)> {
    let file = storage.open(&storage.physical_name(path, number), None).on_file(number)?;
    let has_journal = journal(storage, path, number)?.is_some();
    classify(Arc::new(file), number, has_journal)
}

fn journal<S: Storage>(storage: &S, path: &Path, number: u32) -> Result<Option<S::File>> {
    let journal = name::journal(&storage.physical_name(path, number));
    match storage.open(&journal, None) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some).on_file(number),
    }
}

/// Refuses blocks whose table would take a gigabyte and more, when there is not that much data.
fn demand_table<F: File>(front: &Front<F>, extents: &[Extent]) -> Result<()> {
    let rows = extents.iter().map(|extent| wide(extent.lens.len())).max().unwrap_or(0);
    let len = rows.saturating_mul(8 * wide(extents.len()));
    demand(&*front.file, 0..front.size, len / 16, Part::Blocks, front.number)
}

impl Usage for Vec<Extent> {
    fn block_count(&self, task: usize) -> usize {
        self.get(task).map_or(0, |extent| extent.lens.len())
    }

    fn block_len(&self, task: usize, block: usize) -> Option<u64> {
        self.get(task)?.lens.get(block).copied()
    }

    fn block_sum(&self, task: usize, block: usize) -> u32 {
        self.get(task).and_then(|extent| extent.sums.get(block)).copied().unwrap_or(0)
    }
}
