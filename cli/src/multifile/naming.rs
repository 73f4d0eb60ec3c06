//! Names for the streams of a new multifile: those that its files have below a folder.
//!
//! The first task then holds the names, as in multifiles of `kakehi run --coalesce`: 'extract'
//! brings the files back, and a run with '--coalesce' takes the multifile for its folder.

use std::{
    collections::HashMap,
    fs::{self, Metadata},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Component, Path, PathBuf},
};

use multifile::catalogue::{Catalogue, Change, NAME_LEN_MAX, Node, ROOT, Time};

use super::file_failure;
use crate::failure::Failure;

/// The names of plain files below `folder`, as a catalogue in which each is the next task's after
/// the first.
///
/// # Errors
///
/// `Usage` when a file is not below the folder, or is named twice.
pub(super) fn catalogue<'a>(
    folder: &Path,
    files: impl Iterator<Item = (&'a Path, &'a Metadata)>,
) -> Result<Catalogue, Failure> {
    let found = |path: &Path| path.metadata().map_err(|why| file_failure(path, &why));
    let root = found(folder)?;
    if !root.is_dir() {
        return Err(Failure::usage(folder.display(), "it is not a folder", "name a folder"));
    }
    let number = root.ino() ^ root.dev().rotate_left(32) ^ u64::from(std::process::id());
    let mut names = Naming {
        folder,
        catalogue: Catalogue::new(number, node(&root, None)),
        folders: HashMap::from([(PathBuf::new(), ROOT)]),
    };
    for (task, (path, found)) in (1..).zip(files) {
        names.add(path, node(found, Some(task)))?;
    }
    Ok(names.catalogue)
}

struct Naming<'a> {
    folder: &'a Path,
    catalogue: Catalogue,
    /// Folders that have a node, by their paths below the folder.
    folders: HashMap<PathBuf, u64>,
}

impl Naming<'_> {
    fn add(&mut self, path: &Path, node: Node) -> Result<(), Failure> {
        let below = below(self.folder, path)?;
        let parent = below.parent().unwrap_or(Path::new(""));
        let folder = self.folder_of(parent)?;
        let name = below.file_name().unwrap_or_default().as_bytes().to_vec();
        let is_taken = self.catalogue.names(folder).is_some_and(|names| names.contains(&name));
        if is_taken {
            let advice = "name each file once";
            return Err(Failure::usage(path.display(), "it is named twice", advice));
        }
        self.put(folder, name, node, path).map(drop)
    }

    /// The node of a folder below the root, made with those above it.
    fn folder_of(&mut self, path: &Path) -> Result<u64, Failure> {
        if let Some(inode) = self.folders.get(path) {
            return Ok(*inode);
        }
        let above = self.folder_of(path.parent().unwrap_or(Path::new("")))?;
        let real = self.folder.join(path);
        let found = fs::metadata(&real).map_err(|why| file_failure(&real, &why))?;
        let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
        let inode = self.put(above, name, node(&found, None), &real)?;
        self.folders.insert(path.to_owned(), inode);
        Ok(inode)
    }

    fn put(&mut self, folder: u64, name: Vec<u8>, node: Node, path: &Path) -> Result<u64, Failure> {
        let inode = self.catalogue.next_inode();
        let made = self.catalogue.apply(Change::Node(inode, node));
        let named = made.and_then(|()| self.catalogue.apply(Change::Name(folder, name, inode)));
        named.map(|()| inode).ok_or_else(|| {
            let why = format!("a name has 1 to {NAME_LEN_MAX} bytes");
            Failure::usage(path.display(), why, "leave out --names")
        })
    }
}

/// The path of a file below a folder, without `.` and `..`.
fn below(folder: &Path, path: &Path) -> Result<PathBuf, Failure> {
    let outside = || {
        let why = format!("it is not below {}", folder.display());
        Failure::usage(path.display(), why, "name the folder that has all files in --names=DIR")
    };
    // A link keeps its own name: only the folders above it are resolved.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let real = |path: &Path| path.canonicalize().map_err(|why| file_failure(path, &why));
    let parent = real(parent.unwrap_or(Path::new(".")))?;
    let name = path.file_name().ok_or_else(outside)?;
    let below = parent.strip_prefix(real(folder)?).map_err(|_| outside())?.join(name);
    let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    if is_plain { Ok(below) } else { Err(outside()) }
}

fn node(found: &Metadata, task: Option<u64>) -> Node {
    let nanoseconds = |part: i64| u32::try_from(part).unwrap_or(0);
    let times: [Time; 3] = [
        (found.atime(), nanoseconds(found.atime_nsec())),
        (found.mtime(), nanoseconds(found.mtime_nsec())),
        (found.ctime(), nanoseconds(found.ctime_nsec())),
    ];
    Node {
        mode: found.mode(),
        user: found.uid(),
        group: found.gid(),
        task,
        times,
        text: Vec::new(),
    }
}
