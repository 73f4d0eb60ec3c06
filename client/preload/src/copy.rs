//! Calls by which the kernel moves bytes between descriptors.

use client::Reason;
use libc::{c_int, c_uint, iovec, off_t, size_t, ssize_t};

use crate::{
    bits::counted,
    errno::answer,
    interpose::interpose,
    kernel::{Outcome, blocking},
    start::client,
};

interpose! {
    fn sendfile|sendfile64(out: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
        before(from, out);
        answer(moved(out, blocking!(SYS_sendfile, out, from, at, len)))
    }

    fn splice(
        from: c_int, from_at: *mut off_t, out: c_int, out_at: *mut off_t, len: size_t,
        flags: c_uint,
    ) -> ssize_t {
        before(from, out);
        answer(moved(out, blocking!(SYS_splice, from, from_at, out, out_at, len, flags)))
    }

    fn copy_file_range(
        from: c_int, from_at: *mut off_t, out: c_int, out_at: *mut off_t, len: size_t,
        flags: c_uint,
    ) -> ssize_t {
        before(from, out);
        answer(moved(out, blocking!(SYS_copy_file_range, from, from_at, out, out_at, len, flags)))
    }

    fn tee(from: c_int, out: c_int, len: size_t, flags: c_uint) -> ssize_t {
        answer(blocking!(SYS_tee, from, out, len, flags))
    }

    fn vmsplice(fd: c_int, buffers: *const iovec, count: size_t, flags: c_uint) -> ssize_t {
        answer(blocking!(SYS_vmsplice, fd, buffers, count, flags))
    }
}

/// The kernel moves both files' positions, or reads and writes beside them.
pub(crate) fn before(from: c_int, out: c_int) {
    if let Some(client) = client() {
        client.leave(from, Reason::KernelCopy);
        client.leave(out, Reason::KernelCopy);
    }
}

/// Counts what the kernel moved.
pub(crate) fn moved(out: c_int, outcome: Outcome) -> Outcome {
    if let (Some(client), Ok(len)) = (client(), outcome) {
        client.count_undelegated(out, Reason::KernelCopy, counted(len));
    }
    outcome
}
