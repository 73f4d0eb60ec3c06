//! Merged writing: the data of a group of tasks goes to the stream of its first one.
//!
//! No data travels between ranks. Rank 0 of the file's group tells each where in the collector's
//! chunks its bytes belong, in the order of local ranks, and each writes them there itself.

use std::collections::BTreeMap;

use crate::{
    codec::{Fields, narrow, put_u64, wide},
    error::{Argument, Error, Result},
    group::Group,
    journal::{ANY_MORE, Slot},
    parallel::{
        exchange::{Lens, exchange},
        records::{Part, parts},
        writer::ParWriter,
    },
    repeats::Owner,
    storage::Storage,
};

const ANSWER_LEN: usize = 8 + 8 + 8;
const LENS: Lens = Lens { ask: Asked::LEN, answer: ANSWER_LEN };

impl<S: Storage> ParWriter<S> {
    /// Appends `bytes` of every rank of one physical file to the streams of their collectors, in
    /// the order of local ranks. Collective over `group`, the file's ranks in any order; costs one
    /// exchange. Any number of bytes, none included; each rank has one task.
    ///
    /// # Errors
    ///
    /// The same [`Error::OnRank`] on every rank if the bytes cannot be placed. A failed write
    /// returns on its own rank at once and on all at closing.
    pub fn write_merged<G: Group>(&mut self, group: &G, bytes: &[u8]) -> Result<()> {
        let mine = self.ask(wide(bytes.len()));
        let answer = exchange(group, mine, LENS, assign)?;
        let mut fields = Fields::little(&answer);
        let mut next = || fields.u64().ok_or(Error::TooLarge);
        let (block, used, total) = (next()?, next()?, next()?);
        self.record_collected()?;
        self.advance_collector(total)?;
        let place = self.tasks.first().ok_or(Argument::Task)?.collector_place;
        let task = self.task(0)?;
        let (mut block, mut used, mut rest) = (narrow(block), used, bytes);
        while !rest.is_empty() {
            if used == place.chunk_len {
                (block, used) = (block + 1, 0);
            }
            invariant!(used <= place.chunk_len, "the collector's chunk has these bytes",
                else return Err(Error::Poisoned));
            let len = narrow(place.chunk_len - used).min(rest.len());
            let (part, behind) = rest.split_at_checked(len).ok_or(Error::TooLarge)?;
            task.output.write(part, place.block_at(block)? + used, None)?;
            used += wide(len);
            rest = behind;
        }
        task.output.flush()
    }

    /// Records what the group wrote before this call: all its ranks are here, so it is in the
    /// storage.
    fn record_collected(&mut self) -> Result<()> {
        let local = self.tasks.first_mut().ok_or(Argument::Task)?;
        let from = std::mem::replace(&mut local.recorded, local.state.fill.block().0);
        if local.state.fill.total() == 0 {
            return Ok(());
        }
        let task = self.task(0)?;
        for (block, used) in task.state.fill.block_lens().enumerate().skip(from) {
            let slot = Slot::of(used, None);
            task.output.record(Owner { task: task.local_rank, block: wide(block), slot })?;
        }
        Ok(())
    }

    fn ask(&self, len: u64) -> Result<Vec<u8>> {
        let local = self.tasks.first().ok_or(Argument::Task)?;
        let (block, used) = local.state.fill.block();
        let asked = Asked {
            local_rank: local.task.local_rank,
            collector: local.collector,
            chunk_len: local.collector_place.chunk_len,
            block: wide(block),
            used,
            len,
        };
        let mut bytes = Vec::with_capacity(Asked::LEN);
        asked.put(&mut bytes);
        Ok(bytes)
    }

    /// Counts `total` bytes of the group in the collector's stream, 0 on every other rank, and has
    /// the journal say that its blocks may have got them.
    fn advance_collector(&mut self, mut total: u64) -> Result<()> {
        let task = self.task(0)?;
        while total > 0 {
            let (_, len, _) = task.state.fill.extent(narrow(total))?;
            let (block, used) = task.state.fill.block();
            let slot = Slot { more: ANY_MORE, ..Slot::of(used, None) };
            task.output.announce(Owner { task: task.local_rank, block: wide(block), slot })?;
            task.state.fill.advance(wide(len));
            total -= wide(len);
        }
        Ok(())
    }
}

/// A rank's request.
struct Asked {
    local_rank: u32,
    collector: u32,
    chunk_len: u64,
    /// Where the rank's own stream ends: a block, and bytes of it.
    block: u64,
    used: u64,
    /// Bytes that it writes.
    len: u64,
}

parts! {
    Asked { local_rank: u32, collector: u32, chunk_len: u64, block: u64, used: u64, len: u64 }
}

impl Asked {
    /// True if others merge their data into its stream.
    fn collects(&self) -> bool {
        self.local_rank == self.collector
    }
}

/// Gives every rank its place behind those of lower local ranks, and the collector the sum; in the
/// order of the asks.
fn assign(asked: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
    let asks = asked.iter().map(|ask| Asked::of(ask)).collect::<Option<Vec<_>>>();
    let asks = asks.ok_or(Error::TooLarge)?;
    let mut order: Vec<_> = asks.iter().zip(0..).collect();
    order.sort_unstable_by_key(|(ask, _)| ask.local_rank);
    // Position behind the bytes placed so far, and their sum, for every collector.
    let mut groups: BTreeMap<u32, ((u64, u64), u64)> = BTreeMap::new();
    let mut places = vec![(0, 0); asks.len()];
    for (ask, at) in order {
        let Asked { collector, chunk_len, len, .. } = *ask;
        if len > 0 && chunk_len == 0 {
            return Err(Argument::ChunkEmpty.into());
        }
        if ask.collects() {
            groups.insert(collector, ((ask.block, ask.used), 0));
        }
        let ((block, used), sum) = groups.get_mut(&collector).ok_or(Argument::Disagree)?;
        if let Some(place) = places.get_mut::<usize>(at) {
            *place = (*block, *used);
        }
        let end = used.checked_add(len).ok_or(Error::TooLarge)?;
        *block += end.checked_div(chunk_len).unwrap_or(0);
        *used = end.checked_rem(chunk_len).unwrap_or(0);
        *sum += len;
    }
    let answers = asks.iter().zip(places).map(|(ask, (block, used))| {
        let group = groups.get(&ask.local_rank).filter(|_| ask.collects());
        let mut bytes = Vec::with_capacity(ANSWER_LEN);
        put_u64(&mut bytes, block);
        put_u64(&mut bytes, used);
        put_u64(&mut bytes, group.map_or(0, |(_, sum)| *sum));
        debug_assert_eq!(bytes.len(), ANSWER_LEN);
        bytes
    });
    Ok(answers.collect())
}
