//! `kakehi multifile cat`: streams as they were written, one after the other.

use std::{
    fs::File,
    io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write},
    path::{Path, PathBuf},
};

use multifile::{Error, Part, Reader, TaskReader};

use serde_json::json;

use super::{
    beside::Beside,
    check_records,
    checked::{Block, Checked},
    damage::{differs, judge},
    file_failure, inputs, open,
    progress::Progress,
    stream, stream_len, task_failure,
};
use crate::{failure::Failure, output};

/// Bytes between two looks at the clock.
const PIECE_LEN: u64 = 16 << 20;

/// Writes the streams of all tasks, or of some, to standard output
///
/// Where there are checksums, they are compared on the way; data that differs is written all the
/// same. Exit status: 0 when all is well; 4 when something is damaged.
///
///     kakehi multifile cat --task 3 ckpt.sion | sha256sum
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The multifile, or the first file of a set.
    file: PathBuf,
    /// Only this task, counted from 0 over the whole set; may be given several times.
    #[arg(long, value_name = "N")]
    task: Vec<usize>,
    /// Only this block of every task, counted from 0.
    #[arg(long, value_name = "N", conflicts_with = "key")]
    block: Option<usize>,
    /// Only what is under this key, without the headers of records.
    #[arg(long, value_name = "KEY")]
    key: Option<u64>,
    /// Writes to a file, which exists only when it is complete.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replaces the file of --output.
    #[arg(long, requires = "output")]
    force: bool,
    /// Prints one JSON document about the file of --output.
    #[arg(long, requires = "output")]
    json: bool,
}

pub(crate) fn cat(args: &Args) -> Result<(), Failure> {
    let reader = open(&args.file)?;
    check(args, &reader)?;
    let Some(path) = &args.output else {
        return match all(args, &reader, &mut io::stdout().lock(), &mut |_| Ok(())) {
            Ok(damaged) => judge(&args.file, &damaged),
            Err(why) => why.unless_left(),
        };
    };
    let (beside, name) = Beside::for_file(path, args.force, inputs(&reader))?;
    let made = File::create_new(beside.path(&name));
    let mut made = made.map_err(|why| file_failure(path, &why))?;
    let tasks = chosen(args, &reader);
    let total = tasks.iter().map(|task| stream_len(&reader, *task)).sum();
    let progress = Progress::new("cat", total).stop_on_signals()?;
    let damaged = all(args, &reader, &mut made, &mut |len| progress.advance(len));
    let damaged = damaged.map_err(|why| why.on(path))?;
    drop(progress);
    let len = made.metadata().map_err(|why| file_failure(path, &why))?.len();
    beside.publish()?;
    if args.json {
        let (file, tasks) = (path.display().to_string(), tasks.len());
        output::print_json(&json!({ "file": file, "tasks": tasks, "bytes": len }))?;
    }
    judge(&args.file, &damaged)
}

/// The tasks asked for.
fn chosen(args: &Args, reader: &Reader<File>) -> Vec<usize> {
    if args.task.is_empty() { (0..reader.task_count()).collect() } else { args.task.clone() }
}

/// Refuses before the first byte is written what can be refused.
fn check(args: &Args, reader: &Reader<File>) -> Result<(), Failure> {
    for task in &args.task {
        reader.task(*task).map_err(|why| task_failure(&args.file, *task, why))?;
    }
    let lacks = |block: usize| {
        let lens = |task| reader.block_lens(task).map_or(0, <[u64]>::len);
        chosen(args, reader).into_iter().all(|task| lens(task) <= block)
    };
    if let Some(block) = args.block.filter(|block| lacks(*block)) {
        let why = format!("no task asked for has a block {block}");
        return Err(Failure::usage(args.file.display(), why, "see 'kakehi multifile dump'"));
    }
    args.key.map_or(Ok(()), |_| check_records(reader, &args.file, "--key"))
}

/// Called with the number of bytes after each piece; what it fails with ends the copy.
pub(crate) type Told<'a> = dyn FnMut(u64) -> Result<(), Failure> + 'a;

