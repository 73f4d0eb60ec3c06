//! Completion information beside a physical file that is being written (format section 8).
//!
//! SIONlib learns how much of each block was used only when the file is closed, so a file whose
//! writers died is unreadable. The journal holds one fixed slot for every block of every task,
//! rewritten whenever bytes reached the storage; `repair` reads it. Slots belong to one task each,
//! so writers never wait for each other, and each proves by a checksum that it was written for
//! this file and this block. Closing the file removes the journal.

use std::{io, path::PathBuf};

use crate::{
    codec::{Fields, put_u32, put_u64},
    mark::INSTANCE,
    storage::{File, Storage, read_up_to, write_all},
};

/// Length of a slot in bytes.
pub const SLOT_LEN: u64 = 16;
const SUM_PRESENT: u64 = 1 << 63;

/// What is known about one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Bytes of the block that reached the storage.
    pub used: u64,
    /// CRC32C of these bytes, when the writer computes them.
    pub sum: Option<u32>,
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
        let row = self.block.checked_mul(u64::from(self.task_count))?;
        row.checked_add(u64::from(self.task))?.checked_mul(SLOT_LEN)
    }

    fn check(&self, used: u64, sum: u32) -> u32 {
        let mut bytes = Vec::with_capacity(32);
        put_u64(&mut bytes, self.instance & INSTANCE);
        put_u32(&mut bytes, self.task);
        put_u64(&mut bytes, self.block);
        put_u64(&mut bytes, used);
        put_u32(&mut bytes, sum);
        crc32c::crc32c(&bytes)
    }
}

impl Slot {
    /// The bytes of the slot for `key`.
    #[must_use]
    pub fn encode(&self, key: &SlotKey) -> Vec<u8> {
        let used = self.used | if self.sum.is_some() { SUM_PRESENT } else { 0 };
        let sum = self.sum.unwrap_or(0);
        let mut bytes = Vec::new();
        put_u64(&mut bytes, used);
        put_u32(&mut bytes, sum);
        put_u32(&mut bytes, key.check(used, sum));
        bytes
    }

    /// Reads a slot; `None` when it was not written for `key`.
    #[must_use]
    pub fn decode(bytes: &[u8], key: &SlotKey) -> Option<Self> {
        let mut fields = Fields::little(bytes);
        let (used, sum, check) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let sum_present = used & SUM_PRESENT != 0;
        (check == key.check(used, sum))
            .then_some(Self { used: used & !SUM_PRESENT, sum: sum_present.then_some(sum) })
    }
}

/// The journal of one physical file, created when the first bytes reach the storage.
#[derive(Debug)]
pub(crate) enum Journal<S: Storage> {
    /// None wanted, or none could be created: repair estimates from the data alone.
    Off,
    Later(S, PathBuf),
    Open(S::File),
}

impl<S: Storage> Journal<S> {
    pub(crate) fn record(&mut self, key: &SlotKey, slot: Slot) -> io::Result<()> {
        if let Self::Later(storage, path) = self {
            *self = storage.create(path, false).map_or(Self::Off, Self::Open);
        }
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

/// What stands where a slot could be.
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
        let slot = Slot { used: 1000, sum: Some(5) };
        let bytes = slot.encode(&key);
        assert_eq!(key.at(), Some((2 * 3 + 1) * SLOT_LEN));
        assert_eq!(Slot::decode(&bytes, &key), Some(slot));
        assert_eq!(Slot::decode(&bytes, &SlotKey { instance: 78, ..key }), None);
        assert_eq!(Slot::decode(&bytes, &SlotKey { task: 2, ..key }), None);
        assert_eq!(Slot::decode(&bytes, &SlotKey { block: 1, ..key }), None);
        assert_eq!(Slot::decode(&[0; 16], &key), None);
    }
}
