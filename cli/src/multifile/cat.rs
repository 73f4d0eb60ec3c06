//! `kakehi multifile cat`: streams as they were written, one after the other.

use std::{
    fs::File,
    io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write},
    path::{Path, PathBuf},
};

use multifile::{Error, Part, Reader, TaskReader, codec::Order, header::Keyval, keyval::Records};

use super::{beside::Beside, file_failure, inputs, open, stream, task_failure};
use crate::failure::Failure;

/// Writes the streams of all tasks, or of some, to standard output.
///
///     kakehi multifile cat --task 3 ckpt.sion | sha256sum
#[derive(clap::Args, Debug)]
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
}

pub(crate) fn cat(args: &Args) -> Result<(), Failure> {
    let reader = open(&args.file)?;
    check(args, &reader)?;
    let Some(path) = &args.output else {
        return all(args, &reader, &mut io::stdout().lock()).or_else(|why| why.unless_left());
    };
    let (beside, name) = Beside::for_file(path, args.force, inputs(&reader))?;
    let made = File::create_new(beside.path(&name));
    let mut made = made.map_err(|why| file_failure(path, &why))?;
    all(args, &reader, &mut made).map_err(|why| why.on(path))?;
    beside.publish()
}

/// Refuses before the first byte is written what can be refused.
fn check(args: &Args, reader: &Reader<File>) -> Result<(), Failure> {
    for task in &args.task {
        reader.task(*task).map_err(|why| task_failure(&args.file, *task, why))?;
    }
    let keyval = reader.header(0).is_some_and(|header| header.keyval == Keyval::Inline);
    if args.key.is_some() && !keyval {
        let why = "its streams hold no key-value records";
        return Err(Failure::usage(args.file.display(), why, "leave out --key"));
    }
    Ok(())
}

fn all(args: &Args, reader: &Reader<File>, to: &mut impl Write) -> Result<(), Stopped> {
    let every: Vec<usize> = (0..reader.task_count()).collect();
    let tasks = if args.task.is_empty() { &every } else { &args.task };
    for task in tasks {
        let stream = stream(reader, &args.file, *task).map_err(Stopped::Reading)?;
        match (args.key, args.block) {
            (Some(key), _) => copy_key(&args.file, (*task, key), reader, stream, to)?,
            (None, block) => copy_stream(&args.file, *task, stream, block, to)?,
        }
    }
    to.flush().map_err(Stopped::Writing)
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
) -> Result<(), Stopped> {
    let (first, count) = block.map_or((0, stream.cursor().block_lens().len()), |block| (block, 1));
    for block in first..first + count {
        let damaged = |why| Stopped::Reading(task_failure(path, task, why));
        // A task with fewer blocks has nothing in this one.
        if block >= stream.cursor().block_lens().len() {
            continue;
        }
        stream.seek_block(block, 0).map_err(damaged)?;
        let (at, len) =
            (stream.cursor().file_at().map_err(damaged)?, stream.cursor().left_in_block());
        let mut file: &File = stream.file();
        let from = file.seek(SeekFrom::Start(at)).map(|_| file.take(len));
        let from = from.map_err(|why| Stopped::Reading(file_failure(path, &why)));
        if io::copy(&mut from?, to).map_err(Stopped::Writing)? < len {
            let part = Part::Truncated;
            return Err(damaged(Error::Damaged { part, file: stream.file_number() }));
        }
    }
    Ok(())
}

fn copy_key(
    path: &Path,
    (task, key): (usize, u64),
    reader: &Reader<File>,
    stream: TaskReader<File>,
    to: &mut impl Write,
) -> Result<(), Stopped> {
    let damaged = |why| Stopped::Reading(task_failure(path, task, why));
    let order = reader.header(0).map_or(Order::NATIVE, |header| header.order);
    let mut records = Records::scan(stream, order).map_err(damaged)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = records.read(key, &mut buffer).map_err(damaged)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(buffer.get(..count).unwrap_or_default()).map_err(Stopped::Writing)?;
    }
}
