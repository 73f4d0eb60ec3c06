//! Moves payload between private memory and bytes the peer may change.
//!
//! From [`STREAM_MIN`] bytes on, [`copy_in`] goes past the cache: the reader is on another core, so
//! lines left dirty here would only be pulled over one by one. Measured: 64 KiB accepted in 2.0 us
//! streamed, in 28 us with plain stores. What the same core hands to the kernel soon after stays in
//! its cache ([`copy_in_cached`]): 4 KiB into a small ring take 0.1 to 0.3 us instead of 0.4 to
//! 0.5.

use core::sync::atomic::{AtomicU8, Ordering, compiler_fence};

use rustix::{
    fd::AsFd,
    io::{self, IoSlice},
};

/// Copies of at least this many bytes are streamed; below it the fence costs more than it saves.
pub const STREAM_MIN: usize = 2048;

/// Copies `from` into shared memory; what does not fit is left out. Returns the bytes copied.
pub fn copy_in(to: &[AtomicU8], from: &[u8]) -> usize {
    let len = to.len().min(from.len());
    let target = to.as_ptr().cast::<u8>().cast_mut();
    if len >= STREAM_MIN {
        // SAFETY: both ranges are `len` bytes of live memory; `AtomicU8` permits writes through a
        // shared reference, and what is private does not overlap the segment, nor does what the
        // program shares overlap anything else there.
        unsafe { stream(target, from.as_ptr(), len) };
    } else {
        // SAFETY: as above.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), target, len) };
    }
    len
}

/// Copies `from` into shared memory, through the cache; what does not fit is left out. Returns the
/// bytes copied.
pub fn copy_in_cached(to: &[AtomicU8], from: &[u8]) -> usize {
    let len = to.len().min(from.len());
    let target = to.as_ptr().cast::<u8>().cast_mut();
    // SAFETY: as in `copy_in`.
    unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), target, len) };
    len
}

/// Writes shared memory at the file's position, by one call, and returns the bytes written.
///
/// # Errors
///
/// As `writev(2)`.
pub fn write(fd: impl AsFd, parts: [&[AtomicU8]; 2]) -> io::Result<usize> {
    let parts = parts.map(|part| {
        // SAFETY: live memory of that length; the bytes only go to the kernel, which copies them
        // whatever becomes of them meanwhile.
        IoSlice::new(unsafe { core::slice::from_raw_parts(part.as_ptr().cast(), part.len()) })
    });
    io::writev(fd, &parts)
}

/// Copies shared memory into `to`; returns the bytes copied.
pub fn copy_out(to: &mut [u8], from: &[AtomicU8]) -> usize {
    let len = to.len().min(from.len());
    // SAFETY: both ranges are `len` bytes of live memory and do not overlap; a peer that writes
    // meanwhile changes what is read, not whether it can be read.
    unsafe { core::ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), to.as_mut_ptr(), len) };
    // Keeps the compiler from reading `from` again where the caller reads the copy, as it may when
    // it sees nothing written in between: what was checked must be what is used.
    compiler_fence(Ordering::SeqCst);
    len
}

/// Copies `len` bytes with stores that bypass the cache, and orders them before later stores.
///
/// # Safety
///
/// `to` and `from` are valid for `len` bytes and do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream(to: *mut u8, from: *const u8, len: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const LANE: usize = size_of::<__m128i>();

    let lead = to.align_offset(LANE).min(len);
    // SAFETY: `lead` is at most `len`.
    unsafe { core::ptr::copy_nonoverlapping(from, to, lead) };
    let mut at = lead;
    while len - at >= LANE {
        // SAFETY: `at + LANE` is at most `len`.
        let source = unsafe { from.add(at) };
        // SAFETY: 16 readable bytes, alignment not required.
        let value = unsafe { _mm_loadu_si128(source.cast()) };
        // SAFETY: `at + LANE` is at most `len`.
        let target = unsafe { to.add(at) };
        // SAFETY: 16 writable bytes, aligned since `lead` was skipped.
        unsafe { _mm_stream_si128(target.cast(), value) };
        at += LANE;
    }
    // SAFETY: `at` is at most `len`.
    let source = unsafe { from.add(at) };
    // SAFETY: as above.
    let target = unsafe { to.add(at) };
    // SAFETY: what is left of both ranges.
    unsafe { core::ptr::copy_nonoverlapping(source, target, len - at) };
    // SAFETY: no memory operand; part of every x86-64.
    unsafe { _mm_sfence() };
}

/// Copies `len` bytes.
///
/// # Safety
///
/// `to` and `from` are valid for `len` bytes and do not overlap.
#[cfg(any(not(target_arch = "x86_64"), miri))]
unsafe fn stream(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: as the caller promises.
    unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn every_length_and_alignment_arrives_whole() {
        let source: Vec<u8> = (0..5000u32).map(|i| i.to_le_bytes()[0] ^ 0x5a).collect();
        for (skip, len) in [(0, 0), (1, 15), (3, 2047), (5, 2048), (16, 4096), (31, 4099)] {
            let shared: Vec<AtomicU8> = (0..5000).map(|_| AtomicU8::new(0)).collect();
            let from = &source[skip / 2..skip / 2 + len];
            assert_eq!(copy_in(&shared[skip..skip + len], from), len);
            let mut back = std::vec![1; 5000];
            assert_eq!(copy_out(&mut back, &shared), 5000);
            assert_eq!(&back[skip..skip + len], from);
            assert!(back[..skip].iter().chain(&back[skip + len..]).all(|byte| *byte == 0));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no memfd")]
    fn two_parts_are_written_by_one_call_at_the_position() {
        let file = rustix::fs::memfd_create("copy", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let shared: Vec<AtomicU8> = (0..8).map(AtomicU8::new).collect();
        assert_eq!(write(&file, [&shared[6..], &shared[..3]]), Ok(5));
        assert_eq!(write(&file, [&[], &shared[..1]]), Ok(1));
        let mut found = [9; 8];
        assert_eq!(io::pread(&file, &mut found, 0), Ok(6));
        assert_eq!(found, [6, 7, 0, 1, 2, 0, 9, 9]);
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let shared: Vec<AtomicU8> = (0..4).map(|_| AtomicU8::new(0)).collect();
        assert_eq!(copy_in(&shared, &[7; 9]), 4);
        assert_eq!(copy_in_cached(&shared, &[7; 9]), 4);
        assert_eq!(copy_out(&mut [0; 2], &shared), 2);
    }
}
