//! Opening, closing, and placing anew by many ranks together, for every way to communicate.
//!
//! Whatever is wrong on one rank only travels to all of them, so that none waits for another. What
//! is wrong with the mode string is not exchanged: it decides what is exchanged, and is the same
//! everywhere.

use std::{
    ffi::{c_char, c_int, c_void},
    fs,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
};

use libc::FILE;
use multifile::{
    Argument, Error, Group, NewTask, Options, Packing, ParReader, ParWriter, Storage, Style,
    parallel::{BuddyWriter, LocalTask, NewSet, Seat},
};

use crate::{
    arrays::{count, signed},
    error::{Failure, Result},
    export::export,
    files::Files,
    group::{Barrier, Place, Ranks, Table},
    handle::{Body, Merging, Open, Team},
    mode::{Kind, Mode},
    pointer::{Given, InOut, Text, new_text},
    reading::Reading,
    stream::Streams,
    table,
    writing::{Sink, Writing},
};

/// Where the answers of an open go; null where nobody asks.
pub(crate) struct Answer<'a> {
    /// In and out, as `fsblksize`.
    pub(crate) chunksize: InOut<'a, i64>,
    pub(crate) fsblksize: InOut<'a, i32>,
    pub(crate) globalrank: InOut<'a, c_int>,
    pub(crate) fileptr: InOut<'a, *mut FILE>,
    pub(crate) newfname: InOut<'a, *mut c_char>,
}

/// The strings that a program opens with.
#[derive(Clone, Copy)]
pub(crate) struct Strings<'a> {
    pub(crate) fname: Text<'a>,
    pub(crate) mode: Text<'a>,
}

/// The name and the mode as this rank gave them; an empty name if it gave none.
pub(crate) fn names(strings: Strings<'_>) -> Result<(PathBuf, Mode)> {
    let mode = Mode::given(strings.mode)?;
    if mode.write.is_none() {
        return Err(Failure::Mode("the mode says neither read nor write"));
    }
    // A rank without a name takes part in refusing the empty one.
    Ok((strings.fname.path().unwrap_or_default(), mode))
}

/// Opens a multifile for one task of each rank, and says where that is. A rank is asked for a
/// `place` to write, and to read buddy copies on other nodes; what the answers point to is looked
/// at to write.
pub(crate) fn open(
    ranks: Ranks,
    files: Files,
    strings: Strings<'_>,
    place: impl FnOnce() -> Place,
    answer: &Answer<'_>,
) -> Result<(Open, Place)> {
    let (path, mode) = names(strings)?;
    let stream = !answer.fileptr.is_null() && !mode.posix;
    let (mut open, place) = if mode.write == Some(true) {
        let fs_block_len = answer.fsblksize.get().unwrap_or(-1);
        // Absent or negative, it becomes one that is too large, which all ranks refuse together.
        let chunk_len = answer.chunksize.get().unwrap_or(-1).try_into().unwrap_or(u64::MAX);
        let place = place();
        let asked = Asked { place, chunk_len, fs_block_len, stream };
        (write(ranks, files, path, mode, &asked)?, place)
    } else {
        read(ranks, files, path, mode, place, stream)?
    };
    let (block_len, chunk_len, rank) = described(&mut open)?;
    answer.fsblksize.put(block_len);
    if let Some(chunk_len) = chunk_len {
        answer.chunksize.put(chunk_len);
    }
    answer.globalrank.put(rank);
    open.export_to(answer.fileptr)?;
    if !answer.newfname.is_null() {
        let number = u32::try_from(place.file).unwrap_or(0);
        let team = open.team.as_ref().ok_or(Failure::Internal)?;
        let name = new_text(team.files.physical_name(&team.path, number).as_os_str().as_bytes())?;
        answer.newfname.put(name);
    }
    Ok((open, place))
}

/// File-system block size, the stored chunk size when reading, and the global rank.
pub(crate) fn described(open: &mut Open) -> Result<(i32, Option<i64>, c_int)> {
    match &mut open.body {
        Body::Write(writing) => {
            let rank = writing.tasks.first().map_or(-1, |task| count(task.global_rank));
            Ok((count(writing.fs_block_len()), None, rank))
        }
        Body::Read(reading) => {
            let len = count(reading.set().fs_block_len);
            if reading.task_count() == 0 {
                return Ok((len, Some(0), -1));
            }
            let task = reading.task(0)?;
            Ok((len, Some(signed(task.chunk_len)), count(task.global_rank)))
        }
    }
}

/// The task that a rank wants to write.
struct Asked {
    place: Place,
    chunk_len: u64,
    /// Negative: as the file system has it.
    fs_block_len: i32,
    /// True if the program gets a stream.
    stream: bool,
}

