//! Local folders that have the names of remote ones.
//!
//! A program that lists a remote folder, or makes it its current folder, needs a real descriptor of
//! a real folder: it gets one of a *mirror*, a folder in the job's own with the same names and
//! types, and with nothing in them. Calls on names below it come to the daemon like all others; so
//! nothing but the list of names is ever read from it.
//!
//! A job's folder may be the user's, with what the user has in it. So the folder of all mirrors is
//! made with a sticky bit, which tells it from one that is not ours; that stays, and is refused.
//!
//! A program that Kakehi cannot serve, or the kernel with a core dump, may write into a mirror all
//! the same. Such a *stray* is never removed: it is moved to the local folder of the same name.

mod strays;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{
            DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink,
        },
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use wire::NameKind;

use self::strays::{is_stray, remove_all};
use crate::{
    folder::{MADE, is_made},
    mail::lock,
};

/// The folder of all mirrors, in the job's folder.
pub(crate) const FOLDER: &str = "mirror";
/// Target of links in a mirror: the server is asked for their text.
const NOWHERE: &str = "/nonexistent/kakehi";
/// Mode of a file in a mirror: who comes past the daemon is refused, and does not read that it is
/// empty.
const FILE_MODE: u32 = 0o000;
/// Mode of a mirror, and of one whose folder may be entered, not read.
const FOLDER_MODE: u32 = 0o700;
const UNREADABLE: u32 = 0o300;

/// Type of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    Link,
}

/// Makes the folder of all mirrors.
///
/// # Errors
///
/// There is something else by that name.
pub(crate) fn prepare(job: &Path) -> io::Result<()> {
    let all = job.join(FOLDER);
    match fs::DirBuilder::new().mode(MADE).create(&all) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !is_made(&all) => {
            let why = format!("{} is there, and not Kakehi's: move it away", all.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
        }
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Where the mirror of a folder is.
pub(crate) fn path(job: &Path, folder: &[u8]) -> PathBuf {
    let relative = folder.strip_prefix(b"/").unwrap_or(folder);
    job.join(FOLDER).join(OsStr::from_bytes(relative))
}

/// The longest beginning of `folder` that has a mirror, and so is known to be a folder.
pub(crate) fn known(job: &Path, folder: &Path) -> PathBuf {
    let has_mirror = |folder: &&Path| {
        let mirror = path(job, folder.as_os_str().as_bytes());
        fs::symlink_metadata(mirror).is_ok_and(|found| found.is_dir())
    };
    folder.ancestors().find(has_mirror).unwrap_or(Path::new("/")).to_owned()
}

/// Which of several listings each mirror has, for all cores of the daemon. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listings(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    /// Strays by the names that programs know, and where they are kept.
    kept: BTreeMap<String, String>,
    last: u64,
    /// Set when folders have views: these are entered and listed then, and mirrors are for whoever
    /// has other mounts.
    has_views: bool,
    /// Processes, by their numbers at the daemon, that have other mounts.
    apart: HashSet<u16>,
    /// Of what each mirror has; locked while it is changed.
    shown: HashMap<PathBuf, Arc<Mutex<u64>>>,
}

impl Listings {
    /// The number of a listing that is about to be asked for. It has everything that was there when
    /// one with a smaller number was asked for, and is there still.
    pub(crate) fn number(&self) -> u64 {
        let mut numbers = lock(&self.0);
        numbers.last += 1;
        numbers.last
    }

    /// From now on folders have views.
    pub(crate) fn show_views(&self) {
        lock(&self.0).has_views = true;
    }

    /// Says whether a process sees the mounts that this daemon sees.
    pub(crate) fn shares_mounts(&self, process: u16, shares: bool) {
        let mut numbers = lock(&self.0);
        if shares {
            numbers.apart.remove(&process);
        } else {
            numbers.apart.insert(process);
        }
    }

    /// True if a process enters a folder's view instead of its mirror.
    pub(crate) fn has_view(&self, process: Option<u16>) -> bool {
        let numbers = lock(&self.0);
        numbers.has_views && process.is_none_or(|process| !numbers.apart.contains(&process))
    }

    /// Removes all mirrors of a job, but for strays.
    pub(crate) fn remove_all(&self, job: &Path) {
        let kept = remove_all(job);
        lock(&self.0).kept.extend(kept);
    }

    /// Strays that were found when mirrors were removed, and where they are kept.
    pub(crate) fn kept(&self) -> BTreeMap<String, String> {
        lock(&self.0).kept.clone()
    }

    /// Makes `mirror` have the names in `listing`, as [`wire::names`] takes them, unless it has
    /// those of a newer one. Without a listing it cannot be read, as its folder.
    ///
    /// # Errors
    ///
    /// Those of making and removing files.
    pub(crate) fn show(
        &self,
        mirror: &Path,
        listing: Option<&[u8]>,
        number: u64,
    ) -> io::Result<()> {
        let shown = Arc::clone(lock(&self.0).shown.entry(mirror.to_owned()).or_default());
        let mut shown = lock(&shown);
        if *shown < number {
            make_folder(mirror)?;
            let mode = if listing.is_some() { FOLDER_MODE } else { UNREADABLE };
            if fs::symlink_metadata(mirror)?.mode() & 0o777 != mode {
                fs::set_permissions(mirror, fs::Permissions::from_mode(mode))?;
            }
            listing.map_or(Ok(()), |listing| refresh(mirror, listing))?;
            *shown = number;
        }
        Ok(())
    }
}

/// Names that stay are not touched, so whoever reads the folder meanwhile misses none of them.
fn refresh(mirror: &Path, listing: &[u8]) -> io::Result<()> {
    make_folder(mirror)?;
    let mut wanted = names(listing);
    for entry in fs::read_dir(mirror)? {
        let entry = entry?;
        let found = entry.file_type()?;
        let kind = if found.is_dir() {
            Kind::Folder
        } else if found.is_symlink() {
            Kind::Link
        } else {
            Kind::File
        };
        match wanted.remove(entry.file_name().as_bytes()) {
            Some(same) if same == kind => {}
            // Kept, and told of in the end.
            _ if is_stray(&entry)? => {}
            other => {
                remove(&entry.path(), kind)?;
                if let Some(kind) = other {
                    make(&entry.path(), kind)?;
                }
            }
        }
    }
    for (name, kind) in wanted {
        make(&mirror.join(OsStr::from_bytes(name)), kind)?;
    }
    Ok(())
}

/// A remote folder was renamed: its mirror goes along, for programs that are in it.
pub(crate) fn rename(from: &Path, to: &Path) {
    if from.is_dir() {
        remove(to, Kind::Folder).or_else(|_| remove(to, Kind::File)).ok(); // Most often none.
        fs::rename(from, to).ok(); // There may be no mirror of the folder it goes to.
    }
}

/// Two remote names were exchanged, of which one at least may be a folder: so are their mirrors.
pub(crate) fn exchange(one: &Path, other: &Path) {
    if renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).is_err() {
        // Only one of them has a mirror, if any.
        let (from, to) = if one.is_dir() { (one, other) } else { (other, one) };
        rename(from, to);
    }
}

