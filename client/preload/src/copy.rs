//! Calls by which the kernel moves bytes between descriptors.

use client::{Errno, Reason};
use libc::{c_int, c_uint, iovec, off_t, size_t, ssize_t};

use crate::{
    bits::counted,
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, blocking, refresh},
    process_client::client,
};

interpose! {
    fn sendfile|sendfile64(out: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
        let call = || blocking!(SYS_sendfile, out, from, at, len);
        answer(by_kernel(from, !at.is_null(), out, call))
    }

    fn splice(
        from: c_int, from_at: *mut off_t, out: c_int, out_at: *mut off_t, len: size_t,
        flags: c_uint,
    ) -> ssize_t {
        let call = || blocking!(SYS_splice, from, from_at, out, out_at, len, flags);
        answer(by_kernel(from, !from_at.is_null(), out, call))
    }

    fn copy_file_range(
        from: c_int, from_at: *mut off_t, out: c_int, out_at: *mut off_t, len: size_t,
        flags: c_uint,
    ) -> ssize_t {
        let call = || blocking!(SYS_copy_file_range, from, from_at, out, out_at, len, flags);
        answer(by_kernel(from, !from_at.is_null(), out, call))
    }

    fn tee(from: c_int, out: c_int, len: size_t, flags: c_uint) -> ssize_t =>
        blocking!(SYS_tee, from, out, len, flags);
    fn vmsplice(fd: c_int, buffers: *const iovec, count: size_t, flags: c_uint) -> ssize_t =>
        blocking!(SYS_vmsplice, fd, buffers, count, flags);
}

/// The kernel reads one file, at a place of its own or at the file position, and writes the other.
/// Of remote files it has none where their folder has no view (`EINVAL`); a program then reads and
/// writes by itself.
fn by_kernel(from: c_int, has_place: bool, out: c_int, call: impl FnOnce() -> Outcome) -> Outcome {
    let Some(client) = client() else { return call() };
    let is_elsewhere =
        |fd| client.is_remote_file(fd) && !client.detach_to_view(fd, Reason::KernelCopy);
    if is_elsewhere(from) || is_elsewhere(out) {
        return Err(Errno::INVAL);
    }
    if has_place {
        client.drain(from);
    } else if !client.is_unexamined(from) {
        client.detach(from, Reason::KernelCopy);
    }
    if !client.is_unexamined(out) {
        client.detach(out, Reason::KernelCopy);
    }
    if client.has_remote() {
        // The kernel learns where a file in a view ends when it is asked, not as it copies.
        refresh(from);
    }
    let moved = call()?;
    client.count_undelegated(out, Reason::KernelCopy, counted(moved));
    Ok(moved)
}
