//! `kakehi multifile repair`: makes a multifile readable whose writers died.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use multifile::{
    Disk, Doubt, Error, Part as Element, Repair,
    catalogue::TASK,
    name::{journal, physical},
    storage::File as _,
};
use serde::Serialize;

use super::{
    beside::Beside,
    copy::{Target, in_parallel, input_failure},
    damage::differs,
    file_failure, held_failure, in_use, is_empty,
    names::{are_damaged, rewrite},
    open,
    progress::Progress,
    verify::records,
};
use crate::{
    failure::{Code, Failure},
    output, report,
    size::Size,
};

/// Completes a multifile that was never closed, to the last completed write of every task, and
/// names tasks that lost data or may have.
///
/// Data is not changed: repair appends what closing would have written, with --output to a copy. In
/// a closed multifile it rewrites only fields that the other parts prove; if they contradict each
/// other, or the end is cut off, it changes nothing, and --output saves what is left. Exit status:
/// 0 when 'verify' calls the result ok; 4 when a task is in doubt, cut off, or differs from its
/// checksum.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The multifile, or the first file of a set.
    file: PathBuf,
    /// Says what would be done, and changes nothing.
    #[arg(long, conflicts_with = "output")]
    dry_run: bool,
    /// Leaves the file as it is and repairs a copy.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replaces the file of --output.
    #[arg(long, requires = "output")]
    force: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// The doubt in data that differs from its checksum,
const CHECKSUM: &str = "checksum";
/// in a task whose last bytes may have been cut off,
const CUT: &str = "cut";
/// and in one about which the parts of a closed file contradict each other.
const CONTRADICTION: &str = "contradiction";
/// Names of files that are lost, in the task that holds them.
const NAMES: &str = "names";
/// Tasks that are named to people.
const SHOWN: usize = 20;

#[derive(Serialize)]
struct Found {
    file: String,
    needed: bool,
    done: bool,
    /// It was closed, and is left alone without --output.
    in_doubt: bool,
    /// A closed file had some, and they are not readable any more.
    checksums_lost: bool,
    /// Of a copy whose names were rewritten without lost ones: tasks with data and no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks_without_name: Option<Vec<usize>>,
    tasks: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    task: usize,
    physical_file: u32,
    local_rank: u32,
    global_rank: i64,
    bytes: u64,
    /// `none`, `zeros`, `gap`, `checksum`, `names`, `cut`, or `contradiction`.
    doubt: &'static str,
    /// Left out behind a gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_lost: Option<u64>,
    /// Largest length possible, where it is in doubt and has a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_at_most: Option<u64>,
}

pub(crate) fn repair(args: &Args) -> Result<(), Failure> {
    let in_place = !args.dry_run && args.output.is_none();
    let _held = hold(&args.file, in_place)?;
    let found = examine(&args.file)?;
    let others = 1..u32::try_from(found.file_count()).unwrap_or(0);
    let others = others.map(|number| hold(&physical(&args.file, number), in_place));
    let _others_held = others.collect::<Result<Vec<_>, _>>()?;
    let mut rows = rows(&found);
    let (mut needed, checksums_lost) = (found.needed(), found.loses_checksums());
    let in_doubt = found.is_in_doubt();
    let mut done = needed && !args.dry_run && !(in_place && in_doubt);
    let mut tasks_without_name = None;
    match &args.output {
        Some(output) => tasks_without_name = repair_copy(args, output, found.file_count())?,
        None if done => found.apply().map_err(|why| held_failure(&args.file, why))?,
        None => {}
    }
    if done || !needed {
        compare(args.output.as_ref().unwrap_or(&args.file), &mut rows)?;
    }
    if tasks_without_name.is_some() {
        (needed, done) = (true, true);
        rows.iter_mut().filter(|row| row.task == TASK).for_each(|row| row.doubt = NAMES);
    }
    let file = args.output.as_ref().unwrap_or(&args.file).display().to_string();
    let report =
        Found { file, needed, done, in_doubt, checksums_lost, tasks_without_name, tasks: rows };
    output::show(args.json, &report, || text(&report))?;
    judge(&report)
}

