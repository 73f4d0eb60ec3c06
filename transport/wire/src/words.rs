//! Words of eight bytes, little-endian, one after the other.

pub(crate) const WORD_LEN: usize = size_of::<u64>();

/// The bytes of some words, of which there are `LEN / 8`.
pub(crate) fn bytes_of<const LEN: usize>(words: &[u64]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    for (to, word) in bytes.chunks_exact_mut(WORD_LEN).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The bits of a number with a sign, as they lie in a word.
#[expect(clippy::cast_sign_loss, reason = "the same bits")]
pub(crate) const fn unsigned(number: i64) -> u64 {
    number as u64
}

/// The number with a sign that has these bits.
#[expect(clippy::cast_possible_wrap, reason = "the same bits, as they came from `unsigned`")]
pub(crate) const fn signed(word: u64) -> i64 {
    word as i64
}

/// The word, or the greatest that is as narrow.
pub(crate) fn narrow(word: u64) -> u32 {
    u32::try_from(word).unwrap_or(u32::MAX)
}

/// Takes bytes off the front.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    #[cfg(feature = "frames")]
    pub(crate) fn half(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn word(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
