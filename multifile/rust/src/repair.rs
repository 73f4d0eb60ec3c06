//! Makes multifiles readable whose writers never closed them, or whose end was lost.
//!
//! [`Repair::examine`] only reads: it finds out how much of every block is there, from the journal
//! if the writer kept one, else from the data (module `estimate`). [`Repair::apply`] then writes
//! what closing would have written. Physical files that are closed and whole are left alone.

mod full;
mod mapping;
mod recorded;
mod unfinished;

use std::{
    collections::HashMap,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) use self::full::Source;
use self::{
    full::{complete, has_names},
    mapping::{every, mapping_of, mapping_to_make},
    recorded::recorded,
    unfinished::unfinished_table,
};
use crate::{
    backing::demand,
    blocks::Table,
    codec::{narrow, wide},
    cursor::Cursor,
    error::{Error, Part, Readable as _, Result},
    estimate::{Extent, Reach, estimate},
    finish::{Usage, commit, tables},
    header::{FILE_COUNT_AT, FLAG2_AT},
    journal::{ANY_MORE, Slot},
    mark::Mark,
    name,
    output::{Manner, Output, Owner},
    physical::{Front, Physical},
    plan::{FilePlan, Style},
    reader::{Mapping, Task},
    storage::{File, Storage, read_exactly, write_all},
    writer::{instance, remove_journal},
};

/// What is known of the physical files of a multifile, and what is missing in them.
#[derive(Debug)]
pub struct Repair<S: Storage> {
    storage: S,
    path: PathBuf,
    file_count: usize,
    found: Vec<FoundTask>,
    broken: Vec<Broken>,
    /// Files that are closed and whole.
    whole: Vec<Broken>,
    /// Files that count otherwise than file 0 does.
    behind: Vec<Behind>,
}

/// A physical file whose writer died before it said that the set had got another one.
#[derive(Debug)]
struct Behind {
    number: u32,
    /// How it says so.
    count: [u8; 4],
}

/// What repair found out about one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundTask {
    /// The task, as the header describes it.
    pub task: Task,
    /// Length of its stream in bytes, as it reads after the repair.
    pub len: u64,
    /// How sure that is.
    pub doubt: Doubt,
}

/// How sure the length of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Every completed write is there, and nothing else.
    None,
    /// The stream may have been longer if it ended in zeros: up to `most` bytes, or without a
    /// bound that is known (`u64::MAX`).
    Zeros {
        /// Largest length possible.
        most: u64,
    },
    /// So many bytes more are left out: the journal has lost the length of a block before them.
    Gap {
        /// Bytes left out.
        lost: u64,
    },
    /// Data differs from the checksum that was recorded for it.
    Checksum,
    /// The file was closed and has been cut since, before the end of what the task's last block may
    /// have been.
    Cut,
}

