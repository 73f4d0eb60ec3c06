//! `kakehi multifile join`: plain files as the streams of a new multifile.

use std::{
    borrow::Cow,
    ffi::OsStr,
    fs::{File, Metadata},
    io::{self, Cursor, Read as _, Seek as _, SeekFrom},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use multifile::{NewTask, codec::Order, keyval::Records};

use super::{
    beside::Beside,
    copy::input_failure,
    defrag::{NAMES_ROOM, Shape, Streams, assemble, told},
    file_failure, naming, open, stream,
};
use crate::failure::{Code, Failure};

const HOW_TO_LIST: &str = "write one file's name on each line, or end each with a zero byte";
/// Bytes of a strange name that are shown.
const SHOWN_MAX: usize = 40;

/// Makes a multifile of plain files, one task each, in the order they are named
///
///   kakehi multifile join ckpt.sion ckpt.?????
///   find ckpt -type f -print0 | sort -z | kakehi multifile join ckpt.sion --from -
///   kakehi multifile join ckpt.sion --names=ckpt ckpt/*
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The multifile to make.
    output: PathBuf,
    /// The files, one for each task.
    #[arg(required_unless_present = "from", value_name = "FILE")]
    inputs: Vec<PathBuf>,
    /// Takes the names of the files from FILE, or from standard input if that is '-': more than a
    /// command line holds. A zero byte ends each, as 'find -print0' and 'sort -z' write them; in a
    /// list without a zero byte the end of its line does.
    #[arg(long, value_name = "FILE", conflicts_with = "inputs")]
    from: Option<PathBuf>,
    /// Keeps the names that the files have below DIR, this folder if none is given: 'extract'
    /// brings the files back under them. The first task then holds the names.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = ".", conflicts_with = "key_value")]
    names: Option<PathBuf>,
    #[command(flatten)]
    shape: Shape,
    /// The files hold key-value records.
    #[arg(long)]
    key_value: bool,
    /// Stores a checksum of every block, which SIONlib ignores.
    #[arg(long)]
    checksums: bool,
    /// Replaces an existing output.
    #[arg(long)]
    force: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

pub(crate) fn join(args: &Args) -> Result<(), Failure> {
    let mut options = args.shape.options(&args.output)?;
    (options.keyval, options.checksums) = (args.key_value, args.checksums);
    let inputs = match &args.from {
        Some(list) => Cow::Owned(names_in(list)?),
        None => Cow::Borrowed(&*args.inputs),
    };
    let found = (1..).zip(inputs.iter()).map(|(number, path)| {
        plain_file(path).map_err(|why| match &args.from {
            Some(list) if !is_text(path) => not_a_name(list, number, path),
            _ => why,
        })
    });
    let found = found.collect::<Result<Vec<Metadata>, _>>()?;
    let names = args.names.as_deref().map(|folder| {
        let files = inputs.iter().map(PathBuf::as_path).zip(&found);
        naming::catalogue(folder, files).map(|names| names.write())
    });
    let names = names.transpose()?;
    let names_len = names.iter().map(|names| names.len() as u64);
    let lens: Vec<u64> = names_len.chain(found.iter().map(Metadata::len)).collect();
    let mut tasks = NewTask::in_files(&lens, args.shape.files);
    if let Some(task) = tasks.first_mut().filter(|_| names.is_some()) {
        task.chunk_len += NAMES_ROOM;
    }
    let (beside, name) = Beside::for_file(&args.output, args.force, found)?;
    let first = usize::from(names.is_some());
    let input = |task: usize| {
        let input = task.checked_sub(first).and_then(|file| inputs.get(file));
        input.map_or(args.output.as_path(), PathBuf::as_path)
    };
    let source = Streams {
        open: &|task, at| {
            if let (Some(names), 0) = (&names, task) {
                let rest = names.get(usize::try_from(at).unwrap_or(usize::MAX)..);
                return Ok(Box::new(Cursor::new(rest.unwrap_or_default().to_vec())));
            }
            let path = input(task);
            let positioned =
                File::open(path).and_then(|mut file| file.seek(SeekFrom::Start(at)).map(|_| file));
            Ok(Box::new(positioned.map_err(|why| file_failure(path, &why))?))
        },
        failed: &|task, why| input_failure(input(task), why),
    };
    let made = beside.path(&name);
    assemble("join", &made, &tasks, &lens, &options, &source).map_err(|why| beside.told(why))?;
    if args.key_value {
        check_records(&made, input)?;
    }
    beside.publish()?;
    told(args.json, &args.output, args.shape, tasks.len(), lens.iter().sum())
}

fn names_in(list: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut bytes = Vec::new();
    let read = match list.as_os_str().as_bytes() {
        b"-" => io::stdin().lock().read_to_end(&mut bytes),
        _ => File::open(list).and_then(|mut file| file.read_to_end(&mut bytes)),
    };
    read.map_err(|why| file_failure(list, &why))?;
    let end = if bytes.contains(&0) { 0 } else { b'\n' };
    let names = bytes.split(|byte| *byte == end).filter(|name| !name.is_empty());
    let names: Vec<PathBuf> = names.map(|name| OsStr::from_bytes(name).into()).collect();
    if names.is_empty() {
        return Err(Failure::usage(list.display(), "it names no file", HOW_TO_LIST));
    }
    Ok(names)
}

/// True if a name can be shown as it is.
fn is_text(path: &Path) -> bool {
    path.to_str().is_some_and(|name| !name.contains(char::is_control))
}

/// Says that a list holds something else, of which a line shows enough.
fn not_a_name(list: &Path, number: usize, path: &Path) -> Failure {
    let bytes = path.as_os_str().as_bytes();
    let shown = bytes.get(..SHOWN_MAX).unwrap_or(bytes);
    let rest = if shown.len() < bytes.len() { "..." } else { "" };
    let why = format!("name {number} in it is no file's: '{}'{rest}", shown.escape_ascii());
    Failure::usage(list.display(), why, HOW_TO_LIST)
}

fn plain_file(path: &Path) -> Result<Metadata, Failure> {
    let found = path.metadata().map_err(|why| file_failure(path, &why))?;
    if !found.is_file() {
        return Err(Failure::usage(path.display(), "it is no plain file", "name plain files"));
    }
    Ok(found)
}

/// Refuses streams that are no records: nobody could read them.
fn check_records<'a>(made: &Path, input: impl Fn(usize) -> &'a Path) -> Result<(), Failure> {
    let reader = open(made)?;
    for task in 0..reader.task_count() {
        Records::scan(stream(&reader, made, task)?, Order::NATIVE).map_err(|why| {
            Failure::new(Code::Damaged, input(task).display(), why, "leave out --key-value")
        })?;
    }
    Ok(())
}
