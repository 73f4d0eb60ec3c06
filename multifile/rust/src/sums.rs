//! Checksums of what is in a file. A hole is not read: the sum of zeros is arithmetic.

use std::ops::Range;

use crate::{
    backing::hole_len,
    codec::{narrow, wide},
    error::Result,
    storage::{File, read_exactly},
};

/// Starts the table of checksums.
pub(crate) const CHECKSUMS_MAGIC: [u8; 8] = *b"mfcrc32c";

/// Bytes read by one call.
const BUFFER_LEN: u64 = 1 << 16;

/// The CRC-32C of the bytes that have `sum` and, behind them, those of `range` of the file.
pub(crate) fn append<F: File>(
    file: &F,
    number: u32,
    mut sum: u32,
    mut range: Range<u64>,
) -> Result<u32> {
    let len_of = |range: &Range<u64>| range.end.saturating_sub(range.start);
    let mut buf = vec![0; narrow(len_of(&range).min(BUFFER_LEN))];
    while !range.is_empty() {
        let hole_len = hole_len(file, number, range.clone())?;
        sum = append_zeros(sum, hole_len);
        range.start += hole_len;
        let len = narrow(len_of(&range).min(BUFFER_LEN));
        debug_assert!(len <= buf.len(), "the buffer holds a piece");
        let part = buf.get_mut(..len).unwrap_or_default();
        read_exactly(file, number, part, range.start)?;
        sum = crc32c::crc32c_append(sum, part);
        range.start += wide(part.len());
    }
    Ok(sum)
}

/// The CRC-32C of the bytes that have `sum` and of `len` zeros behind them.
fn append_zeros(sum: u32, len: u64) -> u32 {
    // Zeros only move the register on, which begins and ends inverted.
    !crc32c::crc32c_combine(!sum, 0, narrow(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_have_the_sum_of_zeros() {
        let head = crc32c::crc32c(b"head");
        for len in [0, 1, 2, 3, 7, 8, 4095, 4096, 65_537, 1 << 20] {
            let zeros = vec![0; len];
            assert_eq!(append_zeros(0, wide(len)), crc32c::crc32c(&zeros));
            assert_eq!(append_zeros(head, wide(len)), crc32c::crc32c_append(head, &zeros));
        }
    }
}
