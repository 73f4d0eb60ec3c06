//! `kakehi multifile split`: every stream in a file of its own.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs::File,
    io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use multifile::{Reader, codec::signed, keyval::Records};
use serde_json::json;

use super::{
    beside::Beside,
    check_records,
    copy::{Target, in_parallel},
    damage::{differs, judge},
    failure, file_failure, inputs, open,
    progress::Progress,
    records, stream, stream_failure, total_len,
};
use crate::{
    failure::{Code, Failure},
    output, report,
    size::Size,
};

/// Writes the stream of every task to a file of its own: PREFIX and the task's number.
///
/// The files appear when all of them are complete and durable. Where there are checksums, they are
/// compared; data that differs is written all the same. Exit status: 0 when all is well; 4 when
/// something is damaged.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The multifile, or the first file of a set.
    file: PathBuf,
    /// Prefix of the names; may name a folder.
    prefix: OsString,
    #[command(flatten)]
    naming: Naming,
    /// Replaces files that exist.
    #[arg(long)]
    force: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// How files are named, and what is one.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Naming {
    /// Digits of the number.
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=20))]
    pub(crate) digits: u8,
    /// Numbers by global rank, not by task.
    #[arg(long)]
    pub(crate) global_rank: bool,
    /// One file for every task and key, '_' and the key behind the number.
    #[arg(long)]
    pub(crate) keys: bool,
}

pub(crate) fn split(args: &Args) -> Result<(), Failure> {
    let reader = open(&args.file)?;
    if args.naming.keys {
        check_records(&reader, &args.file, "--keys")?;
    }
    let split = Split { path: &args.file, reader, naming: args.naming };
    let Written { files, damaged } = split.run(&args.prefix, args.force)?;
    let files = files.len();
    let (tasks, bytes) = (split.reader.task_count(), total_len(&split.reader));
    let file = args.file.display().to_string();
    let document = json!({"file": file, "tasks": tasks, "files_written": files, "bytes": bytes});
    output::show(args.json, &document, || {
        let (tasks, bytes) = (report::count(tasks, "task", "s"), Size(bytes).approximate());
        format!("{file}: {tasks}, {bytes}, in {}\n", report::count(files, "file", "s"))
    })?;
    judge(&args.file, &damaged)
}

/// Files written, in the order of tasks.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Of which task a file is, and its name behind the folder of the prefix.
    pub(crate) files: Vec<(usize, OsString)>,
    /// The tasks whose data differs from its checksums.
    pub(crate) damaged: Vec<usize>,
}

/// A multifile being split.
pub(crate) struct Split<'a> {
    pub(crate) path: &'a Path,
    pub(crate) reader: Reader<File>,
    pub(crate) naming: Naming,
}

impl Split<'_> {
    /// Writes all files, those of damaged tasks as well.
    ///
    /// # Errors
    ///
    /// When anything fails: then there are none.
    pub(crate) fn run(&self, prefix: &OsString, replace: bool) -> Result<Written, Failure> {
        let (parent, base) = parts(prefix);
        let beside = Beside::create(&parent, replace, inputs(&self.reader))?;
        let numbers = self.numbers()?;
        let progress = Progress::new("split", total_len(&self.reader)).stop_on_signals()?;
        let tasks = in_parallel(numbers.iter().enumerate(), |(task, number)| {
            let mut name = base.clone();
            name.push(format!("{number:0width$}", width = usize::from(self.naming.digits)));
            let names = if self.naming.keys {
                self.keys(&beside, task, &name, &progress)?
            } else {
                let from = stream(&self.reader, self.path, task)?;
                let len = from.cursor().total();
                self.one(&beside, &name, Stream { task, from, len }, &progress)?;
                vec![name]
            };
            Ok((task, names, differs(&self.reader, self.path, task)?))
        });
        let mut tasks = tasks.map_err(|why| beside.told(why))?;
        beside.publish()?;
        tasks.sort_by_key(|(task, ..)| *task);
        let mut written = Written::default();
        for (task, names, is_damaged) in tasks {
            written.files.extend(names.into_iter().map(|name| (task, name)));
            written.damaged.extend(is_damaged.then_some(task));
        }
        Ok(written)
    }

    /// The number in every task's name.
    fn numbers(&self) -> Result<Vec<i64>, Failure> {
        let number = |task| {
            let rank = self.reader.task(task).map_err(|why| failure(self.path, why))?.global_rank;
            Ok(if self.naming.global_rank { rank } else { i64::try_from(task).unwrap_or(i64::MAX) })
        };
        let numbers: Vec<i64> =
            (0..self.reader.task_count()).map(number).collect::<Result<_, Failure>>()?;
        let mut seen = HashSet::new();
        if let Some(twice) = numbers.iter().find(|number| !seen.insert(**number)) {
            let why = format!("several tasks have the global rank {twice}");
            let advice = "number the files by task";
            return Err(Failure::new(Code::Failure, self.path.display(), why, advice));
        }
        Ok(numbers)
    }

    fn keys(
        &self,
        beside: &Beside,
        task: usize,
        name: &OsString,
        progress: &Progress,
    ) -> Result<Vec<OsString>, Failure> {
        let mut records = records(&self.reader, self.path, task)?;
        let mut names = Vec::new();
        for key in records.keys().to_vec() {
            let mut name = name.clone();
            // The original prints keys as signed numbers.
            name.push(format!("_{:012}", signed(key)));
            let len = records.stat(key).map_or(0, |stat| stat.len);
            let from = Keyed(&mut records, key);
            self.one(beside, &name, Stream { task, from, len }, progress)?;
            names.push(name);
        }
        Ok(names)
    }

    fn one(
        &self,
        beside: &Beside,
        name: &OsString,
        stream: Stream<impl io::Read>,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let Stream { task, mut from, len } = stream;
        beside.check(name)?;
        let path = beside.path(name);
        let file = File::create_new(&path).map_err(|why| file_failure(&path, &why))?;
        let target = Target { file: &file, path: &path, at: 0 };
        target.take(&mut from, len, progress, |why| stream_failure(self.path, task, why))
    }
}

/// The bytes of one file.
struct Stream<R> {
    task: usize,
    from: R,
    len: u64,
}

/// Everything under one key.
struct Keyed<'a>(&'a mut Records<File>, u64);

impl io::Read for Keyed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.read(self.1, buf)?)
    }
}

/// The folder a prefix names, and what the names in it begin with.
fn parts(prefix: &OsString) -> (PathBuf, OsString) {
    let bytes = prefix.as_bytes();
    let base = bytes.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let parent = bytes.strip_suffix(base).unwrap_or_default();
    (OsString::from_vec(parent.to_vec()).into(), OsString::from_vec(base.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_may_name_a_folder() {
        let of = |text: &str| {
            let (parent, base) = parts(&text.into());
            (parent.display().to_string(), base.to_str().expect("UTF-8").to_owned())
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(of("a"), pair("", "a"));
        assert_eq!(of("dir/a."), pair("dir/", "a."));
        assert_eq!(of("dir/"), pair("dir/", ""));
        assert_eq!(of("/a"), pair("/", "a"));
    }
}
