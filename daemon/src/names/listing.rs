//! What a folder has.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, statat};

use super::Answer;
use crate::place::{OWN_FOLDER, Place};

/// The names of a folder, as many as fit into `room` bytes: a letter for the type (`f` file, `d`
/// folder, `l` link, `o` other), the name, and a NUL each. Before them stands where it goes on,
/// which is given back as `from`: the folder's own word for the place, since others may have
/// removed names by then, so that their number says nothing. Nothing at all after the last name.
pub(super) fn read_dir(place: &Place, path: &CStr, from: u64, room: usize) -> io::Result<Answer> {
    let fd = place.open(path, OFlags::DIRECTORY, Mode::empty())?;
    let hides = place.is_root(fd.as_fd());
    let mut dir = Dir::new(fd)?;
    if from > 0 {
        dir.seek(i64::from_le_bytes(from.to_le_bytes()))?;
    }
    let mut bytes = Vec::new();
    while let Some(entry) = dir.read() {
        let entry = entry?;
        let name = entry.file_name();
        bytes.resize(bytes.len().max(size_of::<u64>()), 0);
        if bytes.len() + 1 + name.to_bytes_with_nul().len() > room {
            break;
        }
        if let Some(next) = bytes.first_chunk_mut() {
            *next = entry.offset().to_le_bytes();
        }
        if hides && name.to_bytes() == OWN_FOLDER.as_bytes() {
            continue;
        }
        bytes.push(letter(entry.file_type(), dir.fd()?, name));
        bytes.extend_from_slice(name.to_bytes_with_nul());
    }
    Ok(Answer::counted(bytes))
}

/// The letter for the type of a name in a folder. Not every file system lists types.
fn letter(listed: FileType, folder: BorrowedFd<'_>, name: &CStr) -> u8 {
    let found = match listed {
        // It may be gone by now.
        FileType::Unknown => statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
        listed => listed,
    };
    match found {
        FileType::RegularFile => b'f',
        FileType::Directory => b'd',
        FileType::Symlink => b'l',
        _ => b'o',
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
            let part = read_dir(&Place::Machine, &path, from, 200).expect("a folder").bytes;
            let Some((next, names)) = part.split_first_chunk() else { break };
            from = u64::from_le_bytes(*next);
            let names = std::str::from_utf8(names).expect("ASCII");
            for name in names.split_terminator('\0').filter_map(|name| name.strip_prefix('f')) {
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
        let letter = |name| char::from(letter(FileType::Unknown, fd.as_fd(), name));
        let found = [c"file", c"folder", c"link", c"socket", c"gone"].map(letter);
        assert_eq!(found, ['f', 'd', 'l', 'o', 'o']);
    }
}