fn write(ranks: Ranks, files: Files, path: PathBuf, mode: Mode, asked: &Asked) -> Result<Open> {
    let Asked { place, chunk_len, fs_block_len, stream } = *asked;
    let task_count = ranks.size();
    let mut options = mode.options(Style::Parallel, fs_block_len, task_count)?;
    options.team = ranks.team();
    options.apart = ranks.are_apart() && mode.buddies.is_none_or(|_| place.file_count > 1);
    let valid = (0..place.local_size).contains(&place.local_rank)
        && (0..place.file_count).contains(&place.file)
        && i64::try_from(chunk_len).is_ok();
    let task = NewTask {
        file: u32::try_from(place.file).unwrap_or(0),
        local_rank: u32::try_from(place.local_rank).unwrap_or(0),
        global_rank: i64::from(ranks.rank()),
        chunk_len,
    };
    let asked = if valid { Ok(task) } else { Err(Argument::Mapping.into()) };
    let mut streams = Streams::default();
    let prepare = |number, file: &fs::File| streams.prepare(number, file, stream, true);
    let (sink, merging) = if let Some(levels) = mode.buddies {
        let set = NewSet { storage: &files, path: &path, options: &options };
        (Sink::Copies(copies(&ranks, set, levels, asked, prepare)?), None)
    } else {
        let writer = ParWriter::create_with(&ranks, &files, &path, asked, &options, prepare)?;
        // Now that all ranks know that all of them are here.
        (Sink::Own(writer), merging(&ranks, &options, place)?)
    };
    let body = Body::Write(Box::new(Writing::with(sink, vec![task], streams)?));
    let mut open = Open::new(Kind::Parallel, mode, body);
    open.file_count = Some(place.file_count);
    open.team = Some(Team { ranks, merging, files, path, options: Some(options) });
    Ok(open)
}

/// A set with buddy copies: on the nodes of its ranks if their files are, and they can be split.
fn copies(
    ranks: &Ranks,
    set: NewSet<'_, Files>,
    levels: u32,
    task: Result<NewTask, Error>,
    prepare: impl FnMut(u32, &fs::File) -> Result<(), Error>,
) -> Result<BuddyWriter<Files>, Error> {
    if set.options.apart && ranks.can_split() {
        let split = |part| ranks.part(part);
        return BuddyWriter::create_apart(ranks, set, levels, task, &split, prepare);
    }
    let options = Options { apart: false, ..set.options.clone() };
    BuddyWriter::create_with(ranks, NewSet { options: &options, ..set }, levels, task, prepare)
}

/// With whom this rank merges its data, if it does.
fn merging(ranks: &Ranks, options: &Options, place: Place) -> Result<Option<Merging>, Error> {
    match options.packing {
        Packing::Merge { .. } if place.file_count == 1 => Ok(Some(Merging::All)),
        Packing::Merge { .. } => ranks.split(place).map(|part| Some(Merging::Some(part))),
        _ => Ok(None),
    }
}

fn read(
    ranks: Ranks,
    files: Files,
    path: PathBuf,
    mode: Mode,
    place: impl FnOnce() -> Place,
    stream: bool,
) -> Result<(Open, Place)> {
    let mut streams = Streams::default();
    let prepare = |tasks: &[LocalTask<fs::File>]| streams.prepare_first(tasks, stream);
    let reader = match mode.buddies {
        Some(levels) if ranks.are_apart() && ranks.can_split() => {
            let place = place();
            let seat = Seat {
                file: u32::try_from(place.file).unwrap_or(0),
                file_count: u32::try_from(place.file_count).unwrap_or(0),
                local_rank: u32::try_from(place.local_rank).unwrap_or(0),
                team: ranks.team(),
                split: &|part| ranks.part(part),
            };
            ParReader::open_with_buddies_apart(&ranks, &files, &path, levels, &seat, prepare)?
        }
        Some(levels) => ParReader::open_with_buddies(&ranks, &files, &path, levels, prepare)?,
        None if ranks.has_spoken() => ParReader::open_by_each(&ranks, &files, &path, prepare)?,
        None => ParReader::open_with(&ranks, &files, &path, prepare)?,
    };
    let first = reader.tasks().first().map(|local| local.task);
    let place = Place {
        file: first.map_or(0, |task| count(task.file)),
        file_count: count(reader.set().file_count),
        local_rank: first.map_or(-1, |task| count(task.local_rank)),
        local_size: -1,
    };
    let body = Body::Read(Box::new(Reading::own(&reader, Kind::Parallel, streams)?));
    let mut open = Open::new(Kind::Parallel, mode, body);
    open.team = Some(Team { ranks, merging: None, files, path, options: None });
    Ok((open, place))
}

/// Closes a handle that was opened in parallel, together with all ranks.
pub(crate) fn close(sid: c_int) -> Result<c_int> {
    let parallel = |open: &Open| matches!(open.kind, Kind::Parallel | Kind::Mapped);
    let Open { body, team, .. } = table::remove(sid, parallel)?;
    let Some(Team { ranks, .. }) = team else { return Err(Failure::Internal) };
    match body {
        Body::Read(_) => {}
        Body::Write(mut writing) => {
            // What a stream could not hand over is missing: then the file is closed for nobody.
            let settled = writing.settle().map_err(Failure::shared);
            match writing.sink {
                Sink::Own(writer) => writer.close_after(&ranks, settled)?,
                Sink::Copies(writer) => {
                    writer.close(&ranks)?;
                    settled?;
                }
                Sink::All(_) | Sink::Gone => return Err(Error::Poisoned.into()),
            }
        }
    }
    Ok(1)
}

