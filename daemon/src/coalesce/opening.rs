//! A multifile on the way to the daemon that is to write it: made, or found, repaired, and read.

use std::{
    fs,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use multifile::{
    Disk, Growing, Held, Options, Peek, Shape,
    catalogue::{self, Catalogue, Node, Time, Unreadable},
    name::journal,
};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    process::{getegid, geteuid},
};

use super::{tree::FOLDER, unfit::Unfit};

/// Who may read and write a file.
const PERMISSIONS: u32 = 0o666;

/// A multifile that was opened.
pub(super) struct Opened {
    /// Keeps others from writing it.
    pub(super) lock: OwnedFd,
    pub(super) growing: Growing<Disk>,
    /// Of all streams, bytes.
    pub(super) lens: Vec<u64>,
    pub(super) catalogue: Catalogue,
    /// Where in their stream the names begin and end.
    pub(super) names: (u64, u64),
    /// They are not written yet.
    pub(super) is_new: bool,
    /// Nothing was there before.
    pub(super) is_made: bool,
    /// It is to be closed, whether it is changed or not.
    pub(super) was_unclosed: bool,
}

fn options(path: &Path) -> Options {
    let name = path.file_name().unwrap_or_default();
    // What is on the disk was asked for by `fsync`, as with any file.
    Options { name: Some(name.as_encoded_bytes().to_vec()), ..Options::default() }
}

/// Opens a multifile, or makes it. One that could not be made is not there.
pub(super) fn open(path: &Path, shape: Shape) -> io::Result<Opened> {
    let how = |how: &mut fs::OpenOptions| how.read(true).write(true).open(path);
    let (file, is_made) = match how(fs::OpenOptions::new().create_new(true)) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
            (how(fs::OpenOptions::new().create(true).truncate(false))?, false)
        }
        made => (made?, true),
    };
    let _locked = file.try_clone()?;
    let opened = take(file, path, shape).map(|opened| Opened { is_made, ..opened });
    let is_taken = |why: &io::Error| why.kind() == io::ErrorKind::ResourceBusy;
    if is_made && opened.as_ref().is_err_and(|why| !is_taken(why)) {
        forget(path);
    }
    opened
}

/// Removes a multifile that holds nothing, with its journal.
pub(super) fn forget(path: &Path) {
    for path in [path.to_owned(), journal(path)] {
        fs::remove_file(path).ok(); // It may not be there yet.
    }
}

fn take(file: fs::File, path: &Path, shape: Shape) -> io::Result<Opened> {
    if !file.metadata()?.is_file() {
        return Err(Unfit::Special.into());
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN) => return Err(Unfit::Taken.into()),
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {
            tracing::warn!(
                "its file system knows no locks: see to it that nobody else writes {}",
                path.display()
            );
        }
        Ok(()) => {}
        Err(error) => return Err(error.into()),
    }
    let found = file.metadata()?;
    // A daemon has no umask any more when it makes the next of its files: they are as the first.
    let (disk, options) = (Disk::new().making(found.mode() & PERMISSIONS), options(path));
    if found.len() == 0 {
        return make(&disk, path, file.into(), shape);
    }
    // One that is not closed may be somebody else's, who writes it: then nothing is repaired.
    let of_set = |error| Unfit::of_set(path, error);
    let Peek { head, is_blank } = Growing::peek(&disk, path).map_err(of_set)?;
    match catalogue::records_at(&head) {
        // Who was making it died before it had a name.
        Err(Unreadable::NoNames) if is_blank => return make(&disk, path, file.into(), shape),
        at => drop(at.map_err(why)?),
    }
    let opened = Growing::open(&disk, path, shape, &options);
    let (growing, Held { mut lens, was_unclosed }) = opened.map_err(of_set)?;
    if was_unclosed {
        tracing::warn!("{} was never closed: what was completed is there", path.display());
    }
    let names = growing.names(lens.first().copied().unwrap_or(0)).map_err(of_set)?;
    let (catalogue, len) = Catalogue::read(&names).map_err(why)?;
    let names = (catalogue::records_at(&names).map_err(why)?, len as u64);
    if let Some(len) = lens.first_mut() {
        *len = names.1;
    }
    let (lock, is_new, is_made) = (file.into(), false, false);
    Ok(Opened { lock, growing, lens, catalogue, names, is_new, is_made, was_unclosed })
}

fn why(unreadable: Unreadable) -> io::Error {
    let why = match unreadable {
        Unreadable::NoNames => Unfit::NoNames,
        Unreadable::Version => Unfit::Later,
        Unreadable::Damaged => Unfit::Names,
    };
    why.into()
}

fn make(disk: &Disk, path: &Path, lock: OwnedFd, shape: Shape) -> io::Result<Opened> {
    let growing = Growing::create(disk, path, shape, &options(path))?;
    let (number, now) = (RandomState::new().build_hasher().finish(), now());
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let root = Node { mode: FOLDER | 0o755, user, group, times: [now; 3], ..Node::default() };
    let (lens, catalogue) = (vec![0; shape.task_count(0) as usize], Catalogue::new(number, root));
    let names = (catalogue::HEAD_LEN as u64, 0);
    let (is_new, is_made, was_unclosed) = (true, false, false);
    Ok(Opened { lock, growing, lens, catalogue, names, is_new, is_made, was_unclosed })
}

/// The time.
pub(super) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}
