//! Where names are looked up: on the whole machine, or below one folder that nothing leads out of.
//!
//! Below a root every name is resolved by the kernel with `RESOLVE_BENEATH`: `..`, absolute links,
//! and links that somebody changes meanwhile cannot leave the root. What is done with a name is
//! done in its folder, found that way, and never follows the last part: where that is a link to be
//! followed, the name it stands for is looked up in its place. So before anything happens it is
//! known which folder it happens in, and the one that is the daemon's own is refused by what it is,
//! whatever path has led there.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use executor::lock;
use multifile::name::is_of_set;
use rustix::{
    fs::{
        AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat, openat2, readlinkat, statx,
    },
    io::Errno,
    path::Arg,
};

/// The folder below a root that belongs to the daemon; nothing of a client's leads there.
pub const OWN_FOLDER: &str = ".kakehi";
/// Links that a path may lead through, as in the kernel.
pub const LINKS_MAX: usize = 40;

/// Where names are looked up. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub enum Scope {
    /// Anywhere; names are absolute.
    #[default]
    Machine,
    /// Below this folder; names are absolute, the folder being `/`.
    Below(Arc<Root>),
}

/// A folder that nothing leads out of.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    identity: Identity,
    /// The multifiles that the daemon itself writes, by folder and name.
    sets: Mutex<Vec<(Identity, Vec<u8>)>>,
}

/// Device and inode.
type Identity = ((u32, u32), u64);

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

impl Scope {
    /// The scope below `root`.
    ///
    /// # Errors
    ///
    /// Those of `open`; `ENOSYS`: the kernel has no `openat2` (Linux 5.6).
    pub fn below(root: &Path) -> io::Result<Self> {
        let fd = openat(CWD, root, folder_flags(), Mode::empty())?;
        let identity = identity(fd.as_fd(), c"")?;
        let (path, sets) = (root.to_owned(), Mutex::default());
        let scope = Self::Below(Arc::new(Root { fd, path, identity, sets }));
        scope.find(c"/").map(|_| scope)
    }

    /// Opens a name.
    pub(crate) fn open(&self, path: &CStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        match self {
            Self::Machine => Ok(openat(CWD, path, flags, mode)?),
            Self::Below(root) => Ok(root.open(path.to_bytes(), flags, mode)?),
        }
    }

    /// Finds what a name leads to, links followed.
    pub(crate) fn find(&self, path: &CStr) -> io::Result<OwnedFd> {
        self.open(path, OFlags::PATH, Mode::empty())
    }

    /// The folder a name is in, and the last part of the name, which may be a link or be missing.
    pub(crate) fn anchor(&self, path: &CStr) -> io::Result<Anchored> {
        match self {
            Self::Machine => Ok(Anchored { folder: None, name: path.to_owned() }),
            Self::Below(root) => Ok(root.anchor(path.to_bytes())?),
        }
    }

    /// The text of a link to which no other leads; `None`: it is there, and none.
    ///
    /// # Errors
    ///
    /// Those of `openat2`: there is nothing, or it is behind a link (`ELOOP`).
    pub fn link_of(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let root = match self {
            Self::Machine => return Ok(None),
            Self::Below(root) => root.fd.as_fd(),
        };
        let path = path.strip_prefix(b"/").filter(|path| !path.is_empty()).unwrap_or(b".");
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = resolve(root, path, flags, Mode::empty(), how)?;
        Ok(readlinkat(&found, c"", Vec::new()).ok().map(CString::into_bytes))
    }

    /// Opens the folder of a file that is named by its path on the machine. Returns true with it if
    /// that is written as a path below the root: then nothing on the way leads out, since whoever
    /// may change names below the root could have put a link there.
    ///
    /// # Errors
    ///
    /// Those of `openat2`; `EXDEV`: a link leads out.
    pub fn folder_of(&self, path: &Path) -> io::Result<(OwnedFd, bool)> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let Self::Below(root) = self else {
            return Ok((openat(CWD, folder, folder_flags(), Mode::empty())?, false));
        };
        let Ok(below) = folder.strip_prefix(&root.path) else {
            return Ok((openat(CWD, folder, folder_flags(), Mode::empty())?, false));
        };
        let below = Path::new(".").join(below);
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let path = below.as_os_str().as_encoded_bytes();
        Ok((resolve(root.fd.as_fd(), path, folder_flags(), Mode::empty(), how)?, true))
    }

    /// Keeps the files of a multifile, those to come too, out of clients' reach.
    ///
    /// # Errors
    ///
    /// Those of looking at the folder.
    pub fn reserve(&self, folder: BorrowedFd<'_>, set: &[u8]) -> io::Result<()> {
        if let Self::Below(root) = self {
            let set = (identity(folder, c"")?, set.to_owned());
            lock(&root.sets).push(set);
        }
        Ok(())
    }

    /// True if this is the root that nothing leads out of.
    pub(crate) fn is_root(&self, folder: BorrowedFd<'_>) -> bool {
        let is_it = |root: &Arc<Root>| identity(folder, c"") == Ok(root.identity);
        matches!(self, Self::Below(root) if is_it(root))
    }
}

