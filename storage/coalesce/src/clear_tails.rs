//! Zeroes the space beyond the streams before a multifile is continued: a killed writer may have
//! left bytes there, and a stream that grows by more than is written to it would show them.

use std::{io, ops::Range, os::fd::AsFd};

use rustix::{
    fs::{FallocateFlags, SeekFrom, fallocate, fstat, seek},
    io::{Errno, pwrite, retry_on_intr},
};

/// Zeros that are written at a time where no hole can be made.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// The chunks of a physical file.
pub(super) struct Chunks {
    /// Where the first block begins, and bytes of all chunks of one.
    pub(super) data_at: u64,
    pub(super) skip: u64,
    /// Of all tasks in order: where its first chunk begins, its bytes, and those of the stream.
    pub(super) tasks: Vec<(u64, u64, u64)>,
}

impl Chunks {
    /// Makes zeros of all that the streams do not reach. Holes are not looked at.
    pub(super) fn clear_tails(&self, file: impl AsFd) -> io::Result<()> {
        let (mut at, mut rest) = (self.data_at, 0..0);
        while let Some(data) = data_from(&file, at)? {
            at = data.end;
            self.each_tail(data, |unused| {
                // Next to each other they are one hole.
                if unused.start == rest.end {
                    rest.end = unused.end;
                    return Ok(());
                }
                clear(&file, std::mem::replace(&mut rest, unused))
            })?;
        }
        clear(&file, rest)
    }

    /// The parts of `data` that no stream reaches.
    fn each_tail(
        &self,
        data: Range<u64>,
        mut each: impl FnMut(Range<u64>) -> io::Result<()>,
    ) -> io::Result<()> {
        let rows = data.start.saturating_sub(self.data_at).checked_div(self.skip);
        for row in rows.map_or(0..0, |first| first..u64::MAX) {
            let row_at = row * self.skip;
            let is_before = |(start, len, _): &(u64, u64, u64)| row_at + start + len <= data.start;
            let first = self.tasks.partition_point(is_before);
            for (start, chunk_len, len) in self.tasks.get(first..).unwrap_or_default() {
                let start = row_at + start;
                if start >= data.end {
                    return Ok(());
                }
                let used = len.saturating_sub(row.saturating_mul(*chunk_len)).min(*chunk_len);
                let from = (start + used).max(data.start);
                let to = (start + chunk_len).min(data.end);
                if from < to {
                    each(from..to)?;
                }
            }
        }
        Ok(())
    }
}

/// The first range at or behind `at` that may hold something.
fn data_from(file: impl AsFd, at: u64) -> io::Result<Option<Range<u64>>> {
    let start = match seek(&file, SeekFrom::Data(at)) {
        Err(Errno::NXIO) => return Ok(None),
        // The file system knows no holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
        found => found?,
    };
    let end = match seek(&file, SeekFrom::Hole(start)) {
        Ok(end) => end,
        Err(_) => u64::try_from(fstat(&file)?.st_size).unwrap_or(0),
    };
    Ok((start < end).then_some(start..end))
}

fn clear(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let Range { start: mut at, end } = range;
    if at >= end {
        return Ok(());
    }
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match retry_on_intr(|| fallocate(&file, hole, at, end - at)) {
        Err(Errno::OPNOTSUPP) => {}
        done => return Ok(done?),
    }
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(ZEROS.len()).min(ZEROS.len());
        let zeros = ZEROS.get(..len).unwrap_or_default();
        match retry_on_intr(|| pwrite(&file, zeros, at))? {
            0 => return Err(Errno::NOSPC.into()),
            len => at += len as u64,
        }
    }
    Ok(())
}
