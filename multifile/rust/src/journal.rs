//! Completion information beside a physical file that is being written (format section 8).
//!
//! SIONlib learns how much of each block was used only when the file is closed, so a file whose
//! writers died is unreadable. The journal holds one fixed slot for every block of every task,
//! rewritten whenever bytes reached the storage that repair could not count (module `repeats`).
//! Slots belong to one task each, so writers never wait for each other, and each proves by a
//! checksum that it was written for this file and this block. Closing the file removes the journal.

use std::{io, path::PathBuf};

use crate::{
    codec::Fields,
    mark::INSTANCE,
    storage::{File, Naming, Storage, read_up_to, write_all},
};

/// Length of a slot in bytes.
pub const SLOT_LEN: u64 = 16;
/// The bytes of a slot.
pub type SlotBytes = [u8; 16];
const _: () = assert!(size_of::<SlotBytes>() as u64 == SLOT_LEN);
const SUM_PRESENT: u64 = 1 << 63;
const MORE_PRESENT: u64 = 1 << 62;
/// As the length of writes that may have followed: the block reaches to its last byte that is not
/// zero, at least.
pub(crate) const ANY_MORE: u32 = 1;

/// State of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Bytes of the block that reached the storage.
    pub used: u64,
    /// CRC32C of these bytes, when the writer computes them.
    pub sum: Option<u32>,
    /// Length in bytes of each write that may have followed without being recorded, 0 if none; not
    /// together with `sum`.
    pub more: u32,
}

/// Which block a slot stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotKey {
    /// Number drawn when the file was created.
    pub instance: u64,
    /// Number of tasks in the physical file.
    pub task_count: u32,
    /// Index of the task in the physical file.
    pub task: u32,
    /// Number of the block.
    pub block: u64,
}

impl SlotKey {
    /// Offset of the slot in the journal; `None` beyond 64 bits.
    #[must_use]
    pub fn at(&self) -> Option<u64> {
        debug_assert!(self.task < self.task_count, "task {} is of this file", self.task);
        let row = self.block.checked_mul(u64::from(self.task_count))?;
        row.checked_add(u64::from(self.task))?.checked_mul(SLOT_LEN)
    }

    fn check(&self, used: u64, sum: u32) -> u32 {
        let words = [self.instance & INSTANCE, self.block, used].map(u64::to_le_bytes);
        let [instance, block, used] = &words;
        let (task, sum) = (self.task.to_le_bytes(), sum.to_le_bytes());
        let fields: [&[u8]; 5] = [instance, &task, block, used, &sum];
        fields.into_iter().fold(0, crc32c::crc32c_append)
    }
}

impl Slot {
    /// A slot that tells everything.
    #[must_use]
    pub const fn of(used: u64, sum: Option<u32>) -> Self {
        Self { used, sum, more: 0 }
    }

    /// The bytes of the slot for `key`.
    #[must_use]
    pub fn encode(&self, key: &SlotKey) -> SlotBytes {
        let (flag, second) = match (self.sum, self.more) {
            (Some(sum), _) => (SUM_PRESENT, sum),
            (None, 0) => (0, 0),
            (None, more) => (MORE_PRESENT, more),
        };
        debug_assert_eq!(self.used & (SUM_PRESENT | MORE_PRESENT), 0, "a length has 62 bits");
        let (first, check) = (self.used | flag, key.check(self.used | flag, second));
        let mut bytes = SlotBytes::default();
        let fields = first.to_le_bytes().into_iter();
        let fields = fields.chain(second.to_le_bytes()).chain(check.to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(to, byte)| *to = byte);
        bytes
    }

    /// Reads a slot; `None` when it was not written for `key`.
    #[must_use]
    pub fn decode(bytes: &[u8], key: &SlotKey) -> Option<Self> {
        let mut fields = Fields::little(bytes);
        let (first, second, check) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let with = |flag| (first & flag != 0).then_some(second);
        let used = first & !(SUM_PRESENT | MORE_PRESENT);
        let slot = Self { used, sum: with(SUM_PRESENT), more: with(MORE_PRESENT).unwrap_or(0) };
        (check == key.check(first, second)).then_some(slot)
    }
}

/// The journal of one physical file, created before the first bytes of data are written.
#[derive(Debug)]
pub(crate) enum Journal<S: Storage> {
    /// None wanted, or none could be created: repair estimates from the data alone.
    Off,
    /// By the names of the set and of the journal.
    Later(S, PathBuf, PathBuf),
    Open(S::File),
}

impl<S: Storage> Journal<S> {
    /// From now on, a block without a slot holds nothing; whether it is so: there may be none.
    pub(crate) fn begin(&mut self) -> bool {
        if let Self::Later(storage, set, path) = self {
            *self = storage.create(path, Naming::Derived(set), false).map_or(Self::Off, Self::Open);
            return matches!(self, Self::Open(_));
        }
        true
    }

    /// Records in a journal that was [begun](Self::begin).
    pub(crate) fn record(&self, key: &SlotKey, slot: Slot) -> io::Result<()> {
        debug_assert!(!matches!(self, Self::Later(..)), "the journal has begun");
        match (self, key.at()) {
            (Self::Open(file), Some(at)) => write_all(file, &slot.encode(key), at),
            _ => Ok(()),
        }
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        match self {
            Self::Open(file) => file.sync(),
            Self::Off | Self::Later(..) => Ok(()),
        }
    }
}

/// Content of a slot's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Slot(Slot),
    Nothing,
    /// Not written for this file and block, or damaged.
    Other,
}

/// Reads the slot for `key` from a journal.
pub(crate) fn read<F: File>(file: &F, key: &SlotKey) -> io::Result<Found> {
    let mut bytes = [0; 16];
    let Some(at) = key.at() else { return Ok(Found::Nothing) };
    let n = read_up_to(file, &mut bytes, at)?;
    Ok(match Slot::decode(&bytes, key) {
        Some(slot) if n == bytes.len() => Found::Slot(slot),
        _ if bytes == [0; 16] => Found::Nothing,
        _ => Found::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Format rules 8.1 and 8.2.
    #[test]
    fn a_slot_counts_only_for_its_own_file_and_block() {
        let key = SlotKey { instance: 77, task_count: 3, task: 1, block: 2 };
        assert_eq!(key.at(), Some((2 * 3 + 1) * SLOT_LEN));
        for slot in [Slot::of(7, None), Slot { more: 9, ..Slot::of(8, None) }] {
            assert_eq!(Slot::decode(&slot.encode(&key), &key), Some(slot));
        }
        let slot = Slot::of(1000, Some(5));
        let bytes = slot.encode(&key);
        assert_eq!(Slot::decode(&bytes, &key), Some(slot));
        assert_eq!(Slot::decode(&bytes, &SlotKey { instance: 78, ..key }), None);
        assert_eq!(Slot::decode(&bytes, &SlotKey { task: 2, ..key }), None);
        assert_eq!(Slot::decode(&bytes, &SlotKey { block: 1, ..key }), None);
        assert_eq!(Slot::decode(&[0; 16], &key), None);
    }
}
