//! Where names are looked up: on the whole machine, or below one folder that nothing leads out of.
//!
//! Below a root every name is resolved by the kernel with `RESOLVE_BENEATH`: `..`, absolute links,
//! and links that somebody changes meanwhile cannot leave the root. Calls that the kernel offers by
//! name only are made on the parent folder, found that way, and never follow the last name.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};

/// The folder below a root that belongs to the daemon; clients have no such name.
pub(crate) const OWN_FOLDER: &str = ".kakehi";

/// Where names are looked up. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) enum Place {
    /// Anywhere; names are absolute.
    #[default]
    Machine,
    /// Below this folder; names are absolute, the folder being `/`.
    Below(Arc<OwnedFd>),
}

/// A name in an open folder.
#[derive(Debug)]
pub(crate) struct Anchored {
    folder: Option<OwnedFd>,
    pub(crate) name: CString,
}

impl Anchored {
    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_ref().map_or(CWD, AsFd::as_fd)
    }
}

impl Place {
    /// The place below `root`.
    ///
    /// # Errors
    ///
    /// Those of `open`; `ENOSYS`: the kernel has no `openat2` (Linux 5.6).
    pub(crate) fn below(root: &Path) -> io::Result<Self> {
        let fd = openat(CWD, root, folder_flags(), Mode::empty())?;
        let place = Self::Below(Arc::new(fd));
        place.find(c"/").map(|_| place)
    }

    /// Opens a name.
    pub(crate) fn open(&self, path: &CStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        match self {
            Self::Machine => Ok(openat(CWD, path, flags, mode)?),
            Self::Below(root) => Ok(beneath(root, relative(path)?, flags, mode)?),
        }
    }

    /// Finds what a name leads to, links followed.
    pub(crate) fn find(&self, path: &CStr) -> io::Result<OwnedFd> {
        self.open(path, OFlags::PATH, Mode::empty())
    }

    /// The folder a name is in, and the last part of the name, which may be a link or be missing.
    pub(crate) fn anchor(&self, path: &CStr) -> io::Result<Anchored> {
        let Self::Below(root) = self else {
            return Ok(Anchored { folder: None, name: path.to_owned() });
        };
        let bytes = relative(path)?;
        let (folder, name) = match bytes.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (bytes.get(..slash).unwrap_or_default(), bytes.get(slash + 1..)),
            None => (&b"."[..], Some(bytes)),
        };
        let name = name.filter(|name| *name != b"..").ok_or(Errno::INVAL)?;
        let folder = beneath(root, folder, folder_flags(), Mode::empty())?;
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        Ok(Anchored { folder: Some(folder), name })
    }

    pub(crate) fn is_root(&self, path: &CStr) -> bool {
        matches!(self, Self::Below(_)) && path.to_bytes() == b"/"
    }
}

/// A name of what an open descriptor refers to, for calls that take names only.
pub(crate) fn link_to(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

const fn folder_flags() -> OFlags {
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC)
}

fn beneath(root: &OwnedFd, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let (flags, mode) = heeded(flags, mode);
    // Refused only while somebody renames on the way: then the kernel asks to be asked again.
    let mut opened = Err(Errno::AGAIN);
    for _ in 0..64 {
        opened = openat2(root, path, flags, mode, resolve);
        if opened.as_ref().err() != Some(&Errno::AGAIN) {
            break;
        }
    }
    opened
}

/// What `openat` heeds of these; the rest, `openat2` would refuse.
fn heeded(flags: OFlags, mode: Mode) -> (OFlags, Mode) {
    let flags = match flags.contains(OFlags::PATH) {
        true => flags & (folder_flags() | OFlags::NOFOLLOW),
        false => flags,
    };
    let creates = flags.contains(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
    let mode_max = if creates { 0o7777 } else { 0 };
    (flags, mode & Mode::from_bits_retain(mode_max))
}

/// The name as seen from the root.
fn relative(path: &CStr) -> Result<&[u8], Errno> {
    let bytes = path.to_bytes();
    let start = bytes.iter().take_while(|byte| **byte == b'/').count();
    let relative = bytes.get(start..).unwrap_or_default();
    let first = relative.split(|byte| *byte == b'/').next().unwrap_or_default();
    match first {
        b"" => Ok(b"."),
        _ if first == OWN_FOLDER.as_bytes() => Err(Errno::ACCESS),
        _ => Ok(relative),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use tempfile::TempDir;

    use super::*;

    fn tree() -> (TempDir, Place) {
        let folder = TempDir::new().expect("folder");
        fs::create_dir_all(folder.path().join("root/sub")).expect("folders");
        fs::write(folder.path().join("secret"), "x").expect("file");
        fs::write(folder.path().join("root/sub/file"), "y").expect("file");
        let place = Place::below(&folder.path().join("root")).expect("openat2");
        (folder, place)
    }

    #[test]
    fn names_are_found_below_the_root() {
        let (_folder, place) = tree();
        for path in [c"/", c"/sub", c"/sub/file", c"//sub/./file", c"/sub/../sub/file"] {
            assert!(place.find(path).is_ok(), "{path:?}");
        }
        let anchored = place.anchor(c"/sub/new").expect("the folder is there");
        assert_eq!(anchored.name.as_c_str(), c"new");
    }

    #[test]
    fn nothing_leads_out_of_the_root() {
        let (folder, place) = tree();
        let root = folder.path().join("root");
        symlink("../secret", root.join("up")).expect("link");
        symlink(folder.path().join("secret"), root.join("away")).expect("link");
        symlink("..", root.join("folder")).expect("link");
        for path in [c"/up", c"/away", c"/../secret", c"/folder/secret", c"/sub/../../secret"] {
            assert_eq!(place.find(path).expect_err("out").raw_os_error(), Some(18), "{path:?}");
        }
        assert!(place.anchor(c"/folder/secret").is_err());
        assert!(place.anchor(c"/sub/..").is_err());
    }

    /// As when the creation of a file is answered again, by opening what it has made.
    #[test]
    fn what_openat_ignores_is_no_error() {
        let (folder, place) = tree();
        let mode = Mode::from_bits_retain(0o100_600);
        for flags in [OFlags::WRONLY, OFlags::PATH | OFlags::RDWR, OFlags::RDWR | OFlags::CREATE] {
            assert!(openat(CWD, folder.path().join("secret"), flags, mode).is_ok());
            assert!(place.open(c"/sub/file", flags, mode).is_ok(), "{flags:?}");
        }
        assert!(place.open(c"/sub/new", OFlags::RDWR | OFlags::CREATE, mode).is_ok());
    }

    #[test]
    fn own_folder_is_nobodys_name() {
        let (_folder, place) = tree();
        for path in [c"/.kakehi", c"/.kakehi/a"] {
            assert_eq!(place.find(path).expect_err("reserved").raw_os_error(), Some(13));
        }
    }
}
