//! A multifile on the way to the daemon that is to write it: made, or found, repaired, and read.

use std::{
    ffi::OsString,
    fs,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use multifile::{
    Disk, Growing, Held, Options, Peek,
    catalogue::{self, Catalogue, Node, Reading, Time, Unreadable},
    name::{journal, physical},
};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, openat, statat, unlinkat},
    io::Errno,
    process::{getegid, geteuid},
};
use storage::scope::Scope;

use super::{hold::Hold, shape::Shape, tasks, tree::FOLDER, unfit::Unfit};

/// Permissions of a file.
const PERMISSIONS: u32 = 0o666;
/// That anybody may write it.
const WRITING: u32 = 0o222;

/// Names that are said of files that have lost something.
const NAMES_SAID: usize = 20;

/// A multifile that was opened.
pub(super) struct Opened {
    /// Keeps others from writing it.
    pub(super) hold: Hold,
    pub(super) growing: Growing<Disk>,
    /// Of all streams, bytes.
    pub(super) lens: Vec<u64>,
    /// Where each block of each stream ends in it; nothing is said of full ones.
    pub(super) ends: Vec<Vec<u64>>,
    pub(super) catalogue: Catalogue,
    /// Where in their stream the names begin and end; nowhere if the first task is a file, too.
    pub(super) names: (u64, u64),
    pub(super) before: Prior,
    /// It may be written.
    pub(super) is_writable: bool,
}

/// The multifile before it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prior {
    /// It was not there.
    Absent,
    /// Its file was there, and empty: as with an absent one no names are written yet.
    Empty,
    Closed,
    /// It is to be closed, whether it is changed or not.
    Unclosed,
}

/// Where a multifile is: a name in an open folder, wherever that is moved to.
#[derive(Clone, Debug)]
pub(super) struct Home {
    folder: Arc<OwnedFd>,
    name: OsString,
    /// The name may be a link: only the user has chosen it.
    is_followed: bool,
    /// For people.
    pub(super) path: PathBuf,
}

impl Home {
    /// Finds the folder of the multifile at `path`, and keeps its files out of clients' reach.
    pub(super) fn find(scope: &Scope, path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(Errno::ISDIR)?.to_owned();
        let (folder, is_below) = scope.folder_of(path)?;
        scope.reserve(folder.as_fd(), name.as_encoded_bytes())?;
        let (folder, path) = (Arc::new(folder), path.to_owned());
        Ok(Self { folder, name, is_followed: !is_below, path })
    }

    /// Looks at the multifile, closed or not.
    pub(super) fn peek(&self) -> Result<Peek, multifile::Error> {
        Growing::peek(&self.disk(0), Path::new(&self.name))
    }

    /// Returns the lengths of the streams of a closed one.
    pub(super) fn lens(&self) -> Result<Vec<u64>, multifile::Error> {
        let (disk, options) = (self.disk(0), options(&self.name));
        let opened = Growing::open_to_read(&disk, Path::new(&self.name), &options);
        opened.map(|(_, Held { lens, .. })| lens)
    }

    pub(super) fn open(&self, flags: OFlags) -> io::Result<fs::File> {
        let links = if self.is_followed { OFlags::empty() } else { OFlags::NOFOLLOW };
        let (flags, mode) = (flags | links | OFlags::CLOEXEC, Mode::from_bits_retain(0o666));
        let mode = if flags.contains(OFlags::CREATE) { mode } else { Mode::empty() };
        Ok(openat(&self.folder, &self.name, flags, mode)?.into())
    }

    fn disk(&self, mode: u32) -> Disk {
        let disk = Disk::at(Arc::clone(&self.folder)).making(mode);
        if self.is_followed { disk } else { disk.without_links() }
    }

    /// Refuses a set whose first file is empty while the second one has bytes. A link there leads
    /// to nothing of a set.
    fn check_head(&self) -> io::Result<()> {
        let name = physical(Path::new(&self.name), 1);
        let found = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_file = |mode| FileType::from_raw_mode(mode).is_file();
        if found.is_ok_and(|found| is_file(found.st_mode) && found.st_size > 0) {
            return Err(Unfit::Headless(physical(&self.path, 1)).into());
        }
        Ok(())
    }

    /// Removes a multifile that holds nothing, with its journal.
    pub(super) fn forget(&self) {
        for name in [Path::new(&self.name), &journal(Path::new(&self.name))] {
            unlinkat(&self.folder, name, AtFlags::empty()).ok(); // It may not be there yet.
        }
    }
}

