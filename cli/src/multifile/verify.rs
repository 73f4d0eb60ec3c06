//! `kakehi multifile verify`: reads everything and says what is not as it should be.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use multifile::{Error, Reader, catalogue::TASK};
use serde::Serialize;

use super::{
    copy::in_parallel, held_failure, names::are_damaged, open, progress::Progress, stream_len,
    total_len,
};
use crate::{
    failure::{Code, Failure},
    output,
    plain::without_numbers,
    report,
    size::Size,
};

/// Reads every byte of every task and compares checksums where there are any.
///
/// Exit status: 0 when all is well; 4 when something is damaged or was never closed; 1 when a file
/// could not be read.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The multifile, or the first file of a set.
    file: PathBuf,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Verdict {
    file: String,
    ok: bool,
    tasks: usize,
    bytes: u64,
    checksums: bool,
    damage: Vec<Damage>,
}

#[derive(Serialize)]
struct Damage {
    task: usize,
    why: String,
}

pub(crate) fn verify(args: &Args) -> Result<(), Failure> {
    let reader = open(&args.file)?;
    reader.check().map_err(|why| held_failure(&args.file, why))?;
    let progress = Progress::new("verify", total_len(&reader));
    let damage = in_parallel(0..reader.task_count(), |task| {
        match check(&reader, task, &progress)? {
            Ok(()) if task == TASK && are_damaged(&reader, &args.file) => {
                let why = "the names of files in it are damaged".to_owned();
                Ok(Some(Damage { task, why }))
            }
            Ok(()) => Ok(None),
            // A file that cannot be read says nothing about its data.
            Err(why @ Error::Io { .. }) => Err(super::task_failure(&args.file, task, why)),
            Err(why) => Ok(Some(Damage { task, why: why.to_string() })),
        }
    })?;
    drop(progress);
    let mut damage: Vec<_> = damage.into_iter().flatten().collect();
    damage.sort_unstable_by_key(|found| found.task);
    let verdict = Verdict {
        file: args.file.display().to_string(),
        ok: damage.is_empty(),
        tasks: reader.task_count(),
        bytes: total_len(&reader),
        checksums: reader.has_checksums(),
        damage,
    };
    output::show(args.json, &verdict, || text(&verdict))?;
    judge(&args.file, &verdict)
}

/// Reads one task; the outer error ends the whole.
fn check(
    reader: &Reader<File>,
    task: usize,
    progress: &Progress,
) -> Result<multifile::Result<()>, Failure> {
    let checked = reader.verify(task);
    let checked = match checked {
        Ok(true) => progress.advance(stream_len(reader, task)).map(|()| Ok(()))?,
        Ok(false) => read(reader, task, progress)?,
        Err(why) => Err(why),
    };
    Ok(checked.and_then(|()| records(reader, task)))
}

fn read(
    reader: &Reader<File>,
    task: usize,
    progress: &Progress,
) -> Result<multifile::Result<()>, Failure> {
    let mut stream = match reader.stream(task) {
        Ok(stream) => stream,
        Err(why) => return Ok(Err(why)),
    };
    let len = usize::try_from(stream.cursor().total().clamp(1, 1 << 20)).unwrap_or(1);
    let mut buffer = vec![0; len];
    loop {
        let skipped = stream.skip_hole();
        match skipped.and_then(|hole_len| Ok(hole_len + stream.read(&mut buffer)? as u64)) {
            Ok(0) => return Ok(Ok(())),
            Ok(len) => progress.advance(len)?,
            Err(why) => return Ok(Err(why)),
        }
    }
}

/// Reads the records of a task, if the multifile has any.
pub(super) fn records(reader: &Reader<File>, task: usize) -> multifile::Result<()> {
    if reader.has_records() { reader.records(task).map(drop) } else { Ok(()) }
}

fn text(verdict: &Verdict) -> String {
    let Verdict { file, tasks, bytes, .. } = verdict;
    let mut text = String::new();
    for Damage { task, why } in &verdict.damage {
        text += &without_numbers(&format!("{file}: task {task}: {why}\n"));
    }
    if verdict.ok {
        let checksums = if verdict.checksums { "all checksums match" } else { "no checksums" };
        let (tasks, bytes) = (report::count(*tasks, "task", "s"), Size(*bytes).approximate());
        text += &format!("{file}: ok: {tasks}, {bytes}, {checksums}\n");
    }
    text
}

fn judge(path: &Path, verdict: &Verdict) -> Result<(), Failure> {
    if verdict.ok {
        return Ok(());
    }
    let of = report::count(verdict.tasks, "task", "s");
    let why = format!("damage in {} of {of}", verdict.damage.len());
    let advice = "the other tasks can be read with 'kakehi multifile cat --task N'";
    Err(Failure::new(Code::Damaged, path.display(), why, advice))
}