/// A physical file that needs repair, or of which as much is known.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) number: u32,
    pub(crate) plan: FilePlan,
    pub(crate) extents: Vec<Extent>,
    pub(crate) source: Source,
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
        let mut fronts = vec![front(storage, path, 0)?];
        let first = fronts.first().map(|front| front.header.clone());
        let members = first.filter(|header| header.file_number == 0 && header.file_count > 1);
        for number in 1..members.map_or(1, |header| header.file_count) {
            fronts.push(front(storage, path, number)?);
        }
        let (mapping, behind, every) = (mapping_to_make(&fronts), behind(&fronts), every(&fronts));
        let is_full = is_full || fronts.first().map_or(Ok(false), has_names)?;
        let mut repair = Self {
            storage: storage.clone(),
            path: path.to_owned(),
            file_count: fronts.len(),
            found: Vec::new(),
            broken: Vec::new(),
            whole: Vec::new(),
            behind,
        };
        let mut order = mapping.clone();
        for front in fronts {
            let mapping = (front.number == 0).then(|| mapping.clone()).flatten();
            let kept = repair.examine_file(front, (mapping, &every), is_full)?;
            order = kept.or(order);
        }
        if let Some(order) = order {
            let places: HashMap<_, _> = order.into_iter().zip(0..).collect();
            let place = |FoundTask { task, .. }: &FoundTask| (task.file, task.local_rank);
            let last = places.len();
            repair.found.sort_by_key(|found| *places.get(&place(found)).unwrap_or(&last));
        }
        Ok(repair)
    }

    /// Completes the physical files that need it and removes their journals.
    ///
    /// # Errors
    ///
    /// What the storage reports; files not yet completed still count as unclosed.
    pub fn apply(mut self) -> Result<()> {
        self.count_all()?;
        for broken in std::mem::take(&mut self.broken).into_iter().rev() {
            let number = broken.number;
            self.complete(broken)?;
            remove_journal(&self.storage, &self.path, number)?;
        }
        Ok(())
    }

    fn complete(&self, broken: Broken) -> Result<()> {
        let Broken { number, mut plan, extents, source, .. } = broken;
        let io = |error| Error::io(number, &error);
        let path = self.storage.physical_name(&self.path, number);
        let file = Arc::new(self.storage.open(&path, true).map_err(io)?);
        let size = file.size().map_err(io)?;
        let (journal, instance) = (name::journal(&path), instance());
        let manner = Manner {
            journal: (source == Source::Data).then_some(&*journal),
            instance,
            ..Manner::without_journal(number, plan.header.task_count)
        };
        let mut output = Output::new(&self.storage, Arc::clone(&file), &manner);
        if source == Source::Data {
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
            let path = self.storage.physical_name(&self.path, *number);
            let written = self.storage.open(&path, true);
            let written = written.and_then(|file| write_all(&file, count, FILE_COUNT_AT));
            written.map_err(|error| Error::io(*number, &error))?;
        }
        Ok(())
    }

    /// The physical files in order, to be written on as they are, if all there is to say of them is
    /// known without a doubt. On return all say how many they are.
    pub(crate) fn keep(&mut self) -> Result<Option<Vec<Broken>>> {
        let is_known = self.broken.iter().all(|broken| broken.source.is_all());
        if !is_known || self.found.iter().any(|found| found.doubt != Doubt::None) {
            return Ok(None);
        }
        self.count_all()?;
        let mut all: Vec<_> = self.broken.drain(..).chain(self.whole.drain(..)).collect();
        all.sort_by_key(|file| file.number);
        Ok(Some(all))
    }

    /// Tasks, counted over all files, that have lost bytes which were written.
    pub(crate) fn damaged(&self) -> Vec<usize> {
        let is_damaged = |doubt| matches!(doubt, Doubt::Gap { .. } | Doubt::Checksum | Doubt::Cut);
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

    /// Whether any physical file needs repair.
    #[must_use]
    pub fn needed(&self) -> bool {
        !self.broken.is_empty() || !self.behind.is_empty()
    }

    /// The first physical file that was closed and whole, and is not any more.
    pub(crate) fn damaged_file(&self) -> Option<u32> {
        self.broken.iter().find(|broken| broken.was_closed).map(|broken| broken.number)
    }

    /// Whether a closed file had checksums that are not readable any more.
    #[must_use]
    pub fn loses_checksums(&self) -> bool {
        let had = |mark| matches!(mark, Mark::Closed { checksums_at: Some(_), .. });
        self.broken
            .iter()
            .map(|broken| &broken.plan)
            .any(|plan| had(Mark::decode(plan.header.flag2)) && !plan.checksums)
    }

    /// Examines one file, and returns its mapping if it is kept.
    fn examine_file(
        &mut self,
        front: Front<S::File>,
        (mapping, every): (Option<Mapping>, &[(u32, u32)]),
        is_full: bool,
    ) -> Result<Option<Mapping>> {
        let (front, reach) = match state(front)? {
            State::Whole(physical) => {
                let extents = (0..physical.front.ranks.len()).map(|task| Extent {
                    lens: physical.blocks.of(task).to_vec(),
                    ..Extent::default()
                });
                let mut extents: Vec<_> = extents.collect();
                self.note(&physical.front, &extents);
                let kept = mapping_of(&physical, mapping.as_deref(), every)?;
                let is_whole = kept.is_some() || mapping.is_none();
                if !is_whole {
                    keep_checksums(&physical, &mut extents)?;
                }
                let known = Broken::of(physical.front, mapping, extents);
                if is_whole { &mut self.whole } else { &mut self.broken }.push(known);
                return Ok(kept);
            }
            State::Broken(front, reach) => (front, reach),
        };
        let journal = name::journal(&self.storage.physical_name(&self.path, front.number));
        let journal = match self.storage.open(&journal, false) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io(front.number, &error));
            }
            opened => opened.ok(),
        };
        let entries = mapping.as_ref().map_or(0, |mapping| wide(mapping.len()));
        let table =
            || if reach == Reach::ToEnd { unfinished_table(&front, entries) } else { Ok(None) };
        let (mut extents, source) = match (Mark::decode(front.header.flag2), journal) {
            (Mark::Open(instance), Some(journal)) => {
                let (extents, is_all) = recorded(&front, &journal, instance)?;
                (extents, Source::Journal { is_all })
            }
            _ => match table()? {
                Some(extents) => (extents, Source::Table),
                None => (estimate(&front, reach)?, Source::Data),
            },
        };
        complete(&front, &mut extents, source, is_full)?;
        if let (Reach::Blocks(count), Source::Data) = (reach, source) {
            note_cut(&front, &mut extents, count);
        }
        demand_table(&front, &extents)?;
        self.note(&front, &extents);
        let was_closed = reach != Reach::ToEnd;
        self.broken.push(Broken { source, was_closed, ..Broken::of(front, mapping, extents) });
        Ok(None)
    }

    fn note(&mut self, front: &Front<S::File>, extents: &[Extent]) {
        for (local, extent) in extents.iter().enumerate() {
            let task = Task {
                file: front.number,
                local_rank: u32::try_from(local).unwrap_or(u32::MAX),
                global_rank: front.ranks.get(local).copied().unwrap_or(0),
                chunk_len: front.chunk_len(local).unwrap_or(0),
            };
            let len = extent.lens.iter().sum();
            let doubt = if extent.damaged {
                Doubt::Checksum
            } else if extent.is_cut {
                Doubt::Cut
            } else if extent.lost > 0 {
                Doubt::Gap { lost: extent.lost }
            } else if extent.most > len {
                Doubt::Zeros { most: extent.most }
            } else {
                Doubt::None
            };
            self.found.push(FoundTask { task, len, doubt });
        }
    }
}