impl Root {
    fn open(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let follows = !flags.contains(OFlags::NOFOLLOW);
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            let at = self.anchor(&path)?;
            let (folder, name) = (at.folder(), at.name.as_bytes());
            match resolve(folder, name, flags, mode, ResolveFlags::NO_SYMLINKS) {
                Err(Errno::LOOP) if follows => match readlinkat(folder, name, Vec::new()) {
                    Ok(text) if text.to_bytes().starts_with(b"/") => return Err(Errno::XDEV),
                    Ok(text) => {
                        path.truncate(split(&path).0.len());
                        path.extend([b"/", text.to_bytes()].concat());
                    }
                    // It is something else by now.
                    Err(Errno::INVAL | Errno::NOENT) => {}
                    Err(why) => return Err(why),
                },
                opened => return opened,
            }
        }
        Err(Errno::LOOP)
    }

    fn anchor(&self, path: &[u8]) -> Result<Anchored, Errno> {
        let (folder, name) = split(path);
        debug_assert!(!name.contains(&b'/'), "the last part of a name is one part");
        let start = folder.iter().position(|byte| *byte != b'/');
        let folder = start.and_then(|start| folder.get(start..)).unwrap_or(b".");
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let folder = resolve(self.fd.as_fd(), folder, folder_flags(), Mode::empty(), beneath)?;
        let here = identity(folder.as_fd(), c"")?;
        let is_in_root = here == self.identity;
        // A root may know the folder by more names: as one that does not tell case from case.
        let entered =
            if is_in_root { if_there(identity(folder.as_fd(), name))? } else { Some(here) };
        let own = if_there(identity(self.fd.as_fd(), OWN_FOLDER))?;
        if is_in_root && name == OWN_FOLDER.as_bytes() || own.is_some() && entered == own {
            return Err(Errno::ACCESS);
        }
        let is_of = |(folder, set): &(Identity, Vec<u8>)| *folder == here && is_of_set(set, name);
        if lock(&self.sets).iter().any(is_of) {
            return Err(Errno::ACCESS);
        }
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        Ok(Anchored { folder: Some(folder), name })
    }
}

/// Says that there is nothing, where that is sure.
fn if_there(found: Result<Identity, Errno>) -> Result<Option<Identity>, Errno> {
    match found {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some),
    }
}

/// A name of what an open descriptor refers to, for calls that take names only.
pub(crate) fn link_to(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

const fn folder_flags() -> OFlags {
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC)
}

fn resolve(
    folder: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
    how: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let (flags, mode) = heeded(flags, mode);
    // Refused only while somebody renames on the way: then the kernel asks to be asked again.
    let mut opened = Err(Errno::AGAIN);
    for _ in 0..64 {
        opened = openat2(folder, path, flags, mode, how);
        if opened.as_ref().err() != Some(&Errno::AGAIN) {
            break;
        }
    }
    opened
}

/// Returns the flags and mode that `openat` would heed; `openat2` refuses the others.
fn heeded(flags: OFlags, mode: Mode) -> (OFlags, Mode) {
    let flags = match flags.contains(OFlags::PATH) {
        true => flags & (folder_flags() | OFlags::NOFOLLOW),
        false => flags & known_flags(),
    };
    let creates = flags.contains(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
    let mode_max = if creates { 0o7777 } else { 0 };
    (flags, mode & Mode::from_bits_retain(mode_max))
}

/// Flags of `open`. Of the rest some programs have meanings of their own: `dd` passes its flags.
fn known_flags() -> OFlags {
    OFlags::RWMODE
        | OFlags::CREATE
        | OFlags::EXCL
        | OFlags::NOCTTY
        | OFlags::TRUNC
        | OFlags::APPEND
        | OFlags::NONBLOCK
        | OFlags::SYNC
        | OFlags::DIRECT
        | OFlags::LARGEFILE
        | OFlags::DIRECTORY
        | OFlags::NOFOLLOW
        | OFlags::NOATIME
        | OFlags::CLOEXEC
        | OFlags::PATH
        | OFlags::TMPFILE
}

/// The folder of a name as seen from the root, and its last part; `.` in itself where that is none.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let (folder, name) = path.split_at(slash.map_or(0, |slash| slash + 1));
    if matches!(name, b"" | b"." | b"..") { (path, b".") } else { (folder, name) }
}