/// Creates the multifile anew with another chunk size for this rank.
pub(crate) fn reinit(sid: c_int, chunk_len: i64) -> Result<c_int> {
    table::with(sid, |open| {
        if open.kind != Kind::Parallel {
            return Err(Failure::Handle);
        }
        let Some(Team { ranks, files, path, options: Some(options), .. }) = &open.team else {
            return Err(Failure::Mode("only a file opened for writing can be placed anew"));
        };
        let Body::Write(writing) = &mut open.body else { return Err(Failure::Handle) };
        let task = *writing.tasks.first().ok_or(Argument::Task)?;
        let task = NewTask { chunk_len: u64::try_from(chunk_len).unwrap_or(u64::MAX), ..task };
        // What waits in the program's stream would else go to a place in the new file.
        let settled = writing.settle();
        writing.sink = Sink::Gone;
        // Nobody may still hand over old bytes when the first rank creates the file anew.
        ranks.barrier()?;
        writing.sink = match open.mode.buddies {
            Some(levels) => {
                let set = NewSet { storage: files, path, options };
                Sink::Copies(copies(ranks, set, levels, Ok(task), |_, _| Ok(()))?)
            }
            None => Sink::Own(ParWriter::create(ranks, files, path, task, options)?),
        };
        writing.tasks = vec![task];
        settled?;
        writing.place()?;
        Ok(1)
    })
}

/// Which file a rank's task goes to when consecutive ranks share one; the last file takes the rest.
fn cut(rank: c_int, size: c_int, file_count: c_int) -> Place {
    let file_count = file_count.clamp(1, size.max(1));
    let group = (size / file_count).max(1);
    let file = (rank / group).min(file_count - 1);
    let local_size = if file + 1 == file_count { size - file * group } else { group };
    Place { file, file_count, local_rank: rank - file * group, local_size }
}

export! {
    fn sion_group_paropen(
        group: Given<'_, Table>,
        fname: Text<'_>,
        file_mode: Text<'_>,
        place: InOut<'_, Place>,
        chunksize: InOut<'_, i64>,
        fsblksize: InOut<'_, i32>,
        globalrank: InOut<'_, c_int>,
        fileptr: InOut<'_, *mut FILE>,
        newfname: InOut<'_, *mut c_char>,
    ) -> c_int, or -1; {
        let group = group.get().ok_or(Failure::Argument("the group is NULL"))?;
        // SAFETY: the program promises functions that keep their contract.
        let ranks = unsafe { Ranks::new(group) }?;
        let nowhere = Place { file: -1, file_count: 0, local_rank: -1, local_size: 0 };
        let asked = || place.get().unwrap_or(nowhere);
        let answer = Answer { chunksize, fsblksize, globalrank, fileptr, newfname };
        let files = Files::default();
        let strings = Strings { fname, mode: file_mode };
        let (open, at) = open(ranks, files, strings, asked, &answer)?;
        place.put(at);
        table::insert(open)
    }

    fn sion_group_parreinit(sid: c_int, chunksize: i64) -> c_int, or 0; {
        reinit(sid, chunksize)
    }

    fn sion_group_parclose(sid: c_int) -> c_int, or 0; {
        close(sid)
    }

    fn sion_group_of(sid: c_int, rank: InOut<'_, c_int>, size: InOut<'_, c_int>) -> c_int, or 0; {
        let (found, of) = table::with(sid, |open| {
            let team = open.team.as_ref().ok_or(Failure::Handle)?;
            Ok((count(team.ranks.rank()), count(team.ranks.size())))
        })?;
        rank.put(found);
        size.put(of);
        Ok(1)
    }

    fn sion_group_context(sid: c_int, barrier: Option<Barrier>) -> *mut c_void,
        or std::ptr::null_mut();
    {
        let barrier = barrier.ok_or(Failure::Argument("the barrier is NULL"))?;
        table::with(sid, |open| {
            let team = open.team.as_ref().ok_or(Failure::Handle)?;
            team.ranks.context(barrier).ok_or(Failure::Handle)
        })
    }

    fn sion_group_cut(rank: c_int, size: c_int, numfiles: c_int) -> Place,
        or Place { file: 0, file_count: 1, local_rank: 0, local_size: 1 };
    {
        Ok(cut(rank, size, numfiles))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_file_takes_the_remaining_ranks() {
        let places: Vec<_> = (0..7)
            .map(|rank| cut(rank, 7, 3))
            .map(|place| (place.file, place.local_rank, place.local_size))
            .collect();
        let expected =
            [(0, 0, 2), (0, 1, 2), (1, 0, 2), (1, 1, 2), (2, 0, 3), (2, 1, 3), (2, 2, 3)];
        assert_eq!(places, expected);
        assert_eq!(cut(1, 2, 9).file_count, 2);
    }
}
