//! A copy of a stream that is compared, on its way, with the checksums of its blocks.

use std::{
    io::{self, Write},
    vec::IntoIter,
};

/// Expected length in bytes of a block, and its CRC-32C.
pub(crate) type Block = (u64, u32);

/// Hands on everything that is written to it, be it as expected or not.
#[derive(Debug)]
pub(crate) struct Checked<W> {
    to: W,
    blocks: IntoIter<Block>,
    /// Bytes that the current block still lacks, the sum of those it has, and the expected one.
    left: u64,
    sum: u32,
    expected: u32,
    differs: bool,
}

impl<W: Write> Checked<W> {
    /// Expects `blocks`, one behind the other.
    pub(crate) fn new(to: W, blocks: Vec<Block>) -> Self {
        let blocks = blocks.into_iter();
        Self { to, blocks, left: 0, sum: 0, expected: 0, differs: false }
    }

    /// True if a block that went through was not as expected.
    pub(crate) fn differs(&self) -> bool {
        self.differs
    }

    fn look_at(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.left == 0 {
                let Some((len, expected)) = self.blocks.next() else { return };
                (self.left, self.sum, self.expected) = (len, 0, expected);
            }
            let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(data.len());
            let (part, rest) = data.split_at(len);
            self.sum = crc32c::crc32c_append(self.sum, part);
            self.left -= part.len() as u64;
            self.differs |= self.left == 0 && self.sum != self.expected;
            data = rest;
        }
    }
}

impl<W: Write> Write for Checked<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let len = self.to.write(data)?;
        self.look_at(data.get(..len).unwrap_or_default());
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `data` in pieces of `step` bytes; whether they differ from the sums of `blocks`.
    fn differs(blocks: &[&[u8]], data: &[u8], step: usize) -> bool {
        let sums = blocks.iter().map(|block| (block.len() as u64, crc32c::crc32c(block)));
        let mut written = Vec::new();
        let mut checked = Checked::new(&mut written, sums.collect());
        for piece in data.chunks(step) {
            checked.write_all(piece).expect("a vector takes it");
        }
        let differs = checked.differs();
        assert_eq!(written, data);
        differs
    }

    #[test]
    fn every_changed_byte_is_noticed_and_written() {
        let blocks: [&[u8]; 4] = [b"abc", b"", b"d", b"efghij"];
        let data = blocks.concat();
        for step in 1..=data.len() {
            assert!(!differs(&blocks, &data, step));
            for at in 0..data.len() {
                let mut changed = data.clone();
                changed[at] ^= 1;
                assert!(differs(&blocks, &changed, step), "byte {at} in steps of {step}");
            }
        }
    }
}