/// Returns the identity of a name in a folder, or with none of the folder itself. That never
/// changes, so a network file system need not ask for it.
fn identity(folder: BorrowedFd<'_>, name: impl Arg) -> Result<Identity, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let found = statx(folder, name, flags, StatxFlags::INO)?;
    Ok(((found.stx_dev_major, found.stx_dev_minor), found.stx_ino))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use tempfile::TempDir;

    use super::*;

    fn tree() -> (TempDir, Scope) {
        let folder = TempDir::new().expect("folder");
        fs::create_dir_all(folder.path().join("root/sub")).expect("folders");
        fs::write(folder.path().join("secret"), "x").expect("file");
        fs::write(folder.path().join("root/sub/file"), "y").expect("file");
        let scope = Scope::below(&folder.path().join("root")).expect("openat2");
        (folder, scope)
    }

    #[test]
    fn names_are_found_below_the_root() {
        let (_folder, scope) = tree();
        for path in [c"/", c"/sub", c"/sub/file", c"//sub/./file", c"/sub/../sub/file"] {
            assert!(scope.find(path).is_ok(), "{path:?}");
        }
        let anchored = scope.anchor(c"/sub/new").expect("the folder is there");
        assert_eq!(anchored.name.as_c_str(), c"new");
        let root = scope.anchor(c"/sub/..").expect("the root");
        assert!(root.name.as_c_str() == c"." && scope.is_root(root.folder()));
    }

    #[test]
    fn nothing_leads_out_of_the_root() {
        let (folder, scope) = tree();
        let root = folder.path().join("root");
        symlink("../secret", root.join("up")).expect("link");
        symlink(folder.path().join("secret"), root.join("away")).expect("link");
        symlink("..", root.join("folder")).expect("link");
        for path in [c"/up", c"/away", c"/../secret", c"/folder/secret", c"/sub/../../secret"] {
            assert_eq!(scope.find(path).expect_err("out").raw_os_error(), Some(18), "{path:?}");
        }
        assert!(scope.anchor(c"/folder/secret").is_err());
    }

    #[test]
    fn names_may_be_as_long_as_the_kernel_takes_them() {
        let (_folder, scope) = tree();
        let mut path = Vec::new();
        for len in [255; 15].into_iter().chain([252]) {
            path.extend([b"/".to_vec(), vec![b'd'; len]].concat());
            let at = scope.anchor(&CString::new(path.clone()).expect("no NUL")).expect("a folder");
            rustix::fs::mkdirat(at.folder(), &at.name, Mode::RWXU).expect("made");
        }
        path.extend(b"/f");
        let path = CString::new(path).expect("no NUL");
        assert_eq!(path.count_bytes(), 4095);
        let flags = OFlags::WRONLY | OFlags::CREATE;
        scope.open(&path, flags, Mode::RWXU).expect("a file");
    }

    /// As when the creation of a file is answered again, by opening what it has made.
    #[test]
    fn what_openat_ignores_is_no_error() {
        let (folder, scope) = tree();
        let mode = Mode::from_bits_retain(0o100_600);
        let unknown = OFlags::from_bits_retain(0x2080_0004);
        for flags in [
            OFlags::WRONLY,
            OFlags::PATH | OFlags::RDWR,
            OFlags::RDWR | OFlags::CREATE,
            OFlags::SYNC | unknown,
        ] {
            assert!(openat(CWD, folder.path().join("secret"), flags, mode).is_ok());
            assert!(scope.open(c"/sub/file", flags, mode).is_ok(), "{flags:?}");
        }
        assert!(scope.open(c"/sub/new", OFlags::RDWR | OFlags::CREATE, mode).is_ok());
    }

    #[test]
    fn own_folder_is_refused_whatever_leads_there() {
        let (folder, scope) = tree();
        let root = folder.path().join("root");
        for path in [c"/.kakehi", c"/sub/../.kakehi"] {
            let error = scope.anchor(path).expect_err("nobody makes it");
            assert_eq!(error.raw_os_error(), Some(13), "{path:?}");
        }
        fs::create_dir(root.join(".kakehi")).expect("folder");
        fs::write(root.join(".kakehi/a"), "z").expect("file");
        for (text, name) in [(".kakehi", "own"), ("own/a", "a"), ("own/new", "new"), ("new", "far")]
        {
            symlink(text, root.join(name)).expect("link");
        }
        let paths =
            [c"/.kakehi", c"/.kakehi/", c"/.kakehi/a", c"/sub/../.kakehi", c"//./.kakehi/a"];
        let links =
            [c"/own", c"/own/", c"/own/a", c"/own/.", c"/a", c"/sub/../a", c"/new", c"/far"];
        for path in paths.into_iter().chain(links) {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
            for flags in [OFlags::PATH, OFlags::RDONLY | OFlags::DIRECTORY, flags] {
                let error = scope.open(path, flags, Mode::RWXU).expect_err("reserved");
                assert_eq!(error.raw_os_error(), Some(13), "{path:?} {flags:?}");
            }
        }
        assert_eq!(fs::read(root.join(".kakehi/a")).expect("kept"), b"z");
        assert_eq!(fs::read_dir(root.join(".kakehi")).expect("listed").count(), 1);
    }

    #[test]
    fn files_of_a_reserved_multifile_have_no_name() {
        let (folder, scope) = tree();
        let root = folder.path().join("root");
        let (home, is_below) = scope.folder_of(&root.join("sub/a.sion")).expect("a folder");
        assert!(is_below);
        scope.reserve(home.as_fd(), b"a.sion").expect("reserved");
        symlink("sub/a.sion.journal", root.join("link")).expect("link");
        let flags = OFlags::RDWR | OFlags::CREATE;
        for path in [c"/sub/a.sion", c"/sub/./a.sion.000001", c"/link", c"/sub/a.sion.2.journal"] {
            let error = scope.open(path, flags, Mode::RWXU).expect_err("reserved");
            assert_eq!(error.raw_os_error(), Some(13), "{path:?}");
        }
        fs::rename(root.join("sub"), root.join("moved")).expect("moved");
        assert!(scope.anchor(c"/moved/a.sion").is_err(), "wherever its folder is moved to");
        assert!(scope.anchor(c"/a.sion").is_ok());
    }

    #[test]
    fn folder_of_a_multifile_below_the_root_is_not_found_through_a_link_out() {
        let (folder, scope) = tree();
        let root = folder.path().join("root");
        symlink(folder.path(), root.join("out")).expect("link");
        let error = scope.folder_of(&root.join("out/a.sion")).expect_err("out of the root");
        assert_eq!(error.raw_os_error(), Some(18));
        let (_, is_below) = scope.folder_of(&folder.path().join("a.sion")).expect("elsewhere");
        assert!(!is_below);
    }

    #[test]
    fn a_folder_that_cannot_be_looked_at_may_be_the_own() {
        assert_eq!(if_there(Err(Errno::NOENT)), Ok(None));
        assert_eq!(if_there(Err(Errno::IO)), Err(Errno::IO));
    }

    /// As the kernel follows them.
    #[test]
    fn last_names_that_are_links_are_followed() {
        let (folder, scope) = tree();
        let root = folder.path().join("root");
        for (text, name) in [("../sub/file", "sub/up"), ("sub/up", "far"), ("new", "sub/later")] {
            symlink(text, root.join(name)).expect("link");
        }
        let inode = |fd: OwnedFd| rustix::fs::fstat(fd).expect("open").st_ino;
        let file = inode(scope.find(c"/sub/file").expect("there"));
        assert_eq!(inode(scope.find(c"/far").expect("through two")), file);
        let link = scope.open(c"/far", OFlags::PATH | OFlags::NOFOLLOW, Mode::empty());
        assert_ne!(inode(link.expect("itself")), file);
        let error = scope.open(c"/far", OFlags::NOFOLLOW, Mode::empty()).expect_err("a link");
        assert_eq!(error.raw_os_error(), Some(40));
        let made = OFlags::WRONLY | OFlags::CREATE;
        let exclusive = scope.open(c"/sub/later", made | OFlags::EXCL, Mode::RWXU);
        assert_eq!(exclusive.expect_err("taken").raw_os_error(), Some(17));
        scope.open(c"/sub/later", made, Mode::RWXU).expect("made where the link leads");
        assert!(root.join("sub/new").is_file());
        symlink("round", root.join("round")).expect("link");
        assert_eq!(scope.find(c"/round").expect_err("no end").raw_os_error(), Some(40));
    }
}