/// Keeps daemons from writing a multifile, and others from repairing it `in_place`; one that does
/// so already, or a program, is the reason why it is not closed.
fn hold(path: &Path, in_place: bool) -> Result<File, Failure> {
    // Network file systems lend no exclusive lock to who may only read.
    let writable = File::options().read(true).write(in_place).open(path);
    let is_exclusive = in_place && writable.is_ok();
    let file = writable.or_else(|_| File::open(path)).map_err(|why| file_failure(path, &why))?;
    in_use(path, &file, is_exclusive).map_or(Ok(file), Err)
}

/// Compares what is there with all that `verify` does; tasks that it would name are in doubt.
fn compare(path: &Path, rows: &mut [Row]) -> Result<(), Failure> {
    let reader = open(path)?;
    reader.check().map_err(|why| held_failure(path, why))?;
    let damaged = in_parallel(0..reader.task_count(), |task| {
        let is_damaged = differs(&reader, path, task)? || records(&reader, task).is_err();
        let has_lost_names = || task == TASK && are_damaged(&reader, path);
        let doubt = if is_damaged { Some(CHECKSUM) } else { has_lost_names().then_some(NAMES) };
        Ok(doubt.map(|doubt| (task, doubt)))
    })?;
    let damaged: HashMap<_, _> = damaged.into_iter().flatten().collect();
    for row in rows {
        row.doubt = damaged.get(&row.task).copied().unwrap_or(row.doubt);
    }
    Ok(())
}

fn examine(path: &Path) -> Result<Repair<Disk>, Failure> {
    Repair::examine(&Disk::new(), path).map_err(|why| match why {
        // There is no better advice than this command, where there is any.
        Error::Damaged { part, .. } if part != Element::Magic && !is_empty(path) => {
            let advice = "it cannot be repaired: take it from another copy";
            Failure::new(Code::Damaged, path.display(), why, advice)
        }
        why => held_failure(path, why),
    })
}

/// Copies all physical files and journals, holes as holes, and repairs the copies.
/// Rewrites names without those that are lost, and returns the tasks that have none then.
fn repair_copy(
    args: &Args,
    output: &Path,
    file_count: usize,
) -> Result<Option<Vec<usize>>, Failure> {
    let members = (0u32..).take(file_count).map(|number| {
        let path = physical(&args.file, number);
        File::open(&path).map_err(|why| file_failure(&path, &why))
    });
    let members = members.collect::<Result<Vec<_>, _>>()?;
    let found = members.iter().filter_map(|file| file.metadata().ok());
    let (beside, name) = Beside::for_file(output, args.force, found)?;
    let made = beside.path(&name);
    let total = members.iter().filter_map(|file| file.metadata().ok()).map(|found| found.len());
    let progress = Progress::new("repair", total.sum()).stop_on_signals()?;
    for (number, from) in (0u32..).zip(&members) {
        let (old, new) = (physical(&args.file, number), physical(&made, number));
        copy_file(from, &old, &new, &progress).map_err(|why| beside.told(why))?;
        match fs::copy(journal(&old), journal(&new)) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                return Err(file_failure(&journal(&old), &why));
            }
            _ => {}
        }
    }
    drop(progress);
    examine(&made)?.salvage().map_err(|why| held_failure(output, why))?;
    let reader = open(&made).map_err(|why| beside.told(why))?;
    let has_lost_names = reader.task_count() > 0 && are_damaged(&reader, &made);
    let without_name = match has_lost_names.then(|| rewrite(&reader, &made)) {
        // Names that make no sense stay as they are.
        Some(Err(why)) if why.code == Code::Damaged => None,
        rewritten => rewritten.transpose().map_err(|why| beside.told(why))?.flatten(),
    };
    beside.publish()?;
    Ok(without_name)
}