fn options(name: &OsString) -> Options {
    // What is on the disk was asked for by `fsync`, as with any file.
    Options { name: Some(name.as_encoded_bytes().to_vec()), ..Options::default() }
}

/// Opens a multifile, or makes it. One that could not be made is not there; one that may not be
/// written, or is not to be, is opened to be read.
pub(super) fn open(home: &Home, shape: &Shape, is_read_only: bool) -> io::Result<Opened> {
    if is_read_only {
        let file = home.open(OFlags::RDONLY | OFlags::NONBLOCK)?; // It may be a pipe.
        return take(file, home, shape, Some(Errno::ROFS.into()), false);
    }
    match home.open(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
        made => {
            let made = made?;
            let _locked = made.try_clone()?;
            return take(made, home, shape, None, true).map(|opened| match opened.before {
                Prior::Empty => Opened { before: Prior::Absent, ..opened },
                _ => opened, // Another daemon has made it meanwhile.
            });
        }
    }
    let found = home.open(OFlags::RDWR);
    let refusal = match found.and_then(|file| Ok((file.metadata()?.mode() & WRITING, file))) {
        Ok((0, _)) => Errno::ACCESS.into(), // Root may all the same.
        Ok((_, file)) => return take(file, home, shape, None, false),
        Err(why) => why,
    };
    if !matches!(Errno::from_io_error(&refusal), Some(Errno::ACCESS | Errno::PERM | Errno::ROFS)) {
        return Err(refusal);
    }
    // It may be a pipe.
    match home.open(OFlags::RDONLY | OFlags::NONBLOCK) {
        Ok(file) => take(file, home, shape, Some(refusal), false),
        Err(_) => Err(refusal),
    }
}

/// Opens the multifile that begins with `file`; makes it if that is empty. It is only read if there
/// is a `refusal` to write it. One that `is_made` for it goes with it if it cannot be made.
fn take(
    file: fs::File,
    home: &Home,
    shape: &Shape,
    refusal: Option<io::Error>,
    is_made: bool,
) -> io::Result<Opened> {
    if !file.metadata()?.is_file() {
        return Err(Unfit::Special.into());
    }
    let (is_writable, path) = (refusal.is_none(), &*home.path);
    let hold = Hold::take(file, path, is_writable)?;
    let found = hold.file.metadata()?;
    // A daemon has no umask any more when it makes the next of its files: they are as the first.
    let (disk, options) = (home.disk(found.mode() & PERMISSIONS), options(&home.name));
    let name = Path::new(&home.name);
    let make = |hold: Hold| match refusal {
        None => make(&disk, &home.name, hold, found.len() == 0, shape),
        Some(refusal) => Err(refusal),
    };
    if found.len() == 0 {
        home.check_head().inspect_err(|_| {
            if is_made {
                // Without the journal, which may be the missing one's.
                unlinkat(&home.folder, &home.name, AtFlags::empty()).ok();
            }
        })?;
        let opened = make(hold);
        if is_made && opened.is_err() {
            home.forget();
        }
        return opened;
    }
    // One that is not closed may be somebody else's, who writes it: then nothing is repaired.
    let of_set = |error| Unfit::of_set(path, error);
    let mut peek = home.peek().map_err(of_set)?;
    if peek.is_open && is_writable {
        hold.outwait()?;
        peek = home.peek().map_err(of_set)?;
    }
    let Peek { head, is_blank, .. } = peek;
    match catalogue::records_at(&head) {
        // Who was making it died before it had a name.
        Err(Unreadable::NoNames) if is_blank => return make(hold),
        Err(Unreadable::NoNames) if !is_writable => return read_tasks(&hold, home),
        at => drop(at.map_err(why)?),
    }
    let opened = if is_writable {
        Growing::open(&disk, name, &options)
    } else {
        Growing::open_to_read(&disk, name, &options)
    };
    let (growing, held) = opened.map_err(of_set)?;
    read_names(growing, held, hold, path, is_writable)
}

