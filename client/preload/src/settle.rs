//! Has what is staged for a file in the file before the kernel is asked about it by name.

use core::mem::MaybeUninit;

use client::Client;
use libc::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, c_int};

use crate::{kernel::kernel, pointers::Text};

/// Has what anybody staged for the file of that name in the file.
pub(crate) fn settle_path(client: &'static Client, dir: c_int, path: Text<'_>, flags: c_int) {
    settle_found(client, dir, path, flags);
}

/// As [`settle_path`]; returns device and inode of the file, if it is one.
pub(crate) fn settle_found(
    client: &'static Client,
    dir: c_int,
    path: Text<'_>,
    flags: c_int,
) -> Option<(u64, u64)> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    let flags = flags & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);
    // SAFETY: the kernel reads a name, and writes one status, for which there is room.
    unsafe { kernel!(SYS_newfstatat, dir, path, found.as_mut_ptr(), flags) }.ok()?;
    // SAFETY: the call has succeeded, so the kernel has filled it in.
    let found = unsafe { found.assume_init() };
    client.settle(found.st_dev, found.st_ino);
    Some((found.st_dev, found.st_ino))
}
