//! Mounts of a process's own.

use std::{fs, io};

use rustix::{
    process::{getegid, geteuid},
    thread::{UnshareFlags, unshare_unsafe},
};

/// Gives this process, which has one thread, a copy of its mounts that others do not see. With
/// `is_ruled` it gets a user namespace as well, where it keeps its user and group, and may mount.
///
/// # Errors
///
/// As `unshare(2)`: the kernel allows no such namespaces, or the process has other threads.
pub fn own_mounts(is_ruled: bool) -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let flags = if is_ruled { UnshareFlags::NEWUSER } else { UnshareFlags::empty() };
    // SAFETY: descriptors stay shared with whoever shares them.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | flags) }?;
    if is_ruled {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    Ok(())
}
