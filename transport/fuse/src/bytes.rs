//! Integers in the machine's byte order.

/// Takes fields off the front.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    /// Passes over `N` bytes.
    pub(crate) fn skip<const N: usize>(&mut self) -> Option<()> {
        self.array::<N>().map(drop)
    }

    pub(crate) fn half(&mut self) -> Option<u32> {
        let bytes = self.array()?;
        let is_big = cfg!(target_endian = "big");
        Some(if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    pub(crate) fn word(&mut self) -> Option<u64> {
        let bytes = self.array()?;
        let is_big = cfg!(target_endian = "big");
        Some(if is_big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    /// A text up to its NUL.
    pub(crate) fn text(&mut self) -> Option<&'a std::ffi::CStr> {
        let text = std::ffi::CStr::from_bytes_until_nul(self.0).ok()?;
        self.0 = self.0.get(text.count_bytes() + 1..)?;
        Some(text)
    }
}

/// A message that is being written.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn half(&mut self, value: u32) -> &mut Self {
        let is_big = cfg!(target_endian = "big");
        self.0.extend(if is_big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    pub(crate) fn word(&mut self, value: u64) -> &mut Self {
        let is_big = cfg!(target_endian = "big");
        self.0.extend(if is_big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    /// So many halves that say nothing.
    pub(crate) fn zeros(&mut self, halves: usize) {
        self.0.resize(self.0.len() + halves * size_of::<u32>(), 0);
    }
}

/// The number with a sign that has these bits.
#[expect(clippy::cast_possible_wrap, reason = "the same bits")]
pub(crate) const fn signed(word: u64) -> i64 {
    word as i64
}

/// The bits of a number with a sign.
#[expect(clippy::cast_sign_loss, reason = "the same bits")]
pub(crate) const fn unsigned(number: i64) -> u64 {
    number as u64
}

/// The bits of a narrow number with a sign.
#[expect(clippy::cast_sign_loss, reason = "the same bits")]
pub(crate) const fn unsigned_half(number: i32) -> u32 {
    number as u32
}
