//! Functions for programs that want more than POSIX: libkakehi finds them by name.
//!
//! A queue lies in pages of its own, for this library has no heap.

use core::{
    ffi::c_void,
    ptr::{self, NonNull},
};

use client::{Queue, Transfer};
use libc::c_int;
use seam::Calls;

use crate::{
    bits::returned,
    errno::code,
    kernel::{Word, ignore, kernel},
    process_client::client,
};

static CALLS: Calls =
    Calls { allocate, free, is_delegated, flush, queue, start, is_finished, finish, end };

const _: seam::Find = kakehi_client_1;

#[unsafe(no_mangle)]
extern "C" fn kakehi_client_1() -> *const Calls {
    client().map_or(ptr::null(), |_| &raw const CALLS)
}

extern "C" fn allocate(len: usize) -> *mut c_void {
    let memory = client().and_then(|client| client.allocate_shared(len));
    // Atomics are written through a shared reference, and this is nobody's but the program's.
    memory.map_or(ptr::null_mut(), |memory| memory.as_ptr().cast_mut().cast())
}

extern "C" fn free(memory: *mut c_void) -> c_int {
    client().is_some_and(|client| client.free_shared(memory.addr())).into()
}

extern "C" fn is_delegated(fd: c_int) -> c_int {
    client().is_some_and(|client| client.is_served(fd)).into()
}

extern "C" fn flush(fd: c_int) -> c_int {
    let flushed = client().map_or(Ok(()), |client| client.flush(fd));
    -code(flushed.map(|()| 0))
}

extern "C" fn queue() -> *mut c_void {
    let Some(client) = client() else { return ptr::null_mut() };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new pages at an address of the kernel's choice change no existing memory.
    let pages = unsafe { kernel!(SYS_mmap, 0_usize, size_of::<Queue>(), access, kind, -1, 0_i64) };
    let pages = pages.map(|pages| ptr::with_exposed_provenance_mut::<Queue>(pages.word()));
    let Some(place) = pages.ok().and_then(NonNull::new) else { return ptr::null_mut() };
    // SAFETY: new pages, with room for a queue, and aligned to more than that needs.
    unsafe { place.write(client.queue()) };
    place.as_ptr().cast()
}

unsafe extern "C" fn start(queue: *mut c_void, transfer: *const seam::Transfer) -> c_int {
    // SAFETY: the caller's transfer.
    let seam::Transfer { memory, len, at, fd, is_write } = unsafe { transfer.read() };
    // SAFETY: null, or a queue of `queue`, which the caller lends.
    let Some(queue) = (unsafe { queue.cast::<Queue>().as_mut() }) else { return 0 };
    let transfer = Transfer { fd, is_write: is_write != 0, address: memory.addr(), len, at };
    queue.start(&transfer).into()
}

unsafe extern "C" fn is_finished(queue: *mut c_void) -> c_int {
    // SAFETY: null, or a queue of `queue`, which others may read as well.
    unsafe { queue.cast::<Queue>().as_ref() }.is_none_or(Queue::is_finished).into()
}

unsafe extern "C" fn finish(queue: *mut c_void) -> i64 {
    // SAFETY: null, or a queue of `queue`, which only the caller uses now.
    let finished = unsafe { queue.cast::<Queue>().as_mut() }.and_then(Queue::finish);
    match finished {
        Some(Ok(len)) => returned(len) as i64,
        Some(Err(errno)) => -i64::from(errno.raw_os_error()),
        None => 0,
    }
}

unsafe extern "C" fn end(queue: *mut c_void) {
    // SAFETY: the caller's queue, which it does not use again; its destructor waits for what is in
    // flight.
    unsafe { queue.cast::<Queue>().drop_in_place() };
    // SAFETY: the pages were made for this queue. They cannot fail to be unmapped.
    ignore(unsafe { kernel!(SYS_munmap, queue, size_of::<Queue>()) });
}
