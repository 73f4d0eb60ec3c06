//! Integers to and from bytes, in either byte order.
//!
//! Reading never panics: a field beyond the end is `None`.

/// The order of the bytes of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Lowest byte first.
    Little,
    /// Highest byte first.
    Big,
}

impl Order {
    /// The order of the machine this runs on.
    pub const NATIVE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    /// The bytes of `value`.
    #[must_use]
    pub const fn bytes_u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of `value`.
    #[must_use]
    pub const fn bytes_u64(self, value: u64) -> [u8; 8] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// The integer that `bytes` stand for.
    #[must_use]
    pub const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The integer that `bytes` stand for.
    #[must_use]
    pub const fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// Reads integers from the front of a byte slice.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    order: Order,
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(bytes: &'a [u8], order: Order) -> Self {
        Self { bytes, order }
    }

    pub(crate) const fn little(bytes: &'a [u8]) -> Self {
        Self::new(bytes, Order::Little)
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*first)
    }

    pub(crate) fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(first)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(|bytes| self.order.u32(bytes))
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.u32().map(|value| i32::from_le_bytes(value.to_le_bytes()))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(|bytes| self.order.u64(bytes))
    }
}

/// Appends `value` in little-endian order, the order of everything this crate defines itself.
pub(crate) fn put_u32(bytes: &mut Vec<u8>, value: u32) {
    bytes.extend_from_slice(&value.to_le_bytes());
}

/// Appends `value` in little-endian order, the order of everything this crate defines itself.
pub(crate) fn put_u64(bytes: &mut Vec<u8>, value: u64) {
    bytes.extend_from_slice(&value.to_le_bytes());
}

/// The integers in `bytes`, which holds eight bytes for each.
pub(crate) fn u64s(bytes: &[u8], order: Order) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(move |chunk| order.u64(chunk.try_into().unwrap_or_default()))
}

/// The same 64 bits as a signed integer, which is how the format declares its fields.
#[must_use]
pub const fn signed(value: u64) -> i64 {
    i64::from_le_bytes(value.to_le_bytes())
}

/// The same 64 bits as an unsigned integer.
pub(crate) const fn unsigned(value: i64) -> u64 {
    u64::from_le_bytes(value.to_le_bytes())
}

/// A length in memory as a length in a file.
pub(crate) fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// A length in a file as a length in memory, or the largest one there is.
pub(crate) fn narrow(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// The smallest multiple of `unit` that is at least `len`; `None` beyond 64 bits.
#[must_use]
pub fn round_up(len: u64, unit: u64) -> Option<u64> {
    len.checked_next_multiple_of(unit)
}
