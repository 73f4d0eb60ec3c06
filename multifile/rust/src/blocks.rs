//! The block table of one physical file: how many bytes each task used of each of its blocks.
//!
//! On disk it stands behind the data, all tasks' first blocks before all second ones, with a slot
//! for blocks a task does not have (format section 4). In memory only the blocks that exist are
//! kept, task after task.

use std::ops::Range;

use crate::{
    backing::{demand, stored},
    codec::{Order, narrow, u64s, wide},
    error::{Error, Part, Result},
    header::{COMMIT_LEN, Header},
    storage::{File, read_exactly},
};

/// Bytes read at once while loading tables: what a hostile count can make us allocate.
const SLAB_LEN: usize = 1 << 16;
const _: () = assert!(SLAB_LEN % 8 == 0, "a slab holds whole integers");

/// Used bytes of every block of every task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// Where each task's blocks begin in `lens`, and at the end the length of `lens`.
    first: Vec<usize>,
    lens: Vec<u64>,
    block_count: u32,
}

/// Where the block table stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Offset of the table.
    pub at: u64,
    /// Largest number of blocks of any task.
    pub block_count: u32,
    /// Number of tasks.
    pub task_count: u32,
    /// Byte order of its integers.
    pub order: Order,
}

impl Table {
    /// Reads the commit fields of physical file `file` and checks that the table they point to
    /// lies in the file, which is `size` bytes long.
    ///
    /// # Errors
    ///
    /// [`Error::Unclosed`] when they are zero; [`Part::Blocks`].
    pub(crate) fn find<F: File>(file: &F, number: u32, header: &Header, size: u64) -> Result<Self> {
        if header.commit_at() + COMMIT_LEN > size {
            return Err(Error::Unclosed { file: number });
        }
        let mut bytes = [0; 12];
        read_exactly(file, number, &mut bytes, header.commit_at())?;
        let [a, b, c, d, at @ ..] = bytes;
        let (block_count, at) = (header.order.u32([a, b, c, d]), header.order.u64(at));
        if at == 0 || (block_count == 0 && header.task_count > 0) {
            return Err(Error::Unclosed { file: number });
        }
        let table = Self { at, block_count, task_count: header.task_count, order: header.order };
        let end = table.end().filter(|end| *end <= size);
        if at < header.commit_at() + COMMIT_LEN
            || i32::try_from(block_count).is_err()
            || end.is_none()
        {
            return Err(Error::Damaged { part: Part::Blocks, file: number });
        }
        Ok(table)
    }

