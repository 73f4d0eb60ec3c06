//! How a folder that Kakehi made is told from one that the user made, and one of this machine from
//! one that others have, too.

use std::{
    fs,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::Path,
};

/// Mode of a folder that we made. The sticky bit, which means nothing where nobody else can write,
/// tells it from one that the user made, which stays.
pub const MADE: u32 = 0o1700;
/// Bit that the kernel may add: a folder hands its set-group-ID bit down.
const INHERITED: u32 = 0o2000;

/// True if a folder was made here, and not by the user.
#[must_use]
pub fn is_made(folder: &Path) -> bool {
    let found = fs::symlink_metadata(folder);
    found.is_ok_and(|found| found.is_dir() && found.mode() & 0o7777 & !INHERITED == MADE)
}

/// True if a file of a folder is known to be of this machine, so that no other has it.
#[must_use]
pub fn has_local_file(file: OwnedFd) -> bool {
    uring::File::new(file).is_ok_and(|file| file.is_local())
}
