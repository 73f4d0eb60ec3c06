//! How the allocator asks the kernel for memory.

use std::ffi::c_int;

/// Bytes asked for beyond what is wanted.
const AHEAD: c_int = 4 << 20;
/// Bytes from which memory is mapped by itself.
const MAPPED_MIN: c_int = 32 << 20;
/// Free bytes at the end that are kept.
const KEPT: c_int = 64 << 20;

/// Has the allocator of this process ask for memory by the MiB, for many small values that stay: a
/// system call for thousands of them, and not for every two hundred. Another one than glibc's goes
/// on as it does.
pub fn allocate_by_mebibytes() {
    #[cfg(target_env = "gnu")]
    for (what, len) in [
        (libc::M_TOP_PAD, AHEAD),
        (libc::M_MMAP_THRESHOLD, MAPPED_MIN),
        (libc::M_TRIM_THRESHOLD, KEPT),
    ] {
        // SAFETY: it changes numbers of the allocator's, under the lock of that.
        unsafe { libc::mallopt(what, len) };
    }
}
