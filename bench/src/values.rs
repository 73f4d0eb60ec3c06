//! Bytes to write: nothing that a device could shorten.

/// So many bytes, of which no two pages are the same; always the same ones.
pub(crate) fn values(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(len as u64).fill(&mut bytes);
    bytes
}