/// Reads the names of a multifile that was opened.
fn read_names(
    growing: Growing<Disk>,
    held: Held,
    hold: Hold,
    path: &Path,
    is_writable: bool,
) -> io::Result<Opened> {
    let Held { mut lens, was_unclosed, damaged } = held;
    let of_set = |error| Unfit::of_set(path, error);
    if was_unclosed {
        tracing::warn!("{} was never closed: what was completed is there", path.display());
    }
    if !is_writable {
        tracing::warn!("{} may not be written: its files are only read", path.display());
    }
    let names = growing.names(lens.first().copied().unwrap_or(0)).map_err(of_set)?;
    let read = names.map_err(why)?;
    if read.is_damaged(!was_unclosed) {
        if is_writable {
            return Err(Unfit::LostNames.into());
        }
        tracing::warn!("{}: its names are damaged: files are missing", path.display());
    }
    let Reading { catalogue, begin, len, .. } = read;
    if damaged.contains(&catalogue::TASK) {
        tracing::warn!("{}: what was last done to its names is lost", path.display());
    }
    if let Some(names) = names_of(&catalogue, &damaged) {
        tracing::warn!("{}: the ends of these files are lost: {names}", path.display());
    }
    if let Some(stream_len) = lens.first_mut() {
        *stream_len = len;
    }
    Ok(Opened {
        hold,
        growing,
        lens,
        ends: Vec::new(),
        catalogue,
        names: (begin, len),
        before: if was_unclosed { Prior::Unclosed } else { Prior::Closed },
        is_writable,
    })
}

/// Where a stream with so many bytes in each block ends in each of them.
fn ends(used: &[u64]) -> Vec<u64> {
    let sum = |end: &mut u64, len: &u64| {
        *end = end.saturating_add(*len);
        Some(*end)
    };
    used.iter().scan(0, sum).collect()
}

/// Opens a multifile without names, one of SIONlib's: it is only read.
fn read_tasks(hold: &Hold, home: &Home) -> io::Result<Opened> {
    let hold = Hold::take(hold.file.try_clone()?, &home.path, false)?;
    let (disk, name) = (home.disk(0), Path::new(&home.name));
    let opened = Growing::open_streams(&disk, name, &options(&home.name));
    let (growing, streams) = opened.map_err(|error| Unfit::of_set(&home.path, error))?;
    let ends: Vec<_> = streams.iter().map(|used| ends(used)).collect();
    tracing::warn!(
        "{} has no names of files: its tasks are shown by their numbers, to be read",
        home.path.display()
    );
    let catalogue = tasks::catalogue(&growing, &hold.file.metadata()?).ok_or(Unfit::Names)?;
    Ok(Opened {
        hold,
        growing,
        lens: ends.iter().map(|ends| ends.last().copied().unwrap_or(0)).collect(),
        ends,
        catalogue,
        names: (0, 0),
        before: Prior::Closed,
        is_writable: false,
    })
}

/// Some names of files whose bytes these tasks have, for people; `None`: there are no such files.
fn names_of(catalogue: &Catalogue, tasks: &[usize]) -> Option<String> {
    if tasks.is_empty() {
        return None;
    }
    let is_one = |inode| {
        let task = catalogue.node(inode).and_then(|node| node.task);
        task.is_some_and(|task| tasks.contains(&usize::try_from(task).unwrap_or(usize::MAX)))
    };
    if !catalogue.nodes().any(|(inode, _)| is_one(inode)) {
        return None;
    }
    let mut names: Vec<_> = catalogue.paths().unwrap_or_default();
    names.retain(|(_, inode)| is_one(*inode));
    let said = names.iter().take(NAMES_SAID).map(|(name, _)| String::from_utf8_lossy(name));
    let said = said.collect::<Vec<_>>().join(", ");
    Some(match names.len().saturating_sub(NAMES_SAID) {
        0 => said,
        more => format!("{said}, and {more} more"),
    })
}

fn why(unreadable: Unreadable) -> io::Error {
    let why = match unreadable {
        Unreadable::NoNames => Unfit::NoNames,
        Unreadable::Version => Unfit::Later,
        Unreadable::Damaged => Unfit::Names,
    };
    why.into()
}

fn make(
    disk: &Disk,
    name: &OsString,
    hold: Hold,
    is_empty: bool,
    shape: &Shape,
) -> io::Result<Opened> {
    let (path, options, first) = (Path::new(name), options(name), shape.first);
    let growing = match is_empty {
        true => Growing::create_in(disk, path, hold.file.try_clone()?, first, &options),
        false => Growing::create(disk, path, first, &options),
    }?;
    let (number, now) = (RandomState::new().build_hasher().finish(), now());
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let root = Node { mode: FOLDER | 0o755, user, group, times: [now; 3], ..Node::default() };
    let (lens, catalogue) =
        (vec![0; shape.first.task_count as usize], Catalogue::new(number, root));
    let names = (catalogue::HEAD_LEN as u64, 0);
    Ok(Opened {
        hold,
        growing,
        lens,
        ends: Vec::new(),
        catalogue,
        names,
        before: Prior::Empty,
        is_writable: true,
    })
}

/// The time.
pub(super) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}
