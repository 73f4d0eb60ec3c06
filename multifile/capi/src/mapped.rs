//! Opening with any number of tasks on each rank, described by arrays.

use std::{ffi::c_int, fs};

use libc::FILE;
use multifile::{Argument, Group, NewTask, ParReader, ParWriter, Style, parallel::LocalTask};

use crate::{
    arrays::{count, signed},
    error::{Failure, Result},
    export::export,
    files::Files,
    group::{Ranks, Table},
    handle::{Body, Open, Team},
    mode::Kind,
    parallel::{Strings, described, names},
    pointer::{Array, Given, InOut, Text},
    reading::Reading,
    stream::Streams,
    table,
    writing::{Sink, Writing},
};

/// The arrays that describe the tasks of one rank.
pub(crate) struct Mapped<'a> {
    pub(crate) numfiles: InOut<'a, c_int>,
    pub(crate) nlocaltasks: InOut<'a, c_int>,
    pub(crate) globalranks: Array<'a, c_int>,
    pub(crate) chunksizes: Array<'a, i64>,
    pub(crate) mapping_filenrs: Array<'a, c_int>,
    pub(crate) mapping_lranks: Array<'a, c_int>,
}

/// Opens a multifile for any number of tasks of each rank.
///
/// # Safety
///
/// Arrays are as long as `*nlocaltasks` says.
pub(crate) unsafe fn open(
    ranks: Ranks,
    files: Files,
    strings: Strings<'_>,
    tasks: &Mapped<'_>,
    fsblksize: InOut<'_, i32>,
    fileptr: InOut<'_, *mut FILE>,
) -> Result<Open> {
    let (path, mode) = names(strings)?;
    let asked = tasks.nlocaltasks.get().unwrap_or(-1);
    let (stream, mut streams) = (!fileptr.is_null() && !mode.posix, Streams::default());
    let body = if mode.write == Some(true) {
        let fs_block_len = fsblksize.get().unwrap_or(-1);
        let options = mode.options(Style::Mapped, fs_block_len, ranks.size())?;
        // SAFETY: the caller's promise.
        let new = unsafe { tasks.new_tasks(asked) }.map_err(|_| Argument::Mapping.into());
        let prepare = |number, file: &fs::File| streams.prepare(number, file, stream, true);
        let asked = new.clone();
        let writer =
            ParWriter::create_mapped_with(&ranks, &files, &path, asked, &options, prepare)?;
        let new = new?;
        Body::Write(Box::new(Writing::with(Sink::Own(writer), new, streams)?))
    } else {
        let prepare = |tasks: &[LocalTask<fs::File>]| streams.prepare_first(tasks, stream);
        let reader = if asked < 0 {
            ParReader::open_with(&ranks, &files, &path, prepare)?
        } else {
            // SAFETY: the caller's promise. One that is missing is refused by all: no set has such
            // a task.
            let wanted = unsafe { array(tasks.globalranks, asked) }.unwrap_or(&[-1]);
            let wanted: Vec<u32> =
                wanted.iter().map(|rank| u32::try_from(*rank).unwrap_or(u32::MAX)).collect();
            ParReader::open_mapped(&ranks, &files, &path, &wanted, prepare)?
        };
        let reading = Reading::own(&reader, Kind::Mapped, streams)?;
        // SAFETY: the caller's promise.
        unsafe { tasks.describe(&reading, asked) }?;
        Body::Read(Box::new(reading))
    };
    let mut open = Open::new(Kind::Mapped, mode, body);
    open.team = Some(Team { ranks, merging: None, files, path, options: None });
    let (block_len, ..) = described(&mut open)?;
    if block_len > 0 {
        fsblksize.put(block_len);
    }
    open.export_to(fileptr)?;
    Ok(open)
}

