//! Data to send: anything that owns bytes which others may change meanwhile.
//!
//! The bytes are atomics, as they are where files are read and written: the kernel, or another
//! process, may have them too. Nothing here reads them but UCX.

use std::sync::atomic::AtomicU8;

/// Makes `bytes` something to send, without a copy when its capacity is its length.
#[must_use]
pub fn payload(bytes: Vec<u8>) -> Box<[AtomicU8]> {
    let raw: *mut [u8] = Box::into_raw(bytes.into_boxed_slice());
    // SAFETY: owned, and an atomic byte has the size and the alignment of a byte.
    unsafe { Box::from_raw(raw as *mut [AtomicU8]) }
}

/// The payload of a message that is all header.
#[derive(Clone, Copy, Debug)]
pub struct NoPayload;

impl AsRef<[AtomicU8]> for NoPayload {
    fn as_ref(&self) -> &[AtomicU8] {
        &[]
    }
}
