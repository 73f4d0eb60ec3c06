//! `kakehi multifile ls`: the tasks of a multifile.

use std::{fmt::Write as _, path::PathBuf};

use serde::Serialize;

use multifile::catalogue::TASK;

use super::{
    check_readable, failure,
    names::{by_task, judge, names, paths_of, without_task},
    open,
};
use crate::{failure::Failure, output};

/// Lists the tasks: where they are stored, their ranks, how much they wrote, and the names of
/// files, if it has any; then without the tasks that have none.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The multifile, or the first file of a set.
    file: PathBuf,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listing {
    file: String,
    physical_files: usize,
    tasks: Vec<Row>,
    /// Of files, folders, and links that have no task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names_without_data: Vec<String>,
}

/// One task.
#[derive(Serialize)]
struct Row {
    task: usize,
    physical_file: u32,
    local_rank: u32,
    global_rank: i64,
    chunk_bytes: u64,
    blocks: usize,
    /// `None` if the block lengths do not fit the chunk, so that nothing can be read.
    bytes: Option<u64>,
    /// Of the file whose data this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

pub(crate) fn list(args: &Args) -> Result<(), Failure> {
    let reader = open(&args.file)?;
    // A first stream that cannot be read holds no names; its row says that it is damaged.
    let is_readable = reader.stream(TASK).is_ok();
    let read = if is_readable { names(&reader, &args.file)? } else { None };
    let names = read.as_ref().map(|read| &read.catalogue);
    let paths = names.map(|names| paths_of(names, &args.file)).transpose()?;
    let named = names.zip(paths.as_deref());
    let without_data = named.map_or_else(Vec::new, |(names, paths)| without_task(names, paths));
    let names = named.map(|(names, paths)| by_task(names, paths));
    let row = |task| {
        let found = reader.task(task)?;
        let name = names.as_ref().and_then(|names| names.get(&(task as u64)));
        Ok(Row {
            name: name.map(|name| text_of(name)),
            task,
            physical_file: found.file,
            local_rank: found.local_rank,
            global_rank: found.global_rank,
            chunk_bytes: found.chunk_len,
            blocks: reader.block_lens(task)?.len(),
            bytes: reader.stream(task).ok().map(|stream| stream.cursor().total()),
        })
    };
    let is_listed = |task: &usize| match &names {
        Some(names) => *task == TASK || names.contains_key(&(*task as u64)),
        None => true,
    };
    let tasks = (0..reader.task_count()).filter(is_listed);
    let tasks = tasks.map(row).collect::<multifile::Result<_>>();
    let listing = Listing {
        file: args.file.display().to_string(),
        physical_files: reader.file_count(),
        tasks: tasks.map_err(|why| failure(&args.file, why))?,
        names_without_data: without_data.iter().map(|name| text_of(name)).collect(),
    };
    output::show(args.json, &listing, || text(&listing))?;
    let damaged = listing.tasks.iter().filter(|row| row.bytes.is_none()).map(|row| row.task);
    check_readable(&reader, &args.file, damaged)?;
    read.map_or(Ok(()), |names| judge(&names, &args.file))
}

fn text(listing: &Listing) -> String {
    let mut text =
        "   TASK   FILE  LOCAL    GLOBAL  BLOCKS         CHUNK         BYTES\n".to_owned();
    for row in &listing.tasks {
        let Row { task, physical_file, local_rank, global_rank, chunk_bytes, blocks, .. } = row;
        let bytes = row.bytes.map_or_else(|| "damaged".to_owned(), |bytes| bytes.to_string());
        let name = row.name.as_deref();
        let name = name.map_or_else(String::new, |name| format!("  {name}"));
        // Writing to a string cannot fail.
        writeln!(
            text,
            "{task:7} {physical_file:6} {local_rank:6} {global_rank:9} {blocks:7} \
             {chunk_bytes:13} {bytes:>13}{name}"
        )
        .ok();
    }
    for name in &listing.names_without_data {
        writeln!(
            text,
            "{:>7} {:>6} {:>6} {:>9} {:>7} {:>13} {:13}  {name}",
            "-", "-", "-", "-", "-", "-", 0
        )
        .ok();
    }
    text
}

/// A name that can be shown.
fn text_of(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(name) if !name.contains(char::is_control) => name.to_owned(),
        _ => name.escape_ascii().to_string(),
    }
}
