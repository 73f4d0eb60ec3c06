//! Strays: files that others have made or written in mirrors, which are kept.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use super::{FILE_MODE, FOLDER, Kind, NOWHERE, entries, remove};
use crate::folder::is_made;

/// Names that are tried for a stray whose own is taken.
const NAMES_MAX: u32 = 100;

/// Removes all mirrors of a job. Strays are kept: returns their names, and where they are by now.
pub(super) fn remove_all(job: &Path) -> Vec<(String, String)> {
    let all = job.join(FOLDER);
    if !is_made(&all) {
        return Vec::new();
    }
    let mut kept = Vec::new();
    for stray in strays(&all).unwrap_or_default() {
        let known = Path::new("/").join(stray.strip_prefix(&all).unwrap_or(&stray));
        let place = keep(&stray, &known).unwrap_or(stray);
        kept.push((known.display().to_string(), place.display().to_string()));
    }
    remove(&all, Kind::Folder).ok(); // What could not be moved stays there.
    kept
}

/// Moves a stray to `known`, or beside what has that name on this node; returns where to.
fn keep(stray: &Path, known: &Path) -> io::Result<PathBuf> {
    known.parent().map_or(Ok(()), fs::create_dir_all)?;
    let found = fs::symlink_metadata(stray)?;
    if found.is_file() && found.mode() & 0o7777 == FILE_MODE {
        fs::set_permissions(stray, fs::Permissions::from_mode(0o600))?;
    }
    for number in 0..NAMES_MAX {
        let mut place = known.as_os_str().to_owned();
        if number > 0 {
            place.push(format!(".{number}"));
        }
        let place = PathBuf::from(place);
        let moved = match renameat_with(CWD, stray, CWD, &place, RenameFlags::NOREPLACE) {
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS) => copy(stray, &place),
            moved => moved.map_err(Into::into),
        };
        match moved {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            moved => return moved.map(|()| place),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Moves a file or a link to another file system. The original goes once the copy is whole.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(from)?;
    if found.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
    } else {
        let mode = found.mode() & 0o777;
        let mut made = fs::OpenOptions::new();
        let mut made = made.write(true).create_new(true).mode(mode).open(to)?;
        if let Err(why) = io::copy(&mut fs::File::open(from)?, &mut made) {
            fs::remove_file(to).ok();
            return Err(why);
        }
    }
    fs::remove_file(from)
}

/// Files and links below `folder` that are not a mirror's.
fn strays(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in entries(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(strays(&entry.path())?);
        } else if is_stray(&entry)? {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// True if somebody else has made or written it: files of a mirror are empty and closed to all, its
/// links lead nowhere, its folders have such files only.
pub(super) fn is_stray(entry: &fs::DirEntry) -> io::Result<bool> {
    let found = entry.metadata()?;
    Ok(if found.is_dir() {
        !strays(&entry.path())?.is_empty()
    } else if found.is_symlink() {
        fs::read_link(entry.path())? != Path::new(NOWHERE)
    } else {
        found.is_file() && (found.len() > 0 || found.mode() & 0o7777 != FILE_MODE)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::{
        super::{path, prepare, refresh},
        *,
    };

    #[test]
    fn stray_is_moved_to_the_folder_that_it_was_written_for() {
        let (job, local) = (tempfile::tempdir().expect("folder"), tempfile::tempdir().expect("it"));
        prepare(job.path()).expect("free");
        let mirror = path(job.path(), local.path().as_os_str().as_bytes());
        let listing = b"fa\0dsub\0dgone\0llink\0";
        refresh(&mirror, listing).expect("made");
        for name in ["new", "sub/new", "gone/new", "a"] {
            fs::set_permissions(mirror.join("a"), fs::Permissions::from_mode(0o600)).expect("ours");
            fs::write(mirror.join(name), name).expect("file");
        }
        fs::set_permissions(mirror.join("a"), fs::Permissions::from_mode(0o000)).expect("ours");
        fs::File::create(mirror.join("empty")).expect("file");
        symlink("somewhere", mirror.join("other")).expect("link");
        fs::write(local.path().join("new"), "older").expect("file");
        // None of its names is the server's by now.
        refresh(&mirror, b"").expect("changed");

        let kept = remove_all(job.path());

        let read = |name: &str| fs::read_to_string(local.path().join(name)).expect(name);
        for (name, content) in [
            ("new", "older"),
            ("new.1", "new"),
            ("sub/new", "sub/new"),
            ("gone/new", "gone/new"),
            ("a", "a"),
            ("empty", ""),
        ] {
            assert_eq!(read(name), content);
        }
        let link = fs::read_link(local.path().join("other")).expect("a link");
        assert_eq!(link, Path::new("somewhere"));
        assert_eq!(kept.len(), 6);
        let named = |name: &str| local.path().join(name).display().to_string();
        assert!(kept.contains(&(named("new"), named("new.1"))), "{kept:?}");
        assert!(!job.path().join(FOLDER).exists());
    }

    #[test]
    fn stray_that_cannot_be_moved_stays_where_it_is() {
        let job = tempfile::tempdir().expect("folder");
        prepare(job.path()).expect("free");
        let mirror = path(job.path(), b"/proc/no-such-folder");
        refresh(&mirror, b"fa\0").expect("made");
        fs::write(mirror.join("new"), "x").expect("file");
        let stray = mirror.join("new").display().to_string();
        assert_eq!(remove_all(job.path()), [("/proc/no-such-folder/new".to_owned(), stray)]);
        assert!(mirror.join("new").exists() && !mirror.join("a").exists());
    }
}