    /// Offset behind the table; `None` beyond 64 bits.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        let rows = u64::from(self.block_count) + 1;
        let row = u64::from(self.task_count) * 8;
        self.at.checked_add(rows.checked_mul(row)?)
    }

    /// Offset of the block count of task `task`.
    #[must_use]
    pub fn count_at(&self, task: u32) -> u64 {
        debug_assert!(task == 0 || task < self.task_count, "task {task} is of this file");
        self.at + 8 * u64::from(task)
    }

    /// Offset of the slot of block `block` of task `task`.
    #[must_use]
    pub fn slot_at(&self, task: u32, block: u64) -> u64 {
        self.count_at(task) + 8 * u64::from(self.task_count) * (block + 1)
    }

    /// Reads the used bytes of one task's blocks: as many small reads as the task has blocks.
    ///
    /// # Errors
    ///
    /// [`Part::Blocks`], [`Part::Truncated`], and what the storage reports.
    pub(crate) fn load_task<F: File>(&self, file: &F, number: u32, task: u32) -> Result<Vec<u64>> {
        let slot = |at| {
            let mut bytes = [0; 8];
            read_exactly(file, number, &mut bytes, at).map(|()| self.order.u64(bytes))
        };
        let count = slot(self.count_at(task))?;
        if !self.is_count(count) {
            return Err(Error::Damaged { part: Part::Blocks, file: number });
        }
        demand(file, self.slots(), count * 8, Part::Blocks, number)?;
        (0..count).map(|block| slot(self.slot_at(task, block))).collect()
    }

    /// Reads the whole table.
    ///
    /// # Errors
    ///
    /// [`Part::Blocks`] when a count is 0 or larger than the table has blocks, or than what is
    /// stored vouches for; [`Part::Truncated`], and what the storage reports.
    pub(crate) fn load<F: File>(&self, file: &F, number: u32) -> Result<Blocks> {
        let (blocks, misfits) = self.load_fitting(file, number)?;
        let damaged = Error::Damaged { part: Part::Blocks, file: number };
        if misfits.is_empty() { Ok(blocks) } else { Err(damaged) }
    }

    /// As [`load`](Self::load), but tasks whose block count is out of range have no blocks, and are
    /// named.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load), but for counts out of range.
    pub(crate) fn load_fitting<F: File>(
        &self,
        file: &F,
        number: u32,
    ) -> Result<(Blocks, Vec<usize>)> {
        let damaged = Error::Damaged { part: Part::Blocks, file: number };
        let (mut first, mut misfits) = (vec![0], Vec::new());
        let mut total = 0usize;
        let tasks = u64::from(self.task_count);
        each_u64(file, number, self.at, tasks, self.order, |count| {
            let fits = self.is_count(count);
            if !fits {
                misfits.push(first.len() - 1);
            }
            total = total.checked_add(narrow(if fits { count } else { 0 })).ok_or(damaged)?;
            first.push(total);
            Ok(())
        })?;
        debug_assert_eq!(wide(first.len()), tasks + 1, "every task has a count");
        let slots = self.slots();
        demand(file, slots.clone(), wide(total).saturating_mul(8), Part::Blocks, number)?;
        let mut lens = vec![0; total];
        let mut at = slots.start;
        while let Some(part) = stored(file, number, at..slots.end)? {
            let index = (part.start - slots.start) / 8;
            let count = (part.end - slots.start).div_ceil(8) - index;
            at = slots.start + 8 * index;
            let (mut task, mut block) = (narrow(index % tasks), narrow(index / tasks));
            each_u64(file, number, at, count, self.order, |len| {
                let range =
                    first.get(task).copied().unwrap_or(0)..first.get(task + 1).map_or(0, |n| *n);
                if let Some(slot) = lens.get_mut(range).and_then(|own| own.get_mut(block)) {
                    *slot = len;
                }
                task += 1;
                if wide(task) == tasks {
                    (task, block) = (0, block + 1);
                }
                Ok(())
            })?;
            at += 8 * count;
        }
        Ok((Blocks { first, lens, block_count: self.block_count }, misfits))
    }

    /// True if a task can have so many blocks.
    fn is_count(&self, count: u64) -> bool {
        (1..=u64::from(self.block_count)).contains(&count)
    }

    /// Where the slots of all blocks stand.
    fn slots(&self) -> Range<u64> {
        self.slot_at(0, 0)..self.slot_at(0, u64::from(self.block_count))
    }
}

impl Blocks {
    /// Used bytes of the blocks of task `task`.
    #[must_use]
    pub(crate) fn of(&self, task: usize) -> &[u64] {
        let range = self.first.get(task).zip(self.first.get(task + 1));
        debug_assert!(range.is_none_or(|(from, to)| from <= to && *to <= self.lens.len()));
        range.and_then(|(from, to)| self.lens.get(*from..*to)).unwrap_or_default()
    }

    /// Largest number of blocks of any task.
    #[must_use]
    pub(crate) const fn block_count(&self) -> u32 {
        self.block_count
    }
}

/// Calls `each` for `count` integers that begin at `at`, reading them in slabs.
pub(crate) fn each_u64<F: File>(
    file: &F,
    number: u32,
    mut at: u64,
    count: u64,
    order: Order,
    mut each: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut slab = vec![0; SLAB_LEN.min(narrow(count.saturating_mul(8)))];
    let mut left = count.saturating_mul(8);
    while left > 0 {
        let len = slab.len().min(narrow(left));
        let part = slab.get_mut(..len).unwrap_or_default();
        read_exactly(file, number, part, at)?;
        for value in u64s(part, order) {
            each(value)?;
        }
        at += wide(len);
        left -= wide(len);
    }
    Ok(())
}