fn copy_file(from: &File, old: &Path, new: &Path, progress: &Progress) -> Result<(), Failure> {
    let reading = |why: io::Error| file_failure(old, &why);
    let to = File::create_new(new).map_err(|why| file_failure(new, &why))?;
    let size = from.size().map_err(reading)?;
    to.set_len(size).map_err(|why| file_failure(new, &why))?;
    let mut at = 0;
    while let Some(range) = from.data_from(at).map_err(reading)? {
        progress.advance(range.start.saturating_sub(at))?;
        let mut part = Part { file: from, at: range.start };
        let target = Target { file: &to, path: new, at: range.start };
        target.take(&mut part, range.end - range.start, progress, |why| input_failure(old, why))?;
        at = range.end;
    }
    Ok(())
}

/// A file, read from a position on.
struct Part<'a> {
    file: &'a File,
    at: u64,
}

impl io::Read for Part<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buf, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

fn rows(found: &Repair<Disk>) -> Vec<Row> {
    let tasks = found.tasks().iter().enumerate().map(|(task, found)| {
        let (doubt, bytes_at_most) = match found.doubt {
            Doubt::None => ("none", None),
            Doubt::Zeros { most } => ("zeros", Some(most).filter(|most| *most < u64::MAX)),
            Doubt::Gap { .. } => ("gap", None),
            Doubt::Checksum => (CHECKSUM, None),
            Doubt::Cut => (CUT, None),
            Doubt::Contradiction => (CONTRADICTION, None),
        };
        let bytes_lost = match found.doubt {
            Doubt::Gap { lost } => Some(lost),
            _ => None,
        };
        Row {
            task,
            physical_file: found.task.file,
            local_rank: found.task.local_rank,
            global_rank: found.task.global_rank,
            bytes: found.len,
            doubt,
            bytes_lost,
            bytes_at_most,
        }
    });
    tasks.collect()
}

fn text(found: &Found) -> String {
    let Found { file, needed, done, in_doubt, checksums_lost, tasks, .. } = found;
    let doubtful: Vec<_> = tasks.iter().filter(|row| row.doubt != "none").collect();
    let is_damaged = |row: &&Row| [CHECKSUM, NAMES].contains(&row.doubt);
    let damaged = tasks.iter().filter(is_damaged).count();
    if !needed && damaged == 0 {
        let tasks = report::count(tasks.len(), "task", "s");
        return format!("{file}: nothing to repair, {tasks}, all whole\n");
    }
    let shown: Vec<_> = doubtful.iter().copied().filter(|row| *needed || is_damaged(row)).collect();
    let mut text: String = shown.iter().take(SHOWN).map(|row| line(file, row)).collect();
    if let Some(more) = shown.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        text += &format!("{file}: … and {more} more; --json has all\n");
    }
    if *checksums_lost && *done {
        text += &format!("{file}: checksums are lost: from now on nothing tells damaged data\n");
    }
    let verdict = match (needed, done) {
        (false, _) => "nothing that could be repaired",
        (true, false) if *in_doubt => "closed and in doubt, left alone",
        (true, false) => "can be repaired",
        (true, true) => "repaired",
    };
    let bytes = tasks.iter().fold(0, |sum: u64, row| sum.saturating_add(row.bytes));
    let count = report::count(tasks.len(), "task", "s");
    text += &format!("{file}: {verdict}: {count}, {}", Size(bytes).approximate());
    let of = |doubt: &str| shown.iter().filter(|row| row.doubt == doubt).count();
    let lost =
        tasks.iter().fold(0, |sum: u64, row| sum.saturating_add(row.bytes_lost.unwrap_or(0)));
    for (count, what) in [
        (of("gap"), format!("lost {}", Size(lost).approximate())),
        (of("zeros"), "may have ended in zeros".to_owned()),
        (of(CHECKSUM), "not as the checksum says".to_owned()),
        (of(NAMES), "with names that are lost".to_owned()),
        (of(CUT), "may be cut off".to_owned()),
        (of(CONTRADICTION), "in doubt".to_owned()),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text + "\n"
}

