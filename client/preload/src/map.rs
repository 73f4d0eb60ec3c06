//! Mapping files.

use client::Reason;
use libc::{c_int, c_void, off_t, size_t};

use crate::{
    descriptor::is_writable,
    errno::set,
    interpose::interpose,
    kernel::{Word, kernel},
    start::client,
};

interpose! {
    fn mmap|mmap64(
        hint: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t,
    ) -> *mut c_void {
        if flags & libc::MAP_ANONYMOUS == 0 {
            before(fd);
        }
        match kernel!(SYS_mmap, hint, len, protection, flags, fd, at) {
            Ok(address) => core::ptr::with_exposed_provenance_mut(Word::word(address)),
            Err(errno) => {
                set(errno);
                libc::MAP_FAILED
            }
        }
    }
}

/// A mapping shows what is in the file, at every moment: a file that the program can still write is
/// left to the kernel, one that it only reads has to be complete.
fn before(fd: c_int) {
    let Some(client) = client() else { return };
    if !client.is_delegated(fd) {
        return;
    }
    if is_writable(client, fd) {
        client.leave(fd, Reason::Mapped);
    } else {
        client.drain(fd);
    }
}
