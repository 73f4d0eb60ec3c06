//! Opening with any number of tasks on each rank, described by arrays.

use std::{
    ffi::{c_char, c_int},
    fs,
};

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
    pointer::{answer, give, take, values_mut},
    reading::Reading,
    stream::Streams,
    table,
    writing::{Sink, Writing},
};

/// The arrays that describe the tasks of one rank.
pub(crate) struct Mapped {
    pub(crate) numfiles: *mut c_int,
    pub(crate) nlocaltasks: *mut c_int,
    pub(crate) globalranks: *mut *mut c_int,
    pub(crate) chunksizes: *mut *mut i64,
    pub(crate) mapping_filenrs: *mut *mut c_int,
    pub(crate) mapping_lranks: *mut *mut c_int,
}

/// Opens a multifile for any number of tasks of each rank.
///
/// # Safety
///
/// All pointers are null or valid, names are C strings; arrays are null or as long as
/// `*nlocaltasks` says.
pub(crate) unsafe fn open(
    ranks: Ranks,
    files: Files,
    strings: Strings,
    tasks: &Mapped,
    fsblksize: *mut i32,
    fileptr: *mut *mut FILE,
) -> Result<Open> {
    // SAFETY: the caller's promise.
    let (path, mode) = unsafe { names(strings) }?;
    // SAFETY: the caller's promise.
    let asked = unsafe { take(tasks.nlocaltasks, "") }.unwrap_or(-1);
    let (stream, mut streams) = (!fileptr.is_null() && !mode.posix, Streams::default());
    let body = if mode.write == Some(true) {
        // SAFETY: the caller's promise.
        let fs_block_len = unsafe { take(fsblksize, "") }.unwrap_or(-1);
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
        answer! { fsblksize => block_len }
    }
    if !fileptr.is_null() {
        let stream = open.export()?;
        answer! { fileptr => stream }
    }
    Ok(open)
}

impl Mapped {
    /// The tasks that the arrays describe.
    ///
    /// # Safety
    ///
    /// As [`open`].
    unsafe fn new_tasks(&self, asked: c_int) -> Result<Vec<NewTask>> {
        // SAFETY: the caller's promise, here and below.
        let ranks = unsafe { array(self.globalranks, asked) }?;
        // SAFETY: as above.
        let chunks = unsafe { array(self.chunksizes, asked) }?;
        // SAFETY: as above.
        let files = unsafe { array(self.mapping_filenrs, asked) }?;
        // SAFETY: as above.
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
        answer! {
            self.numfiles => count(reading.set().file_count),
            self.nlocaltasks => count(tasks.len()),
        }
        let chunks: Vec<i64> = tasks.iter().map(|task| signed(task.chunk_len)).collect();
        let numbers = |number: fn(&multifile::Task) -> c_int| -> Vec<c_int> {
            tasks.iter().map(number).collect()
        };
        if asked < 0 {
            // SAFETY: as above.
            unsafe { give(self.globalranks, &numbers(|task| count(task.global_rank))) }?;
        }
        // SAFETY: as above.
        unsafe { describe_one(self.chunksizes, &chunks, asked) }?;
        // SAFETY: as above.
        unsafe { describe_one(self.mapping_filenrs, &numbers(|task| count(task.file)), asked) }?;
        // SAFETY: as above.
        unsafe { describe_one(self.mapping_lranks, &numbers(|task| count(task.local_rank)), asked) }
    }
}

/// As [`give`], but leaves an array alone of which the caller did not say how long it is.
///
/// # Safety
///
/// As [`give`].
unsafe fn describe_one<T: Copy>(at: *mut *mut T, values: &[T], asked: c_int) -> Result<()> {
    // SAFETY: the caller's promise.
    let there = unsafe { take(at, "") }.is_ok_and(|array| !array.is_null());
    if there && asked < 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { give(at, values) }
}

/// The array of `len` values that `at` points to.
///
/// # Safety
///
/// `at` is null or points to null or to an array of that length.
unsafe fn array<'a, T: Copy>(at: *const *mut T, len: c_int) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: the caller's promise.
    let array = unsafe { take(at, "an array is NULL") }?;
    let len = usize::try_from(len).map_err(|_| Failure::Argument("a negative number of tasks"))?;
    // SAFETY: the caller's promise.
    Ok(unsafe { values_mut(array, len) }?)
}

export! {
    fn sion_group_paropen_mapped(
        group: *const Table,
        fname: *const c_char,
        file_mode: *const c_char,
        numfiles: *mut c_int,
        nlocaltasks: *mut c_int,
        globalranks: *mut *mut c_int,
        chunksizes: *mut *mut i64,
        mapping_filenrs: *mut *mut c_int,
        mapping_lranks: *mut *mut c_int,
        fsblksize: *mut i32,
        fileptr: *mut *mut FILE,
    ) -> c_int, or -1; {
        // SAFETY: pointers are null or valid, here and below.
        let group = unsafe { take(group, "the group is NULL") }?;
        // SAFETY: the program promises functions that keep their contract.
        let ranks = unsafe { Ranks::new(group) }?;
        let tasks = Mapped {
            numfiles, nlocaltasks, globalranks, chunksizes, mapping_filenrs, mapping_lranks,
        };
        let strings = Strings { fname, mode: file_mode };
        // SAFETY: as above, and arrays are as long as `*nlocaltasks` says.
        let open = unsafe {
            open(ranks, Files::default(), strings, &tasks, fsblksize, fileptr)
        }?;
        table::insert(open)
    }
}
