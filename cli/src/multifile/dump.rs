//! `kakehi multifile dump`: everything the tables of a multifile say.

use std::{collections::BTreeMap, fmt::Write as _, fs::File, path::PathBuf};

use multifile::{
    Reader,
    codec::Order,
    header::{Header, Keyval},
    storage::File as _,
};
use serde::Serialize;

use super::{check_readable, check_records, failure, file_failure, open, records};
use crate::{failure::Failure, output, report};

/// Shows headers, places, and the length of every block; with --keys also what is under each key.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The multifile, or the first file of a set.
    file: PathBuf,
    /// Reads the key-value records too.
    #[arg(long)]
    keys: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Dump {
    file: String,
    physical_files: Vec<Physical>,
    tasks: Vec<Task>,
}

/// One physical file.
#[derive(Serialize)]
struct Physical {
    number: u32,
    name: String,
    format_version: u32,
    library_version: String,
    byte_order: &'static str,
    data_byte_order: &'static str,
    fs_block_bytes: u32,
    tasks: u32,
    files_in_set: u32,
    key_value: String,
    checksums: bool,
    data_at: u64,
    block_bytes: u64,
    blocks: u32,
    table_at: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Task {
    task: usize,
    physical_file: u32,
    local_rank: u32,
    global_rank: i64,
    chunk_bytes: u64,
    /// `None` if the block lengths do not fit the chunk, so that nothing can be read.
    bytes: Option<u64>,
    /// `None` of a length that is negative, as only in a damaged table.
    block_bytes: Vec<Option<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<Vec<Key>>,
}

#[derive(Serialize)]
struct Key {
    key: u64,
    records: usize,
    bytes: u64,
}

pub(crate) fn dump(args: &Args) -> Result<(), Failure> {
    let reader = open(&args.file)?;
    if args.keys {
        check_records(&reader, &args.file, "--keys")?;
    }
    let files = (0..reader.file_count()).filter_map(|index| physical(&reader, index));
    let files = files.collect::<std::io::Result<_>>();
    let tasks = (0..reader.task_count()).map(|index| task(args, &reader, index));
    let dump = Dump {
        file: args.file.display().to_string(),
        physical_files: files.map_err(|why| file_failure(&args.file, &why))?,
        tasks: tasks.collect::<Result<_, _>>()?,
    };
    output::show(args.json, &dump, || text(&dump))?;
    let damaged = dump.tasks.iter().filter(|task| task.bytes.is_none()).map(|task| task.task);
    check_readable(&reader, &args.file, damaged)
}

fn physical(reader: &Reader<File>, index: usize) -> Option<std::io::Result<Physical>> {
    let (header, layout) = (reader.header(index)?, reader.layout(index)?);
    let (table, file) = (reader.table(index)?, reader.file(index)?);
    Some(file.size().map(|bytes| Physical {
        number: number(header),
        name: String::from_utf8_lossy(&header.prefix).into_owned(),
        format_version: header.version,
        library_version: library_version(header),
        byte_order: order_name(header.order),
        data_byte_order: order_name(header.data_order),
        fs_block_bytes: header.fs_block_len,
        tasks: header.task_count,
        files_in_set: header.file_count,
        key_value: match header.keyval {
            Keyval::None => "none".to_owned(),
            Keyval::Inline => "inline".to_owned(),
            Keyval::Other(mode) => mode.to_string(),
        },
        checksums: reader.has_checksums(),
        data_at: layout.data_at(),
        block_bytes: layout.skip(),
        blocks: table.block_count,
        table_at: table.at,
        bytes,
    }))
}

fn task(args: &Args, reader: &Reader<File>, index: usize) -> Result<Task, Failure> {
    let found = reader.task(index).map_err(|why| failure(&args.file, why))?;
    let lens = reader.block_lens(index).map_err(|why| failure(&args.file, why))?;
    let header = usize::try_from(found.file).ok().and_then(|file| reader.header(file));
    Ok(Task {
        task: index,
        physical_file: header.map_or(found.file, number),
        local_rank: found.local_rank,
        global_rank: found.global_rank,
        chunk_bytes: found.chunk_len,
        bytes: reader.stream(index).ok().map(|stream| stream.cursor().total()),
        block_bytes: lens.iter().map(|len| i64::try_from(*len).ok().map(|_| *len)).collect(),
        keys: if args.keys { Some(keys(args, reader, index)?) } else { None },
    })
}

fn keys(args: &Args, reader: &Reader<File>, index: usize) -> Result<Vec<Key>, Failure> {
    let records = records(reader, &args.file, index)?;
    let mut keys: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
    for record in records.records() {
        let (count, bytes) = keys.entry(record.key).or_default();
        (*count, *bytes) = (*count + 1, *bytes + record.len);
    }
    Ok(keys.into_iter().map(|(key, (records, bytes))| Key { key, records, bytes }).collect())
}

/// A physical file's number in its set, from 0. A file that stands alone may say 1.
const fn number(header: &Header) -> u32 {
    if header.file_count == 1 { 0 } else { header.file_number }
}

/// The library that wrote the file, as its releases are called.
pub(crate) fn library_version(header: &Header) -> String {
    let (version, patch) = (header.library_version, header.library_patch);
    format!("{}.{}p{patch}", version / 1000, version % 1000)
}

/// A byte order in a word.
pub(crate) const fn order_name(order: Order) -> &'static str {
    match order {
        Order::Little => "little",
        Order::Big => "big",
    }
}

fn or_damaged(len: Option<u64>) -> String {
    len.map_or_else(|| "damaged".to_owned(), |len| len.to_string())
}

fn text(dump: &Dump) -> String {
    let mut text = String::new();
    for file in &dump.physical_files {
        let Physical { number, name, format_version, library_version, .. } = file;
        // Writing to a string cannot fail.
        writeln!(text, "physical file {number} of {}: {name}", file.files_in_set).ok();
        writeln!(text, "  format {format_version}, library {library_version}").ok();
        writeln!(text, "  byte order {}, of data {}", file.byte_order, file.data_byte_order).ok();
        let tasks = report::count(file.tasks, "task", "s");
        writeln!(text, "  {tasks}, {}", report::count(file.blocks, "block", "s")).ok();
        writeln!(
            text,
            "  data at {}, blocks of {} bytes, table at {}, {} bytes in all",
            file.data_at, file.block_bytes, file.table_at, file.bytes
        )
        .ok();
        let checksums = if file.checksums { "yes" } else { "no" };
        let fs_block_bytes = file.fs_block_bytes;
        writeln!(
            text,
            "  file-system blocks of {fs_block_bytes} bytes, key-value {}, checksums {checksums}",
            file.key_value
        )
        .ok();
    }
    for task in &dump.tasks {
        let Task { task: index, physical_file, local_rank, global_rank, .. } = task;
        let lens: Vec<_> = task.block_bytes.iter().map(|len| or_damaged(*len)).collect();
        writeln!(
            text,
            "task {index}: file {physical_file}, local rank {local_rank}, global rank \
             {global_rank}, chunk {}, bytes {} = {}",
            task.chunk_bytes,
            or_damaged(task.bytes),
            lens.join(" + ")
        )
        .ok();
        for Key { key, records, bytes } in task.keys.iter().flatten() {
            writeln!(text, "  key {key}: {records} records, {bytes} bytes").ok();
        }
    }
    text
}