fn names(listing: &[u8]) -> BTreeMap<&[u8], Kind> {
    let kind = |kind| match kind {
        NameKind::Folder => Kind::Folder,
        NameKind::Link => Kind::Link,
        NameKind::File | NameKind::Other => Kind::File,
    };
    // A name with a slash is none: no server may write outside the mirror.
    let is_name = |name: &[u8]| !matches!(name, b"." | b"..") && !name.contains(&b'/');
    let names = wire::names(listing).filter(|(_, name)| is_name(name));
    names.map(|(stands_for, name)| (name, kind(stands_for))).collect()
}

fn make_folder(path: &Path) -> io::Result<()> {
    let make = || fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path);
    make().or_else(|_| {
        // What is in the way, a file or a link to nowhere, has become a folder since it was listed.
        let is_ours = |found: fs::Metadata| found.is_symlink() || found.len() == 0;
        let is_old = |path: &&Path| fs::symlink_metadata(path).is_ok_and(is_ours) && !path.is_dir();
        if let Some(old) = path.ancestors().find(is_old) {
            fs::remove_file(old).ok(); // Another core may have removed it.
        }
        make()
    })
}

fn make(path: &Path, kind: Kind) -> io::Result<()> {
    let made = match kind {
        Kind::Folder => fs::DirBuilder::new().mode(FOLDER_MODE).create(path),
        Kind::Link => symlink(NOWHERE, path),
        Kind::File => {
            let mut options = fs::OpenOptions::new();
            options.write(true).create_new(true).mode(FILE_MODE).open(path).map(drop)
        }
    };
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes what a mirror has there. Strays below a folder stay, and with them the folder.
fn remove(path: &Path, kind: Kind) -> io::Result<()> {
    let removed = match kind {
        Kind::Folder => remove_folder(path),
        Kind::File | Kind::Link => fs::remove_file(path),
    };
    match removed {
        // Another core mirrors the same folder.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Lists a mirror, even one that nobody may read.
fn entries(folder: &Path) -> io::Result<fs::ReadDir> {
    fs::read_dir(folder).or_else(|_| {
        fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE))?;
        fs::read_dir(folder)
    })
}

fn remove_folder(path: &Path) -> io::Result<()> {
    for entry in entries(path)? {
        let entry = entry?;
        let kind = if entry.file_type()?.is_dir() { Kind::Folder } else { Kind::File };
        if kind == Kind::Folder || !is_stray(&entry)? {
            remove(&entry.path(), kind)?;
        }
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn found(folder: &Path) -> Vec<(String, bool)> {
        let entries = fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry"));
        let mut found: Vec<_> = entries
            .map(|entry| {
                let is_folder = entry.file_type().expect("type").is_dir();
                (entry.file_name().into_string().expect("UTF-8"), is_folder)
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn mirror_follows_its_folder() {
        let job = tempfile::tempdir().expect("folder");
        let mirror = path(job.path(), b"/data/run");
        refresh(&mirror, b"d.\0d..\0fa\0dsub\0llink\0").expect("made");
        let entry = |name: &str, is_folder| (name.to_owned(), is_folder);
        assert_eq!(found(&mirror), [entry("a", false), entry("link", false), entry("sub", true)]);

        refresh(&mirror.join("sub"), b"finner\0").expect("made");
        refresh(&mirror, b"fsub\0da\0").expect("changed");
        assert_eq!(found(&mirror), [entry("a", true), entry("sub", false)]);
    }

    #[test]
    fn what_has_become_a_folder_since_it_was_listed_gives_way() {
        let job = tempfile::tempdir().expect("folder");
        let mirror = path(job.path(), b"/data");
        refresh(&mirror, b"ffile\0llink\0lmirror\0").expect("made");
        for name in ["file", "link", "mirror"] {
            let folder = mirror.join(name).join("deep");
            refresh(&folder, b"fa\0").expect(name);
            assert_eq!(found(&folder), [("a".to_owned(), false)]);
        }
    }

    #[test]
    fn an_older_listing_takes_no_name_away() {
        let job = tempfile::tempdir().expect("folder");
        let mirror = path(job.path(), b"/data");
        let listings = Listings::default();
        let (older, newer) = (listings.number(), listings.number());
        listings.show(&mirror, Some(b"fold\0fnew\0"), newer).expect("made");
        listings.show(&mirror, Some(b"fold\0"), older).expect("left as it is");
        assert_eq!(found(&mirror), [("new".to_owned(), false), ("old".to_owned(), false)]);
        listings.show(&mirror, Some(b""), listings.number()).expect("changed");
        assert_eq!(found(&mirror), []);
    }

    #[test]
    fn mirror_of_a_folder_that_may_not_be_read_is_closed_until_it_may() {
        let job = tempfile::tempdir().expect("folder");
        let (mirror, listings) = (path(job.path(), b"/data"), Listings::default());
        let mode = || fs::metadata(&mirror).expect("there").mode() & 0o777;
        listings.show(&mirror, None, listings.number()).expect("made");
        assert_eq!(mode(), UNREADABLE);
        listings.show(&mirror, Some(b"fa\0"), listings.number()).expect("changed");
        assert_eq!((mode(), found(&mirror).len()), (FOLDER_MODE, 1));
    }

    #[test]
    fn mirror_goes_along_when_its_folder_is_renamed() {
        let job = tempfile::tempdir().expect("folder");
        let (old, new) = (path(job.path(), b"/data/old"), path(job.path(), b"/data/new"));
        refresh(&old, b"fa\0").expect("made");
        refresh(&new, b"").expect("made");
        rename(&old, &new);
        assert_eq!(found(&new), [("a".to_owned(), false)]);
        assert!(!old.exists());
    }

    #[test]
    fn mirrors_of_folders_that_are_exchanged_are_exchanged() {
        let job = tempfile::tempdir().expect("folder");
        let [one, other] = [&b"/data/one"[..], b"/data/other"].map(|name| path(job.path(), name));
        refresh(&one, b"fa\0").expect("made");
        refresh(&other, b"fb\0").expect("made");
        exchange(&one, &other);
        assert_eq!(found(&one), [("b".to_owned(), false)]);
        assert_eq!(found(&other), [("a".to_owned(), false)]);

        remove(&one, Kind::Folder).expect("there");
        exchange(&one, &other);
        assert_eq!(found(&one), [("a".to_owned(), false)]);
        assert!(!other.exists());
    }

    #[test]
    fn a_mirror_that_the_user_has_is_refused_and_stays() {
        let job = tempfile::tempdir().expect("folder");
        let all = job.path().join(FOLDER);
        fs::create_dir(&all).expect("folder");
        fs::write(all.join("file"), "precious").expect("file");
        prepare(job.path()).expect_err("the user's");
        remove_all(job.path());
        assert!(all.join("file").exists());
        fs::remove_dir_all(&all).expect("there");
        // A daemon that was killed may have left its own.
        (0..2).for_each(|_| prepare(job.path()).expect("ours"));
        remove_all(job.path());
        assert!(!all.exists());
    }

    #[test]
    fn a_mirror_in_a_folder_of_a_group_is_ours() {
        let job = tempfile::tempdir().expect("folder");
        fs::set_permissions(job.path(), fs::Permissions::from_mode(0o2700)).expect("ours");
        (0..2).for_each(|_| prepare(job.path()).expect("ours"));
        remove_all(job.path());
        assert_eq!(found(job.path()), []);
    }

    #[test]
    fn no_name_leads_out_of_the_mirror() {
        let job = tempfile::tempdir().expect("folder");
        let mirror = path(job.path(), b"/data");
        refresh(&mirror, b"f../out\0f/abs\0f..\0ffine\0").expect("made");
        assert_eq!(found(&mirror), [("fine".to_owned(), false)]);
        assert_eq!(found(job.path()), [("mirror".to_owned(), true)]);
    }
}
