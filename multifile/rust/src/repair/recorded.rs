//! Blocks of an unclosed file, as its journal has them.

use std::ops::Range;

use crate::{
    backing::Gaps,
    codec::{narrow, wide},
    error::{OnFile as _, Result},
    estimate::{Extent, Flaw, Reach, data_end, estimate},
    journal::{self, ANY_MORE, Found, SLOT_LEN, Slot, SlotKey},
    physical::Front,
    storage::{File, read_up_to},
    sums,
};

/// Bytes of a journal that are read at a time.
const PIECE_LEN: u64 = 1 << 20;

/// Returns every task as the journal has it, and if that is all. Blocks without a slot hold no
/// completed write; those whose slot is not readable are estimated.
pub(super) fn recorded<F: File>(
    front: &Front<F>,
    journal: &F,
    instance: u64,
) -> Result<(Vec<Extent>, bool)> {
    let mut recorded = Recorded {
        front,
        journal,
        instance,
        extents: vec![Extent { lens: vec![0], ..Extent::default() }; front.ranks.len()],
        totals: vec![0; front.ranks.len()],
        unsure: Vec::new(),
        gaps: Gaps::new(front.number),
    };
    let size = journal.size().on_file(front.number)?;
    let mut at = 0;
    while let Some(range) =
        journal.data_from(at).on_file(front.number)?.filter(|range| range.end > at)
    {
        // Whole slots, also where the storage knows holes more finely.
        let first = range.start.max(at) / SLOT_LEN * SLOT_LEN;
        recorded.read(first..range.end.min(size))?;
        at = range.end;
    }
    let Recorded { mut extents, unsure, mut gaps, .. } = recorded;
    let is_all = unsure.is_empty();
    if !is_all {
        let estimated = estimate(front, Reach::ToEnd)?;
        let summed = extents.iter().any(|extent| !extent.sums.is_empty());
        for (task, block) in unsure {
            if let Some((known, estimated)) = extents.get_mut(task).zip(estimated.get(task)) {
                note_estimate(known, estimated, block, &mut gaps)?;
                if summed {
                    note_sum(front, known, task, block)?;
                }
            }
        }
    }
    Ok((extents, is_all))
}

/// The slots of a journal that were read.
struct Recorded<'a, F> {
    front: &'a Front<F>,
    journal: &'a F,
    instance: u64,
    extents: Vec<Extent>,
    /// Bytes that each has in all blocks: a stream may have millions of them.
    totals: Vec<u64>,
    /// Blocks whose slot is not readable.
    unsure: Vec<(usize, usize)>,
    gaps: Gaps,
}

