//! Processes that still write an unclosed file: then there is nothing to repair.
//!
//! Programs hold no locks on what they write, so their descriptors are looked at: those of this
//! node, as far as this user may. A program on another node is not seen.

use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

/// The access mode of an open file's flags, and what they are if it is only read.
const ACCESS: u32 = 0o3;
const READ_ONLY: u32 = 0;

/// A process that has the file at `path` open to write it, other than this one: its number.
pub(super) fn writer_of(path: &Path) -> Option<u32> {
    let (path, found) = (path.canonicalize().ok()?, path.metadata().ok()?);
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number| *number != std::process::id()).find(|number| {
        let open = fs::read_dir(format!("/proc/{number}/fd")).into_iter().flatten().flatten();
        open.map(|entry| entry.path()).any(|open| is_written(&open, &path, &found))
    })
}

/// True if a link of `/proc` to an open file leads to this one, and it may be written by that.
fn is_written(open: &Path, path: &Path, found: &Metadata) -> bool {
    // What it is called is known without a call to its file system, which may not answer.
    if fs::read_link(open).ok().as_deref() != Some(path) {
        return false;
    }
    let is_same = |other: Metadata| (other.dev(), other.ino()) == (found.dev(), found.ino());
    open.metadata().is_ok_and(is_same) && flags(open).is_some_and(|all| all & ACCESS != READ_ONLY)
}

fn flags(open: &Path) -> Option<u32> {
    let (process, name) = (open.parent()?.parent()?, open.file_name()?);
    let said = fs::read_to_string(process.join("fdinfo").join(name)).ok()?;
    let flags = said.lines().find_map(|line| line.strip_prefix("flags:"))?;
    u32::from_str_radix(flags.trim(), 8).ok()
}