impl Broken {
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
        Self { number, plan, extents, source: Source::Table, was_closed: false }
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

fn front<S: Storage>(storage: &S, path: &Path, number: u32) -> Result<Front<S::File>> {
    let file = storage.open(&storage.physical_name(path, number), false);
    Front::load(file.map_err(|error| Error::io(number, &error))?, number)
}

/// The files that do not say yet that the set got another one, which file 0 says first, or that say
/// so where it was lost with the node that file 0 did.
fn behind<F: File>(fronts: &[Front<F>]) -> Vec<Behind> {
    let Some((first, others)) = fronts.split_first() else { return Vec::new() };
    let count = first.header.file_count;
    let is_written = matches!(Mark::decode(first.header.flag2), Mark::Open(_));
    let is_other = |other: &&Front<F>| other.header.file_count.abs_diff(count) == 1;
    let others = others.iter().filter(|other| is_written && is_other(other));
    let behind = |other: &Front<F>| Behind {
        number: other.number,
        count: other.header.order.bytes_u32(count),
    };
    others.map(behind).collect()
}

/// What a physical file turns out to be.
enum State<F> {
    /// It is closed, and its table fits.
    Whole(Physical<F>),
    /// It is not; and how far its data can reach.
    Broken(Front<F>, Reach),
}

fn state<F: File>(front: Front<F>) -> Result<State<F>> {
    let table = match Table::find(&*front.file, front.number, &front.header, front.size) {
        Err(Error::Unclosed { .. }) => return Ok(State::Broken(front, Reach::ToEnd)),
        found => found.readable()?,
    };
    // Elsewhere there is data, which may look like one.
    let is_in_place = |table: &Table| front.layout.end_of(table.block_count.into()) == Ok(table.at);
    let Some(table) = table.filter(is_in_place) else { return until_table(front) };
    let fits = table.load(&*front.file, front.number).readable()?.filter(|blocks| {
        (0..front.ranks.len()).all(|task| {
            let place = front.layout.place(task).unwrap_or_default();
            Cursor::new(place, blocks.of(task).to_vec(), front.number).is_ok()
        })
    });
    match fits {
        Some(blocks) => Ok(State::Whole(Physical { front, table, blocks })),
        None => until_table(front),
    }
}

/// A closed file that lost its table held data only before where the table began.
fn until_table<F: File>(front: Front<F>) -> Result<State<F>> {
    let mut bytes = [0; 12];
    let read = read_exactly(&*front.file, front.number, &mut bytes, front.header.commit_at());
    let is_read = read.readable()?.is_some();
    let [a, b, c, d, at @ ..] = bytes;
    let rows = u64::from(front.header.order.u32([a, b, c, d]));
    let at = front.header.order.u64(at);
    let plausible = is_read && front.layout.end_of(rows) == Ok(at);
    let reach = if plausible { Reach::Blocks(rows) } else { Reach::Unknown };
    Ok(State::Broken(front, reach))
}

/// Marks the tasks of a closed file that did not fit into what is left of it if they had `count`
/// blocks, which at least one had.
fn note_cut<F: File>(front: &Front<F>, extents: &mut [Extent], count: u64) {
    let Some(last) = count.checked_sub(1) else { return };
    for (task, extent) in extents.iter_mut().enumerate() {
        let place = front.layout.place(task).unwrap_or_default();
        let end = place.block_at(narrow(last)).map_or(u64::MAX, |at| at + place.chunk_len);
        extent.is_cut = place.chunk_len > 0 && end > front.size;
    }
}

/// Reads the checksums of a closed file, if all of them are there.
fn keep_checksums<F: File>(physical: &Physical<F>, extents: &mut [Extent]) -> Result<()> {
    let of = |(task, extent): (u32, &Extent)| -> Result<Option<Vec<u32>>> {
        let blocks = 0..wide(extent.lens.len());
        let sums = blocks.map(|block| Ok(physical.checksum(task, block).readable()?.flatten()));
        sums.collect()
    };
    let sums: Option<Vec<_>> = (0u32..).zip(&*extents).map(of).collect::<Result<_>>()?;
    for (extent, sums) in extents.iter_mut().zip(sums.unwrap_or_default()) {
        extent.sums = sums;
    }
    Ok(())
}

/// Refuses blocks whose table would take a gigabyte and more, when there is not that much data.
fn demand_table<F: File>(front: &Front<F>, extents: &[Extent]) -> Result<()> {
    let rows = extents.iter().map(|extent| wide(extent.lens.len())).max().unwrap_or(0);
    let len = rows.saturating_mul(8 * wide(extents.len()));
    demand(&*front.file, 0..front.size, len / 16, (Part::Blocks, front.number))
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
