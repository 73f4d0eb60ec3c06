//! The names of files that are kept in a multifile (`--coalesce`), if it has any.

use std::{collections::HashMap, fs::File, io::Read as _, path::Path};

use multifile::{
    Reader,
    catalogue::{Catalogue, TASK, Unreadable},
};

use super::{stream, stream_failure, task_failure};
use crate::failure::{Code, Failure};

/// The names in a multifile; `None`: it has none, as one that SIONlib wrote.
pub(crate) fn names(reader: &Reader<File>, path: &Path) -> Result<Option<Catalogue>, Failure> {
    if reader.task_count() == 0 {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    // Of a stream that is none of names only the beginning is read.
    let mut from = stream(reader, path, TASK)?;
    let head = (&mut from).take(multifile::catalogue::HEAD_LEN as u64).read_to_end(&mut bytes);
    head.map_err(|why| stream_failure(path, TASK, &why))?;
    if Catalogue::read(&bytes).err() == Some(Unreadable::NoNames) {
        return Ok(None);
    }
    bytes.extend(from.read_rest().map_err(|why| task_failure(path, TASK, why))?);
    match Catalogue::read(&bytes) {
        Ok((names, _)) => Ok(Some(names)),
        Err(Unreadable::Version) => {
            let why = "a later version wrote its names";
            Err(Failure::new(Code::Failure, path.display(), why, "read it with that version"))
        }
        Err(_) => {
            let why = "its names are damaged";
            let advice = "read its tasks by number: see 'kakehi multifile split'";
            Err(Failure::new(Code::Damaged, path.display(), why, advice))
        }
    }
}

/// The names in a multifile that has to have some.
pub(crate) fn names_of(reader: &Reader<File>, path: &Path) -> Result<Catalogue, Failure> {
    names(reader, path)?.ok_or_else(|| {
        let why = "it has no names of files";
        let advice = "use 'kakehi multifile split', which numbers its tasks";
        Failure::new(Code::Failure, path.display(), why, advice)
    })
}

/// Every name with its inode, each folder before what is in it.
pub(crate) fn paths_of(names: &Catalogue, path: &Path) -> Result<Vec<(Vec<u8>, u64)>, Failure> {
    names.paths().ok_or_else(|| {
        let why = "its folders are deeper than a path may be long";
        let advice = "move some up under 'kakehi run --coalesce', or see 'kakehi multifile split'";
        Failure::new(Code::Failure, path.display(), why, advice)
    })
}

/// A name of each task that has a file's data; of several the first.
pub(crate) fn by_task(names: &Catalogue, paths: &[(Vec<u8>, u64)]) -> HashMap<u64, Vec<u8>> {
    let mut found = HashMap::new();
    for (path, inode) in paths {
        if let Some(task) = names.node(*inode).and_then(|node| node.task) {
            found.entry(task).or_insert_with(|| path.clone());
        }
    }
    found
}

/// The names of what has no data.
pub(crate) fn without_task(names: &Catalogue, paths: &[(Vec<u8>, u64)]) -> Vec<Vec<u8>> {
    let has_none = |inode: u64| names.node(inode).is_some_and(|node| node.task.is_none());
    let paths = paths.iter().filter(|(_, inode)| has_none(*inode));
    paths.map(|(path, _)| path.clone()).collect()
}
