//! Messages between ranks, as fixed-length records of little-endian integers.

use crate::{
    codec::{Fields, Order, narrow, put_u32, put_u64, signed, unsigned, wide},
    header::Keyval,
    layout::ChunkPlace,
    plan::NewTask,
    reader::Task,
};

/// Bytes that rank 0 takes at closing, about; what does not fit it reads from the journals.
const USED_BYTES_MAX: usize = 4 << 20;

/// Blocks of a task that fit into its record at closing, with `spread` tasks on each of `ranks`.
pub(crate) fn inline_blocks(ranks: u32, spread: usize) -> usize {
    let tasks = narrow(ranks.into()).saturating_mul(spread).max(1);
    (USED_BYTES_MAX / tasks / BLOCK_LEN).clamp(8, 256)
}

/// Length and checksum of a block.
const BLOCK_LEN: usize = 12;

/// Bytes that rank 0 takes at opening, about, before it knows how many tasks there are.
const ASKED_BYTES_MAX: usize = 4 << 20;
const _: () = assert!(Ask::LEN + Grant::LEN <= ASKED_BYTES_MAX / 256);

/// Tasks of each of `ranks` that one exchange at opening has room for.
pub(crate) fn inline_tasks(ranks: u32) -> usize {
    (ASKED_BYTES_MAX / narrow(ranks.into()).max(1) / (Ask::LEN + Grant::LEN)).clamp(4, 256)
}

/// A task to create, as its rank asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) task: NewTask,
    /// Preferred block length of this rank's file system, if none was asked for.
    pub(crate) fs_block_len: u32,
    /// Checksum of the options, which must be the same on all ranks.
    pub(crate) options: u32,
}

impl Ask {
    /// Reads a count and as many asks.
    pub(crate) fn take_all(bytes: &[u8]) -> Vec<Self> {
        let count = Fields::little(bytes).u32().unwrap_or(0);
        let asks = bytes.get(4..).unwrap_or_default().chunks_exact(Self::LEN);
        asks.take(narrow(count.into())).filter_map(Self::of).collect()
    }
}

/// Where a new task was put. All zero in the spare records of ranks with fewer tasks than others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) local_rank: u32,
    pub(crate) place: ChunkPlace,
    /// Local rank and place of the task that holds the data of this one's group when merged.
    pub(crate) collector: u32,
    pub(crate) collector_place: ChunkPlace,
    pub(crate) task_count: u32,
    pub(crate) file_count: u32,
    pub(crate) fs_block_len: u32,
    pub(crate) instance: u64,
    /// True if rank 0 wrote the tables; otherwise each rank writes its own entries.
    pub(crate) by_root: bool,
}

/// Use of a task, told at closing: the number of blocks, and as many of them as fit.
#[derive(Clone, Debug)]
pub(crate) struct Used {
    pub(crate) block_count: u64,
    pub(crate) lens: Vec<u64>,
    pub(crate) sums: Vec<u32>,
}

impl Used {
    /// Bytes of a task of which `inline` blocks are told.
    pub(crate) const fn len(inline: usize) -> usize {
        8 + inline * BLOCK_LEN
    }

    pub(crate) fn put(&self, bytes: &mut Vec<u8>, inline: usize) {
        debug_assert!(self.sums.is_empty() || self.sums.len() == self.lens.len(), "all or no sums");
        put_u64(bytes, self.block_count);
        for block in 0..inline {
            put_u64(bytes, self.lens.get(block).copied().unwrap_or(0));
            put_u32(bytes, self.sums.get(block).copied().unwrap_or(0));
        }
    }

    pub(crate) fn take(bytes: &[u8], inline: usize) -> Option<Self> {
        let mut fields = Fields::little(bytes);
        let block_count = fields.u64()?;
        let mut used = Self { block_count, lens: Vec::new(), sums: Vec::new() };
        for block in 0..wide(inline) {
            let (len, sum) = (fields.u64()?, fields.u32()?);
            if block < used.block_count {
                used.lens.push(len);
                used.sums.push(sum);
            }
        }
        Some(used)
    }

    /// A task that nobody wrote to: it has one empty block all the same.
    pub(crate) fn nothing() -> Self {
        Self { block_count: 1, lens: vec![0], sums: vec![0] }
    }

    /// True if there are blocks that it does not tell of.
    pub(crate) fn is_cut(&self) -> bool {
        wide(self.lens.len()) < self.block_count
    }
}

/// Everything a rank needs to know to read one task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) task: Task,
    pub(crate) place: ChunkPlace,
    pub(crate) table_at: u64,
    pub(crate) block_count: u32,
    pub(crate) task_count: u32,
    pub(crate) set: SetInfo,
}

/// Properties common to all tasks of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInfo {
    /// Number of tasks.
    pub task_count: u32,
    /// Number of physical files.
    pub file_count: u32,
    /// File-system block size in bytes.
    pub fs_block_len: u32,
    /// Byte order of the format's integers.
    pub order: Order,
    /// Byte order the application says its data has.
    pub data_order: Order,
    /// How records are stored.
    pub keyval: Keyval,
}

/// A part of a message of fixed length.
pub(crate) trait Part: Sized {
    /// Its length in bytes.
    const LEN: usize;

    fn put(&self, bytes: &mut Vec<u8>);

