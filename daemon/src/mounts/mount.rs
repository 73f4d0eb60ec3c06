//! Which remote path a local one leads to.

use std::{
    ffi::{CStr, CString, OsStr},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Component, Path, PathBuf},
};

/// Bytes of a path, with its end, that the kernel takes.
const PATH_LEN_MAX: usize = 4096;

/// A local folder below which files are those of a folder below the server's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Absolute, without `.` and `..`.
    pub local: PathBuf,
    /// From the server's root.
    pub remote: PathBuf,
}

/// The map that a path is below. The longest wins.
pub(super) fn of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let below = |mount: &&Mount| path.starts_with(&mount.local);
    mounts.iter().filter(below).max_by_key(|mount| mount.local.as_os_str().len())
}

/// The path from the server's root of a path below a mapped folder.
pub(super) fn remote(mounts: &[Mount], path: &Path) -> Option<CString> {
    let longest = of(mounts, path)?;
    let rest = path.strip_prefix(&longest.local).ok()?;
    let mut remote = b"/".to_vec();
    for part in longest.remote.components().chain(rest.components()) {
        if let Component::Normal(name) = part {
            if remote != b"/" {
                remote.push(b'/');
            }
            remote.extend_from_slice(name.as_bytes());
        }
    }
    CString::new(remote).ok()
}

/// The local path of one from the server's root, if the kernel takes it; of several the first
/// map's.
pub(super) fn mapped(mounts: &[Mount], path: &[u8]) -> Option<Vec<u8>> {
    let path = Path::new(OsStr::from_bytes(path));
    let found = |mount: &Mount| Some(mount.local.join(path.strip_prefix(&mount.remote).ok()?));
    let local = mounts.iter().find_map(found)?.into_os_string().into_vec();
    (local.len() < PATH_LEN_MAX).then_some(local)
}

/// A path as it came.
pub(super) fn local(path: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(path.to_bytes()))
}
