//! Closes one physical file: block table, mapping, checksums, and last the fields that say so.
//!
//! The commit fields of the header are written when everything they vouch for is in the storage;
//! a writer that dies before leaves a file that `repair` can complete (format section 4).

use crate::{
    codec::wide,
    error::{Error, Result},
    header::FLAG2_AT,
    mark::Mark,
    output::Output,
    plan::{FilePlan, Style},
    storage::Storage,
    sums::CHECKSUMS_MAGIC,
};

/// Bytes of tables collected before they are written.
const SLAB_LEN: usize = 1 << 16;

/// Content of the block table of one file.
pub(crate) trait Usage {
    /// Number of blocks of task `task`.
    fn block_count(&self, task: usize) -> usize;
    /// Used bytes of a block, `None` when the task does not have it.
    fn block_len(&self, task: usize, block: usize) -> Option<u64>;
    /// CRC32C of a block's used bytes; 0 when the task does not have it.
    fn block_sum(&self, task: usize, block: usize) -> u32;
}

/// Writes everything behind the data and marks the file as closed.
pub(crate) fn finish<S: Storage, U: Usage>(
    output: &mut Output<S>,
    plan: &FilePlan,
    usage: &U,
) -> Result<()> {
    let tail = tables(output, plan, usage)?;
    commit(output, plan, &tail)
}

/// Writes everything behind the data; until it is [committed](commit) the file counts as before.
pub(crate) fn tables<S: Storage, U: Usage>(
    output: &mut Output<S>,
    plan: &FilePlan,
    usage: &U,
) -> Result<Tail> {
    let tasks = plan.ranks.len();
    let blocks = (0..tasks).map(|task| usage.block_count(task)).max().unwrap_or(0);
    let tail = Tail::new(plan, blocks)?;
    output.flush()?;
    // Half a table behind a file without data would look like data.
    output.begin_journal()?;
    let order = plan.header.order;
    let mut slab = Slab { output, bytes: Vec::new(), at: tail.table_at };
    for task in 0..tasks {
        slab.put(&order.bytes_u64(wide(usage.block_count(task))))?;
    }
    for block in 0..blocks {
        for task in 0..tasks {
            debug_assert!(block > 0 || usage.block_len(task, 0).is_some(), "task {task} is open");
            let len = usage.block_len(task, block).unwrap_or(unused(plan.style));
            slab.put(&order.bytes_u64(len))?;
        }
    }
    slab.put(&mapping_bytes(plan))?;
    if plan.checksums {
        slab.put(&CHECKSUMS_MAGIC)?;
        for block in 0..blocks {
            for task in 0..tasks {
                slab.put(&usage.block_sum(task, block).to_le_bytes())?;
            }
        }
    }
    slab.write()?;
    invariant!(slab.at == tail.end, "the tables end where the file does",
        else return Err(Error::Poisoned));
    output.flush()?;
    Ok(tail)
}

/// Tables on their way to the storage: there are hundreds of thousands of small integers.
struct Slab<'a, S: Storage> {
    output: &'a mut Output<S>,
    bytes: Vec<u8>,
    at: u64,
}

impl<S: Storage> Slab<'_, S> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= SLAB_LEN { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.output.write(&self.bytes, self.at, None)?;
        self.at += wide(self.bytes.len());
        self.bytes.clear();
        Ok(())
    }
}

/// Cuts what an earlier file left behind the tables and marks the file as closed.
pub(crate) fn commit<S: Storage>(
    output: &mut Output<S>,
    plan: &FilePlan,
    tail: &Tail,
) -> Result<()> {
    debug_assert!(plan.layout.data_at() <= tail.table_at, "the block table is behind the data");
    let order = plan.header.order;
    output.cut(tail.end)?;
    settle(output, plan)?;
    let mut bytes = order.bytes_u32(tail.block_count).to_vec();
    bytes.extend_from_slice(&order.bytes_u64(tail.table_at));
    output.write(&bytes, plan.header.commit_at(), None)?;
    output.flush()?;
    let uniform = plan.hints && plan.uniform();
    let mark = Mark::Closed { uniform, checksums_at: tail.checksums_at }.encode();
    if mark != plan.header.flag2 {
        output.write(&order.bytes_u64(mark), FLAG2_AT, None)?;
        output.flush()?;
    }
    settle(output, plan)
}

/// Returns when the storage has taken everything, durably if that is wished.
fn settle<S: Storage>(output: &mut Output<S>, plan: &FilePlan) -> Result<()> {
    if plan.durable { output.sync() } else { output.hand_over() }
}

/// Where the parts behind the data stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) block_count: u32,
    pub(crate) table_at: u64,
    pub(crate) mapping_at: u64,
    /// Offset of the first checksum, behind the magic.
    pub(crate) checksums_at: Option<u64>,
    pub(crate) end: u64,
}

impl Tail {
    pub(crate) fn new(plan: &FilePlan, blocks: usize) -> Result<Self> {
        let block_count = i32::try_from(blocks).ok().and_then(|count| u32::try_from(count).ok());
        let block_count = block_count.ok_or(Error::TooLarge)?;
        let table_at = plan.layout.end_of(u64::from(block_count))?;
        let slots = wide(plan.ranks.len()).checked_mul(u64::from(block_count));
        let slots = slots.ok_or(Error::TooLarge)?;
        let add = |at: u64, count: u64, len: u64| {
            count.checked_mul(len).and_then(|len| at.checked_add(len)).ok_or(Error::TooLarge)
        };
        let mapping_at = add(add(table_at, wide(plan.ranks.len()), 8)?, slots, 8)?;
        let mapping_len = plan.mapping.as_ref().map_or(0, |entries| 4 + 8 * wide(entries.len()));
        let sums_at = add(mapping_at, 1, mapping_len)?;
        if !plan.checksums {
            return Ok(Self {
                block_count,
                table_at,
                mapping_at,
                checksums_at: None,
                end: sums_at,
            });
        }
        let first = add(sums_at, 1, wide(CHECKSUMS_MAGIC.len()))?;
        let end = add(first, slots, 4)?;
        Ok(Self { block_count, table_at, mapping_at, checksums_at: Some(first), end })
    }
}

/// The mapping as stored; empty when the file has none.
pub(crate) fn mapping_bytes(plan: &FilePlan) -> Vec<u8> {
    let order = plan.header.order;
    let mut bytes = Vec::new();
    if let Some(entries) = &plan.mapping {
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&order.bytes_u32(count));
        for (file, local) in entries {
            bytes.extend_from_slice(&order.bytes_u32(*file));
            bytes.extend_from_slice(&order.bytes_u32(*local));
        }
    }
    bytes
}

/// Returns the filler for slots of blocks that a task does not have.
pub(crate) fn unused(style: Style) -> u64 {
    if style == Style::Mapped { u64::MAX } else { 0 }
}
