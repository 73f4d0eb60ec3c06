//! `kakehi multifile defrag`: the same streams, one chunk each; and how a multifile is made from
//! streams whose lengths are known, which `join` needs too.

use std::{
    fs::File,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use multifile::{Disk, NewTask, Options, Reader, Writer};
use serde_json::json;

use super::{
    beside::Beside,
    copy::{Target, in_parallel},
    damage, failure, inputs,
    names::{judge, names},
    open,
    progress::Progress,
    stream, stream_failure, total_len,
};
use crate::{failure::Failure, output, report, size::Size};

/// Bytes that one thread copies at a time, so that one long stream has several.
const PIECE_LEN: u64 = 64 << 20;

/// Room for more names behind those of a coalesced multifile, which takes no space: their next
/// block would be behind all data, and the one after that as far again.
pub(super) const NAMES_ROOM: u64 = 1 << 20;

/// Rewrites a multifile with one chunk a task, exactly as long as the task's data.
///
/// Of a coalesced multifile the names have room for more; new files get another physical file.
///
/// Tasks keep their order and ranks, streams their bytes; a set may get another number of files.
/// Data that differs from its checksums, and damaged names, are refused: exit status 4.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The multifile, or the first file of a set.
    file: PathBuf,
    /// The multifile to make.
    output: PathBuf,
    #[command(flatten)]
    shape: Shape,
    /// Replaces an existing output.
    #[arg(long)]
    force: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// Parameters of a new multifile.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// File-system block size that chunks are aligned to, like 4KiB; 1 packs them.
    /// Default: the input's, or the file system's.
    #[arg(long, value_name = "SIZE")]
    pub(crate) fs_block: Option<Size>,
    /// Physical files to spread the tasks over.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) files: u32,
}

impl Shape {
    /// Physical files that so many tasks get: none is empty.
    pub(crate) fn file_count(self, tasks: usize) -> usize {
        tasks.clamp(1, self.files as usize)
    }

    /// The options for a multifile of this shape that will be called `path`.
    pub(crate) fn options(self, path: &Path) -> Result<Options, Failure> {
        let fs_block_len = self.fs_block.map(|Size(len)| {
            let len = u32::try_from(len).ok().filter(|len| (1..1 << 31).contains(len));
            let why = "a file-system block has 1 byte at least and less than 2GiB";
            len.ok_or_else(|| Failure::usage("--fs-block", why, "name another size"))
        });
        Ok(Options {
            fs_block_len: fs_block_len.transpose()?,
            journal: false,
            name: Some(path.as_os_str().as_bytes().to_vec()),
            ..Options::default()
        })
    }
}

pub(crate) fn defrag(args: &Args) -> Result<(), Failure> {
    let reader = open(&args.file)?;
    defragment(&reader, &args.file, &args.output, args.shape, args.force)?;
    told(args.json, &args.output, args.shape, reader.task_count(), total_len(&reader))
}

/// Says what was made.
pub(super) fn told(
    as_json: bool,
    output: &Path,
    shape: Shape,
    tasks: usize,
    bytes: u64,
) -> Result<(), Failure> {
    let (name, files) = (output.display().to_string(), shape.file_count(tasks));
    let document = json!({"file": name, "physical_files": files, "tasks": tasks, "bytes": bytes});
    output::show(as_json, &document, || {
        format!("{name}: {}, {}\n", report::count(tasks, "task", "s"), Size(bytes).approximate())
    })
}