impl<F: File> Recorded<'_, F> {
    /// Reads all slots that begin in `range` of the journal, which begins with one.
    fn read(&mut self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        let mut bytes = vec![0; narrow(PIECE_LEN.min((range.end - at).next_multiple_of(SLOT_LEN)))];
        while at < range.end {
            let len = (range.end - at).next_multiple_of(SLOT_LEN).min(PIECE_LEN);
            let piece = bytes.get_mut(..narrow(len)).unwrap_or_default();
            let read = read_up_to(self.journal, piece, at).on_file(self.front.number)?;
            let piece = bytes.get(..read).unwrap_or_default();
            for (index, slot) in (at / SLOT_LEN..).zip(piece.chunks(narrow(SLOT_LEN))) {
                if slot.iter().any(|byte| *byte != 0) {
                    self.note(index, slot)?;
                }
            }
            at += len;
        }
        Ok(())
    }

    /// Notes what the bytes of a slot say, which are not all zero.
    fn note(&mut self, index: u64, bytes: &[u8]) -> Result<()> {
        let tasks = wide(self.front.ranks.len());
        let Some(block) = index.checked_div(tasks) else { return Ok(()) };
        let task = index % tasks;
        let key = SlotKey {
            instance: self.instance,
            task_count: self.front.header.task_count,
            task: u32::try_from(task).unwrap_or(u32::MAX),
            block,
        };
        let (task, block) = (narrow(task), narrow(block));
        match Slot::decode(bytes, &key) {
            Some(slot) => {
                self.note_slot(task, block, slot)?;
                if slot.more == ANY_MORE {
                    self.note_merged(task, key, slot)?;
                }
            }
            None => self.unsure.push((task, block)),
        }
        Ok(())
    }

    /// A block of a task has so many bytes.
    fn set_len(&mut self, task: usize, block: usize, len: u64) -> Result<()> {
        let known = self.extents.get_mut(task).zip(self.totals.get_mut(task));
        let Some((extent, total)) = known else { return Ok(()) };
        if let Some(known) = self.gaps.slot(&mut extent.lens, block)? {
            *total = *total - *known + len;
            *known = len;
        }
        Ok(())
    }

    fn note_slot(&mut self, task: usize, block: usize, slot: Slot) -> Result<()> {
        let front = self.front;
        let Some(extent) = self.extents.get_mut(task) else { return Ok(()) };
        let place = front.layout.place(task).unwrap_or_default();
        let there = place.block_at(block).map_or(0, |at| front.size.saturating_sub(at));
        if slot.used > place.chunk_len || slot.used > there {
            // The data this slot vouches for is not there: the node was lost before it was durable.
            extent.note(Flaw::Damage);
        }
        let mut used = slot.used.min(there);
        if used == 0 && slot.more == 0 || slot.used > place.chunk_len {
            return Ok(());
        }
        if slot.more > 0 {
            let at = place.block_at(block)?;
            let end = data_end(front, at + used..at + place.chunk_len)?;
            used = slot.used_with(end - (at + used));
        }
        if used == 0 {
            return Ok(());
        }
        if let Some(sum) = slot.sum {
            extent.sums.resize(extent.sums.len().max(block + 1), 0);
            if let Some(known) = extent.sums.get_mut(block) {
                *known = sum;
            }
            let at = place.block_at(block)?;
            let found = sums::append(&*front.file, front.number, 0, at..at + slot.used)?;
            if found != sum {
                extent.note(Flaw::Damage);
            }
        }
        self.set_len(task, block, used)?;
        let total = self.totals.get(task).copied().unwrap_or(0);
        if let Some(extent) = self.extents.get_mut(task) {
            extent.most = extent.most.max(total);
        }
        Ok(())
    }

    /// Merged data may end in zeros, but goes on in another block only behind a full one.
    fn note_merged(&mut self, task: usize, mut key: SlotKey, mut slot: Slot) -> Result<()> {
        let chunk_len = self.front.layout.place(task).unwrap_or_default().chunk_len;
        let len_of = |all: &[Extent], block| {
            all.get(task).and_then(|extent| extent.lens.get(narrow(block)).copied()).unwrap_or(0)
        };
        let used = len_of(&self.extents, key.block);
        while used > 0 && slot.used == 0 && slot.more == ANY_MORE && key.block > 0 {
            key.block -= 1;
            let before = journal::read(self.journal, &key).on_file(self.front.number);
            let Found::Slot(before) = before? else { break };
            if before.more != ANY_MORE || len_of(&self.extents, key.block) == chunk_len {
                break;
            }
            self.set_len(task, narrow(key.block), chunk_len)?;
            slot = before;
        }
        let total = self.totals.get(task).copied().unwrap_or(0);
        let Some(extent) = self.extents.get_mut(task) else { return Ok(()) };
        // A block without data may be behind one that is full, which nothing tells, too.
        let before = if used > 0 { total - used } else { extent.most };
        extent.most = extent.most.max(before.saturating_add(chunk_len));
        Ok(())
    }
}

/// Takes the length of one block from the data, because its slot is not readable.
fn note_estimate(
    known: &mut Extent,
    estimated: &Extent,
    block: usize,
    gaps: &mut Gaps,
) -> Result<()> {
    if let Some(len) = estimated.lens.get(block).copied().filter(|len| *len > 0) {
        if let Some(slot) = gaps.slot(&mut known.lens, block)? {
            *slot = len;
        }
    }
    known.most = known.most.max(estimated.most);
    Ok(())
}

/// Sums up a block whose own checksum is lost: without one its data would pass for damaged.
pub(super) fn note_sum<F: File>(
    front: &Front<F>,
    extent: &mut Extent,
    task: usize,
    block: usize,
) -> Result<()> {
    let Some(len) = extent.lens.get(block).copied() else { return Ok(()) };
    let at = front.layout.place(task).unwrap_or_default().block_at(block)?;
    extent.sums.resize(extent.sums.len().max(block + 1), 0);
    if let Some(sum) = extent.sums.get_mut(block) {
        *sum = sums::append(&*front.file, front.number, 0, at..at + len)?;
    }
    Ok(())
}
