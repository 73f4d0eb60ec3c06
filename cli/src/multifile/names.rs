//! The names of files that are kept in a multifile (`--coalesce`), if it has any.

use std::{collections::HashMap, fs::File, os::unix::fs::FileExt as _, path::Path};

use multifile::{
    Reader,
    catalogue::{Catalogue, Reading, TASK, Unreadable},
};

use super::{file_failure, stream, stream_len, task_failure};
use crate::failure::{Code, Failure};

/// The names in a multifile, as far as they are whole; `None`: it has none, as one that SIONlib
/// wrote.
pub(crate) fn names(reader: &Reader<File>, path: &Path) -> Result<Option<Reading>, Failure> {
    if reader.task_count() == 0 {
        return Ok(None);
    }
    let read = stream(reader, path, TASK)?.read_names();
    match read.map_err(|why| task_failure(path, TASK, why))? {
        Ok(names) => Ok(Some(names)),
        Err(Unreadable::NoNames) => Ok(None),
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
pub(crate) fn names_of(reader: &Reader<File>, path: &Path) -> Result<Reading, Failure> {
    names(reader, path)?.ok_or_else(|| {
        let why = "it has no names of files";
        let advice = "use 'kakehi multifile split', which numbers its tasks";
        Failure::new(Code::Failure, path.display(), why, advice)
    })
}

/// Says that some of the names in a multifile are lost, if they are.
pub(crate) fn judge(names: &Reading, path: &Path) -> Result<(), Failure> {
    if !names.is_damaged(true) {
        return Ok(());
    }
    let why = format!("its names are damaged at byte {} of task {TASK}: some are lost", names.len);
    let advice = "see 'kakehi multifile repair --dry-run'";
    Err(Failure::new(Code::Damaged, path.display(), why, advice))
}

/// True if a multifile has names, and they are damaged.
pub(crate) fn are_damaged(reader: &Reader<File>, path: &Path) -> bool {
    match names(reader, path) {
        Ok(names) => names.is_some_and(|names| names.is_damaged(true)),
        Err(why) => why.code == Code::Damaged,
    }
}

/// Rewrites the names of a multifile where they are, without those that are lost; returns the tasks
/// whose data has no name then, or `None` if that is impossible.
pub(crate) fn rewrite(reader: &Reader<File>, path: &Path) -> Result<Option<Vec<usize>>, Failure> {
    let Some(Reading { catalogue, .. }) = names(reader, path)? else { return Ok(None) };
    let (mut bytes, len) = (catalogue.write_short(), stream_len(reader, TASK));
    if bytes.len() as u64 > len || reader.has_checksums() {
        return Ok(None);
    }
    bytes.resize(usize::try_from(len).unwrap_or(0), 0);
    let file = File::options().write(true).open(path).map_err(|why| file_failure(path, &why))?;
    let (mut stream, mut rest) = (stream(reader, path, TASK)?, &bytes[..]);
    for (block, len) in stream.cursor().block_lens().to_vec().into_iter().enumerate() {
        let at = stream.seek_block(block, 0).and_then(|()| stream.cursor().file_at());
        let at = at.map_err(|why| task_failure(path, TASK, why))?;
        let (part, more) = rest.split_at(usize::try_from(len).unwrap_or(0).min(rest.len()));
        file.write_all_at(part, at).map_err(|why| file_failure(path, &why))?;
        rest = more;
    }
    let named = by_task(&catalogue, &paths_of(&catalogue, path)?);
    let is_nameless =
        |task: &usize| !named.contains_key(&(*task as u64)) && stream_len(reader, *task) > 0;
    Ok(Some((TASK + 1..reader.task_count()).filter(is_nameless).collect()))
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
