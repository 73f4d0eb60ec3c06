//! Memory for transfers: the daemon's too, or else the process's alone.
//!
//! Either is not there in a child of `fork`: what is shared cannot be copied for it, and a program
//! is to find the same both ways. The process's own has a page before it that says how long it is.

use std::{
    ffi::c_void,
    process,
    ptr::{self, NonNull},
};

use crate::{client::client, error::set};

/// Room before private memory, bytes: a page of any machine.
const HEAD_LEN: usize = 64 << 10;

/// Header of an allocation.
struct Head {
    /// Bytes, with this.
    len: usize,
    /// Owner. Its children have a copy of this page alone.
    process: u32,
}

#[unsafe(no_mangle)]
extern "C" fn kakehi_alloc(bytes: usize) -> *mut c_void {
    let shared = client().map_or(ptr::null_mut(), |client| (client.allocate)(bytes));
    let memory = NonNull::new(shared).or_else(|| allocate(bytes));
    memory.map_or_else(
        || {
            set(libc::ENOMEM);
            ptr::null_mut()
        },
        NonNull::as_ptr,
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kakehi_free(memory: *mut c_void) {
    let is_shared = client().is_some_and(|client| (client.free)(memory) == 1);
    if let Some(memory) = NonNull::new(memory).filter(|_| !is_shared) {
        // SAFETY: the caller got it from `kakehi_alloc`, where only shared memory is no such.
        unsafe { free(memory) };
    }
}

/// Private memory of at least `len` bytes, whose pages no child has.
fn allocate(len: usize) -> Option<NonNull<c_void>> {
    let len = len.max(1).checked_add(HEAD_LEN)?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new pages at an address of the kernel's choice change no existing memory.
    let pages = unsafe { libc::mmap(ptr::null_mut(), len, access, kind, -1, 0) };
    if pages == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: within the pages, which are aligned to more than this needs.
    unsafe { pages.cast::<Head>().write(Head { len, process: process::id() }) };
    // SAFETY: within the pages.
    let memory = unsafe { pages.byte_add(HEAD_LEN) };
    // SAFETY: these are mapped, and stay so in this process. A kernel that refuses lets children
    // have a copy.
    unsafe { libc::madvise(memory, len - HEAD_LEN, libc::MADV_DONTFORK) };
    NonNull::new(memory)
}

/// Takes private memory back.
///
/// # Safety
///
/// It is from [`allocate`], in this process or one that it was forked from.
unsafe fn free(memory: NonNull<c_void>) {
    // SAFETY: its head stands before it.
    let pages = unsafe { memory.byte_sub(HEAD_LEN) };
    // SAFETY: `allocate` has put a head at the start of these pages.
    let head = unsafe { pages.cast::<Head>().read() };
    // A child has none of it, and perhaps something else there.
    let len = if head.process == process::id() { head.len } else { HEAD_LEN };
    // SAFETY: pages of these lengths are there, and the caller does not use them again.
    unsafe { libc::munmap(pages.as_ptr(), len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_there_to_its_last_byte_and_starts_at_a_page() {
        for len in [0, 1, 4096, 4097, 1 << 20] {
            let memory = kakehi_alloc(len);
            assert_eq!(memory.addr() % 4096, 0);
            // SAFETY: `len` bytes are there.
            unsafe { memory.cast::<u8>().write_bytes(0x5a, len) };
            // SAFETY: it is not used again.
            unsafe { kakehi_free(memory) };
        }
        assert!(kakehi_alloc(usize::MAX).is_null());
        // SAFETY: nothing.
        unsafe { kakehi_free(ptr::null_mut()) };
    }
}
