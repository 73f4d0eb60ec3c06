//! `kakehi multifile ls`: the tasks of a multifile.

use std::{fmt::Write as _, path::PathBuf};

use serde::Serialize;

use super::{failure, open, stream_len};
use crate::{failure::Failure, output};

/// Lists the tasks: where they are stored, their ranks, and how much they wrote.
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
    bytes: u64,
}

pub(crate) fn list(args: &Args) -> Result<(), Failure> {
    let reader = open(&args.file)?;
    let row = |task| {
        let found = reader.task(task)?;
        Ok(Row {
            task,
            physical_file: found.file,
            local_rank: found.local_rank,
            global_rank: found.global_rank,
            chunk_bytes: found.chunk_len,
            blocks: reader.block_lens(task)?.len(),
            bytes: stream_len(&reader, task),
        })
    };
    let tasks = (0..reader.task_count()).map(row).collect::<multifile::Result<_>>();
    let listing = Listing {
        file: args.file.display().to_string(),
        physical_files: reader.file_count(),
        tasks: tasks.map_err(|why| failure(&args.file, why))?,
    };
    if args.json { output::print_json(&listing) } else { output::print(&text(&listing)) }
}

fn text(listing: &Listing) -> String {
    let mut text =
        "   TASK   FILE  LOCAL    GLOBAL  BLOCKS         CHUNK         BYTES\n".to_owned();
    for row in &listing.tasks {
        let Row { task, physical_file, local_rank, global_rank, chunk_bytes, blocks, bytes } = row;
        // Writing to a string cannot fail.
        writeln!(
            text,
            "{task:7} {physical_file:6} {local_rank:6} {global_rank:9} {blocks:7} \
             {chunk_bytes:13} {bytes:13}"
        )
        .ok();
    }
    text
}
