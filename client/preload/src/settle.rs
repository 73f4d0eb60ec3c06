//! Has what is staged for a file in the file before the kernel is asked about it by name.

use core::{ffi::c_char, mem::MaybeUninit};

use client::Client;
use libc::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, c_int};

use crate::kernel::kernel;

/// Has what anybody staged for the file of that name in the file.
///
/// # Safety
///
/// `path` is a C string.
pub(crate) unsafe fn settle_path(
    client: &'static Client,
    dir: c_int,
    path: *const c_char,
    flags: c_int,
) {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    let flags = flags & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);
    // SAFETY: as the caller promises; there is room for the answer.
    if unsafe { kernel!(SYS_newfstatat, dir, path, found.as_mut_ptr(), flags) }.is_ok() {
        // SAFETY: the kernel has filled it in.
        let (device, inode) = unsafe { file_of(found.as_ptr()) };
        client.settle(device, inode);
    }
}

/// # Safety
///
/// `found` was filled in.
pub(crate) unsafe fn file_of(found: *const libc::stat) -> (u64, u64) {
    // SAFETY: as the caller promises.
    let found = unsafe { &*found };
    (found.st_dev, found.st_ino)
}
