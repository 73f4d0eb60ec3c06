//! Listing of a folder.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, statat};
use wire::{Listed, ListingWriter, NameKind};

use super::{Answer, CallPath};
use crate::scope::{OWN_FOLDER, Scope};

/// The names of a folder, as many as fit into `room` bytes. Where it goes on, which is given back
/// as `from`, is the folder's own word for the scope, since others may have removed names by then,
/// so that their number says nothing.
pub(super) fn read_dir(
    scope: &Scope,
    path: &CallPath,
    from: u64,
    room: usize,
) -> io::Result<Answer> {
    let fd = scope.open(path, OFlags::DIRECTORY, Mode::empty())?;
    let hides = scope.is_root(fd.as_fd());
    let mut dir = Dir::new(fd)?;
    if from > 0 {
        dir.seek(i64::from_le_bytes(from.to_le_bytes()))?;
    }
    let mut bytes = vec![0; room];
    let mut listing = ListingWriter::new(&mut bytes);
    while let Some(entry) = dir.read() {
        let entry = entry?;
        let name = entry.file_name();
        let next = u64::from_le_bytes(entry.offset().to_le_bytes());
        let is_written = if hides && name.to_bytes() == OWN_FOLDER.as_bytes() {
            listing.push(next, [])
        } else {
            let kind = kind_of(entry.file_type(), dir.fd()?, name);
            listing.push(next, [Listed { kind, inode: entry.ino(), name: name.to_bytes() }])
        };
        if !is_written {
            break;
        }
    }
    let len = listing.written();
    bytes.truncate(len);
    Ok(Answer::counted(bytes))
}

/// Returns the kind of a name in a folder. Not every file system lists types.
fn kind_of(listed: FileType, folder: BorrowedFd<'_>, name: &CStr) -> NameKind {
    let found = match listed {
        // It may be gone by now.
        FileType::Unknown => statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
        listed => listed,
    };
    match found {
        FileType::RegularFile => NameKind::File,
        FileType::Directory => NameKind::Folder,
        FileType::Symlink => NameKind::Link,
        _ => NameKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        ffi::CString,
        fs,
        os::unix::{ffi::OsStrExt as _, fs::symlink, net::UnixListener},
    };

    use wire::{Listing, names};

    use super::*;

    #[test]
    fn names_that_are_removed_between_two_parts_of_a_listing_hide_no_other() {
        let folder = tempfile::tempdir().expect("folder");
        let path = CString::new(folder.path().as_os_str().as_bytes()).expect("no NUL");
        let all: BTreeSet<_> = (0..100).map(|number| format!("name-{number}")).collect();
        for name in &all {
            fs::write(folder.path().join(name), "").expect("file");
        }
        let (mut found, mut from) = (BTreeSet::new(), 0);
        loop {
            let part =
                read_dir(&Scope::Machine, &path.clone().into(), from, 200).expect("a folder").bytes;
            let Some(part) = Listing::decode(&part) else { break };
            from = part.next;
            for listed in names(part.names).filter(|listed| listed.kind == NameKind::File) {
                let name = std::str::from_utf8(listed.name).expect("ASCII");
                fs::remove_file(folder.path().join(name)).expect("once");
                found.insert(name.to_owned());
            }
        }
        assert_eq!(found, all);
    }

    #[test]
    fn types_that_are_not_listed_are_looked_up() {
        let folder = tempfile::tempdir().expect("folder");
        fs::write(folder.path().join("file"), "").expect("file");
        fs::create_dir(folder.path().join("folder")).expect("folder");
        symlink("folder", folder.path().join("link")).expect("link");
        let _socket = UnixListener::bind(folder.path().join("socket")).expect("socket");
        let fd = fs::File::open(folder.path()).expect("folder");
        let kind_of = |name| kind_of(FileType::Unknown, fd.as_fd(), name);
        let found = [c"file", c"folder", c"link", c"socket", c"gone"].map(kind_of);
        let (other, link) = (NameKind::Other, NameKind::Link);
        assert_eq!(found, [NameKind::File, NameKind::Folder, link, other, other]);
    }
}
