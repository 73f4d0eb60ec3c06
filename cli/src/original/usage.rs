//! How well a multifile fills what it reserves, as `siondump` counts it.

use std::{fs::File, os::unix::fs::FileExt as _};

use multifile::{Argument, Error, Reader, Result};

/// First format version that stores chunk sizes rounded up to blocks of the file system.
const ROUNDED_VERSION: u32 = 4;

/// Bytes, and how many things they are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) bytes: u64,
    pub(super) count: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64, count: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.count += count;
    }
}

/// The sums over all chunks of all blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Chunks of the blocks that tasks have.
    pub(super) chunks: u64,
    pub(super) data: u64,
    /// Chunks by how full they are; those of blocks a task does not have are empty.
    pub(super) full: Sum,
    /// Of these the data, not the chunks.
    pub(super) partly: Sum,
    pub(super) empty: Sum,
    /// Blocks of the file system that hold data.
    pub(super) fs_used: Sum,
    pub(super) fs_full: Sum,
    pub(super) fs_partly: Sum,
    /// Data in those that are not full.
    pub(super) fs_partly_data: u64,
}

impl Usage {
    pub(super) fn of(reader: &Reader<File>) -> Result<Self> {
        let fs_block_len =
            u64::from(reader.header(0).map_or(1, |header| header.fs_block_len)).max(1);
        let mut usage = Self::default();
        for task in 0..reader.task_count() {
            let (chunk, lens) = (chunk_len(reader, task)?, reader.block_lens(task)?);
            let missing = u64::from(reader.block_count()).saturating_sub(lens.len() as u64);
            for used in lens {
                // A damaged table may hold a negative number; nothing is used there.
                let used = i64::try_from(*used).map_or(0, |_| *used);
                usage.chunks = usage.chunks.saturating_add(chunk);
                usage.chunk(chunk, used, 1);
                usage.fs_blocks(used, fs_block_len);
            }
            usage.chunk(chunk, 0, missing);
        }
        Ok(usage)
    }

    fn chunk(&mut self, chunk: u64, used: u64, count: u64) {
        self.data = self.data.saturating_add(used * count);
        let (sum, bytes) = match used {
            _ if used == chunk => (&mut self.full, chunk),
            0 => (&mut self.empty, chunk),
            _ => (&mut self.partly, used),
        };
        sum.add(bytes.saturating_mul(count), count);
    }

    fn fs_blocks(&mut self, used: u64, fs_block_len: u64) {
        let (full, rest) = (used / fs_block_len, used % fs_block_len);
        let partly = u64::from(rest > 0);
        self.fs_full.add(full * fs_block_len, full);
        self.fs_partly.add(partly * fs_block_len, partly);
        self.fs_used.add((full + partly).saturating_mul(fs_block_len), full + partly);
        self.fs_partly_data += rest;
    }
}

/// The chunk size of a task as it is stored. Files older than version 4 store what was asked for,
/// and round only to place chunks.
pub(super) fn chunk_len(reader: &Reader<File>, task: usize) -> Result<u64> {
    let found = reader.task(task)?;
    let index = usize::try_from(found.file).map_err(|_| Argument::Task)?;
    let header = reader.header(index).zip(reader.file(index));
    let (header, file) = header.ok_or(Argument::Task)?;
    if header.version >= ROUNDED_VERSION {
        return Ok(found.chunk_len);
    }
    let mut bytes = [0; 8];
    let at = header.chunks_at() + 8 * u64::from(found.local_rank);
    file.read_exact_at(&mut bytes, at).map_err(|why| Error::io(found.file, &why))?;
    Ok(header.order.u64(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_without_room_is_full_and_a_missing_one_empty() {
        let mut usage = Usage::default();
        usage.chunk(0, 0, 1);
        usage.chunk(10, 10, 1);
        usage.chunk(10, 4, 1);
        usage.chunk(10, 0, 3);
        assert_eq!(usage.full, Sum { bytes: 10, count: 2 });
        assert_eq!(usage.partly, Sum { bytes: 4, count: 1 });
        assert_eq!(usage.empty, Sum { bytes: 30, count: 3 });
        assert_eq!(usage.data, 14);
    }

    #[test]
    fn blocks_of_the_file_system_are_full_or_not() {
        let mut usage = Usage::default();
        usage.fs_blocks(1030, 512);
        usage.fs_blocks(512, 512);
        assert_eq!(usage.fs_full, Sum { bytes: 1536, count: 3 });
        assert_eq!(usage.fs_partly, Sum { bytes: 512, count: 1 });
        assert_eq!(usage.fs_used, Sum { bytes: 2048, count: 4 });
        assert_eq!(usage.fs_partly_data, 6);
    }
}