/// Writes what was asked for; returns the tasks whose data differs from its checksums.
fn all(
    args: &Args,
    reader: &Reader<File>,
    to: &mut impl Write,
    told: &mut Told<'_>,
) -> Result<Vec<usize>, Stopped> {
    let mut damaged = Vec::new();
    for task in chosen(args, reader) {
        let stream = stream(reader, &args.file, task).map_err(Stopped::Reading)?;
        let sums = sums(reader, task, args.block);
        let sums = sums.map_err(|why| Stopped::Reading(task_failure(&args.file, task, why)))?;
        let is_damaged = match (args.key, sums) {
            (Some(key), _) => {
                copy_key(&args.file, task, key, reader, to)?;
                // Records are not read block by block: what surrounds those of a key counts too.
                differs(reader, &args.file, task).map_err(Stopped::Reading)?
            }
            (None, None) => {
                copy_stream(&args.file, task, stream, args.block, to, told)?;
                false
            }
            (None, Some(sums)) => {
                let mut to = Checked::new(&mut *to, sums);
                copy_stream(&args.file, task, stream, args.block, &mut to, told)?;
                to.differs()
            }
        };
        if is_damaged {
            damaged.push(task);
        }
    }
    to.flush().map_err(Stopped::Writing)?;
    Ok(damaged)
}

/// Returns the expected lengths and checksums of a task's blocks, or of one; `None` in a file
/// without checksums.
fn sums(
    reader: &Reader<File>,
    task: usize,
    block: Option<usize>,
) -> multifile::Result<Option<Vec<Block>>> {
    let lens = reader.block_lens(task)?.iter().enumerate();
    let chosen = lens.filter(|(index, _)| block.is_none_or(|block| block == *index));
    chosen.map(|(index, len)| Ok(reader.checksum(task, index)?.map(|sum| (*len, sum)))).collect()
}

/// Why not everything was written.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The multifile could not be read.
    Reading(Failure),
    /// The output took no more.
    Writing(io::Error),
}

impl Stopped {
    /// The failure; none when the reader of a pipe left early.
    pub(crate) fn unless_left(self) -> Result<(), Failure> {
        match self {
            Self::Writing(why) if why.kind() == ErrorKind::BrokenPipe => Ok(()),
            _ => Err(self.on(Path::new("standard output"))),
        }
    }

    /// The failure, when `path` was written.
    pub(crate) fn on(self, path: &Path) -> Failure {
        match self {
            Self::Reading(failure) => failure,
            Self::Writing(why) => file_failure(path, &why),
        }
    }
}

/// Writes one stream, or one block of it, by the shortest way the kernel has.
pub(crate) fn copy_stream(
    path: &Path,
    task: usize,
    mut stream: TaskReader<File>,
    block: Option<usize>,
    to: &mut impl Write,
    told: &mut Told<'_>,
) -> Result<(), Stopped> {
    let (first, count) = block.map_or((0, stream.cursor().block_lens().len()), |block| (block, 1));
    for block in first..first + count {
        let damaged = |why| Stopped::Reading(task_failure(path, task, why));
        // A task with fewer blocks has nothing in this one.
        if block >= stream.cursor().block_lens().len() {
            continue;
        }
        stream.seek_block(block, 0).map_err(damaged)?;
        let (at, mut left) =
            (stream.cursor().file_at().map_err(damaged)?, stream.cursor().left_in_block());
        let mut file: &File = stream.file();
        let sought = file.seek(SeekFrom::Start(at));
        sought.map_err(|why| Stopped::Reading(file_failure(path, &why)))?;
        while left > 0 {
            let len = left.min(PIECE_LEN);
            if io::copy(&mut file.take(len), to).map_err(Stopped::Writing)? < len {
                let part = Part::Truncated;
                return Err(damaged(Error::Damaged { part, file: stream.file_number() }));
            }
            told(len).map_err(Stopped::Reading)?;
            left -= len;
        }
    }
    Ok(())
}

fn copy_key(
    path: &Path,
    task: usize,
    key: u64,
    reader: &Reader<File>,
    to: &mut impl Write,
) -> Result<(), Stopped> {
    let damaged = |why| Stopped::Reading(task_failure(path, task, why));
    let mut records = reader.records(task).map_err(damaged)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = records.read(key, &mut buffer).map_err(damaged)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(buffer.get(..count).unwrap_or_default()).map_err(Stopped::Writing)?;
    }
}