/// Says of a task what it has lost, or may have.
fn line(file: &str, row: &Row) -> String {
    let Row { task, bytes, doubt, bytes_at_most, bytes_lost, global_rank, .. } = row;
    let more = match (*doubt, bytes_at_most) {
        ("zeros", Some(most)) => format!(", or up to {most} if it ended in zeros"),
        ("zeros", None) => ", or more if it ended in zeros".to_owned(),
        ("gap", _) => {
            let lost = bytes_lost.unwrap_or(0);
            format!("; {lost} more are lost, for the journal has a gap before them")
        }
        (CHECKSUM, _) => ", which differ from their checksum".to_owned(),
        (NAMES, _) => ": names of files that are lost".to_owned(),
        (CONTRADICTION, _) => " at a guess: header, tables, and length contradict".to_owned(),
        (CUT, _) => ", and more may be cut off with the end of the file".to_owned(),
        _ => String::new(),
    };
    format!("{file}: task {task} (global rank {global_rank}): {bytes} bytes{more}\n")
}

fn judge(found: &Found) -> Result<(), Failure> {
    let of = |doubt: &str| found.tasks.iter().filter(|row| row.doubt == doubt).count();
    let (differing, cut) = (of(CHECKSUM), of(CUT));
    if differing > 0 {
        let tasks = report::count(differing, "task", "s");
        let why = format!("the data of {tasks} differs from its checksums");
        return Err(Failure::new(Code::Damaged, &found.file, why, "do not trust these tasks"));
    }
    if of(NAMES) > 0 {
        let why = "some of its names are damaged and lost";
        let advice = match found.tasks_without_name.as_deref() {
            None => "have the others by --output; 'kakehi multifile split' reads data by number",
            Some([]) => "the others are whole, and no data is without one",
            Some(_) => "the others are whole; read 'tasks_without_name' of --json by number",
        };
        return Err(Failure::new(Code::Damaged, &found.file, why, advice));
    }
    let doubtful = of(CONTRADICTION);
    if cut > 0 {
        let tasks = report::count(cut, "task", "s");
        let why = format!("it was closed and is cut short: {tasks} may have lost data");
        return Err(Failure::new(Code::Damaged, &found.file, why, advice(found)));
    }
    if doubtful > 0 || found.in_doubt && !found.done {
        let tasks = report::count(found.tasks.len(), "task", "s");
        let why = format!("it was closed and its parts disagree about {doubtful} of {tasks}");
        return Err(Failure::new(Code::Damaged, &found.file, why, advice(found)));
    }
    Ok(())
}

const fn advice(found: &Found) -> &'static str {
    if found.done {
        "take these tasks from another copy"
    } else {
        "take it from another copy, or have what is left by --output"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tasks_that_are_named_are_those_in_doubt_and_not_many() {
        let row = |task, bytes, doubt, bytes_lost| Row {
            task,
            physical_file: 0,
            local_rank: 0,
            global_rank: 0,
            bytes,
            doubt,
            bytes_lost,
            bytes_at_most: None,
        };
        let lines = |tasks| {
            let file = "f".to_owned();
            let found = Found {
                file,
                needed: true,
                done: true,
                in_doubt: false,
                checksums_lost: false,
                tasks_without_name: None,
                tasks,
            };
            text(&found).lines().map(ToOwned::to_owned).collect::<Vec<_>>()
        };
        let whole = (0..65_536).map(|task| row(task, 1024, "none", None));
        assert_eq!(lines(whole.collect()), ["f: repaired: 65536 tasks, 64MiB"]);
        let few = lines(vec![
            row(0, 5, "none", None),
            row(1, 6, "gap", Some(7)),
            row(2, 0, "zeros", None),
        ]);
        assert!(few[0].starts_with("f: task 1 ") && few[1].starts_with("f: task 2 "), "{few:?}");
        let end = ["f: repaired: 3 tasks, 11B, 1 lost 7B, 1 may have ended in zeros"];
        assert_eq!(few[2..], end);
        let many = lines((0..100).map(|task| row(task, 0, "zeros", None)).collect());
        assert!(many.len() == SHOWN + 2, "{many:?}");
        assert_eq!(many[SHOWN], "f: … and 80 more; --json has all");
    }
}
