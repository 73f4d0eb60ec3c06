//! The address of a worker, as it crosses from one process to another.
//!
//! UCX follows the lengths inside an address without knowing its length. The bytes therefore end
//! in a hash, which tells a whole address from anything else that comes about by accident. It
//! does not tell a forged one: whoever hands over the bytes must be trusted, see the crate.

use std::fmt;

/// Where a worker is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(Vec<u8>);

const HASH_LEN: usize = size_of::<u64>();

impl Address {
    /// Wraps an address that UCX has made.
    pub(crate) fn new(raw: &[u8]) -> Self {
        let mut bytes = raw.to_vec();
        bytes.extend_from_slice(&hash(raw).to_le_bytes());
        Self(bytes)
    }

    /// The address of which [`as_bytes`](Self::as_bytes) are `bytes`; `None` when it is not whole.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (raw, hashed) = bytes.split_last_chunk::<HASH_LEN>()?;
        (u64::from_le_bytes(*hashed) == hash(raw)).then(|| Self(bytes.to_vec()))
    }

    /// Returns the bytes for another process: some hundreds.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the address as UCX takes it.
    pub(crate) fn raw(&self) -> &[u8] {
        self.0.split_last_chunk::<HASH_LEN>().map_or(&[], |(raw, _)| raw)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({} bytes)", self.0.len())
    }
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_crosses_whole_or_not_at_all() {
        let address = Address::new(b"somewhere");
        let bytes = address.as_bytes();
        assert_eq!(Address::from_bytes(bytes), Some(address.clone()));
        assert_eq!(address.raw(), b"somewhere");
        for len in 0..bytes.len() {
            assert_eq!(Address::from_bytes(&bytes[..len]), None);
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[at] ^= 1;
            assert_eq!(Address::from_bytes(&changed), None);
        }
    }
}
