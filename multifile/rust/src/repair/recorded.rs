//! Blocks of an unclosed file, as its journal has them.

use crate::{
    backing::Gaps,
    codec::{narrow, wide},
    error::{OnFile as _, Result},
    estimate::{Extent, Flaw, Reach, data_end, estimate},
    journal::{self, ANY_MORE, Found, SLOT_LEN, Slot, SlotKey},
    physical::Front,
    storage::File,
    sums,
};

/// Returns every task as the journal has it, and if that is all. Blocks without a slot hold no
/// completed write; those whose slot is not readable are estimated.
pub(super) fn recorded<F: File>(
    front: &Front<F>,
    journal: &F,
    instance: u64,
) -> Result<(Vec<Extent>, bool)> {
    let tasks = wide(front.ranks.len());
    let mut extents = vec![Extent { lens: vec![0], ..Extent::default() }; front.ranks.len()];
    let size = journal.size().on_file(front.number)?;
    let (mut unsure, mut gaps) = (Vec::new(), Gaps::new(front.number));
    let mut at = 0;
    while let Some(range) =
        journal.data_from(at).on_file(front.number)?.filter(|range| range.end > at)
    {
        let first = range.start.max(at) / SLOT_LEN;
        for index in first..range.end.min(size).div_ceil(SLOT_LEN) {
            let Some(block) = index.checked_div(tasks) else { break };
            let task = index % tasks;
            let key = SlotKey {
                instance,
                task_count: front.header.task_count,
                task: u32::try_from(task).unwrap_or(u32::MAX),
                block,
            };
            let (task, block) = (narrow(task), narrow(block));
            let Some(extent) = extents.get_mut(task) else { continue };
            match journal::read(journal, &key).on_file(front.number)? {
                Found::Slot(slot) => {
                    note_slot(front, extent, task, block, slot, &mut gaps)?;
                    if slot.more == ANY_MORE {
                        note_merged(front, extent, journal, key, slot, &mut gaps)?;
                    }
                }
                Found::Other => unsure.push((task, block)),
                Found::Nothing => {}
            }
        }
        at = range.end;
    }
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

fn note_slot<F: File>(
    front: &Front<F>,
    extent: &mut Extent,
    task: usize,
    block: usize,
    slot: Slot,
    gaps: &mut Gaps,
) -> Result<()> {
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
    if let Some(len) = gaps.slot(&mut extent.lens, block)? {
        *len = used;
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
    extent.most = extent.most.max(extent.lens.iter().sum());
    Ok(())
}

/// Merged data may end in zeros, but goes on in another block only behind a full one.
fn note_merged<F: File>(
    front: &Front<F>,
    extent: &mut Extent,
    journal: &F,
    mut key: SlotKey,
    mut slot: Slot,
    gaps: &mut Gaps,
) -> Result<()> {
    let chunk_len = front.layout.place(narrow(key.task.into())).unwrap_or_default().chunk_len;
    let used = extent.lens.get(narrow(key.block)).copied().unwrap_or(0);
    while used > 0 && slot.used == 0 && slot.more == ANY_MORE && key.block > 0 {
        key.block -= 1;
        let before = journal::read(journal, &key).on_file(front.number);
        let Found::Slot(before) = before? else { break };
        let Some(len) = gaps.slot(&mut extent.lens, narrow(key.block))? else { break };
        if before.more != ANY_MORE || *len == chunk_len {
            break;
        }
        (*len, slot) = (chunk_len, before);
    }
    // A block without data may be behind one that is full, which nothing tells, too.
    let before = if used > 0 { extent.lens.iter().sum::<u64>() - used } else { extent.most };
    extent.most = extent.most.max(before.saturating_add(chunk_len));
    Ok(())
}