/// Makes the multifile `output` of the streams of `reader`, which was opened at `path`.
pub(crate) fn defragment(
    reader: &Reader<File>,
    path: &Path,
    output: &Path,
    shape: Shape,
    replace: bool,
) -> Result<(), Failure> {
    let header = reader.header(0);
    let mut options = shape.options(output)?;
    options.fs_block_len = options.fs_block_len.or(header.map(|header| header.fs_block_len));
    options.keyval = reader.has_records();
    // Records have it too, and are copied as they are.
    options.order = header.map_or(options.order, |header| header.order);
    options.data_order = header.map_or(options.data_order, |header| header.data_order);
    options.checksums = reader.has_checksums();
    let lens: Vec<u64> =
        (0..reader.task_count()).map(|task| super::stream_len(reader, task)).collect();
    let mut tasks = NewTask::in_files(&lens, shape.files);
    for (index, task) in tasks.iter_mut().enumerate() {
        task.global_rank = reader.task(index).map_err(|why| failure(path, why))?.global_rank;
    }
    if tasks.iter().any(|task| task.file > 0) && tasks.iter().any(|task| task.global_rank < 0) {
        let why = "a task has a negative rank, which nobody finds in several files";
        return Err(Failure::usage(path.display(), why, "leave out --files"));
    }
    let names = if reader.task_count() > 0 { names(reader, path) } else { Ok(None) };
    // Names that make no sense are copied as they are.
    if let Some(task) = tasks.first_mut().filter(|_| !matches!(names, Ok(None))) {
        task.chunk_len += NAMES_ROOM;
    }
    let source = Streams {
        open: &|task, at| {
            let mut stream = stream(reader, path, task)?;
            stream.seek(at).map_err(|why| failure(path, why))?;
            Ok(Box::new(stream))
        },
        failed: &|task, why| stream_failure(path, task, why),
    };
    let (beside, name) = Beside::for_file(output, replace, inputs(reader))?;
    (0..shape.files).try_for_each(|file| {
        let member = multifile::name::physical(Path::new(&name), file);
        beside.check(member.as_os_str())
    })?;
    damage::refuse(reader, path)?;
    names.ok().flatten().map_or(Ok(()), |names| judge(&names, path))?;
    let made = beside.path(&name);
    assemble("defrag", &made, &tasks, &lens, &options, &source).map_err(|why| beside.told(why))?;
    beside.publish()
}

/// Opens the stream of a task at a position.
pub(crate) type Open<'a> = dyn Fn(usize, u64) -> Result<Box<dyn io::Read>, Failure> + Sync + 'a;

/// Where the streams of a new multifile come from.
pub(crate) struct Streams<'a> {
    pub(crate) open: &'a Open<'a>,
    /// Turns an error of reading a task into a failure.
    pub(crate) failed: &'a (dyn Fn(usize, &io::Error) -> Failure + Sync + 'a),
}

/// Makes the multifile at `path`, each task one chunk with a stream of this length.
///
/// # Errors
///
/// When anything fails; what was written so far counts as unclosed.
pub(crate) fn assemble(
    what: &'static str,
    path: &Path,
    tasks: &[NewTask],
    lens: &[u64],
    options: &Options,
    source: &Streams<'_>,
) -> Result<(), Failure> {
    let ours = |why| failure(path, why);
    let mut writer = Writer::create(&Disk::new(), path, tasks, options).map_err(ours)?;
    let mut places = Vec::with_capacity(tasks.len());
    for index in 0..tasks.len() {
        let mut task = writer.task(index).map_err(ours)?;
        places.push((Arc::clone(task.file().map_err(ours)?), task.fill().place().start_at));
    }
    let total = lens.iter().sum();
    let progress = Progress::new(what, total).stop_on_signals()?;
    let whole = lens.iter().zip(&places).enumerate();
    let pieces = whole.flat_map(|(index, (len, place))| {
        let starts = (0..len.div_ceil(PIECE_LEN)).map(|piece| piece * PIECE_LEN);
        starts.map(move |at| (index, at, PIECE_LEN.min(len - at), place))
    });
    in_parallel(pieces, |(task, at, len, (file, start_at))| {
        let mut from = (source.open)(task, at)?;
        let target = Target { file, path, at: start_at + at };
        target.take(&mut from, len, &progress, |why| (source.failed)(task, why))
    })?;
    drop(progress);
    for (index, len) in lens.iter().enumerate() {
        writer.task(index).and_then(|mut out| out.advance(*len)).map_err(ours)?;
    }
    writer.close().map_err(ours)
}
