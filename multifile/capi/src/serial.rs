//! All tasks of a multifile, or one of them, opened by one process.

use std::{ffi::c_int, fs, path::Path};

use libc::FILE;
use multifile::{NewTask, Reader, Style, TaskReader, Writer};

use crate::{
    arrays::{count, signed},
    error::{Failure, Result},
    export::export,
    files::Files,
    handle::{Body, Open},
    mode::{Kind, Mode},
    pointer::{Array, InOut, Text},
    reading::Reading,
    table,
    writing::{Sink, Writing},
};

fn create(
    path: &Path,
    mode: Mode,
    chunks: &[i64],
    ranks: &[c_int],
    file_count: c_int,
    block_len: i32,
) -> Result<Open> {
    if mode.buddies.is_some() {
        return Err(Failure::Mode("buddy copies are written by many ranks only"));
    }
    let requests = chunks.iter().map(|len| u64::try_from(*len));
    let requests: Vec<u64> = requests
        .collect::<Result<_, _>>()
        .map_err(|_| Failure::Argument("a chunk size is negative"))?;
    if ranks.iter().any(|rank| *rank < 0) {
        // Nobody would find it in a set: such are tasks that hold copies.
        return Err(Failure::Argument("a global rank is negative"));
    }
    let file_count = u32::try_from(file_count).unwrap_or(1).max(1);
    let mut tasks = NewTask::in_files(&requests, file_count);
    for (task, rank) in tasks.iter_mut().zip(ranks) {
        task.global_rank = i64::from(*rank);
    }
    let block_len = if block_len <= 0 { -1 } else { block_len };
    let task_count = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
    let options = mode.options(Style::Serial, block_len, task_count)?;
    let writer = Writer::create(&Files::default(), path, &tasks, &options)?;
    let writing = Writing::new(Sink::All(writer), tasks);
    Ok(Open::new(Kind::Serial, mode, Body::Write(Box::new(writing))))
}

fn read(path: &Path, mode: Mode) -> Result<Open> {
    let reader: Reader<fs::File> = match mode.buddies {
        Some(levels) => Reader::open_with_buddies(&Files::default(), path, levels)?,
        None => Reader::open(&Files::default(), path)?,
    };
    let body = Body::Read(Box::new(Reading::all(reader)?));
    Ok(Open::new(Kind::Serial, mode, body))
}

export! {
    fn sion_open(
        fname: Text<'_>,
        file_mode: Text<'_>,
        ntasks: InOut<'_, c_int>,
        nfiles: InOut<'_, c_int>,
        chunksizes: Array<'_, i64>,
        fsblksize: InOut<'_, i32>,
        globalranks: Array<'_, c_int>,
        fileptr: InOut<'_, *mut FILE>,
    ) -> c_int, or -1; {
        let (path, mode) = (fname.path()?, Mode::given(file_mode)?);
        let mut open = if mode.write == Some(true) {
            let tasks = ntasks.get().ok_or(Failure::Argument("ntasks is NULL"))?;
            let len = usize::try_from(tasks).map_err(|_| Failure::Argument("ntasks < 0"))?;
            // SAFETY: there is a chunk size for each of ntasks.
            let chunks = unsafe { chunksizes.values(len, "chunksizes is NULL") }?;
            // SAFETY: and a rank.
            let ranks = unsafe { globalranks.values(len, "globalranks is NULL") }?;
            let (files, block_len) = (nfiles.get().unwrap_or(1), fsblksize.get().unwrap_or(-1));
            create(&path, mode, chunks, ranks, files, block_len)?
        } else {
            read(&path, mode)?
        };
        let block_len = match &mut open.body {
            Body::Write(writing) => writing.fs_block_len(),
            Body::Read(reading) => {
                let tasks = (0..reading.task_count()).map(|task| reading.task(task));
                let tasks = tasks.collect::<Result<Vec<_>>>()?;
                let set = reading.set();
                ntasks.put(count(set.task_count));
                nfiles.put(count(set.file_count));
                let chunks: Vec<i64> = tasks.iter().map(|task| signed(task.chunk_len)).collect();
                // SAFETY: arrays of the caller have room for all tasks.
                unsafe { chunksizes.give(&chunks) }?;
                let ranks: Vec<_> = tasks.iter().map(|task| count(task.global_rank)).collect();
                // SAFETY: the same.
                unsafe { globalranks.give(&ranks) }?;
                set.fs_block_len
            }
        };
        fsblksize.put(count(block_len));
        open.export_to(fileptr)?;
        table::insert(open)
    }

    fn sion_open_rank(
        fname: Text<'_>,
        file_mode: Text<'_>,
        chunksize: InOut<'_, i64>,
        fsblksize: InOut<'_, i32>,
        rank: InOut<'_, c_int>,
        fileptr: InOut<'_, *mut FILE>,
    ) -> c_int, or -1; {
        let (path, mode) = (fname.path()?, Mode::given(file_mode)?);
        if mode.write == Some(true) {
            return Err(Failure::Mode("sion_open_rank only reads"));
        }
        let rank = rank.get().ok_or(Failure::Argument("rank is NULL"))?;
        let task = u32::try_from(rank).map_err(|_| Failure::Argument("rank < 0"))?;
        let (stream, header, task) = TaskReader::open(&Files::default(), &path, task)?;
        let reading = Reading::one(stream, &header, task)?;
        let task = reading.task(0)?;
        chunksize.put(signed(task.chunk_len));
        fsblksize.put(count(reading.set().fs_block_len));
        let mut open = Open::new(Kind::Rank, mode, Body::Read(Box::new(reading)));
        open.rank = Some(rank);
        open.export_to(fileptr)?;
        table::insert(open)
    }

    pub(crate) fn sion_close(sid: c_int) -> c_int, or 0; {
        let serial = |open: &Open| matches!(open.kind, Kind::Serial | Kind::Rank);
        let Open { body, .. } = table::remove(sid, serial)?;
        if let Body::Write(mut writing) = body {
            // A file that lacks what its stream could not hand over stays unclosed.
            writing.settle()?;
            match writing.sink {
                Sink::All(writer) => writer.close()?,
                _ => return Err(multifile::Error::Poisoned.into()),
            }
        }
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn tasks_that_nobody_would_find_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sion");
        let made = |ranks: &[c_int], chunks: &[i64]| {
            create(&path, Mode::parse("bw", &Config::default()), chunks, ranks, 2, -1).is_ok()
        };
        assert!(!made(&[0, -1], &[64; 2]) && !made(&[0, 1], &[64, -1]));
        assert!(!path.exists());
        assert!(made(&[0, 1], &[64; 2]));
    }
}
