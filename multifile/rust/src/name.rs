//! Names of the physical files of a set, and of what stands beside them.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The name of physical file `file` of the set `set`: the set's own name for file 0, then
/// `set.000001` and so on (format section 6).
#[must_use]
pub fn physical(set: &Path, file: u32) -> PathBuf {
    if file == 0 { set.to_owned() } else { suffixed(set, &format!(".{file:06}")) }
}

/// The name of level `level` of the buddy copies of `set`.
#[must_use]
pub fn buddy(set: &Path, level: u32) -> PathBuf {
    suffixed(set, &format!("_BUDDY_{level:02}"))
}

/// The name of the journal beside a physical file (format section 8).
#[must_use]
pub fn journal(physical: &Path) -> PathBuf {
    suffixed(physical, ".journal")
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