    fn take(fields: &mut Fields<'_>) -> Option<Self>;

    /// The part that `bytes` begin with.
    fn of(bytes: &[u8]) -> Option<Self> {
        Self::take(&mut Fields::little(bytes))
    }
}

/// Makes structures parts: their fields in this order.
macro_rules! parts {
    ($($name:ident { $($field:ident: $type:ty),+ $(,)? })+) => {$(
        impl Part for $name {
            const LEN: usize = 0 $(+ <$type>::LEN)+;

            fn put(&self, bytes: &mut Vec<u8>) {
                $(self.$field.put(bytes);)+
            }

            fn take(fields: &mut Fields<'_>) -> Option<Self> {
                Some(Self { $($field: <$type>::take(fields)?,)+ })
            }
        }
    )+};
}

pub(super) use parts;

parts! {
    ChunkPlace { start_at: u64, chunk_len: u64, skip: u64 }
    NewTask { file: u32, local_rank: u32, global_rank: i64, chunk_len: u64 }
    Task { file: u32, local_rank: u32, global_rank: i64, chunk_len: u64 }
    Ask { task: NewTask, fs_block_len: u32, options: u32 }
    Grant {
        local_rank: u32,
        place: ChunkPlace,
        collector: u32,
        collector_place: ChunkPlace,
        task_count: u32,
        file_count: u32,
        fs_block_len: u32,
        instance: u64,
        by_root: bool,
    }
    Given {
        set: SetInfo,
        task: Task,
        place: ChunkPlace,
        table_at: u64,
        block_count: u32,
        task_count: u32,
    }
    SetInfo {
        task_count: u32,
        file_count: u32,
        fs_block_len: u32,
        order: Order,
        data_order: Order,
        keyval: Keyval,
    }
}

/// Makes types parts: each by the integer that it is sent as.
macro_rules! integers {
    ($($type:ty as $integer:ident, $len:literal: $put:expr, $take:expr;)+) => {$(
        impl Part for $type {
            const LEN: usize = $len;

            fn put(&self, bytes: &mut Vec<u8>) {
                let integer: fn(Self) -> $integer = $put;
                bytes.extend_from_slice(&integer(*self).to_le_bytes());
            }

            fn take(fields: &mut Fields<'_>) -> Option<Self> {
                fields.$integer().map($take)
            }
        }
    )+};
}

integers! {
    u32 as u32, 4: |value| value, |value| value;
    u64 as u64, 8: |value| value, |value| value;
    i64 as u64, 8: unsigned, signed;
    bool as u32, 4: u32::from, |value| value == 1;
    Order as u32, 4: |order| u32::from(order == Self::Big), |big| match big {
        1 => Self::Big,
        _ => Self::Little,
    };
    Keyval as u32, 4: |keyval| match keyval {
        Self::None => 0,
        Self::Inline => 1,
        Self::Other(mode) => mode,
    }, |mode| match mode {
        0 => Self::None,
        1 => Self::Inline,
        mode => Self::Other(mode),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_length_they_promise() {
        let place = ChunkPlace { start_at: 1, chunk_len: 2, skip: 3 };
        let new = NewTask { file: 4, local_rank: 5, global_rank: -6, chunk_len: 7 };
        let mut bytes = Vec::new();
        put_u32(&mut bytes, 1);
        Ask { task: new, fs_block_len: 8, options: 9 }.put(&mut bytes);
        assert_eq!(bytes.len(), 4 + Ask::LEN);
        bytes.resize(4 + 2 * Ask::LEN, 0);
        let asks = Ask::take_all(&bytes);
        assert_eq!(asks.iter().map(|ask| ask.task).collect::<Vec<_>>(), [new]);

        bytes.clear();
        let grant = Grant {
            local_rank: 6,
            place,
            collector: 1,
            collector_place: place,
            task_count: 2,
            file_count: 3,
            fs_block_len: 4,
            instance: 5,
            by_root: true,
        };
        grant.put(&mut bytes);
        assert_eq!(bytes.len(), Grant::LEN);
        assert!(Grant::of(&bytes).is_some_and(|grant| grant.by_root));

        bytes.clear();
        Used::nothing().put(&mut bytes, 9);
        assert_eq!(bytes.len(), Used::len(9));
    }

    #[test]
    fn rank_0_takes_no_more_for_tasks_that_may_not_exist() {
        assert_eq!(inline_tasks(4), 256);
        for ranks in [1, 4, 146, 1000, 5000, 65_536] {
            let taken = inline_tasks(ranks) * (Ask::LEN + Grant::LEN) * narrow(ranks.into());
            let least = 4 * (Ask::LEN + Grant::LEN) * narrow(ranks.into());
            assert!(taken <= ASKED_BYTES_MAX.max(least), "{ranks}");
        }
    }

    #[test]
    fn rank_0_never_takes_much_more_than_its_share_of_memory() {
        assert_eq!(inline_blocks(1, 0), 256);
        for ranks in [1, 4, 64, 1000, 5000, 20_000] {
            let taken = Used::len(inline_blocks(ranks, 3)) * 3 * narrow(ranks.into());
            assert!(taken <= USED_BYTES_MAX + 104 * 3 * narrow(ranks.into()), "{ranks}");
        }
    }

    #[test]
    fn what_a_reader_is_given_arrives_unchanged() {
        let set = SetInfo {
            task_count: 1,
            file_count: 2,
            fs_block_len: 3,
            order: Order::Big,
            data_order: Order::Little,
            keyval: Keyval::Inline,
        };
        let task = Task { file: 1, local_rank: 2, global_rank: -3, chunk_len: 4 };
        let place = ChunkPlace { start_at: 1, chunk_len: 2, skip: 3 };
        let given = Given { task, place, table_at: 9, block_count: 8, task_count: 7, set };
        let mut bytes = Vec::new();
        given.put(&mut bytes);
        assert_eq!(bytes.len(), Given::LEN);
        let taken = Given::of(&bytes).unwrap();
        assert_eq!((taken.set, taken.task, taken.place), (set, task, place));
    }
}