impl Mapped<'_> {
    /// The tasks that the arrays describe.
    ///
    /// # Safety
    ///
    /// As [`open`].
    unsafe fn new_tasks(&self, asked: c_int) -> Result<Vec<NewTask>> {
        // SAFETY: the caller's promise of all arrays, one of which this is.
        let ranks = unsafe { array(self.globalranks, asked) }?;
        // SAFETY: another of the arrays.
        let chunks = unsafe { array(self.chunksizes, asked) }?;
        // SAFETY: another of the arrays.
        let files = unsafe { array(self.mapping_filenrs, asked) }?;
        // SAFETY: another of the arrays.
        let locals = unsafe { array(self.mapping_lranks, asked) }?;
        let each = ranks.iter().zip(chunks.iter()).zip(files.iter().zip(locals.iter()));
        let tasks = each.map(|((rank, chunk_len), (file, local))| {
            let file = u32::try_from(*file).ok()?;
            let local_rank = u32::try_from(*local).ok()?;
            let chunk_len = u64::try_from(*chunk_len).ok()?;
            // Nobody would find one of a negative rank in a set: such are tasks that hold copies.
            let global_rank = i64::from(u32::try_from(*rank).ok()?);
            Some(NewTask { file, local_rank, global_rank, chunk_len })
        });
        tasks.collect::<Option<_>>().ok_or(Failure::Argument("a negative number in the arrays"))
    }

    /// Tells what this rank reads, in the caller's arrays or in new ones where it has none.
    ///
    /// # Safety
    ///
    /// As [`open`].
    unsafe fn describe(&self, reading: &Reading, asked: c_int) -> Result<()> {
        let tasks = (0..reading.task_count()).map(|index| reading.task(index));
        let tasks = tasks.collect::<Result<Vec<_>>>()?;
        self.numfiles.put(count(reading.set().file_count));
        self.nlocaltasks.put(count(tasks.len()));
        let chunks: Vec<i64> = tasks.iter().map(|task| signed(task.chunk_len)).collect();
        let numbers = |number: fn(&multifile::Task) -> c_int| -> Vec<c_int> {
            tasks.iter().map(number).collect()
        };
        if asked < 0 {
            // SAFETY: one that is there has room for all tasks of the set.
            unsafe { self.globalranks.give(&numbers(|task| count(task.global_rank))) }?;
        }
        // SAFETY: one value for each of the tasks asked for.
        unsafe { describe_one(self.chunksizes, &chunks, asked) }?;
        // SAFETY: the same.
        unsafe { describe_one(self.mapping_filenrs, &numbers(|task| count(task.file)), asked) }?;
        // SAFETY: the same.
        unsafe { describe_one(self.mapping_lranks, &numbers(|task| count(task.local_rank)), asked) }
    }
}

/// Hands `values` to the caller, but leaves an array alone whose length that did not say.
///
/// # Safety
///
/// As [`Array::give`], if the caller has said it.
unsafe fn describe_one<T: Copy>(array: Array<'_, T>, values: &[T], asked: c_int) -> Result<()> {
    if array.is_there() && asked < 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { array.give(values) }
}

/// The `len` values of an array.
///
/// # Safety
///
/// It is so long, if it is there.
unsafe fn array<T: Copy>(array: Array<'_, T>, len: c_int) -> Result<&[T]> {
    if len == 0 {
        return Ok(&[]);
    }
    let len = usize::try_from(len).map_err(|_| Failure::Argument("a negative number of tasks"))?;
    // SAFETY: the caller's promise.
    Ok(unsafe { array.values(len, "an array is NULL") }?)
}

export! {
    fn sion_group_paropen_mapped(
        group: Given<'_, Table>,
        fname: Text<'_>,
        file_mode: Text<'_>,
        numfiles: InOut<'_, c_int>,
        nlocaltasks: InOut<'_, c_int>,
        globalranks: Array<'_, c_int>,
        chunksizes: Array<'_, i64>,
        mapping_filenrs: Array<'_, c_int>,
        mapping_lranks: Array<'_, c_int>,
        fsblksize: InOut<'_, i32>,
        fileptr: InOut<'_, *mut FILE>,
    ) -> c_int, or -1; {
        let group = group.get().ok_or(Failure::Argument("the group is NULL"))?;
        // SAFETY: the program promises functions that keep their contract.
        let ranks = unsafe { Ranks::new(group) }?;
        let tasks = Mapped {
            numfiles, nlocaltasks, globalranks, chunksizes, mapping_filenrs, mapping_lranks,
        };
        let strings = Strings { fname, mode: file_mode };
        // SAFETY: arrays are as long as `*nlocaltasks` says.
        let open = unsafe {
            open(ranks, Files::default(), strings, &tasks, fsblksize, fileptr)
        }?;
        table::insert(open)
    }
}
